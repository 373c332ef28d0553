//! Tells what lies at a path and whether this machine, or a described one, can run it. Reads headers only.
//!
//! `cargo run --release --example diagnose -- [PATH] [--json] [--device DEVICE] [--context N] [--devices]`

use clap::Parser;
use model_diagnostics::hardware::profiles::Profile;
use model_diagnostics::plan::KvDtype;
use model_diagnostics::report::{DeviceList, Verdict};
use model_diagnostics::{DeviceChoice, Hardware};
use model_factory::UnifiedModelFactory;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Tells what lies at a path and whether a machine can run it, from headers alone.
#[derive(Parser)]
struct Arguments {
    /// A .gguf or .safetensors file, a config.json, an index or a folder, or with the feature hub org/name[:quantization];
    /// the bundled demo model by default.
    path: Option<PathBuf>,
    /// Write the report as JSON.
    #[arg(long)]
    json: bool,
    /// auto, cpu, cuda[:N], or the name of a described machine (see --devices).
    #[arg(long, default_value = "auto", value_parser = device)]
    device: Device,
    /// Tokens of context to plan for; by default the largest that fits.
    #[arg(long, value_name = "N", value_parser = context)]
    context: Option<usize>,
    /// Keys and values are kept in f32, as computed, or rounded to f16, which takes half the memory.
    #[arg(long, value_name = "DTYPE", default_value_t)]
    kv_cache: KvDtype,
    /// List this machine and the described ones instead.
    #[arg(long)]
    devices: bool,
}

#[derive(Clone, Copy)]
enum Device {
    Here(DeviceChoice),
    Described(&'static Profile),
}

fn device(text: &str) -> Result<Device, String> {
    match (text.parse(), Profile::find(text)) {
        (Ok(choice), _) => Ok(Device::Here(choice)),
        (Err(_), Some(profile)) => Ok(Device::Described(profile)),
        (Err(error), None) => Err(format!("{error}, or a described machine that --devices lists")),
    }
}

fn context(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&context| context > 0).ok_or_else(|| "expected a number of tokens above 0".into())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (hardware, device) = match arguments.device {
        Device::Here(choice) => (Hardware::detect(), choice),
        Device::Described(profile) => (profile.hardware(), DeviceChoice::Auto),
    };
    if arguments.devices {
        let list = DeviceList::new(&hardware);
        return write(&if arguments.json { list.to_json() } else { list.to_string() }, 0);
    }
    let path = arguments.path.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/demo").into());
    let mut factory = UnifiedModelFactory::builder().device(device).kv_cache(arguments.kv_cache);
    if let Some(context) = arguments.context {
        factory = factory.context_length(context);
    }
    let report = factory.diagnose_on(&path, &hardware);
    if report.verdict == Verdict::Unreadable {
        let _ = writeln!(std::io::stderr(), "{}", report.reason);
        return report.exit_code.into();
    }
    write(&if arguments.json { report.to_json() } else { report.to_string() }, report.exit_code)
}

/// Writes `text` to standard output at once. A reader that has seen enough changes nothing about the verdict.
fn write(text: &str, code: u8) -> ExitCode {
    match std::io::stdout().write_all(format!("{}\n", text.trim_end()).as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => code.into(),
    }
}
