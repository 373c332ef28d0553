//! The images of a sequence in a file: what is computed again needs their vectors.

use super::file::{CHECKSUM, Reader, Writer};
use super::header::SavedImage;
use crate::error::{Error, Result};
use crate::input::{Input, SoftTokens, Span};
use crate::memory;
use crate::model::Model;
use std::sync::Arc;

/// The images of `input`, as the header has them.
pub(super) fn described(input: &Input) -> Vec<SavedImage> {
    let image = |Span { start, tokens }: &Span| SavedImage {
        start: *start as u64,
        rows: tokens.rows() as u64,
        digest: *tokens.digest(),
        grid: tokens.grid(),
        deepstack: tokens.deepstack().len() as u64,
    };
    input.spans().iter().map(image).collect()
}

pub(super) fn write(out: &mut Writer, input: &Input) -> std::io::Result<()> {
    input.spans().iter().try_for_each(|Span { tokens, .. }| {
        out.write(bytemuck::cast_slice(tokens.values()))?;
        tokens.deepstack().iter().try_for_each(|values| out.write(bytemuck::cast_slice(values)))?;
        out.end()
    })
}

/// Bytes of the vectors of `images`, each `hidden` wide.
pub(super) fn bytes(images: &[SavedImage], hidden: usize) -> u64 {
    let each = |SavedImage { rows, deepstack, .. }: &SavedImage| {
        let values = rows.saturating_mul(hidden as u64).saturating_mul(deepstack.saturating_add(1));
        values.saturating_mul(size_of::<f32>() as u64).saturating_add(CHECKSUM)
    };
    images.iter().map(each).fold(0, u64::saturating_add)
}

/// Reads the vectors of `images`, whose bytes the file has, and puts them among `ids`.
pub(super) fn read(file: &mut Reader<'_>, images: &[SavedImage], ids: Vec<u32>, model: &Model) -> Result<Input> {
    let mut spans: Vec<Span> = memory::reserved(images.len(), "the images of a session")?;
    for (index, image) in images.iter().enumerate() {
        let wrong = |error: &dyn std::fmt::Display, file: &Reader<'_>| {
            let found = format!("image {index}, of which {error}");
            file.malformed("list of images", found, "images that the model takes")
        };
        if image.rows == 0 {
            return Err(file.malformed("list of images", format_args!("image {index} of no rows"), "at least one row"));
        }
        let mut values = || -> Result<Vec<f32>> {
            let mut values = memory::zeros(image.rows as usize * model.spec().hidden, "the vectors of an image")?;
            file.read(bytemuck::cast_slice_mut(&mut values))?;
            Ok(values)
        };
        let first = values()?;
        let mut deepstack = memory::reserved(image.deepstack as usize, "the vectors of an image")?;
        for _ in 0..image.deepstack {
            deepstack.push(values()?);
        }
        file.end("image")?;
        let tokens = SoftTokens::new(first, model.spec().hidden, image.digest);
        let tokens = tokens.and_then(|tokens| tokens.with_deepstack(deepstack));
        let tokens = tokens.and_then(|tokens| match image.grid {
            Some(grid) => tokens.with_grid(grid),
            None => Ok(tokens),
        });
        let tokens = tokens.map_err(|error| wrong(&error, file))?;
        model.compute().check_soft_tokens(&tokens).map_err(Error::from).map_err(|error| wrong(&error, file))?;
        spans.push(Span { start: usize::try_from(image.start).unwrap_or(usize::MAX), tokens: Arc::new(tokens) });
    }
    let count = ids.len();
    Input::from_parts(ids, spans).ok_or_else(|| {
        let expected = format_args!("images one after the other within {count} ids").to_string();
        file.malformed("list of images", "images at other places", expected)
    })
}
