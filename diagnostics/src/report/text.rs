//! Report -> text: the verdict and its reason in the first line, then one aligned screen.

use super::page::{Bytes, Page, Plain, Presentation, counted};
use super::{
    AdapterSummary, Check, EmbedsSummary, ExpertSummary, FileStatus, ModelSummary, Remedy, Report, Status, Verdict,
    VisionSummary, WindowSummary, candidate, memory,
};
use crate::capability;
use crate::error::some_of;
use crate::hardware::{Gpu, Hardware, version};
use crate::plan::{PREFILL_CHUNK, Plan};
use crate::speed::Speed;
use crate::tokenizer::DEFAULT_TEMPLATE;
use model_factory_dtypes::DType;
use std::fmt::{self, Display, Formatter};

/// The most remedies that the text lists; the JSON report has all.
const REMEDIES: usize = 5;

/// The most dtypes that have a line of their own.
const DTYPES: usize = 4;

/// Plain text without the options of any program; [`Report::text`] takes a program's own.
impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&Plain))
    }
}

impl Report {
    /// The report for people, as `presentation` shows it: the verdict and its reason, then one screen of aligned lines.
    pub fn text(&self, presentation: &dyn Presentation) -> String {
        let mut page = Page::new(presentation);
        let verdict = page.paint(self.verdict.tone(), self.verdict);
        page.line(format_args!("{verdict}: {}", self.reason));
        if self.input.kind.is_some() || !self.input.candidates.is_empty() {
            page.line("");
        }
        self.input_lines(&mut page);
        if let Some(model) = &self.model {
            model_lines(model, self.verdict.runs(), &mut page);
            image_line(model, self.plan.as_ref(), &mut page);
        }
        self.adapters.iter().for_each(|adapter| adapter_lines(adapter, &mut page));
        if let Some(plan) = &self.plan {
            memory::lines(plan, self.casts, &self.hardware.memory.how, &mut page);
        }
        if self.model.is_some() {
            device_lines(self, &mut page);
            self.hardware.lines(&mut page);
        }
        self.check_lines(&mut page);
        self.remedy_lines(&mut page);
        page.text
    }

    fn input_lines(&self, page: &mut Page<'_>) {
        let input = &self.input;
        if input.kind.is_some() {
            let files = input.files.iter().filter(|file| file.status == FileStatus::Present).count();
            let size = Bytes(input.bytes());
            let read = input.header_bytes_read.map(|bytes| format!(", {} read", Bytes(bytes)));
            let read = read.unwrap_or_default();
            let format = input.format_name();
            page.row(
                "input",
                match files {
                    0 => format!("{} ({format})", input.path),
                    _ => format!("{} ({format}, {}, {size}{read})", input.path, counted(files, "file")),
                },
            );
            let missing = input.files.iter().filter(|file| file.status == FileStatus::Missing);
            missing.for_each(|file| page.row("", format_args!("missing: {}", file.name)));
        }
        if input.models.is_empty() { page.rows("models", &input.candidates) } else { candidate::table(input, page) }
    }

    fn check_lines(&self, page: &mut Page<'_>) {
        let notable = |check: &&Check| matches!(check.status, Status::Warn | Status::Fail);
        // The first line already gives all warnings of a model that runs.
        let said = |check: &Check| {
            check.summary == self.reason
                || (check.status == Status::Warn && self.verdict == Verdict::CompatibleWithWarnings)
        };
        for check in self.checks.iter().filter(notable) {
            let word = if check.status == Status::Warn { "warning" } else { "failed" };
            // The bar already shows what memory takes.
            let drawn = check.id == "memory" && self.plan.is_some();
            let evidence = |page: &mut Page<'_>, label| {
                if !check.evidence.is_empty() {
                    page.row(label, &check.evidence);
                }
            };
            if !said(check) {
                page.toned_row(check.status.tone(), word, format_args!("{}: {}", check.id, check.summary));
                if check.evidence != check.summary && !drawn {
                    evidence(page, "");
                }
            } else if check.status == Status::Warn && !check.evidence.is_empty() {
                page.toned_row(check.status.tone(), word, format_args!("{}: {}", check.id, check.evidence));
            } else if !drawn {
                evidence(page, "because");
            }
        }
    }

    fn remedy_lines(&self, page: &mut Page<'_>) {
        let several = self.distribution.as_ref().map(|plan| Remedy::from(plan.to_string()));
        // The plan for several machines has lines of its own.
        let remedies: Vec<&Remedy> = self.remedies.iter().filter(|remedy| Some(*remedy) != several.as_ref()).collect();
        let presentation = page.presentation;
        page.rows("remedies", remedies.iter().take(REMEDIES).map(|remedy| presentation.remedy(remedy)));
        if let Some(more @ 1..) = remedies.len().checked_sub(REMEDIES) {
            page.row("", format_args!("and {more} more: the JSON report lists all"));
        }
        if let Some(several) = several {
            page.row("several", several);
            page.commands("", presentation.serving_commands(self));
        }
        page.commands("next", presentation.commands(self));
    }
}

impl Hardware {
    pub(super) fn lines(&self, page: &mut Page<'_>) {
        let Hardware { cpu, gpus, gpu_note, .. } = self;
        let profile = self.profile.map(|name| format!("{name}: ")).unwrap_or_default();
        let features = if cpu.features.is_empty() { "no vector instructions".into() } else { cpu.features.join(" ") };
        let slow = match cpu.slow_threads {
            0 => String::new(),
            slow => format!(" ({slow} on slow cores, not computed with unless asked for)"),
        };
        // Next to GPUs the processor rarely computes.
        let level = match cpu.level().filter(|_| gpus.is_empty()) {
            None => String::new(),
            Some((level, lacked)) if lacked.is_empty() => format!("; {level} kernels"),
            Some((level, lacked)) => format!("; {level} kernels, lacks {}", lacked.join(", ")),
        };
        let avoided = match &cpu.avoided[..] {
            avoided if avoided.is_empty() || !gpus.is_empty() => String::new(),
            avoided => format!("; {} unused: slower here, or of unknown speed", avoided.join(", ")),
        };
        page.row(
            "hardware",
            format_args!("{profile}{}, {} threads{slow}, {features}{level}{avoided}", cpu.model, cpu.threads),
        );
        match gpu_note {
            _ if gpus.is_empty() && self.profile.is_some() => {}
            note if gpus.is_empty() => {
                page.row("", format_args!("NVIDIA GPUs: none ({})", note.as_deref().unwrap_or("none found")));
            }
            note => page.rows("", gpus.iter().map(gpu_line).chain(note.clone())),
        }
    }
}

fn in_words(count: u64) -> String {
    match count {
        1_000_000_000.. => format!("{:.2} billion", count as f64 / 1e9),
        1_000_000.. => format!("{:.1} million", count as f64 / 1e6),
        count => count.to_string(),
    }
}

fn model_lines(model: &ModelSummary, runs: bool, page: &mut Page<'_>) {
    let parameters = in_words(model.parameters);
    let tied = if model.tied_embeddings { ", head tied to the embedding" } else { "" };
    page.row("model", format_args!("{} of the family {}, {parameters} parameters{tied}", model.variant, model.family));
    let (layers, hidden, wide, vocab) = (model.layers, model.hidden, model.feed_forward, model.vocab);
    let (heads, kv_heads, head_dim) = (model.heads, model.kv_heads, model.head_dim);
    // Models of layers with a state alone have neither.
    let wide = if wide == 0 { String::new() } else { format!("feed-forward {wide}, ") };
    let heads = if heads == 0 { String::new() } else { format!("{heads} heads of {head_dim} over {kv_heads}, ") };
    let sizes = format!("hidden {hidden}, {wide}{heads}vocabulary {vocab}");
    page.row("", format_args!("{}, {sizes}", counted(layers, "layer")));
    if let [first, others @ ..] = model.mixers.as_slice() {
        let others = others.iter().map(|mixer| format!(", {} of {}", mixer.layers, mixer.kind));
        let first = format!("{} of {}", counted(first.layers, "layer"), first.kind);
        page.row("", first + &others.collect::<String>());
    }
    for WindowSummary { tokens, layers: with, chunked } in &model.windows {
        let window = if *chunked { "chunks" } else { "a window" };
        page.row("", format_args!("{window} of {tokens} in {with} of {layers} layers"));
    }
    if let Some(experts) = &model.experts {
        let ExpertSummary { count, per_token, feed_forward, shared_feed_forward, layers: with, .. } = experts;
        let shared = shared_feed_forward.map(|wide| format!(" and one of {wide} for every token")).unwrap_or_default();
        let place = if *with == layers { String::new() } else { format!(" in {with} of the layers") };
        let active = format!("{} parameters active", in_words(experts.active_parameters));
        let sizes = format!("{count} experts of {feed_forward}{shared}{place}, {per_token} a token");
        page.row("", format_args!("{sizes}: {active}, {}", Bytes(experts.active_bytes)));
    }
    for (index, summary) in model.dtypes.iter().take(DTYPES).enumerate() {
        let tier = match (summary.refused, summary.tier) {
            (0, Some(tier)) if capability::SIXTEEN_BITS.contains(&summary.dtype) => {
                format!(
                    "{tier}{}",
                    summary.activations.map(|dtype| format!(", activations {dtype}")).unwrap_or_default()
                )
            }
            (0, Some(tier)) => tier.to_string(),
            (count, _) if count < summary.tensors => format!("{count} of them not supported"),
            _ => "not supported".into(),
        };
        let line = format!("{:<6} {:>12}  {:>5} tensors  {tier}", summary.dtype, Bytes(summary.bytes), summary.tensors);
        page.row(if index == 0 { "dtypes" } else { "" }, line);
    }
    if model.dtypes.len() > DTYPES {
        let names: Vec<String> = model.dtypes[DTYPES..].iter().map(|summary| summary.dtype.to_string()).collect();
        page.row("", format_args!("and {}", names.join(", ")));
    }
    // Tokenization and sampling are of interest if the model runs.
    if runs {
        talk_lines(model, page);
    }
    page.rows("assumed", &model.assumptions);
}

/// An adapter: what it is, and what it changes.
fn adapter_lines(adapter: &AdapterSummary, page: &mut Page<'_>) {
    let AdapterSummary { path, kind, base, ranks, changed, changeable, dtypes, bytes, .. } = adapter;
    let list = |each: &mut dyn Iterator<Item = String>| each.collect::<Vec<_>>().join(", ");
    let [ranks, dtypes] =
        [list(&mut ranks.iter().map(usize::to_string)), list(&mut dtypes.iter().map(DType::to_string))];
    let kind = if *kind == "gguf" { "GGUF" } else { "PEFT" };
    page.row("adapter", format_args!("{path} ({kind}, rank {ranks}, {dtypes}, {})", Bytes(*bytes)));
    let made = base.as_ref().map(|base| format!(", made for {base}")).unwrap_or_default();
    page.row("", format_args!("{changed} of {changeable} linear layers: {}{made}", adapter.layers_in_words()));
}

/// The chosen device and why, and its speed if a data sheet gives the bandwidth.
fn device_lines(report: &Report, page: &mut Page<'_>) {
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

fn gpu_line(gpu: &Gpu) -> String {
    let capability = version(gpu.compute_capability);
    let memory = match (gpu.memory_total, gpu.shared_memory) {
        (Some(total), _) => Bytes(total).to_string(),
        (None, true) => "memory shared with the machine".into(),
        (None, false) => "memory unknown".into(),
    };
    let cuda = gpu.cuda.map(|cuda| format!(" (CUDA {})", version(cuda))).unwrap_or_default();
    let driver = if gpu.driver == "described" { String::new() } else { format!(", driver {}{cuda}", gpu.driver) };
    let hidden = gpu.visible_as.as_ref().map(|name| format!(", with CUDA_VISIBLE_DEVICES={name}")).unwrap_or_default();
    format!("{}, compute capability {capability}, {memory}{driver}{hidden}", gpu.name)
}

fn talk_lines(model: &ModelSummary, page: &mut Page<'_>) {
    let tokenizer = &model.tokenizer;
    if let Some(rope) = &model.rope {
        let scaling = rope.scaling.replace('_', " ");
        page.row("rope", format_args!("{}, theta {}, {scaling} ({})", rope.layout, rope.theta, rope.source));
    }
    let pre = tokenizer.pre.as_ref().map(|pre| format!(" {pre}")).unwrap_or_default();
    let bos = tokenizer.bos.filter(|_| tokenizer.add_bos).map_or_else(|| "none".into(), |bos| bos.to_string());
    let stops = match tokenizer.stop_ids.as_slice() {
        [] => "no stop token".into(),
        [one] => format!("stop token {one}"),
        ids => format!("stop tokens {}", ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")),
    };
    let (kind, tokens) = (tokenizer.kind, tokenizer.tokens);
    let calls = model.tool_calls.map(|calls| format!(", tool calls {}", calls.format)).unwrap_or_default();
    let templates = templates(&model.chat_templates) + &calls;
    page.row("tokenizer", format_args!("{kind}{pre}, {tokens} tokens, BOS {bos}, {stops}, {templates}"));
    if !model.embeds.only {
        page.row("sampling", format_args!("{}", model.sampling));
    }
    embeds_line(&model.embeds, page);
    if let Some(VisionSummary { tower, parameters, largest_image, smaller, any_shape, tokens, parts }) = model.vision {
        let up_to = if smaller { "up to " } else { "" };
        let [height, width] = largest_image;
        let size = if any_shape { height.saturating_mul(width).to_string() } else { format!("{height} by {width}") };
        let cut = if parts > 1 { format!(", larger ones in up to {parts} parts") } else { String::new() };
        let image = format!("images of {up_to}{size} pixels as {tokens} tokens{cut}");
        page.row("sees", format_args!("by {tower}, {} parameters: {image}", in_words(parameters)));
    }
    match model.labels.as_slice() {
        [] => {}
        [one] => page.row("scores", format_args!("one label, {one}")),
        labels => page.row("scores", format_args!("{} labels: {}", labels.len(), some_of(labels, 8))),
    }
}

/// The images that memory is planned for, where they are not all that the tower takes.
fn image_line(model: &ModelSummary, plan: Option<&Plan>, page: &mut Page<'_>) {
    let (Some(vision), Some(plan)) = (&model.vision, plan) else { return };
    if vision.any_shape && (1..vision.tokens.saturating_mul(vision.parts)).contains(&plan.image_tokens) {
        let planned = format!("memory is planned for images of up to {} tokens", plan.image_tokens);
        page.row("", format_args!("{planned}; a context length plans as large ones as it holds"));
    }
}

/// How texts become vectors, for models whose files say so or that only embed.
fn embeds_line(embeds: &EmbedsSummary, page: &mut Page<'_>) {
    let dimensions = embeds.dimensions;
    let Some(pooling) = &embeds.pooling else {
        if embeds.only || embeds.source.is_some() {
            let why = embeds.source.as_deref().unwrap_or("no file says which pooling");
            page.row("embeds", format_args!("vectors of {dimensions}, pooling not known: {why}"));
        }
        return;
    };
    let length = if embeds.normalize { "of length one" } else { "as they come" };
    let most = embeds.max_length.map(|tokens| format!(", texts of up to {tokens} tokens")).unwrap_or_default();
    let prompts = match embeds.prompts.as_slice() {
        [] => String::new(),
        names => format!(", prompts {}", some_of(names, 8)),
    };
    let source = embeds.source.as_deref().unwrap_or_default();
    page.row("embeds", format_args!("vectors of {dimensions} {length}, pooling {pooling} ({source}){most}{prompts}"));
}

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
