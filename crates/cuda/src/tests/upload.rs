//! The progress reports of an upload, and that ending it leaves nothing on the GPU.

use super::super::CudaDevice;
use super::gpu;
use model_factory_diagnostics::{Hardware, Policy, Ready, diagnose_with};
use model_factory_engine::Error;
use model_factory_engine::weights::Weights;
use model_factory_spec::family::REGISTRY;
use model_factory_spec::plan::KvDtype;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

#[test]
fn an_upload_is_told_from_no_byte_to_the_last_and_ends_where_it_is_cancelled() {
    let Some(gpu) = gpu((8, 0)) else { return };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/demo-q4_k_m.gguf");
    let diagnosis = diagnose_with(REGISTRY, &path, &Hardware::detect(), &Policy::default());
    let Ready { header, spec, .. } = diagnosis.ready.unwrap();
    let weights = Weights::map(&header.source).unwrap();
    // A tied head is copied once.
    let stored: BTreeSet<_> = spec.tensors().map(|tensor| (tensor.offset, tensor.bytes)).collect();
    let total: u64 = stored.iter().map(|(_, bytes)| bytes).sum();

    let calls = Mutex::new(Vec::new());
    let load = |stop: u64| {
        calls.lock().unwrap().clear();
        let uploaded = |done, total| {
            calls.lock().unwrap().push((done, total));
            if done >= stop { Err(Error::Cancelled) } else { Ok(()) }
        };
        CudaDevice::new(Arc::clone(&gpu), &spec, &weights, KvDtype::F32, 64, &uploaded)
    };
    drop(load(u64::MAX).unwrap());
    let all = calls.lock().unwrap().clone();
    assert_eq!(all.len(), stored.len() + 1, "the beginning, and each tensor, which are smaller than a piece");
    assert!(all.iter().all(|(_, of)| *of == total) && all.is_sorted());
    assert_eq!((all[0].0, all[all.len() - 1].0), (0, total));

    for stop in [0, total / 2, total] {
        assert!(matches!(load(stop), Err(Error::Cancelled)));
        let last = *calls.lock().unwrap().last().unwrap();
        assert!(last.0 >= stop && calls.lock().unwrap().iter().filter(|(done, _)| *done >= stop).count() == 1);
        // Every buffer and recording holds the GPU.
        assert_eq!(Arc::strong_count(&gpu), 1, "stopped at {stop}");
    }
}
