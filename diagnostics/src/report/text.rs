//! Report -> text: the verdict and its reason in the first line, then one aligned screen.

use super::paint::{COMMAND, LABELS, list, paint, painted_row, row, styled_row};
use super::{Check, FileStatus, ModelSummary, Report, Status, Verdict, candidate, device, memory, plain, some_of};
use crate::hardware::Hardware;
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

/// Remedies that the text lists; the JSON report has all.
const REMEDIES: usize = 5;

/// Dtypes that have a line of their own.
const DTYPES: usize = 4;

/// `{}` is plain text for a pipe, `{:#}` the same in the colours of a terminal.
impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", paint(f, self.verdict.style(), self.verdict), self.reason)?;
        if self.input.kind.is_some() || !self.input.candidates.is_empty() {
            writeln!(f)?;
        }
        self.input_lines(f)?;
        if let Some(model) = &self.model {
            model_lines(model, self.verdict.runs(), f)?;
        }
        if let Some(plan) = &self.plan {
            memory::lines(plan, self.casts, &self.hardware.memory.how, f)?;
        }
        if self.model.is_some() {
            device::lines(self, f)?;
            self.hardware.lines(f)?;
        }
        self.check_lines(f)?;
        self.remedy_lines(f)
    }
}

impl Report {
    fn input_lines(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let input = &self.input;
        if input.kind.is_some() {
            let files = input.files.iter().filter(|file| file.status == FileStatus::Present).count();
            let plural = if files == 1 { "" } else { "s" };
            let size = Bytes(input.bytes());
            let read = input.header_bytes_read.map(|bytes| format!(", {} read", Bytes(bytes)));
            let read = read.unwrap_or_default();
            let format = input.format_name();
            match files {
                0 => row(f, "input", format_args!("{} ({format})", input.path))?,
                _ => row(f, "input", format_args!("{} ({format}, {files} file{plural}, {size}{read})", input.path))?,
            }
            for file in input.files.iter().filter(|file| file.status == FileStatus::Missing) {
                row(f, "", format_args!("missing: {}", file.name))?;
            }
        }
        if input.models.is_empty() { list(f, "models", &input.candidates) } else { candidate::table(input, f) }
    }

    fn check_lines(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let notable = |check: &&Check| matches!(check.status, Status::Warn | Status::Fail);
        // The first line has said every warning of a model that runs.
        let said = |check: &Check| {
            check.summary == self.reason
                || (check.status == Status::Warn && self.verdict == Verdict::CompatibleWithWarnings)
        };
        for check in self.checks.iter().filter(notable) {
            let word = if check.status == Status::Warn { "warning" } else { "failed" };
            // The bar has shown what memory takes.
            let drawn = check.id == "memory" && self.plan.is_some();
            if !said(check) {
                styled_row(f, check.status.style(), word, format_args!("{}: {}", check.id, check.summary))?;
                if check.evidence != check.summary && !drawn {
                    evidence(f, "", check)?;
                }
            } else if check.status == Status::Warn && !check.evidence.is_empty() {
                styled_row(f, check.status.style(), word, format_args!("{}: {}", check.id, check.evidence))?;
            } else if !drawn {
                evidence(f, "because", check)?;
            }
        }
        Ok(())
    }

    fn remedy_lines(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let plan = self.distribution.as_ref().map(ToString::to_string);
        // The plan over several machines has lines of its own.
        let remedies: Vec<&String> = self.remedies.iter().filter(|remedy| Some(*remedy) != plan.as_ref()).collect();
        for (index, remedy) in remedies.iter().take(REMEDIES).enumerate() {
            row(f, if index == 0 { "remedies" } else { "" }, format_args!("{remedy}"))?;
        }
        if let Some(more @ 1..) = remedies.len().checked_sub(REMEDIES) {
            row(f, "", format_args!("and {more} more: --json lists all"))?;
        }
        if let Some(distribution) = &self.distribution {
            row(f, "several", format_args!("{distribution}"))?;
            for line in &distribution.commands {
                command(f, "", line)?;
            }
        }
        for (index, line) in self.commands.iter().enumerate() {
            command(f, if index == 0 { "next" } else { "" }, line)?;
        }
        Ok(())
    }
}

/// A command line, which is never folded.
fn command(f: &mut Formatter<'_>, label: &str, line: &str) -> fmt::Result {
    let line = paint(f, COMMAND, plain(line.into()));
    painted_row(f, LABELS, label, &line)
}

impl Hardware {
    /// The machine, a line for each part.
    pub(super) fn lines(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let hardware = self;
        let cpu = &hardware.cpu;
        let profile = hardware.profile.map(|name| format!("{name}: ")).unwrap_or_default();
        let features = if cpu.features.is_empty() { "no vector instructions".into() } else { cpu.features.join(" ") };
        row(f, "hardware", format_args!("{profile}{}, {} threads, {features}", cpu.model, cpu.threads))?;
        let note = hardware.gpu_note.as_deref();
        if hardware.gpus.is_empty() && hardware.profile.is_some() {
            return Ok(());
        }
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

fn model_lines(model: &ModelSummary, runs: bool, f: &mut Formatter<'_>) -> fmt::Result {
    let parameters = match model.parameters {
        count @ 1_000_000_000.. => format!("{:.2} billion", count as f64 / 1e9),
        count @ 1_000_000.. => format!("{:.1} million", count as f64 / 1e6),
        count => count.to_string(),
    };
    let tied = if model.tied_embeddings { ", head tied to the embedding" } else { "" };
    row(f, "model", format_args!("{} of the family {}, {parameters} parameters{tied}", model.variant, model.family))?;
    let (layers, hidden, wide, vocab) = (model.layers, model.hidden, model.feed_forward, model.vocab);
    let (heads, kv_heads, head_dim) = (model.heads, model.kv_heads, model.head_dim);
    let plural = if layers == 1 { "" } else { "s" };
    let heads = format!("{heads} heads of {head_dim} over {kv_heads}");
    row(
        f,
        "",
        format_args!("{layers} layer{plural}, hidden {hidden}, feed-forward {wide}, {heads}, vocabulary {vocab}"),
    )?;
    for (index, summary) in model.dtypes.iter().take(DTYPES).enumerate() {
        let tier = match (summary.refused, summary.tier) {
            (0, Some(tier)) => tier.to_string(),
            (count, _) if count < summary.tensors => format!("{count} of them not supported"),
            _ => "not supported".into(),
        };
        let line = format!("{:<6} {:>12}  {:>5} tensors  {tier}", summary.dtype, Bytes(summary.bytes), summary.tensors);
        row(f, if index == 0 { "dtypes" } else { "" }, format_args!("{line}"))?;
    }
    if model.dtypes.len() > DTYPES {
        let names: Vec<String> = model.dtypes[DTYPES..].iter().map(|summary| summary.dtype.to_string()).collect();
        row(f, "", format_args!("and {}", names.join(", ")))?;
    }
    // How text is cut and tokens are chosen matters to whoever will run the model.
    if runs {
        talk_lines(model, f)?;
    }
    list(f, "assumed", &model.assumptions)
}

fn talk_lines(model: &ModelSummary, f: &mut Formatter<'_>) -> fmt::Result {
    let (rope, tokenizer) = (&model.rope, &model.tokenizer);
    let scaling = rope.scaling.replace('_', " ");
    row(f, "rope", format_args!("{}, theta {}, {scaling} ({})", rope.layout, rope.theta, rope.source))?;
    let pre = tokenizer.pre.as_ref().map(|pre| format!(" {pre}")).unwrap_or_default();
    let bos = tokenizer.bos.filter(|_| tokenizer.add_bos).map_or_else(|| "none".into(), |bos| bos.to_string());
    let stops = match tokenizer.stop_ids.as_slice() {
        [] => "no stop token".into(),
        [one] => format!("stop token {one}"),
        ids => format!("stop tokens {}", ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")),
    };
    let (kind, tokens, templates) = (tokenizer.kind, tokenizer.tokens, templates(&model.chat_templates));
    row(f, "tokenizer", format_args!("{kind}{pre}, {tokens} tokens, BOS {bos}, {stops}, {templates}"))?;
    row(f, "sampling", format_args!("{}", model.sampling))
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
