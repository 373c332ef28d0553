//! Report -> command lines to go on with.

use super::{Candidate, Input, Report, Verdict};
use crate::hardware::Hardware;
use crate::hardware::profiles::{PROFILES, Profile};
use crate::plan::KvDtype;
use crate::policy::{DeviceChoice, Policy};

/// How an example is run in a checkout, in a build that has what `input` needs and, where a card may be used, `cuda`.
fn example(name: &str, input: &Input, card: bool) -> String {
    let features = [(card, "cuda"), (input.hub.is_some(), "hub")];
    let features: Vec<&str> = features.into_iter().filter_map(|(needed, feature)| needed.then_some(feature)).collect();
    match features.as_slice() {
        [] => format!("cargo run --release --example {name} --"),
        features => format!("cargo run --release --features {} --example {name} --", features.join(",")),
    }
}

/// Whether a run may use a card of `hardware`.
fn may_use_card(hardware: &Hardware, policy: &Policy) -> bool {
    let card = hardware.profile.is_none() && hardware.has_cuda() && !hardware.gpus.is_empty();
    card && policy.device != DeviceChoice::Cpu
}

/// Commands that go on from `report`: run the model, or judge it where it would run. `runs_on` tells of other machines.
pub(crate) fn commands(report: &Report, policy: &Policy, runs_on: impl Fn(&Hardware) -> bool) -> Vec<String> {
    let path = quoted(&report.input.path);
    let here = report.hardware.profile.is_none();
    let trained = report.model.as_ref().map(|model| model.context_trained);
    let (kv, asked, device) = (kv_option(policy), context_option(policy, trained), device_option(policy));
    let card = may_use_card(&report.hardware, policy);
    let generate = |options: &str| format!("{} {path}{options}", example("generate", &report.input, card));
    let diagnose = |options: &str| format!("{} {path}{options}", example("diagnose", &report.input, false));
    let on_this = |options: &str| match report.hardware.profile {
        None => generate(&format!("{device}{options}")),
        Some(name) => diagnose(&format!(" --device {name}{options}")),
    };
    match report.verdict {
        Verdict::Compatible | Verdict::CompatibleWithWarnings if here => {
            let talks = report.model.as_ref().is_some_and(|model| model.chat_template);
            let talk = if talks { " --chat 'Hello'" } else { " --prompt 'Once upon a time'" };
            vec![generate(&format!("{talk}{device}{asked}{kv}"))]
        }
        Verdict::HardwareInsufficient
            if here && matches!(policy.device, DeviceChoice::Cuda(_)) && runs_on(&report.hardware) =>
        {
            vec![generate(&format!(" --device cpu{asked}{kv}"))]
        }
        Verdict::DoesNotFit => {
            let most = report.plan.as_ref().map_or(0, |plan| plan.proposed_context(&report.hardware));
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

/// The command for one of several models at a path, which were judged on `hardware`.
pub(super) fn command_of_one(model: &Candidate, hardware: &Hardware, policy: &Policy) -> String {
    let (path, kv, asked) = (quoted(&model.path), kv_option(policy), context_option(policy, model.context_trained));
    let (card, device) = (may_use_card(hardware, policy), device_option(policy));
    let run = |name: &str| format!("{} {path}", example(name, &Input::default(), card));
    match hardware.profile {
        None if model.verdict.runs() => format!("{}{device}{asked}{kv}", run("generate")),
        None => format!("{}{device}{asked}{kv}", run("diagnose")),
        Some(name) => format!("{} --device {name}{asked}{kv}", run("diagnose")),
    }
}

fn kv_option(policy: &Policy) -> &'static str {
    if policy.kv_dtype == KvDtype::F16 { " --kv-cache f16" } else { "" }
}

/// The context asked for, at most the one that the model was `trained` for.
fn context_option(policy: &Policy, trained: Option<usize>) -> String {
    let context = policy.context.map(|context| context.min(trained.unwrap_or(context)));
    context.map(|context| format!(" --context {context}")).unwrap_or_default()
}

fn device_option(policy: &Policy) -> String {
    if policy.device == DeviceChoice::Auto { String::new() } else { format!(" --device {}", policy.device) }
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
