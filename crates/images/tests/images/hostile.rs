//! Files that were made to do harm, or were damaged: an error or pixels, in bounded memory.

use super::{bytes, counting, expected, processor};
use model_factory_images::{Error, Format, Limits, Picture, Values};

/// What decoding may take for each pixel that the limits allow, and beside the pixels; each is more than what the decoders take.
const PER_PIXEL: usize = 20;
const BESIDE: usize = 8 << 20;

const LIMITS: u64 = 1 << 20;

fn limits() -> Limits {
    Limits::default().bytes(1 << 20).pixels(LIMITS)
}

/// Decodes `file`, and prepares what comes of it.
fn attempt(name: &str, file: &[u8]) -> Result<Picture, Error> {
    let (found, peak) = counting::peak(|| Picture::decode(file, &limits()));
    assert!(peak <= PER_PIXEL * LIMITS as usize + BESIDE, "{name}: {peak} bytes");
    match &found {
        Ok(picture) => {
            let size = picture.size();
            assert!(size.area() <= LIMITS && picture.rgb().len() as u64 == 3 * size.area(), "{name}");
            for processor in ["qwen3-vl", "lfm2-vl"] {
                let _ = Values::new(picture, &processor_of(processor));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty(), "{name}"),
    }
    found
}

fn processor_of(name: &str) -> model_factory_images::ImageProcessor {
    processor(name)
}

/// One file of each kind, and more of some.
const FILES: [&str; 12] = [
    "rgb.png",
    "palette-alpha.png",
    "interlaced.png",
    "animated.png",
    "lossless-alpha.webp",
    "animated.webp",
    "lossy/lossy-alpha.webp",
    "animated.gif",
    "corner-transparent.gif",
    "lossy/420.jpg",
    "lossy/progressive.jpg",
    "lossy/turned-6.jpg",
];

/// Whole files without their ends are never pictures.
#[test]
fn truncated_files() {
    let _alone = counting::alone();
    let mut tried = 0;
    for name in FILES {
        let file = bytes(name);
        let places = (0..40).map(|at| at * file.len() / 40).chain((1..24).map(|less| file.len() - less));
        for length in places {
            let found = attempt(&format!("{length} bytes of {name}"), &file[..length]);
            tried += 1;
            let first_frame = name.starts_with("animated") || name.ends_with(".gif") || name.ends_with(".png");
            // Of PNG and GIF the last bytes are no pixels, and of an animation not those of the first frame.
            assert!(found.is_err() || first_frame, "{length} bytes of {} of {name}", file.len());
        }
    }
    println!("{tried} truncated files");
    assert!(tried >= 700);
}

/// Bytes changed at random, in the header and anywhere.
#[test]
fn changed_bytes() {
    let _alone = counting::alone();
    let mut state = 0x9e37_79b9_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let (mut pictures, mut errors) = (0, 0);
    for name in FILES {
        let file = bytes(name);
        for round in 0..120 {
            let mut changed = file.clone();
            let reach = if round % 2 == 0 { changed.len().min(64) } else { changed.len() };
            for _ in 0..1 + random(4) {
                let at = random(reach);
                changed[at] = match random(3) {
                    0 => 0xff,
                    1 => 0,
                    _ => random(256) as u8,
                };
            }
            match attempt(&format!("round {round} of {name}"), &changed) {
                Ok(_) => pictures += 1,
                Err(_) => errors += 1,
            }
        }
    }
    println!("{pictures} pictures, {errors} errors");
    assert!(pictures >= 100 && errors >= 400);
}

/// Sizes that a few bytes claim.
#[test]
fn claimed_sizes() {
    let _alone = counting::alone();
    // The places of width and height, the bytes of each, and whether the larger byte comes first.
    let places: [(&str, usize, usize, usize, bool); 4] = [
        ("rgb.png", 16, 20, 4, true),
        ("palette.gif", 6, 8, 2, false),
        ("lossy/420.jpg", 0, 0, 2, true),
        ("lossy/lossy.webp", 26, 28, 2, false),
    ];
    let mut tried = 0;
    for (name, width, height, length, big_endian) in places {
        let file = bytes(name);
        let frame = file.windows(4).position(|bytes| bytes == [0xff, 0xc0, 0, 17]).unwrap_or(0);
        let (width, height) = if name.ends_with(".jpg") { (frame + 7, frame + 5) } else { (width, height) };
        for claimed in [[0, 0], [0, 9], [9, 0], [65_535, 65_535], [16_383, 16_383], [1, 65_535], [65_535, 1]] {
            let mut changed = file.clone();
            for (at, number) in [(width, claimed[0]), (height, claimed[1])] {
                let number = u32::to_le_bytes(number);
                let mut number = number[..length].to_vec();
                if big_endian {
                    number.reverse();
                }
                changed[at..at + length].copy_from_slice(&number);
            }
            mend(&mut changed);
            let found = attempt(&format!("{claimed:?} of {name}"), &changed);
            tried += 1;
            let error = match found {
                Err(error) => error,
                // A JPEG whose data end too soon is filled, as libjpeg fills it.
                Ok(_) if name.ends_with(".jpg") || name.ends_with(".gif") => continue,
                Ok(_) => panic!("{claimed:?} of {name} is a picture"),
            };
            let area = u64::from(claimed[0]) * u64::from(claimed[1]);
            if area > LIMITS && !name.ends_with(".webp") {
                assert!(matches!(error, Error::Limit { .. }), "{claimed:?} of {name}: {error:?}");
            }
        }
    }
    assert_eq!(tried, 28);
}

/// Writes the checksum of a PNG's header.
fn mend(file: &mut [u8]) {
    if Picture::format_of(file).is_ok_and(|format| format == Format::Png) {
        let sum = crc32fast::hash(&file[12..29]).to_be_bytes();
        file[29..33].copy_from_slice(&sum);
    }
}

/// Every file of the fixtures by itself takes no more memory than is said.
#[test]
fn whole_files_take_little_memory() {
    let _alone = counting::alone();
    let expected = expected();
    for name in expected["lossless"].as_object().unwrap().keys() {
        attempt(name, &bytes(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
