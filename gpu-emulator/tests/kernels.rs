//! A kernel of the engine as NVRTC compiles it, with defects planted into its text. Needs NVRTC, which `MODEL_FACTORY_NVRTC` or
//! `GPU_EMULATOR_NVRTC` names.
#![allow(missing_docs, unsafe_code, clippy::unwrap_used, clippy::print_stdout, clippy::undocumented_unsafe_blocks)]

mod common;

use common::{Buffers, SCHEDULES};
use cuda::nvrtc::COMPILER_VARIABLE;
use cuda::ptx::{Cause, Fault, Launch, Module, Schedule};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

const ROWS: usize = 3;
const WIDTH: usize = 300;

/// The PTX of what is no product, for `sm_NN`; `None` without a compiler, or one that does not know it.
fn steps(architecture: &str) -> Option<String> {
    let library = std::env::var_os(COMPILER_VARIABLE).or_else(|| std::env::var_os("MODEL_FACTORY_NVRTC"))?;
    let nvrtc = unsafe { libloading::Library::new(library) }.ok()?;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cuda/src/kernels/");
    let files = ["types.cuh", "device.cuh", "common.cuh", "steps.cu"];
    let source = files.map(|file| std::fs::read_to_string(format!("{folder}{file}")).unwrap()).join("\n");
    let source = CString::new(source).unwrap();
    let options = [format!("--gpu-architecture=sm_{architecture}"), "--std=c++17".into(), "--fmad=false".into()];
    let options = options.map(|option| CString::new(option).unwrap());
    let pointers = options.each_ref().map(|option| option.as_ptr());
    type Program = *mut c_void;
    type Text = *const c_char;
    unsafe {
        let mut program: Program = null_mut();
        let create: libloading::Symbol<
            '_,
            unsafe extern "C" fn(*mut Program, Text, Text, c_int, *const Text, *const Text) -> c_int,
        > = nvrtc.get("nvrtcCreateProgram").ok()?;
        let compile: libloading::Symbol<'_, unsafe extern "C" fn(Program, c_int, *const Text) -> c_int> =
            nvrtc.get("nvrtcCompileProgram").ok()?;
        let size: libloading::Symbol<'_, unsafe extern "C" fn(Program, *mut usize) -> c_int> =
            nvrtc.get("nvrtcGetPTXSize").ok()?;
        let get: libloading::Symbol<'_, unsafe extern "C" fn(Program, *mut u8) -> c_int> =
            nvrtc.get("nvrtcGetPTX").ok()?;
        assert_eq!(create(&mut program, source.as_ptr(), null(), 0, null(), null()), 0);
        if compile(program, 3, pointers.as_ptr()) != 0 {
            return None;
        }
        let mut bytes = 0;
        assert_eq!(size(program, &mut bytes), 0);
        let mut text = vec![0; bytes];
        assert_eq!(get(program, text.as_mut_ptr()), 0);
        // The one kernel, after what the module declares.
        let text = String::from_utf8(text).unwrap();
        let begin = text.find(".visible .entry prepare(").unwrap();
        let end = begin + text[begin..].find("\n}\n").unwrap() + 3;
        Some(format!("{}{}", &text[..text.find(".visible .entry").unwrap()], &text[begin..end]))
    }
}

/// Norms `ROWS` rows; how many floats are wrong when they stay floats (`form` 0).
fn prepare(ptx: &str, form: i32, schedule: Schedule) -> Result<usize, Box<Fault>> {
    let floats = |count: usize, step: f32| (0..count).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
    let bytes = |floats: &[f32]| floats.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let (x, weight) = (floats(ROWS * WIDTH, 0.37), floats(WIDTH, 0.11));
    let mut buffers = Buffers::default();
    let addresses = [buffers.add(&bytes(&x)), 0, buffers.add(&bytes(&weight)), 0, 0];
    let out = buffers.add(&vec![0xff; 4 * ROWS * WIDTH]);
    let rest = [out, buffers.add(&[0; 64 * ROWS]), buffers.add(&[0; 16 * ROWS])];
    let mut given: Vec<u8> = addresses.iter().chain(&rest).flat_map(|address| address.to_le_bytes()).collect();
    // Source: root mean square. Codes: F32.
    let integers = [1, form, WIDTH as i32, WIDTH as i32, WIDTH as i32, 0, 0];
    given.extend(integers.iter().flat_map(|word| word.to_le_bytes()));
    given.extend(1e-5f32.to_le_bytes());
    given.extend([0; 16]);
    let module = Module::compile(ptx).unwrap_or_else(|error| panic!("{error}"));
    let launch = Launch { grid: [ROWS as u32, 1, 1], block: [96, 1, 1], dynamic_shared: 0, schedule };
    module.kernel("prepare").unwrap().run(&launch, &given, &buffers)?;
    let found = buffers.words(out).into_iter().map(f32::from_bits);
    Ok(found
        .enumerate()
        .filter(|(index, found)| {
            let row = &x[index / WIDTH * WIDTH..][..WIDTH];
            let mean = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / WIDTH as f64;
            let expected = f64::from(x[*index]) / (mean + 1e-5).sqrt() * f64::from(weight[index % WIDTH]);
            // Three roundings.
            (f64::from(*found) - expected).abs() > 4e-7 || found.is_nan()
        })
        .count())
}

/// Each text with one line that `is` so changed by `to`, one after the other.
fn planted(ptx: &str, is: impl Fn(&str) -> bool, to: impl Fn(&str) -> String) -> Vec<String> {
    let lines: Vec<&str> = ptx.lines().collect();
    let places = (0..lines.len()).filter(|index| is(lines[*index]));
    places
        .map(|place| {
            let changed = to(lines[place]);
            let with = lines.iter().enumerate().map(|(index, line)| if index == place { &changed } else { *line });
            with.collect::<Vec<_>>().join("\n")
        })
        .collect()
}

#[test]
fn planted_defects_are_found() {
    let mut tried = 0;
    for architecture in ["61", "75", "80", "90", "120"] {
        let Some(ptx) = steps(architecture) else { continue };
        tried += 1;
        for schedule in SCHEDULES {
            assert_eq!(prepare(&ptx, 0, schedule).unwrap_or_else(|fault| panic!("sm_{architecture}: {fault}")), 0);
            // As 8-bit integers, by the extent of a row.
            prepare(&ptx, 4, schedule).unwrap_or_else(|fault| panic!("sm_{architecture}: {fault}"));
        }
        if !["75", "120"].contains(&architecture) {
            continue;
        }
        type Change = fn(&str) -> String;
        type Caught = fn(&Cause) -> bool;
        let plants: [(&str, &str, Change, Caught); 4] = [
            (
                "a dropped barrier",
                "bar.sync",
                |_| String::new(),
                |cause| matches!(cause, Cause::Race { .. } | Cause::Uninitialised { .. }),
            ),
            (
                "a load one further",
                "ld.global",
                |line| line.replace(']', "+4]").replace("+4]+4]", "+8]"),
                |cause| matches!(cause, Cause::OutOfBounds { .. }),
            ),
            (
                "an exchange without a lane",
                "shfl.sync",
                |line| format!("{}, 0x7fffffff;", &line[..line.rfind(',').unwrap()]),
                |cause| matches!(cause, Cause::Divergent { .. }),
            ),
            (
                "a write after shared memory",
                "st.shared",
                |line| line.replace(']', "+4096]"),
                |cause| matches!(cause, Cause::OutOfBounds { .. }),
            ),
        ];
        for (what, name, change, caught) in plants {
            // Offsets stand in the brackets already where there is one.
            let change = |line: &str| match line.split_once('+') {
                Some((before, after)) if line.contains('[') => {
                    let (offset, rest) = after.split_once(']').unwrap();
                    let by = if name == "st.shared" { 4096 } else { 4 };
                    offset.parse::<i64>().map_or_else(|_| change(line), |old| format!("{before}+{}]{rest}", old + by))
                }
                _ => change(line),
            };
            let (mut found, mut wrong, mut others) = (0, 0, 0);
            let texts = planted(&ptx, |line| line.contains(name), change);
            for text in &texts {
                // What the first form does not run, the second may.
                match (prepare(text, 0, Schedule::Forward), prepare(text, 4, Schedule::Forward)) {
                    (Err(fault), _) | (_, Err(fault)) => {
                        assert!(caught(&fault.cause), "{what}: {fault}");
                        found += 1;
                    }
                    (Ok(0), Ok(_)) => others += 1,
                    (Ok(_), Ok(_)) => wrong += 1,
                }
            }
            println!(
                "sm_{architecture}: {what}: of {}, {found} are faults, {wrong} wrong numbers, {others} not run or harmless",
                texts.len()
            );
            assert!(found > 0, "sm_{architecture}: {what}");
        }
    }
    if tried == 0 {
        println!("skipped: no NVRTC: set {COMPILER_VARIABLE}");
    }
}
