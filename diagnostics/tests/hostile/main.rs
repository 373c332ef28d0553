//! Hostile input: what is malformed, incomplete or damaged ends with the right exit code and an error that names file
//! and tensor or key; nothing panics, and nothing takes more than 2 GiB of addresses or 10 seconds.

// A sample that cannot be written is a broken test; `pub` is for the sibling modules.
#![allow(clippy::unwrap_used, clippy::print_stdout, unreachable_pub)]

mod adapters;
mod beside;
#[path = "../formats/build.rs"]
#[allow(dead_code)] // this file uses its part
mod build;
mod cut_vision;
mod damage;
mod dense;
mod edit;
mod experts;
mod folders;
mod gates;
mod gemma3n;
mod gemma4;
mod gguf;
mod kimi;
mod latent;
mod llama4;
mod mistral4;
mod mmproj;
mod options;
mod qwen_mmproj;
mod qwen_vision;
mod routing;
mod safetensors;
mod single;
mod states;
mod table;
mod unknown;
mod vision;
mod windows;
mod worst;

use edit::Files;
use serde_json::Value;
use std::process::Command;
use table::Table;

/// Set in a test process whose address space is limited.
const LIMITED: &str = "HOSTILE_LIMITED";

/// Runs `body`, the body of the test called `name`, in a process of its own with 2 GiB of addresses; elsewhere than on
/// Linux right here.
pub fn within_two_gibibytes(name: &str, body: impl FnOnce()) {
    if cfg!(not(target_os = "linux")) || std::env::var_os(LIMITED).is_some() {
        return body();
    }
    let output = Command::new("sh")
        .args(["-c", r#"ulimit -v 2097152 && exec "$0" "$@""#])
        .arg(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(LIMITED, "1")
        .output()
        .unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{}\n{out}{errors}", output.status);
    out.lines().filter(|line| line.contains(" are refused")).for_each(|line| println!("{line}"));
}

/// A value of `config.json` that is refused: the checkpoint, the key, the value, the exit code and a part of the reason.
type WrongValue = (&'static str, &'static str, Value, u8, &'static str);

/// Each checkpoint is accepted as it is, and refused with each of the values.
fn refuses_values(table: &mut Table, values: impl IntoIterator<Item = WrongValue>) {
    let mut last = None;
    for (name, key, value, code, says) in values {
        let files = Files::fixture(&format!("{name}/bf16"));
        if last.replace(name) != Some(name) {
            table.accepts(name, &files.tree(), "");
        }
        let edited = files.json("config.json", |config| drop(config.insert(key.into(), value.clone())));
        table.refuses(&format!("{name}: {key} is {value}"), &edited.tree(), "", code, &[says]);
    }
}

/// Fewest inputs that the table must hold.
const LEAST: usize = 700;

#[test]
fn refuses_every_malformed_or_incomplete_input_by_name() {
    within_two_gibibytes("refuses_every_malformed_or_incomplete_input_by_name", || {
        let mut table = Table::default();
        gguf::cases(&mut table);
        safetensors::cases(&mut table);
        folders::cases(&mut table);
        options::cases(&mut table);
        dense::cases(&mut table);
        kimi::cases(&mut table);
        gates::cases(&mut table);
        latent::cases(&mut table);
        llama4::cases(&mut table);
        mistral4::cases(&mut table);
        experts::cases(&mut table);
        routing::cases(&mut table);
        states::cases(&mut table);
        single::cases(&mut table);
        beside::cases(&mut table);
        gemma3n::cases(&mut table);
        gemma4::cases(&mut table);
        unknown::cases(&mut table);
        vision::cases(&mut table);
        cut_vision::cases(&mut table);
        qwen_mmproj::cases(&mut table);
        qwen_vision::cases(&mut table);
        windows::cases(&mut table);
        mmproj::cases(&mut table);
        let count = table.finish();
        assert!(count >= LEAST, "only {count} inputs");
    });
}
