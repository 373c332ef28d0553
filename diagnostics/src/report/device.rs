//! The lines about the device: which and why, and how fast it decodes.

use super::page::Page;
use super::{Bytes, Report};
use crate::hardware::Gpu;
use crate::plan::PREFILL_CHUNK;
use crate::speed::Speed;

/// The device that was chosen and why, and its speed where a data sheet tells the bandwidth.
pub(super) fn lines(report: &Report, page: &mut Page<'_>) {
    if let Some(speed) = &report.speed {
        speed_lines(speed, report.plan.as_ref().map_or(0, |plan| plan.context), page);
    }
    page.row("device", format_args!("{}: {}", report.device, report.device_reason));
    if let Some(why) = report.batching {
        page.row("batching", format_args!("off, with prefix sharing and speculation: {why}"));
    }
}

fn speed_lines(speed: &Speed, context: usize, page: &mut Page<'_>) {
    let Speed { shares, empty, full, launches, prompt, .. } = speed;
    let read = Bytes(speed.weight_bytes_per_token);
    page.row("speed", format_args!("{} to {} tokens/s at first: a token reads {read} of weights", empty.0, empty.1));
    let cache = Bytes(speed.cache_bytes_per_token);
    page.row("", format_args!("{} to {} with {context} tokens in the cache, {cache} more", full.0, full.1));
    if let Some((slow, fast)) = prompt {
        page.row("", format_args!("{slow} to {fast} of a prompt's first {PREFILL_CHUNK}"));
    }
    let bandwidth = speed.bandwidth as f64 / 1e9;
    let more = launches.map_or_else(String::new, |launches| format!(", and {launches} launches"));
    page.row("", format_args!("estimated as {} to {} of {bandwidth} GB/s, the data sheet's{more}", shares.0, shares.1));
}

pub(super) fn gpu(gpu: &Gpu) -> String {
    let (major, minor) = gpu.compute_capability;
    let memory = match (gpu.memory_total, gpu.shared_memory) {
        (Some(total), _) => Bytes(total).to_string(),
        (None, true) => "memory shared with the machine".into(),
        (None, false) => "memory unknown".into(),
    };
    let cuda = gpu.cuda.map(|(major, minor)| format!(" (CUDA {major}.{minor})")).unwrap_or_default();
    let driver = if gpu.driver == "described" { String::new() } else { format!(", driver {}{cuda}", gpu.driver) };
    let hidden = gpu.visible_as.as_ref().map(|name| format!(", with CUDA_VISIBLE_DEVICES={name}")).unwrap_or_default();
    format!("{}, compute capability {major}.{minor}, {memory}{driver}{hidden}", gpu.name)
}
