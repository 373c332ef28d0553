//! How LFM2-VL cuts an image (`Lfm2VlImageProcessor`).

use super::Tiles;
use super::geometry::{Geometry, Part, Place, Size, cut, rounded, whole};

/// The parts of an image: itself, or tiles and a thumbnail.
pub(super) fn of(image: Size, rule: &Tiles) -> Geometry {
    let small = smart(image, rule);
    let tokens = |size: Size| {
        let along = |side: u32| u64::from((side / rule.patch).div_ceil(rule.downsample_factor));
        Some(along(size.width) * along(size.height))
    };
    let Some((side, least, most)) = rule.tiles.filter(|tiles| is_large(image, rule) && (tiles.1, tiles.2) != (1, 1))
    else {
        return whole(image, small, None, tokens(small));
    };
    let (columns, rows) = grid(image, side, least, most);
    let full = Size::new(columns * side, rows * side);
    let mut parts: Vec<Part> = cut(1, full, side, tokens(Size::new(side, side))).collect();
    match (&mut parts[..], rule.use_thumbnail) {
        ([single], _) => single.place = Place::Whole,
        (_, true) => parts.push(Part {
            stage: 0,
            crop: image.all(),
            size: small,
            grid: None,
            tokens: tokens(small),
            place: Place::Overview,
        }),
        _ => {}
    }
    Geometry { stages: vec![full], parts }
}

/// `smart_resize`.
fn smart(image: Size, rule: &Tiles) -> Size {
    let factor = rule.factor();
    let pixels = |tokens: u32| f64::from(tokens) * factor * factor;
    let (min, max) = (pixels(rule.min_image_tokens), pixels(rule.max_image_tokens));
    let (sides, area) = ([image.width, image.height], image.area() as f64);
    let near = sides.map(|side| rounded(side, factor).max(factor));
    let [width, height] = if near[0] * near[1] > max {
        let beta = (area / max).sqrt();
        sides.map(|side| ((f64::from(side) / beta / factor).floor() * factor).max(factor))
    } else if near[0] * near[1] < min {
        let beta = (min / area).sqrt();
        sides.map(|side| (f64::from(side) * beta / factor).ceil() * factor)
    } else {
        near
    };
    Size::new(width as u32, height as u32)
}

/// `_is_image_too_large`.
fn is_large(image: Size, rule: &Tiles) -> bool {
    let factor = rule.factor();
    let [width, height] = [image.width, image.height].map(|side| rounded(side, factor).max(f64::from(rule.patch)));
    width * height > f64::from(rule.max_image_tokens) * factor * factor * rule.max_pixels_tolerance
}

/// `find_closest_aspect_ratio`: columns and rows whose ratio is the nearest, and of equally near ones the last that the image has
/// half the pixels of. transformers leaves grids of the same number of tiles in the order of a Python set: with 2 to 10 tiles, as
/// published, no two of these are ever equally near.
fn grid(image: Size, side: u32, least: u32, most: u32) -> (u32, u32) {
    let aspect = f64::from(image.width) / f64::from(image.height);
    let area = image.area() as f64;
    let (mut best, mut nearest) = ((1, 1), f64::INFINITY);
    for tiles in least..=most {
        for columns in (1..=tiles).filter(|columns| tiles % columns == 0) {
            let rows = tiles / columns;
            let distance = (aspect - f64::from(columns) / f64::from(rows)).abs();
            let half = || area > 0.5 * f64::from(side).powi(2) * f64::from(tiles);
            if distance < nearest || (distance == nearest && half()) {
                (best, nearest) = ((columns, rows), distance);
            }
        }
    }
    best
}
