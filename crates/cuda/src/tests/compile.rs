//! Every kernel compiles for every generation of GPUs.

use super::super::modules::Module;
use super::super::nvrtc::Nvrtc;
use crate::CudaError;
use model_factory_dtypes::DType;
use std::sync::Arc;

/// The compiler; prints why there is none.
fn compiler() -> Option<Arc<Nvrtc>> {
    Nvrtc::load(None).inspect_err(|error| println!("skipped: {error}")).ok()
}

/// A library that exists and is not NVRTC.
const OTHER: &str = if cfg!(windows) { "kernel32.dll" } else { "libc.so.6" };

#[test]
fn a_library_that_is_no_compiler_does_not_end_the_search() {
    let other = || vec![OTHER.to_owned(), "no-such-library".to_owned()];
    assert!(matches!(Nvrtc::first_of(other(), None), Err(CudaError::Driver { code: 0, .. })));
    if compiler().is_none() {
        return;
    }
    let found = Nvrtc::first_of(other().into_iter().chain(Nvrtc::names()).collect(), None);
    assert!(found.is_ok_and(|nvrtc| nvrtc.version().is_ok()));
}

/// Sums and products are rounded as written: the stand-in's arithmetic is the GPU's. The translator of PTX may fuse
/// those that are not marked as rounded.
#[test]
fn nothing_is_fused_but_by_name() {
    let Some(nvrtc) = compiler() else { return };
    // For the oldest GPUs with tensor cores, as the last test does too: nothing is compiled twice. With `GENERATIONS` the newest.
    let known = nvrtc.architectures().unwrap().into_iter().filter(|architecture| *architecture >= 75);
    let whole = std::env::var_os("GENERATIONS").is_some();
    let architecture = if whole { known.max() } else { known.min() }.unwrap();
    for module in Module::all() {
        let image = nvrtc.compile_for(module, &format!("compute_{architecture}")).unwrap();
        let text = String::from_utf8_lossy(&image.0);
        for width in ["f32", "f64"] {
            for operation in ["mul", "add", "sub", "mul.ftz", "add.ftz", "sub.ftz"] {
                let free = format!("{operation}.{width}");
                assert!(!text.contains(&free), "{} has {free}", module.name());
            }
        }
        assert!(text.contains("mul.rn.f32") || module == Module::Matrix(DType::F32), "{}", module.name());
    }
}

#[test]
fn what_was_compiled_once_is_kept() {
    let Some(nvrtc) = compiler() else { return };
    let newest = *nvrtc.architectures().unwrap().iter().max().unwrap();
    let compile = |module, architecture| nvrtc.compile_for(module, architecture).unwrap();
    let (ptx, code) = (format!("compute_{newest}"), format!("sm_{newest}"));
    let module = Module::Matrix(DType::F32);
    assert!(Arc::ptr_eq(&compile(module, &ptx), &compile(module, &ptx)));
    assert!(!Arc::ptr_eq(&compile(module, &ptx), &compile(module, &code)));
    assert!(!Arc::ptr_eq(&compile(module, &ptx), &compile(Module::Matrix(DType::F16), &ptx)));
    assert!(Arc::ptr_eq(&nvrtc, &Nvrtc::load(None).unwrap()));
}

/// Compiles with `GENERATIONS=all` for every generation that is distinguished, else for the oldest, and all but one module to PTX:
/// assembling is half of the time, and .ci/cuda compares the machine code of another.
#[test]
fn every_kernel_compiles_for_every_generation() {
    let Some(nvrtc) = compiler() else { return };
    let known = nvrtc.architectures().unwrap();
    let (mut compiled, mut skipped) = (0, Vec::new());
    let every = [(5, 0), (7, 5), (12, 0), (6, 1), (7, 0), (8, 0), (8, 9), (9, 0), (10, 0)];
    let whole = std::env::var_os("GENERATIONS").is_some();
    let (taken, least) = if whole { (every.len(), 6) } else { (2, 1) };
    for capability in every.into_iter().take(taken) {
        let number = 10 * capability.0 + capability.1;
        let is_known = known.contains(&(number as i32));
        for module in Module::all() {
            let assembled = whole || module == Module::Matrix(DType::F32);
            let image = match is_known && !assembled {
                true => nvrtc.compile_for(module, &format!("compute_{number}")),
                false => nvrtc.compile(module, capability),
            };
            match image {
                Ok(image) => {
                    // It is machine code where the version knows the GPUs.
                    let elf = image.0.starts_with(b"\x7fELF");
                    assert_eq!(elf, is_known && assembled, "{capability:?}");
                    compiled += 1;
                }
                Err(CudaError::Capability { .. }) => {
                    skipped.push(capability);
                    break;
                }
                Err(error) => panic!("{capability:?}: {error}"),
            }
        }
    }
    println!("NVRTC {:?}: {compiled} modules compiled; too old for it: {skipped:?}", nvrtc.version().unwrap());
    assert!(compiled >= least * 20, "only {compiled} modules");
}
