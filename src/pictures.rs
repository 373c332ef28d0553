//! Images of messages -> rows of the language model.

use crate::cancel::{CancellationToken, Cancelled};
use crate::chat::{Message, RenderedChat};
use crate::decoder::ImageVectors;
use crate::error::{Error, ImageError, Result};
use crate::input::{Input, SoftTokens, Span};
use crate::memory;
use crate::model::Model;
use model_factory_diagnostics::plan::KEPT_IMAGES;
use model_factory_diagnostics::spec::{Grid, VisionSpec};
use model_factory_diagnostics::vision::PromptPiece;
use model_factory_diagnostics::vision::processor::Place;
use model_factory_images::{Image, Limits, Picture, Values};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The rows of an image, in as many parts as other tokens divide it into.
type Rows = Arc<[Arc<SoftTokens>]>;

/// The rows of the images that were computed last.
#[derive(Debug, Default)]
pub(crate) struct ImageCache {
    /// With the digests of the images, the last one first.
    kept: Mutex<VecDeque<([u8; 32], Rows)>>,
    /// Files are decoded one at a time, as their pixels may take much memory.
    decoding: Turns,
    /// The plan counts the memory of one image that is computed.
    computing: Turns,
}

/// What one at a time does, while others wait for their turn.
#[derive(Debug, Default)]
struct Turns {
    taken: Mutex<bool>,
    ended: Condvar,
}

/// A turn, which ends when it is dropped.
struct Turn<'t>(&'t Turns);

impl Turns {
    /// How long a cancellation may be unseen while others have their turn.
    const UNSEEN: Duration = Duration::from_millis(10);

    /// The next turn.
    ///
    /// # Errors
    /// `Cancelled` once `cancel` is, whoever has the turn.
    fn take(&self, cancel: &CancellationToken) -> Result<Turn<'_>, Cancelled> {
        let mut taken = lock(&self.taken);
        while *taken {
            cancel.check()?;
            (taken, _) = self.ended.wait_timeout(taken, Turns::UNSEEN).unwrap_or_else(PoisonError::into_inner);
        }
        cancel.check()?;
        *taken = true;
        Ok(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.taken) = false;
        self.0.ended.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ImageCache {
    fn find(&self, digest: &[u8; 32]) -> Option<Rows> {
        let mut kept = lock(&self.kept);
        let found = kept.iter().position(|(other, _)| other == digest)?;
        let (digest, rows) = kept.remove(found)?;
        kept.push_front((digest, Arc::clone(&rows)));
        Some(rows)
    }

    /// Keeps `rows`, and of those before only as many as `most` values hold.
    fn keep(&self, digest: [u8; 32], rows: &Rows, most: usize) {
        let mut kept = lock(&self.kept);
        kept.push_front((digest, Arc::clone(rows)));
        let mut values = 0;
        kept.retain(|(_, rows)| {
            values += rows.iter().map(|part| part.values().len() * (1 + part.deepstack().len())).sum::<usize>();
            values <= most
        });
    }
}

/// The images of `messages`, in order.
pub(crate) fn of(messages: &[Message]) -> impl Iterator<Item = &Image> {
    messages.iter().flat_map(|message| &message.images)
}

impl Model {
    fn vision(&self, images: usize) -> Result<&VisionSpec> {
        self.spec().vision.as_deref().ok_or_else(|| ImageError::NoTower { images }.into())
    }

    /// `rendered` with the tokens that stand for the images of `messages`, of which only the sizes are read.
    ///
    /// # Errors
    /// `Image`; `Chat` where the template does not write a mark for each; `ContextOverflow` for more rows than `limit`.
    pub(crate) fn with_images(
        &self,
        rendered: RenderedChat,
        messages: &[Message],
        limit: usize,
    ) -> Result<RenderedChat> {
        let images: Vec<&Image> = of(messages).collect();
        if images.is_empty() {
            return Ok(rendered);
        }
        let (vision, mut texts, mut asked) = (self.vision(images.len())?, Vec::new(), 0_usize);
        let token =
            |id: u32| self.tokenizer().token_text(id).ok_or_else(|| ImageError::NoToken { token: id.to_string() });
        let special = |text: &'static str| match self.tokenizer().added_token(text) {
            Some(_) => Ok(text),
            None => Err(ImageError::NoToken { token: text.to_owned() }),
        };
        for (number, image) in (1..).zip(images) {
            let size = Picture::open_size(image, &Limits::default());
            let geometry = size.and_then(|size| Ok(vision.processor.geometry(size)?));
            let geometry = geometry.map_err(|error| refused(number, image, error))?;
            let grids = vision.grids_of(&geometry);
            let parts = || geometry.parts.iter().zip(grids.iter().map(|grid| vision.tokens(*grid)));
            asked = asked.saturating_add(parts().map(|(_, rows)| rows).sum());
            if asked > limit {
                return Err(Error::ContextOverflow { limit, asked });
            }
            let (mut text, placeholder) = (String::new(), token(vision.prompt.placeholder)?);
            for piece in &vision.prompt.pieces {
                match piece {
                    PromptPiece::Text(piece) => text.push_str(piece),
                    PromptPiece::Token(id) => text.push_str(&token(*id)?),
                    PromptPiece::Special(piece) => text.push_str(special(piece)?),
                    PromptPiece::Rows => {
                        let whole = parts().filter(|(part, _)| !matches!(part.place, Place::Tile { .. }));
                        text.push_str(&placeholder.repeat(whole.map(|(_, rows)| rows).sum()));
                    }
                    PromptPiece::Tiles { tile, line, overview } => {
                        let mut current = None;
                        for (part, rows) in parts() {
                            let ended = match (part.place, current) {
                                (Place::Tile { row, .. }, Some(before)) => row != before,
                                (_, before) => before.is_some(),
                            };
                            if ended {
                                text.push_str(line);
                            }
                            let Place::Tile { row, column } = part.place else {
                                if ended {
                                    text.push_str(overview);
                                }
                                continue;
                            };
                            let [named, numbered] = [("{row}", row + 1), ("{column}", column + 1)];
                            let tile = tile.replace(named.0, &named.1.to_string());
                            text.push_str(&tile.replace(numbered.0, &numbered.1.to_string()));
                            text.push_str(&placeholder.repeat(rows));
                            current = Some(row);
                        }
                    }
                    PromptPiece::Lines(between) => {
                        let lines = grids.iter().flat_map(|grid| lines(vision, *grid));
                        let lines: Vec<String> = lines.map(|rows| placeholder.repeat(rows)).collect();
                        text.push_str(&lines.join(special(between)?));
                    }
                }
            }
            texts.push(text);
        }
        Ok(rendered.with_images(&token(vision.prompt.mark)?, &texts)?)
    }

    /// The ids of a prompt that `messages` made, with the rows of their images, which are computed where they were not seen before.
    ///
    /// # Errors
    /// `Image`, `Cancelled`, `OutOfMemory`.
    pub(crate) fn with_rows(&self, ids: Vec<u32>, messages: &[Message], cancel: &CancellationToken) -> Result<Input> {
        let (images, mut spans, mut at) = (of(messages).count(), Vec::new(), 0);
        if images > 0 {
            let placeholder = self.vision(images)?.prompt.placeholder;
            let holds = |id: &&u32| **id == placeholder;
            let places = |expected: usize| ImageError::Places { found: ids.iter().filter(holds).count(), expected };
            let mut rows = 0;
            for (number, image) in (1..).zip(of(messages)) {
                for tokens in self.see(number, image, cancel)?.iter() {
                    let expected = tokens.rows();
                    rows += expected;
                    let start = ids[at..].iter().position(|id| *id == placeholder).ok_or_else(|| places(rows))?;
                    let start = at + start;
                    let found = ids[start..].iter().take(expected).take_while(holds).count();
                    if found < expected {
                        return Err(ImageError::Changed { number, found: expected, expected: found }.into());
                    }
                    at = start + expected;
                    spans.push(Span { start, tokens: Arc::clone(tokens) });
                }
            }
            if ids[at..].contains(&placeholder) {
                return Err(places(rows).into());
            }
        }
        Input::from_parts(ids, spans).ok_or_else(|| Error::Internal("images overlap".into()))
    }

    /// The rows of an image, in as many parts as other tokens divide it into.
    fn see(&self, number: usize, image: &Image, cancel: &CancellationToken) -> Result<Rows> {
        let vision = self.vision(number)?;
        let Some(tower) = self.tower() else { return Err(ImageError::NoTower { images: number }.into()) };
        let cache = &self.inner.image_cache;
        let turn = cache.decoding.take(cancel)?;
        let prepared = || Values::new(&Picture::open(image, &Limits::default())?, &vision.processor);
        let values = prepared().map_err(|error| refused(number, image, error))?;
        drop(turn);
        let tokens: usize = vision.grids_of(&values.geometry).iter().map(|grid| vision.tokens(*grid)).sum();
        let most = tower.sizes().tokens;
        if tokens > most {
            return Err(ImageError::Planned { number, tokens, most }.into());
        }
        let digest = digest(&values);
        if let Some(rows) = cache.find(&digest) {
            return Ok(rows);
        }
        let _turn = cache.computing.take(cancel)?;
        // Another request may have brought the same image meanwhile.
        if let Some(rows) = cache.find(&digest) {
            return Ok(rows);
        }
        let mut parts = Vec::new();
        for (grid, pixels) in vision.grids_of(&values.geometry).into_iter().zip(&values.parts) {
            cancel.check()?;
            let ImageVectors { rows, deepstack, .. } = tower.forward(&pixels.values, grid, cancel)?;
            let part = |rows: Vec<f32>, index: usize| {
                let digest = Sha256::new().chain_update(digest).chain_update((index as u64).to_le_bytes()).finalize();
                Ok::<_, Error>(SoftTokens::new(rows, vision.output, digest.into())?)
            };
            if !vision.prompt.pieces.iter().any(|piece| matches!(piece, PromptPiece::Lines(_))) {
                let whole = part(rows, parts.len())?.with_deepstack(deepstack)?;
                let columns = vision.columns(grid);
                let sections = self.spec().ropes.iter().any(|rope| rope.sections.is_some());
                let grid = sections.then(|| [1, whole.rows() / columns.max(1), columns]);
                parts.push(Arc::new(match grid {
                    Some(grid) => whole.with_grid(grid)?,
                    None => whole,
                }));
                continue;
            }
            for line in rows.chunks(vision.columns(grid).saturating_mul(vision.output).max(1)) {
                parts.push(Arc::new(part(memory::copied(line, "rows of an image")?, parts.len())?));
            }
        }
        let rows: Rows = parts.into();
        let largest = vision.elements_within(most);
        cache.keep(digest, &rows, largest.saturating_mul(KEPT_IMAGES));
        Ok(rows)
    }
}

/// The numbers of rows of the lines of an image.
fn lines(vision: &VisionSpec, grid: Grid) -> impl Iterator<Item = usize> {
    let columns = vision.columns(grid);
    std::iter::repeat_n(columns, vision.tokens(grid) / columns.max(1))
}

/// What stands for the image in shared prefixes and saved sessions: its values, as the processor made them.
fn digest(values: &Values) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in &values.parts {
        for extent in &part.shape {
            hash.update((*extent as u64).to_le_bytes());
        }
        let mut bytes = [0; 4096];
        for values in part.values.chunks(bytes.len() / size_of::<f32>()) {
            let used = size_of_val(values);
            for (to, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
                *to = value.to_le_bytes();
            }
            hash.update(&bytes[..used]);
        }
    }
    hash.finalize().into()
}

fn refused(number: usize, image: &Image, source: model_factory_images::Error) -> Error {
    match source {
        model_factory_images::Error::Memory(refused) => Error::OutOfMemory(refused),
        source => ImageError::Picture { number, given: image.to_string(), source: Arc::new(source) }.into(),
    }
}
