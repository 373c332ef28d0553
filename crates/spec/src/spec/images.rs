//! What a model that sees makes of an image before its tower: how it is prepared, and what stands for it in a prompt.

use super::mmproj;
use super::patches::Grid;
use super::reader::Reader;
use super::vision::VisionSpec;
use crate::error::{ArchitectureErrorKind, Error, Result};
use crate::header::config::{ConfigFiles, JsonFile, PREPROCESSOR_FILE};
use crate::header::{Fields, Metadata};
use crate::vision::processor::{Geometry, ImageProcessor, Rule, Size, SizeError, Tiles};
use crate::vision::{IdKey, PromptPiece, Tower};

/// What stands for an image in a prompt. Ids are below the size of the vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePrompt {
    /// The token that the chat template writes for an image.
    pub mark: u32,
    /// The token that holds the place of each row of an image.
    pub placeholder: u32,
    /// What becomes of the mark.
    pub pieces: Vec<PromptPiece<u32>>,
}

impl ImagePrompt {
    /// The tokens of `tower` in the language model that `text` reads, whose vocabulary has `vocab`.
    pub(super) fn read(text: &Reader<'_>, tower: &Tower, vocab: usize) -> Result<ImagePrompt> {
        let id = |(key, default, why): IdKey| {
            let id = match &text.header.metadata {
                Metadata::Config(files) => text.or_default(files.config.unsigned(key)?, key, (default.into(), why)),
                Metadata::Gguf(_) => mmproj::token(text, tower, key)?,
            };
            let known = u32::try_from(id).ok().filter(|id| (*id as usize) < vocab);
            known.ok_or_else(|| {
                text.contradiction(format!("{key} is {id}"), format!("the vocabulary has {vocab} tokens"))
            })
        };
        let piece = |piece: &PromptPiece<IdKey>| {
            Ok(match *piece {
                PromptPiece::Text(text) => PromptPiece::Text(text),
                PromptPiece::Token(key) => PromptPiece::Token(id(key)?),
                PromptPiece::Special(text) => PromptPiece::Special(text),
                PromptPiece::Rows => PromptPiece::Rows,
                PromptPiece::Lines(text) => PromptPiece::Lines(text),
                PromptPiece::Tiles { tile, line, overview } => PromptPiece::Tiles { tile, line, overview },
            })
        };
        let pieces = tower.prompt.pieces.iter().map(piece).collect::<Result<_>>()?;
        Ok(ImagePrompt { mark: id(tower.prompt.mark)?, placeholder: id(tower.prompt.placeholder)?, pieces })
    }
}

/// The processor that `files` describe, which must be one that prepares images for `tower`.
pub(super) fn processor(files: &ConfigFiles, tower: &Tower) -> Result<ImageProcessor> {
    let read = |index: usize| files.processors[index].as_deref().map(JsonFile::read).transpose();
    let found = ImageProcessor::from_files(read(0)?.as_ref(), read(1)?.as_ref())?;
    let found = found.ok_or_else(|| {
        let why = "it says how images are prepared; download it from the model's repository into this folder";
        Error::file_missing(files.config.file(), PREPROCESSOR_FILE, why)
    })?;
    if tower.processors.contains(&found.class) {
        return Ok(found);
    }
    let (feature, expected) = (format!("the image processor {}", found.class), tower.processors.join(" or "));
    let kind = ArchitectureErrorKind::Feature { feature, key: "image_processor_type".into(), expected };
    Err(Error::Architecture { file: found.file, kind })
}

impl VisionSpec {
    /// Refuses a processor whose images are others than the tower takes.
    pub(super) fn check_processor(&self) -> Result<()> {
        let file = &self.processor.file;
        let contradiction = |one: String, other: String| Err(Error::contradiction(file, one, other));
        let Grid { rows, columns } = self.largest;
        if let Rule::Within { limit, patch, merge } = self.processor.rule {
            let (own, unit) = ([self.patch_size, self.multiple()], patch.saturating_mul(merge).max(1));
            if [patch as usize, merge as usize] != own {
                let one = format!("images are squares of {merge} by {merge} patches of {patch} pixels");
                return contradiction(one, format!("the tower has {} by {} of {}", own[1], own[1], own[0]));
            }
            let most = [limit.width, limit.height].map(|side| (side.div_ceil(unit) * merge) as usize);
            if most[0] > columns || most[1] > rows {
                let one = format!("images have up to {} by {} patches", most[0], most[1]);
                return contradiction(one, format!("the tower takes {columns} by {rows}"));
            }
        }
        if let Rule::Tiles(Tiles { patch, downsample_factor, tiles, .. }) = self.processor.rule {
            let (found, own) = ([patch, downsample_factor].map(|count| count as usize), self.multiple());
            if found != [self.patch_size, own] {
                let one = format!("images are squares of {} by {} patches of {} pixels", found[1], found[1], found[0]);
                return contradiction(one, format!("the tower has {own} by {own} of {}", self.patch_size));
            }
            let square = patch.saturating_mul(downsample_factor);
            if let Some((side, ..)) = tiles.filter(|(side, ..)| !side.is_multiple_of(square)) {
                let other = format!("{square} pixels become a row of the language model");
                return contradiction(format!("tile_size is {side}"), other);
            }
        }
        if let Rule::Smart { patch, merge, temporal, .. } = self.processor.rule {
            let (found, own) = ([patch, merge, temporal].map(|count| count as usize), self.multiple());
            if found != [self.patch_size, own, self.frames] {
                let said = |[patch, merge, frames]: [usize; 3]| {
                    format!("{merge} by {merge} patches of {patch} by {patch} pixels and {frames} frames")
                };
                let one = format!("images are squares of {}", said(found));
                return contradiction(one, format!("the tower has {}", said([self.patch_size, own, self.frames])));
            }
        }
        let fixed = match self.processor.rule {
            Rule::Fixed { size, tokens } => Some((size, tokens)),
            Rule::Squares { side, tokens, .. } => Some((Size { width: side, height: side }, Some(tokens))),
            _ => None,
        };
        if let Some((size, tokens)) = fixed {
            let taken = [columns, rows].map(|patches| patches.saturating_mul(self.patch_size));
            if [size.width as usize, size.height as usize] != taken {
                let one = format!("images are resized to {} by {} pixels", size.width, size.height);
                return contradiction(one, format!("the tower takes {} by {}", taken[0], taken[1]));
            }
            let becomes = self.tokens(self.largest) as u64;
            if let Some(tokens) = tokens.filter(|tokens| *tokens != becomes) {
                let one = format!("an image is {tokens} tokens");
                return contradiction(one, format!("the tower makes {becomes} rows of it"));
            }
        }
        Ok(())
    }

    /// The patches of each part of an image of this size, as the tower sees them.
    ///
    /// # Errors
    /// When the model does not take images of this size.
    pub fn grids(&self, image: Size) -> Result<Vec<Grid>, SizeError> {
        Ok(self.grids_of(&self.processor.geometry(image)?))
    }

    /// Rows of the language model from left to right in an image of these patches.
    pub fn columns(&self, grid: Grid) -> usize {
        self.weights.projector.iter().fold(grid, |grid, step| step.left(grid)).columns
    }

    /// The patches of each part of an image that becomes `geometry`.
    pub fn grids_of(&self, geometry: &Geometry) -> Vec<Grid> {
        let side = |pixels: u32| pixels as usize / self.patch_size;
        geometry
            .parts
            .iter()
            .map(|part| Grid { rows: side(part.size.height), columns: side(part.size.width) })
            .collect()
    }
}
