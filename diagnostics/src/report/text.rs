//! Report -> text: the verdict and its reason in the first line, then one aligned screen.

use super::{Check, FileStatus, ModelSummary, Report, Status, device, plain, some_of};
use crate::hardware::Hardware;
use crate::plan::{Place, Plan};
use crate::tokenizer::DEFAULT_TEMPLATE;
use std::fmt::{self, Display, Formatter};

/// A number of bytes as people read it: `4.58 GiB`, `12.0 MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        let text = match self.0 {
            0..1024 => format!("{} B", self.0),
            1024..0x10_0000 => format!("{:.1} KiB", bytes / 1024.0),
            0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes / 1048576.0),
            _ => format!("{:.2} GiB", bytes / 1073741824.0),
        };
        f.pad(&text)
    }
}

/// Width of the column of labels.
const LABEL: usize = 11;

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.first_line())?;
        if self.input.kind.is_some() || !self.input.candidates.is_empty() {
            writeln!(f)?;
        }
        self.input_lines(f)?;
        if let Some(model) = &self.model {
            model_lines(model, f)?;
        }
        if let Some(plan) = &self.plan {
            match plan.place {
                Place::Main => plan_lines(plan, &self.hardware.memory.how, f)?,
                Place::Card | Place::Shared => device::card_plan_lines(plan, f)?,
            }
        }
        if self.model.is_some() {
            device::lines(self, f)?;
            self.hardware.lines(f)?;
            row(f, "casts", format_args!("{}", self.casts))?;
        }
        self.check_lines(f)?;
        list(f, "remedies", &self.remedies)
    }
}

impl Report {
    fn input_lines(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let input = &self.input;
        if input.kind.is_some() {
            let files = input.files.iter().filter(|file| file.status == FileStatus::Present).count();
            let plural = if files == 1 { "" } else { "s" };
            let size = Bytes(input.bytes());
            let read = input.header_bytes_read.map(|bytes| format!(", {} of headers read", Bytes(bytes)));
            let read = read.unwrap_or_default();
            row(f, "input", format_args!("{} ({})", input.path, input.format_name()))?;
            if files > 0 {
                row(f, "", format_args!("{files} file{plural}, {size}{read}"))?;
            }
            for file in input.files.iter().filter(|file| file.status == FileStatus::Missing) {
                row(f, "", format_args!("missing: {}", file.name))?;
            }
        }
        let width = input.candidates.iter().map(|path| path.chars().count()).max().unwrap_or(0);
        for (index, candidate) in input.candidates.iter().enumerate() {
            let verdict = input.candidate_verdicts.get(index).map_or("", String::as_str);
            let line = format!("{candidate:<width$}  {verdict}");
            row(f, if index == 0 { "models" } else { "" }, format_args!("{}", line.trim_end()))?;
        }
        Ok(())
    }

    fn check_lines(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let notable = |check: &&Check| matches!(check.status, Status::Warn | Status::Fail);
        for check in self.checks.iter().filter(notable) {
            let word = if check.status == Status::Warn { "warning" } else { "failed" };
            // The failure that decided is the first line already.
            if check.summary != self.reason {
                row(f, word, format_args!("{}: {}", check.id, check.summary))?;
                evidence(f, "", check)?;
            } else {
                evidence(f, "because", check)?;
            }
        }
        Ok(())
    }
}

impl Hardware {
    /// The machine, a line for each part.
    pub(super) fn lines(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let hardware = self;
        let cpu = &hardware.cpu;
        let profile = hardware.profile.map(|name| format!("{name}: ")).unwrap_or_default();
        row(f, "hardware", format_args!("{profile}{}, {} threads", cpu.model, cpu.threads))?;
        let features = if cpu.features.is_empty() { "none to rely on".into() } else { cpu.features.join(" ") };
        row(f, "", format_args!("instruction sets: {features}"))?;
        let note = hardware.gpu_note.as_deref();
        if hardware.gpus.is_empty() {
            return row(f, "", format_args!("NVIDIA cards: none ({})", note.unwrap_or("none found")));
        }
        for gpu in &hardware.gpus {
            row(f, "", format_args!("{}", device::card(gpu)))?;
        }
        note.map_or(Ok(()), |note| row(f, "", format_args!("{note}")))
    }
}

fn evidence(f: &mut Formatter<'_>, label: &str, check: &Check) -> fmt::Result {
    if check.evidence.is_empty() { Ok(()) } else { row(f, label, format_args!("{}", check.evidence)) }
}

fn model_lines(model: &ModelSummary, f: &mut Formatter<'_>) -> fmt::Result {
    let parameters = match model.parameters {
        count @ 1_000_000_000.. => format!("{:.2} billion", count as f64 / 1e9),
        count @ 1_000_000.. => format!("{:.1} million", count as f64 / 1e6),
        count => count.to_string(),
    };
    let tied = if model.tied_embeddings { ", head tied to the embedding" } else { "" };
    row(f, "model", format_args!("{} of the family {}, {parameters} parameters", model.variant, model.family))?;
    row(f, "", format_args!("{} layers, hidden {}, feed-forward {}", model.layers, model.hidden, model.feed_forward))?;
    let (heads, kv_heads, head_dim) = (model.heads, model.kv_heads, model.head_dim);
    row(f, "", format_args!("{heads} heads of {head_dim} over {kv_heads} of keys and values"))?;
    row(f, "", format_args!("vocabulary {}{tied}", model.vocab))?;
    for (index, summary) in model.dtypes.iter().enumerate() {
        let tier = summary.tier.map_or_else(|| "not supported".into(), |tier| tier.to_string());
        let line = format!("{:<6} {:>12}  {:>5} tensors  {tier}", summary.dtype, Bytes(summary.bytes), summary.tensors);
        row(f, if index == 0 { "dtypes" } else { "" }, format_args!("{line}"))?;
    }
    let (rope, tokenizer) = (&model.rope, &model.tokenizer);
    let scaling = rope.scaling;
    row(f, "rope", format_args!("{}, theta {}, {scaling} ({})", rope.layout, rope.theta, rope.source))?;
    let pre = tokenizer.pre.as_ref().map(|pre| format!(" {pre}")).unwrap_or_default();
    let bos = tokenizer.bos.filter(|_| tokenizer.add_bos).map_or_else(|| "none".into(), |bos| bos.to_string());
    let stops: Vec<_> = tokenizer.stop_ids.iter().map(u32::to_string).collect();
    let stops = if stops.is_empty() { "none".into() } else { stops.join(" ") };
    row(f, "tokenizer", format_args!("{}{pre}, {} tokens", tokenizer.kind, tokenizer.tokens))?;
    row(f, "", format_args!("BOS {bos}, stops {stops}, {}", templates(&model.chat_templates)))?;
    row(f, "sampling", format_args!("{}", model.sampling))?;
    list(f, "assumed", &model.assumptions)
}

/// The chat templates of these names.
fn templates(names: &[String]) -> String {
    let default = names.iter().any(|name| name == DEFAULT_TEMPLATE);
    let list = || some_of(names, 8);
    match names {
        [] => "no chat template".into(),
        [_] if default => "a chat template".into(),
        _ if default => format!("chat templates {}", list()),
        _ => format!("chat templates {}, none of them named {DEFAULT_TEMPLATE}", list()),
    }
}

fn plan_lines(plan: &Plan, how: &str, f: &mut Formatter<'_>) -> fmt::Result {
    let mib = |bytes: u64| bytes as f64 / 1048576.0;
    let kv = format!("{} tokens in {}, {} each", plan.context, plan.kv_dtype, Bytes(plan.kv_per_token));
    let rows: [(&str, u64, &str); 7] = [
        ("weights", plan.weights_file, "the mapped files, computed on in place"),
        ("copies of weights", plan.weights_resident, ""),
        ("KV cache", plan.kv_cache, &kv),
        ("activations", plan.activations, ""),
        ("tokenizer", plan.tokenizer, ""),
        ("process", plan.process, ""),
        ("total", plan.total, ""),
    ];
    let shown = rows.iter().filter(|row| row.1 > 0 || row.0 == "copies of weights");
    for (index, (name, bytes, note)) in shown.enumerate() {
        let line = format!("{name:<18}{:>11.1} MiB  {note}", mib(*bytes));
        row(f, if index == 0 { "memory" } else { "" }, format_args!("{}", line.trim_end()))?;
    }
    row(f, "", format_args!("{:<18}{:>11.1} MiB  {how}", "available", mib(plan.available)))?;
    row(f, "", format_args!("{:<18}{:>11} tokens", "largest context", plan.max_context))
}

fn list(f: &mut Formatter<'_>, label: &str, lines: &[String]) -> fmt::Result {
    for (index, line) in lines.iter().enumerate() {
        row(f, if index == 0 { label } else { "" }, format_args!("{line}"))?;
    }
    Ok(())
}

/// One line with its label in front.
pub(super) fn row(f: &mut Formatter<'_>, label: &str, value: fmt::Arguments<'_>) -> fmt::Result {
    writeln!(f, "{label:<LABEL$}{}", plain(value.to_string()))
}
