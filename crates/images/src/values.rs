//! A picture -> the values that a vision tower takes.

use crate::resize::resize;
use crate::{Picture, Result};
use model_factory_dtypes::memory;
use model_factory_spec::vision::processor::{Geometry, ImageProcessor, Layout, Part, Size};

/// Channels of a pixel.
const CHANNELS: usize = 3;

/// The values of one image.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Values {
    /// The sizes behind the parts.
    pub geometry: Geometry,
    /// The values of each part, in the order of `geometry.parts`.
    pub parts: Vec<Pixels>,
}

/// The values of one part of an image, as the image processors of transformers order them, without padding.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pixels {
    /// `[channels, height, width]`, or `[patches, values of a patch]`.
    pub shape: Vec<usize>,
    /// The values.
    pub values: Vec<f32>,
}

/// What each of the 256 values of each channel becomes.
type Table = [[f32; 256]; CHANNELS];

impl Values {
    /// Prepares `picture` as `processor` says.
    ///
    /// # Errors
    /// `Size` where the processor takes no picture of this size, `Memory`.
    pub fn new(picture: &Picture, processor: &ImageProcessor) -> Result<Values> {
        let geometry = processor.geometry(picture.size)?;
        let (table, layout) = (table(processor), processor.rule.layout());
        let mut stages: Vec<Picture> = Vec::new();
        for to in &geometry.stages {
            let from = stages.last().unwrap_or(picture);
            let pixels = resize(&from.pixels, from.size, from.size.all(), *to, processor.resample)?;
            stages.push(Picture { size: *to, pixels });
        }
        let prepare = |part: &Part| {
            let from = part.stage.checked_sub(1).and_then(|stage| stages.get(stage)).unwrap_or(picture);
            let pixels = resize(&from.pixels, from.size, part.crop, part.size, processor.resample)?;
            ordered(&pixels, part.size, layout, &table)
        };
        let parts = geometry.parts.iter().map(prepare).collect::<Result<_>>()?;
        Ok(Values { geometry, parts })
    }
}

/// Rescaled and normalized in float32, in the order of torchvision: mean and deviation are divided by the factor, not the values
/// multiplied by it.
fn table(processor: &ImageProcessor) -> Table {
    let scale = processor.rescale.map(|factor| (1.0 / factor) as f32);
    let value = |channel: usize, byte: usize| {
        let byte = byte as f32;
        match (processor.normalize, processor.rescale) {
            (Some(normalize), _) => {
                let scaled = |by: [f64; 3]| by[channel] as f32 * scale.unwrap_or(1.0);
                (byte - scaled(normalize.mean)) / scaled(normalize.std)
            }
            (None, Some(factor)) => byte * factor as f32,
            (None, None) => byte,
        }
    };
    std::array::from_fn(|channel| std::array::from_fn(|byte| value(channel, byte)))
}

/// The values of `pixels` in the order of `layout`.
fn ordered(pixels: &[u8], size: Size, layout: Layout, table: &Table) -> Result<Pixels> {
    let (width, height) = (size.width as usize, size.height as usize);
    let times = if let Layout::Merged { temporal, .. } = layout { temporal as usize } else { 1 };
    let mut values = memory::reserved::<f32>(pixels.len() * times, "the values of an image")?;
    let at =
        |x: usize, y: usize, channel: usize| table[channel][usize::from(pixels[(y * width + x) * CHANNELS + channel])];
    let shape = match layout {
        Layout::Channels => {
            for (channel, table) in table.iter().enumerate() {
                values.extend(pixels.iter().skip(channel).step_by(CHANNELS).map(|byte| table[usize::from(*byte)]));
            }
            vec![CHANNELS, height, width]
        }
        Layout::Patches { patch } => {
            let side = patch as usize;
            for (column, row) in squares(width / side, height / side) {
                for y in row * side..(row + 1) * side {
                    for x in column * side..(column + 1) * side {
                        values.extend((0..CHANNELS).map(|channel| at(x, y, channel)));
                    }
                }
            }
            vec![(width / side) * (height / side), side * side * CHANNELS]
        }
        Layout::Merged { patch, merge, temporal } => {
            let (side, merge, temporal) = (patch as usize, merge as usize, temporal as usize);
            let (columns, rows) = (width / side, height / side);
            let ordered = squares(columns / merge, rows / merge).flat_map(|(column, row)| {
                squares(merge, merge).map(move |(x, y)| (column * merge + x, row * merge + y))
            });
            for (column, row) in ordered {
                for channel in 0..CHANNELS {
                    let begin = values.len();
                    for y in row * side..(row + 1) * side {
                        values.extend((column * side..(column + 1) * side).map(|x| at(x, y, channel)));
                    }
                    for _ in 1..temporal {
                        values.extend_from_within(begin..begin + side * side);
                    }
                }
            }
            vec![columns * rows, CHANNELS * temporal * side * side]
        }
    };
    Ok(Pixels { shape, values })
}

/// Columns and rows from left to right and then down.
fn squares(columns: usize, rows: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).flat_map(move |row| (0..columns).map(move |column| (column, row)))
}
