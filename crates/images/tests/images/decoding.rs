//! Files to RGB.

use super::{bytes, expected, numbers};
use model_factory_images::{Error, Limits, Picture};

/// Pixels that no file has lost: equal to Pillow's.
#[test]
fn lossless_files_are_pillows_pixels() {
    let expected = expected();
    let files = expected["lossless"].as_object().unwrap();
    assert!(files.len() >= 40, "{}", files.len());
    let mut wrong = Vec::new();
    for (name, said) in files {
        let file = bytes(name);
        let picture = Picture::decode(&file, &Limits::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let size = picture.size();
        assert_eq!(numbers(&said["size"]), [u64::from(size.width), u64::from(size.height)], "{name}");
        assert_eq!(Picture::size_of(&file, &Limits::default()).unwrap(), size, "{name}");
        let first = numbers(&said["first"]);
        let found = &picture.rgb()[..first.len()];
        if crc32fast::hash(picture.rgb()) != said["crc"].as_u64().unwrap() as u32 {
            wrong.push(format!("{name}: begins with {found:?}, expected {first:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// By how much a decoded value may differ from Pillow's: in one place, and on average. libjpeg-turbo and zune-jpeg round the inverse
/// transform and the colors in their own ways: 4 is the most in 240 random images. WebP's lossy decoders are equal.
const JPEG: (u8, f64) = (4, 0.5);
const WEBP: (u8, f64) = (0, 0.0);

/// In the last column and row of an even side, where colors are stored for two pixels, libjpeg-turbo repeats the last color and
/// zune-jpeg goes on to what lies beyond the image: 58 was the most in 240 random images, most of them noise. Images that are less than
/// four pixels wide are edges throughout.
const EDGE: u8 = 64;

#[test]
fn lossy_files_are_near() {
    let expected = expected();
    let files = expected["lossy"].as_array().unwrap();
    assert!(files.len() >= 20, "{}", files.len());
    let (mut wrong, mut edges) = (Vec::new(), 0);
    for name in files.iter().map(|name| name.as_str().unwrap()) {
        let [picture, pillow] = ["", ".png"].map(|end| {
            let file = bytes(&format!("lossy/{name}{end}"));
            Picture::decode(&file, &Limits::default()).unwrap_or_else(|error| panic!("{name}{end}: {error}"))
        });
        assert_eq!(picture.size(), pillow.size(), "{name}");
        let (width, height) = (picture.size().width as usize, picture.size().height as usize);
        let (mut inner, mut edge, mut sum) = (0, 0, 0.0);
        for (at, (one, other)) in picture.rgb().iter().zip(pillow.rgb()).enumerate() {
            let (x, y, apart) = (at / 3 % width, at / 3 / width, one.abs_diff(*other));
            let last = (x + 1 == width && width % 2 == 0) || (y + 1 == height && height % 2 == 0);
            let most = if last { &mut edge } else { &mut inner };
            *most = apart.max(*most);
            sum += f64::from(if last { 0 } else { apart });
        }
        let mean = sum / (width * height * 3) as f64;
        println!("{name}: at most {inner}, on average {mean:.3}; at most {edge} in the last column and row");
        let bound = if name.ends_with(".webp") { WEBP } else { JPEG };
        if inner > bound.0 || mean > bound.1 || edge > EDGE {
            wrong.push(format!("{name}: {inner}, {mean} and {edge}"));
        }
        edges += usize::from(edge > JPEG.0);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(edges > 0, "no image shows what differs at edges");
}

/// Files that are cut off or no images.
#[test]
fn broken_files_are_refused_by_kind() {
    let expected = expected();
    for (name, pillow) in expected["broken"].as_object().unwrap() {
        let error = Picture::decode(&bytes(&format!("broken/{name}")), &Limits::default());
        let error = error.expect_err(name);
        let fits = match name.as_str() {
            "bomb.png" => matches!(error, Error::Limit { what: "pixels", found: 2_500_000_000, .. }),
            "no-pixels.png" => matches!(error, Error::Empty { width: 0, height: 7, .. }),
            "empty.png" | "text.png" | "frame.tiff" => matches!(error, Error::Format { .. }),
            _ => matches!(error, Error::Truncated { .. }),
        };
        assert!(fits, "{name}: {error:?}, and Pillow: {pillow}");
        println!("{name}: {error}");
    }
}

/// A limit holds at its value and not below it, before anything is decoded.
#[test]
fn limits_hold() {
    let file = bytes("rgb.png");
    let limits = Limits::default().bytes(file.len()).pixels(67 * 43).side(67);
    assert_eq!(Picture::decode(&file, &limits).unwrap().rgb().len(), 67 * 43 * 3);
    let over = [limits.bytes(file.len() - 1), limits.pixels(67 * 43 - 1), limits.side(66)];
    for (limits, name) in over.into_iter().zip(["bytes", "pixels", "longest side"]) {
        for error in [Picture::decode(&file, &limits).unwrap_err(), Picture::size_of(&file, &limits).unwrap_err()] {
            assert!(matches!(error, Error::Limit { what, .. } if what == name), "{name}: {error:?}");
            // What helps whoever gave the image: the limits are the program's.
            assert!(error.to_string().ends_with(" are allowed; make the image smaller"), "{error}");
        }
    }
}

#[test]
fn pixels_have_three_bytes() {
    assert_eq!(Picture::from_rgb(2, 1, &[1, 2, 3, 4, 5, 6]).unwrap().rgb(), [1, 2, 3, 4, 5, 6]);
    for (width, height, count) in [(2, 1, 5), (2, 1, 7), (0, 1, 0), (1, 1, 4), (u32::MAX, u32::MAX, 3)] {
        let error = Picture::from_rgb(width, height, &vec![0; count]).unwrap_err();
        assert!(matches!(error, Error::PixelCount { found, .. } if found == count), "{error:?}");
    }
}
