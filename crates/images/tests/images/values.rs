//! Pictures to the values of image processors.

use super::{bytes, expected, numbers, processor};
use model_factory_images::{Error, Limits, Picture, Values};
use serde_json::Value;

/// Every value of every processor for every lossless image, to the bit; refused where transformers refuses.
#[test]
fn values_are_those_of_transformers() {
    let expected = expected();
    let (mut compared, mut refused, mut wrong) = (0, 0, Vec::new());
    for (name, cases) in expected["values"].as_object().unwrap() {
        let processor = processor(name);
        let cases = cases.as_object().unwrap();
        assert!(cases.len() >= 40, "{name}: {}", cases.len());
        for (file, said) in cases {
            let picture = Picture::decode(&bytes(file), &Limits::default()).unwrap();
            match (Values::new(&picture, &processor), said.as_array()) {
                (Err(Error::Size(_)), None) => refused += 1,
                (Ok(values), Some(parts)) => {
                    compared += parts.len();
                    wrong.extend(differences(&values, parts).map(|what| format!("{name}, {file}: {what}")));
                }
                (found, said) => wrong.push(format!("{name}, {file}: {:?}, expected {said:?}", found.err())),
            }
        }
    }
    println!("{compared} parts are equal to the bit, {refused} images are refused as transformers does");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
    assert!(compared >= 450 && refused == 2, "{compared} {refused}");
}

fn differences<'a>(values: &'a Values, said: &'a [Value]) -> impl Iterator<Item = String> + 'a {
    let count = (values.parts.len() != said.len()).then(|| format!("{} parts, not {}", values.parts.len(), said.len()));
    let parts = values.parts.iter().zip(said).enumerate().filter_map(|(at, (part, said))| {
        let shape: Vec<u64> = part.shape.iter().map(|side| *side as u64).collect();
        let bytes: Vec<u8> = part.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        if shape != numbers(&said["shape"]) {
            return Some(format!("part {at} has shape {shape:?}, not {}", said["shape"]));
        }
        let step = (part.values.len() / 12).max(1);
        let some: Vec<f32> = part.values.iter().copied().step_by(step).take(12).collect();
        let differs = crc32fast::hash(&bytes) != said["crc"].as_u64().unwrap() as u32;
        differs.then(|| format!("part {at} has {some:?}, not {}", said["some"]))
    });
    count.into_iter().chain(parts)
}

/// An image decoded elsewhere is the same image.
#[test]
fn pixels_and_files_are_the_same() {
    let picture = Picture::decode(&bytes("square.png"), &Limits::default()).unwrap();
    let given = Picture::from_rgb(64, 64, picture.rgb()).unwrap();
    let processor = processor("qwen3-vl");
    assert_eq!(Values::new(&picture, &processor).unwrap(), Values::new(&given, &processor).unwrap());
}
