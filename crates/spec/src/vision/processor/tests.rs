use super::{ImageProcessor, Layout, Resample, Rule, Size, SizeError};
use crate::error::{ArchitectureErrorKind, Error, FormatErrorKind, IncompleteKind};
use crate::header::config::JsonFile;
use serde_json::{Value, json};
use std::path::Path;

fn file(name: &str, value: &Value) -> JsonFile {
    JsonFile::parse(Path::new(name), value.to_string().as_bytes()).unwrap()
}

/// Of a `preprocessor_config.json`.
fn own(value: Value) -> Result<ImageProcessor, Error> {
    ImageProcessor::from_files(None, Some(&file("preprocessor_config.json", &value))).map(|found| found.expect("one"))
}

/// Gemma 3's file as it is published.
fn gemma3() -> Value {
    json!({
        "do_convert_rgb": null, "do_normalize": true, "do_pan_and_scan": null, "do_rescale": true, "do_resize": true,
        "image_mean": [0.5, 0.5, 0.5], "image_processor_type": "Gemma3ImageProcessor", "image_seq_length": 256,
        "image_std": [0.5, 0.5, 0.5], "pan_and_scan_max_num_crops": null, "pan_and_scan_min_crop_size": null,
        "pan_and_scan_min_ratio_to_activate": null, "processor_class": "Gemma3Processor", "resample": 2,
        "rescale_factor": 0.00392156862745098, "size": {"height": 896, "width": 896},
    })
}

fn with(mut value: Value, key: &str, to: Value) -> Value {
    value[key] = to;
    value
}

#[test]
fn published_files_are_read() {
    let found = own(gemma3()).unwrap();
    assert_eq!(found.rule, Rule::Fixed { size: Size::new(896, 896), tokens: Some(256) });
    assert_eq!((found.class, found.resample), ("Gemma3ImageProcessor", Resample::Bilinear));
    assert!(found.assumptions.is_empty(), "{:?}", found.assumptions);
    // Qwen2-VL's, with the keys of older files; a backend at the end of the class's name.
    let qwen = json!({
        "min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
        "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
        "image_processor_type": "Qwen2VLImageProcessorFast", "processor_class": "Qwen2VLProcessor",
    });
    let found = own(qwen.clone()).unwrap();
    let (min_pixels, max_pixels) = (3136, 12_845_056);
    assert_eq!(found.rule, Rule::Smart { patch: 14, merge: 2, temporal: 2, min_pixels, max_pixels });
    assert_eq!(found.rule.layout(), Layout::Merged { patch: 14, merge: 2, temporal: 2 });
    let cited: Vec<&String> = found.assumptions.iter().filter(|line| line.contains("resample Bicubic")).collect();
    assert!(cited[0].contains("the default of transformers' Qwen2VLImageProcessor"), "{cited:?}");
    let size = |min: u64| json!({"shortest_edge": min, "longest_edge": 12845056});
    assert_eq!(own(with(qwen.clone(), "size", size(3136))).unwrap().rule, found.rule);
    let error = own(with(qwen.clone(), "size", size(65536))).unwrap_err();
    assert!(matches!(error, Error::Incomplete { kind: IncompleteKind::Contradiction { .. }, .. }), "{error}");
    let only = json!({"min_pixels": 3136, "max_pixels": 12845056});
    assert_eq!(own(with(qwen, "size", only)).unwrap().rule, found.rule);
}

#[test]
fn the_nested_description_is_taken_first() {
    let mut inner = gemma3();
    inner.as_object_mut().unwrap().remove("image_seq_length");
    let inner = with(inner, "size", json!({"height": 448, "width": 448}));
    let outer = json!({"image_processor": inner, "image_seq_length": 64, "processor_class": "Gemma3Processor"});
    let (whole, alone) = (file("processor_config.json", &outer), file("preprocessor_config.json", &gemma3()));
    let found = ImageProcessor::from_files(Some(&whole), Some(&alone)).unwrap().unwrap();
    assert_eq!(found.rule, Rule::Fixed { size: Size::new(448, 448), tokens: Some(64) });
    assert_eq!(found.file, Path::new("processor_config.json"));
    // Without a nested one, its own keys are added to those of the other file.
    let outer = file("processor_config.json", &json!({"image_seq_length": 64}));
    let error = ImageProcessor::from_files(Some(&outer), Some(&alone)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "preprocessor_config.json: image_seq_length is 256, but image_seq_length of processor_config.json is 64"
    );
    assert_eq!(ImageProcessor::from_files(Some(&outer), None).unwrap(), None);
    assert_eq!(ImageProcessor::from_files(None, None).unwrap(), None);
}

/// Each key that would change the arithmetic: the error names file and key.
#[test]
fn other_options_are_refused_by_name() {
    let feature = |error: Error| match error {
        Error::Architecture { kind: ArchitectureErrorKind::Feature { feature, key, .. }, .. } => (feature, key),
        other => panic!("{other}"),
    };
    for (key, value, said) in [
        ("do_pan_and_scan", json!(true), "pan and scan"),
        ("do_center_crop", json!(true), "cropping to the center"),
        ("do_resize", json!(false), "images of any size"),
        ("do_pad", json!(true), "padding"),
        ("resample", json!(4), "box resampling (4)"),
        ("resample", json!(0), "nearest neighbor resampling (0)"),
        ("do_sharpen", json!(true), "an option that this class does not have"),
        ("patch_size", json!(14), "an option that this class does not have"),
        ("image_processor_type", json!("CLIPImageProcessor"), "the image processor CLIPImageProcessor"),
    ] {
        let error = own(with(gemma3(), key, value)).unwrap_err();
        assert!(error.to_string().starts_with("preprocessor_config.json: "), "{error}");
        assert_eq!(feature(error), (said.to_owned(), key.to_owned()));
    }
    assert!(own(with(gemma3(), "unknown", Value::Null)).is_ok());
}

#[test]
fn values_that_no_model_has_are_refused() {
    let key = |error: Error| match error {
        Error::Format { kind: FormatErrorKind::KeyType { key, .. }, .. }
        | Error::Format { kind: FormatErrorKind::KeyValue { key, .. }, .. }
        | Error::Format { kind: FormatErrorKind::KeyMissing { key, .. }, .. } => key,
        other => panic!("{other}"),
    };
    for (name, value, said) in [
        ("size", json!({"height": 0, "width": 896}), "size.height"),
        ("size", json!({"height": 1_000_000, "width": 896}), "size.height"),
        ("size", json!({"height": 896}), "size"),
        ("size", json!({"height": 896, "width": 896, "longest_edge": 3}), "size"),
        ("size", json!({"shortest_edge": 224}), "size"),
        ("size", json!({"height": -1, "width": 896}), "size"),
        ("size", json!([896, 896]), "size"),
        ("image_mean", json!([0.5, 0.5]), "image_mean"),
        ("image_mean", json!([0.5, 0.5, 1e300]), "image_mean"),
        ("image_std", json!([0.5, 0.5, 0.0]), "image_std"),
        ("image_std", json!("half"), "image_std"),
        ("rescale_factor", json!(0), "rescale_factor"),
        ("rescale_factor", json!(1e-320), "rescale_factor"),
        ("resample", json!("bicubic"), "resample"),
        ("do_normalize", json!(1), "do_normalize"),
        ("image_seq_length", json!(0), "image_seq_length"),
        ("image_processor_type", Value::Null, "image_processor_type"),
    ] {
        assert_eq!(key(own(with(gemma3(), name, value.clone())).unwrap_err()), said, "{name} {value}");
    }
    // A number is both sides, and one number is that of all channels.
    let found = own(with(with(gemma3(), "size", json!(448)), "image_std", json!(0.25))).unwrap();
    assert_eq!(found.rule, Rule::Fixed { size: Size::new(448, 448), tokens: Some(256) });
    assert_eq!(found.normalize.map(|normalize| normalize.std), Some([0.25; 3]));
    let soft = |tokens: u64| own(json!({"image_processor_type": "Gemma4ImageProcessor", "max_soft_tokens": tokens}));
    assert!(soft(560).is_ok());
    assert_eq!(key(soft(300).unwrap_err()), "max_soft_tokens");
    let tiles = |tile: u64| {
        own(json!({"image_processor_type": "SmolVLMImageProcessor", "max_image_size": {"longest_edge": tile}}))
    };
    assert!(tiles(512).is_ok());
    assert_eq!(key(tiles(1).unwrap_err()), "max_image_size.longest_edge");
    for (name, value) in [("min_tiles", 11), ("encoder_patch_size", 15)] {
        let error = own(json!({"image_processor_type": "Lfm2VlImageProcessor", name: value})).unwrap_err();
        assert!(matches!(error, Error::Incomplete { kind: IncompleteKind::Contradiction { .. }, .. }), "{error}");
    }
}

#[test]
fn images_of_some_sizes_are_refused() {
    let fixed = own(gemma3()).unwrap();
    assert_eq!(fixed.geometry(Size::new(0, 3)), Err(SizeError::Empty { width: 0, height: 3 }));
    let qwen = own(json!({"image_processor_type": "Qwen2VLImageProcessor"})).unwrap();
    assert!(qwen.geometry(Size::new(2000, 10)).is_ok());
    let found = qwen.geometry(Size::new(2010, 10));
    assert_eq!(found, Err(SizeError::Aspect { width: 2010, height: 10, limit: 200.0 }));
    let pixtral = own(json!({"image_processor_type": "PixtralImageProcessor"})).unwrap();
    let once = pixtral.assumptions.iter().filter(|line| line.contains("longest_edge")).count();
    assert_eq!(once, 1, "{:?}", pixtral.assumptions);
    assert!(pixtral.geometry(Size::new(1024, 1)).is_ok());
    let found = pixtral.geometry(Size::new(1, 1025));
    assert_eq!(found, Err(SizeError::Thin { width: 1, height: 1025, limit: 1024 }));
    let tiles = json!({"image_processor_type": "Lfm2VlImageProcessor", "tile_size": 8192, "min_tiles": 8});
    let found = own(tiles).unwrap().geometry(Size::new(8000, 4000));
    assert!(matches!(found, Err(SizeError::Pixels { .. })), "{found:?}");
}

/// No image has more patches than the bound of its processor, also where little room makes thin ones larger than `max_pixels`, and of
/// a published one the bound is `max_pixels`.
#[test]
fn patches_are_within_their_bound() {
    let smart = |patch: u64, min: u64, max: u64| {
        own(json!({
            "image_processor_type": "Qwen2VLImageProcessor", "patch_size": patch, "size": {"shortest_edge": min, "longest_edge": max},
        }))
        .unwrap()
    };
    assert_eq!(smart(16, 65_536, 16_777_216).most_patches(), 65_536);
    assert_eq!(smart(14, 3136, 12_845_056).most_patches(), 65_536);
    let sides = [1, 2, 7, 15, 16, 17, 31, 40, 100, 199, 200, 511, 1000, 2999, 3200, 9999];
    let mut beyond = 0;
    for (patch, min, max) in
        [(8, 1024, 9216), (8, 1, 1), (8, 1, 300), (8, 9000, 9216), (14, 3136, 80_000), (16, 65_536, 70_000)]
    {
        let processor = smart(patch, min, max);
        let most = processor.most_patches();
        for (width, height) in sides.iter().flat_map(|width| sides.iter().map(move |height| (*width, *height))) {
            let Ok(found) = processor.geometry(Size::new(width, height)) else { continue };
            let pixels = found.pixels();
            assert!(
                (pixels / (patch * patch)) as usize <= most,
                "{width} by {height}: {pixels} pixels, {most} patches"
            );
            beyond += usize::from(pixels > max);
        }
    }
    assert!(beyond > 0, "thin images are larger than max_pixels");
}

/// Any processor that is read answers for any size, in bounded memory.
#[test]
fn every_size_has_an_answer() {
    let sides = [1, 2, 3, 27, 28, 29, 511, 512, 513, 4096, 65_535, u32::MAX];
    let mut answers = 0;
    for class in super::classes::CLASSES {
        let processor = own(json!({"image_processor_type": class.name})).unwrap();
        for (width, height) in sides.iter().flat_map(|width| sides.iter().map(move |height| (*width, *height))) {
            let Ok(found) = processor.geometry(Size::new(width, height)) else { continue };
            assert!(!found.parts.is_empty() && found.parts.len() <= 300);
            for part in &found.parts {
                assert!(part.size.area() > 0 && part.tokens != Some(0), "{width} by {height}: {part:?}");
            }
            answers += 1;
        }
    }
    assert!(answers > 1000, "{answers}");
}
