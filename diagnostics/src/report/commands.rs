//! Report -> command lines to go on with.

use super::{Candidate, Input, Report, Verdict};
use crate::assess::{DeviceChoice, Policy};
use crate::hardware::Hardware;
use crate::hardware::profiles::{PROFILES, Profile};
use crate::plan::KvDtype;

/// How an example is run in a checkout, in a build that can what this one can and what `input` needs.
fn example(name: &str, input: &Input, hardware: &Hardware) -> String {
    let features = [(hardware.has_cuda(), "cuda"), (input.hub.is_some(), "hub")];
    let features: Vec<&str> = features.into_iter().filter_map(|(needed, feature)| needed.then_some(feature)).collect();
    match features.as_slice() {
        [] => format!("cargo run --release --example {name} --"),
        features => format!("cargo run --release --features {} --example {name} --", features.join(",")),
    }
}

/// Commands that go on from `report`: run the model, or judge it where it would run. `runs_on` tells of other machines.
pub(crate) fn commands(report: &Report, policy: &Policy, runs_on: impl Fn(&Hardware) -> bool) -> Vec<String> {
    let path = quoted(&report.input.path);
    let here = report.hardware.profile.is_none();
    let kv = if policy.kv_dtype == KvDtype::F16 { " --kv-cache f16" } else { "" };
    let asked = policy.context.map(|context| format!(" --context {context}")).unwrap_or_default();
    let run = |name: &str, options: &str| format!("{} {path}{options}", example(name, &report.input, &report.hardware));
    let generate = |options: &str| run("generate", options);
    let diagnose = |options: &str| run("diagnose", options);
    let on_this = |options: &str| match report.hardware.profile {
        None => generate(options),
        Some(name) => diagnose(&format!(" --device {name}{options}")),
    };
    match report.verdict {
        Verdict::Compatible | Verdict::CompatibleWithWarnings if here => {
            let talks = report.model.as_ref().is_some_and(|model| model.chat_template);
            let talk = if talks { " --chat 'Hello'" } else { " --prompt 'Once upon a time'" };
            vec![generate(&format!("{talk}{asked}{kv}"))]
        }
        Verdict::HardwareInsufficient
            if matches!(policy.device, DeviceChoice::Cuda(_)) && runs_on(&report.hardware) =>
        {
            vec![generate(&format!(" --device cpu{asked}{kv}"))]
        }
        Verdict::DoesNotFit => {
            let most = report.plan.as_ref().map_or(0, |plan| plan.max_context);
            let less = (most > 0).then(|| on_this(&format!(" --context {most}{kv}")));
            let larger =
                larger_machine(&report.hardware, runs_on).map(|name| diagnose(&format!(" --device {name}{asked}{kv}")));
            less.into_iter().chain(larger).collect()
        }
        Verdict::UnsupportedDtype => larger_machine(&report.hardware, runs_on)
            .map(|name| diagnose(&format!(" --device {name}{asked}{kv}")))
            .into_iter()
            .collect(),
        _ => Vec::new(),
    }
}

/// Commands for a path with several models: the largest of those that run, or else the first.
pub(crate) fn commands_of_several(models: &[Candidate], hardware: &Hardware) -> Vec<String> {
    let run = |name: &str, path: &str| format!("{} {}", example(name, &Input::default(), hardware), quoted(path));
    let runs = models.iter().filter(|model| model.verdict.runs()).max_by_key(|model| model.bytes);
    match (runs, models.first()) {
        (Some(model), _) => vec![run("generate", &model.path)],
        (None, Some(model)) => vec![run("diagnose", &model.path)],
        (None, None) => Vec::new(),
    }
}

/// The described machine with the least memory that the model runs on; one of the kind of `like`, with a card or without,
/// before all others.
fn larger_machine(like: &Hardware, runs_on: impl Fn(&Hardware) -> bool) -> Option<&'static str> {
    let mut profiles: Vec<&Profile> = PROFILES.iter().collect();
    profiles.sort_by_key(|profile| {
        let cards = profile.gpus.iter().map(|gpu| gpu.memory).sum::<u64>();
        (profile.gpus.is_empty() != like.gpus.is_empty(), if cards > 0 { cards } else { profile.memory })
    });
    profiles.into_iter().find(|profile| runs_on(&profile.hardware())).map(|profile| profile.name)
}

/// `text` as one word of a shell's command line.
pub(crate) fn quoted(text: &str) -> String {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(&byte);
    // A leading dash would be an option.
    let text = if text.starts_with('-') { format!("./{text}") } else { text.to_owned() };
    if !text.is_empty() && text.bytes().all(safe) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        for (path, word) in [
            ("models/a-1.5_b.gguf", "models/a-1.5_b.gguf"),
            ("my models/a.gguf", "'my models/a.gguf'"),
            ("it's", r"'it'\''s'"),
            ("$(reboot)", "'$(reboot)'"),
            ("-rf", "./-rf"),
            ("", "''"),
            ("größe", "'größe'"),
        ] {
            assert_eq!(quoted(path), word, "{path}");
        }
    }
}
