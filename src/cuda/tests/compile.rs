//! Every kernel compiles for every generation of cards.

use super::super::error::CudaError;
use super::super::modules::Module;
use super::super::nvrtc::Nvrtc;

#[test]
fn every_kernel_compiles_for_every_generation() {
    let nvrtc = match Nvrtc::load() {
        Ok(nvrtc) => nvrtc,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    let known = nvrtc.architectures().unwrap();
    let (mut compiled, mut skipped) = (0, Vec::new());
    for capability in [(5, 0), (6, 1), (7, 0), (7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)] {
        for module in Module::all() {
            match nvrtc.compile(module, capability) {
                Ok(image) => {
                    // Machine code where the version knows the cards.
                    let elf = image.0.starts_with(b"\x7fELF");
                    assert_eq!(elf, known.contains(&((10 * capability.0 + capability.1) as i32)), "{capability:?}");
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
    assert!(compiled >= 6 * 15, "only {compiled} modules");
}
