//! Bytes as an image, to the values of models; or as `preprocessor_config.json`, to what images of many sizes become.

use model_factory_diagnostics::header::config::JsonFile;
use model_factory_images::{Error, ImageProcessor, Limits, Picture, Size, Values};
use std::path::Path;
use std::sync::LazyLock;

/// Small, so that there are many runs a second.
const PIXELS: u64 = 1 << 14;

const DESCRIPTIONS: [&str; 4] = [
    r#"{"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 32, "width": 32}}"#,
    r#"{"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 784, "max_pixels": 7840}"#,
    r#"{"image_processor_type": "SmolVLMImageProcessor", "size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}}"#,
    r#"{"image_processor_type": "Lfm2VlImageProcessor", "tile_size": 32, "encoder_patch_size": 8, "max_image_tokens": 64}"#,
];

static PROCESSORS: LazyLock<Vec<ImageProcessor>> =
    LazyLock::new(|| DESCRIPTIONS.iter().filter_map(|description| described(description.as_bytes())).collect());

fn described(bytes: &[u8]) -> Option<ImageProcessor> {
    let file = JsonFile::parse(Path::new("preprocessor_config.json"), bytes).ok()?;
    ImageProcessor::from_files(None, Some(&file)).ok()?
}

pub fn run(bytes: &[u8]) {
    if bytes.first() == Some(&b'{') {
        let Some(processor) = described(bytes) else { return };
        for (width, height) in [(1, 1), (640, 480), (3, 4000), (65_535, 65_535), (u32::MAX, 1), (17, 23)] {
            if let Ok(geometry) = processor.geometry(Size::new(width, height)) {
                assert!(!geometry.parts.is_empty() && geometry.parts.len() < 1 << 17);
                assert!(geometry.parts.iter().all(|part| part.size.area() > 0));
            }
        }
        return;
    }
    let limits = Limits::default().pixels(PIXELS);
    let size = Picture::size_of(bytes, &limits);
    let picture = match Picture::decode(bytes, &limits) {
        Ok(picture) => picture,
        Err(error) => {
            assert!(!error.to_string().is_empty() && !matches!(error, Error::PixelCount { .. } | Error::Size(_)));
            return;
        }
    };
    assert_eq!(size.ok(), Some(picture.size()));
    assert_eq!(picture.rgb().len() as u64, 3 * picture.size().area());
    assert_eq!(PROCESSORS.len(), DESCRIPTIONS.len());
    let processor = &PROCESSORS[bytes.len() % DESCRIPTIONS.len()];
    match Values::new(&picture, processor) {
        Ok(values) => assert!(values.parts.iter().flat_map(|part| &part.values).all(|value| value.is_finite())),
        Err(error) => assert!(matches!(error, Error::Size(_)), "{error}"),
    }
}
