//! Plan -> a bar of memory and the meaning of each part of it.

use super::Bytes;
use super::one_line;
use super::page::{Available, Page, Tone, shortened};
use crate::hardware::Memory;
use crate::plan::{Plan, PlanMemory};

const CELLS: u64 = 60;

/// The most columns of a note.
const NOTE: usize = 63;

struct Slice {
    name: &'static str,
    bytes: u64,
    glyph: char,
    tone: Tone,
    note: String,
}

/// The memory that `plan` takes of what is available, with `how` as the source of that figure.
pub(super) fn lines(plan: &Plan, casts: u64, how: &str, page: &mut Page<'_>) {
    let slices = slices(plan, casts, how);
    let places = cells(&slices, plan);
    let end = (plan.total > plan.available).then(|| scaled(plan.available, plan.total));
    let mut bar = String::new();
    // The mark of the available memory is between cells, and a run of cells is painted at once.
    let end = end.map_or(places.len(), |end| end as usize);
    for (part, places) in [&places[..end], &places[end..]].into_iter().enumerate() {
        if part == 1 && !places.is_empty() {
            bar.push_str(&page.paint(Tone::Bad, '|'));
        }
        for run in places.chunk_by(|a, b| a == b) {
            let slice = &slices[run[0]];
            bar.push_str(&page.paint(slice.tone, slice.glyph.to_string().repeat(run.len())));
        }
    }
    let share = format!("{} of {}", Bytes(plan.total), Available(plan.available));
    page.painted_row(Tone::Label, "memory", &format!("{bar}  {share}"));
    for slice in slices.iter().filter(|slice| slice.bytes > 0) {
        let line =
            format!("{:<12}{:>10}  {}", slice.name, Bytes(slice.bytes), shortened(&one_line(slice.note.clone()), NOTE));
        page.painted_row(Tone::Label, "", &format!("{} {}", page.paint(slice.tone, slice.glyph), line.trim_end()));
    }
    if plan.place == PlanMemory::Gpu {
        let host = Bytes(plan.tokenizer.saturating_add(plan.process));
        page.row("", format_args!("beside it, in main memory: {host} and the mapped files"));
    }
}

fn slices(plan: &Plan, casts: u64, how: &str) -> Vec<Slice> {
    let each = Bytes(plan.kv_per_token.saturating_sub(plan.kv_per_token_windowed));
    let kv = format!("{} tokens in {}, {each} each", plan.context, plan.kv_dtype);
    let kv = match plan.kv_window {
        0 => kv,
        window => format!("{kv}, the last {window} {} more", Bytes(plan.kv_per_token_windowed)),
    };
    let kv = if plan.states > 0 { format!("{kv}, and states of {}", Bytes(plan.states)) } else { kv };
    let kv = if plan.sessions > 1 { format!("{} sessions of {kv}", plan.sessions) } else { kv };
    let more = plan.max_context > plan.context && plan.fits();
    let kv = match more {
        _ if plan.states > 0 => kv,
        true => format!("{kv}, as it grows; {} fit", plan.max_context),
        false => format!("{kv}; taken as the text grows"),
    };
    let note = match plan.place {
        PlanMemory::Main if plan.weights_resident > 0 => "the files, read into memory, computed on in place",
        PlanMemory::Main => "the mapped files, computed on in place",
        PlanMemory::Gpu | PlanMemory::Shared => "the stored bytes, uploaded",
    };
    let weights = format!("{note}; {casts} casts");
    let named = plan.weights().saturating_add(plan.kv_cache).saturating_add(plan.activations);
    let rest = [
        (plan.draft_name(), plan.draft()),
        ("vision", plan.vision_memory),
        ("adapters", plan.adapters),
        ("tokenizer", plan.tokenizer),
        ("process", plan.process),
        ("driver", plan.device_context),
    ];
    let counted = |name: &str| plan.place != PlanMemory::Gpu || name == "driver";
    let rest = rest.iter().filter(|(name, bytes)| *bytes > 0 && counted(name));
    let rest: Vec<String> = rest.map(|(name, bytes)| format!("{name} {}", Bytes(*bytes))).collect();
    let slice = |name, bytes, glyph, tone, note| Slice { name, bytes, glyph, tone, note };
    let mut slices = vec![
        slice("weights", plan.weights(), '█', Tone::Weights, weights),
        slice("KV cache", plan.kv_cache, '▓', Tone::Cache, kv),
        slice("activations", plan.activations, '▒', Tone::Activations, "buffers of the forward pass".into()),
        slice("the rest", plan.total.saturating_sub(named), '░', Tone::Rest, rest.join(", ")),
    ];
    let how = match plan.place {
        PlanMemory::Main => how,
        PlanMemory::Gpu => "on the GPU",
        PlanMemory::Shared => "shared by processor and GPU",
    };
    slices.push(match plan.available.checked_sub(plan.total) {
        Some(_) if plan.available == Memory::UNKNOWN => slice("free", 0, '·', Tone::Faint, how.into()),
        Some(free) => slice("free", free, '·', Tone::Faint, how.into()),
        None => slice("missing", plan.total - plan.available, '|', Tone::Missing, how.into()),
    });
    slices
}

/// Which slice each cell of the bar shows: boundaries between slices are rounded to the nearest cell.
fn cells(slices: &[Slice], plan: &Plan) -> Vec<usize> {
    let available = if plan.available == Memory::UNKNOWN { 0 } else { plan.available };
    let scale = plan.total.max(available).max(1);
    let (mut places, mut sum) = (Vec::new(), 0u64);
    let last = slices.len() - 1;
    for (index, slice) in slices[..last].iter().enumerate() {
        sum = sum.saturating_add(slice.bytes);
        places.resize(places.len().max(scaled(sum, scale) as usize), index);
    }
    places.resize(CELLS as usize, if plan.total > plan.available { last - 1 } else { last });
    places
}

/// The cell at which `bytes` out of `scale` end.
fn scaled(bytes: u64, scale: u64) -> u64 {
    let cell = (u128::from(bytes) * u128::from(CELLS) + u128::from(scale) / 2) / u128::from(scale.max(1));
    u64::try_from(cell).unwrap_or(CELLS).min(CELLS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(weights: u64, kv_cache: u64, available: u64) -> Plan {
        let mut plan = Plan::default();
        (plan.context, plan.max_context, plan.sessions, plan.kv_per_token) = (512, 512, 1, 1);
        (plan.weights_file, plan.load_peak, plan.kv_cache, plan.cache_budget) = (weights, weights, kv_cache, kv_cache);
        (plan.total, plan.available) = (weights + kv_cache, available);
        plan
    }

    fn shown(plan: &Plan) -> [usize; 5] {
        let cells = cells(&slices(plan, 0, ""), plan);
        assert_eq!(cells.len(), CELLS as usize);
        assert!(cells.is_sorted());
        std::array::from_fn(|part| cells.iter().filter(|&&cell| cell == part).count())
    }

    #[test]
    fn a_cell_is_a_sixtieth_of_the_larger_of_needed_and_available() {
        assert_eq!(shown(&plan(30, 15, 60)), [30, 15, 0, 0, 15]);
        assert_eq!(shown(&plan(30, 30, 30)), [30, 30, 0, 0, 0]);
        assert_eq!(shown(&plan(0, 0, 60)), [0, 0, 0, 0, 60]);
        assert_eq!(shown(&plan(0, 0, 0)), [0, 0, 0, 0, 60]);
        assert_eq!(shown(&plan(1, 0, u64::MAX - 1)), [0, 0, 0, 0, 60]);
        assert_eq!(shown(&plan(30, 30, Memory::UNKNOWN)), [30, 30, 0, 0, 0]);
        assert_eq!(shown(&plan(u64::MAX - 1, 1, 2))[0], 60);
    }
}
