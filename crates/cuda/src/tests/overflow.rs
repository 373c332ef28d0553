//! Values that a batch or a cache cannot hold: as on the processor, a typed error or none at all.

use super::gpu;
use super::models::{fixtures, on, with_context};
use model_factory::Model;
use model_factory::Session;
use model_factory::error::{EngineError, Error};
use model_factory_spec::plan::KvDtype;
use safetensors::SafeTensors;
use std::path::Path;

/// A copy of the F32 model in `folder` whose first layer's values are `factor` times as large.
fn with_larger_values(folder: &Path, factor: f32) {
    let from = fixtures().join("models/llama-3.2/f32");
    for name in ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(from.join(name), folder.join(name)).unwrap();
    }
    let mut bytes = std::fs::read(from.join("model.safetensors")).unwrap();
    let range = {
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let data = tensors.tensor("model.layers.0.self_attn.v_proj.weight").unwrap().data().as_ptr_range();
        data.start as usize - bytes.as_ptr() as usize..data.end as usize - bytes.as_ptr() as usize
    };
    for float in bytes[range].as_chunks_mut::<4>().0 {
        *float = (f32::from_le_bytes(*float) * factor).to_le_bytes();
    }
    std::fs::write(folder.join("model.safetensors"), bytes).unwrap();
}

/// The layer, the position and the value of an overflow.
type Beyond = (usize, usize, f32);

fn beyond<T: std::fmt::Debug>(result: model_factory::Result<T>) -> Beyond {
    match result {
        Err(Error::Engine(EngineError::CacheOverflow { layer, position, value, .. })) => (layer, position, value),
        other => panic!("{other:?}"),
    }
}

/// Exactly one of all ids has values beyond F16 in the first layer: it is in the prompt, in a part of the prompt
/// whose logits are not taken, in a single token, and in a batch.
#[test]
fn values_beyond_the_cache_are_the_error_that_they_are_on_the_processor() {
    let folder = tempfile::tempdir().unwrap();
    // The scale makes the values of only one id, the largest, too large, and only just.
    let largest = |factor: f32, id: u32| {
        let processor = with_context(folder.path(), KvDtype::F16, 600);
        match processor.session().forward(&[id]) {
            Ok(_) => None,
            Err(Error::Engine(EngineError::CacheOverflow { layer: 0, value, .. })) => Some(value.abs() / factor),
            Err(error) => panic!("{error}"),
        }
    };
    with_larger_values(folder.path(), 1e9);
    let vocab = with_context(folder.path(), KvDtype::F16, 600).spec().vocab as u32;
    let mut sizes: Vec<(f32, u32)> = (0..vocab.min(200)).filter_map(|id| Some((largest(1e9, id)?, id))).collect();
    sizes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let [.., (below, small), (above, large)] = sizes[..] else { panic!("{sizes:?}") };
    assert!(above > 1.0001 * below, "two ids alike");
    with_larger_values(folder.path(), 65520.0 / (above * below).sqrt());

    let processor = with_context(folder.path(), KvDtype::F16, 600);
    let Some(gpu) = gpu((9, 0)) else { return };
    let on_gpu = on(gpu, &processor, folder.path(), KvDtype::F16);
    let cases: [&dyn Fn(&Model) -> Beyond; 4] = [
        &|model| beyond(model.session().forward(&[small, 3, large, 5])),
        // The logits of the first 512 are not taken.
        &|model| {
            let mut prompt = vec![small; 530];
            prompt[300] = large;
            let mut session = model.session();
            let found = beyond(session.forward(&prompt));
            assert_eq!(session.len(), 0);
            // The session continues with a token whose values fit.
            assert!(session.forward(&[small]).is_ok());
            found
        },
        // The token is computed like those that were recorded before.
        &|model| {
            let mut session = model.session();
            session.forward(&[small; 3]).unwrap();
            (0..4).for_each(|_| drop(session.forward(&[small]).unwrap()));
            let found = beyond(session.forward(&[large]));
            assert!(session.forward(&[small]).is_ok());
            found
        },
        &|model| {
            let (mut one, mut other) = (model.session(), model.session());
            one.forward(&[small; 9]).unwrap();
            beyond(Session::batch(&mut [(&mut other, &[small; 7]), (&mut one, &[small, large])]))
        },
    ];
    for (case, position) in cases.into_iter().zip([2, 300, 7, 10]) {
        let (layer, found, value) = case(&on_gpu);
        let of_processor = case(&processor);
        assert_eq!((layer, found, of_processor.0, of_processor.1), (0, position, 0, position));
        // The sums are in another order.
        assert!((value / of_processor.2 - 1.0).abs() < 1e-4, "{value}, {}", of_processor.2);
    }
}

/// A batch has more rows than the longest possible sequence.
#[test]
fn a_batch_of_short_contexts_is_computed() {
    let path = fixtures().join("models/llama-3.2/f32");
    let processor = with_context(&path, KvDtype::F32, 64);
    let Some(gpu) = gpu((9, 0)) else { return };
    let on_gpu = on(gpu, &processor, &path, KvDtype::F32);
    let vocab = processor.spec().vocab as u32;
    let prompts = [3, 5, 7].map(|by| (0..60).map(|i| (i * by + 1) % vocab).collect::<Vec<u32>>());
    let [found, expected] = [&on_gpu, &processor].map(|model| {
        let mut sessions = [(); 3].map(|()| model.session());
        let mut steps: Vec<(&mut Session, &[u32])> =
            sessions.iter_mut().zip(&prompts).map(|(session, prompt)| (session, &prompt[..])).collect();
        Session::batch(&mut steps).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
    });
    let square = |x: f32| f64::from(x).powi(2);
    let apart: f64 = found.iter().zip(&expected).map(|(a, b)| square(a - b)).sum();
    // The sums are in another order.
    assert!(apart.sqrt() <= 1e-5 * expected.iter().map(|x| square(*x)).sum::<f64>().sqrt(), "{apart}");
}
