//! Header -> VisionSpec: the tower of a model that also sees, its sizes and its tensors by role.

use super::images::{self, ImagePrompt};
use super::mmproj;
use super::patches::{Grid, PatchOrder};
use super::projector::{Language, Projector, ProjectorStep, deepstack};
use super::reader::Reader;
use super::tensors::{Options, Tensors};
use super::weights::{mapped, weights};
use super::{LayerWeights, LinearWeights, MapWeights, Sizes, Stored, WeightTypes, elements};
use crate::block::RopeLayout;
use crate::error::{ArchitectureErrorKind, Error, Result};
use crate::family::{Key, Role};
use crate::header::config::{ConfigFiles, Section};
use crate::header::{Fields, Metadata, Projector as Mmproj, TensorInfo, TensorTable};
use crate::quantization::Recognised;
use crate::vision::processor::ImageProcessor;
use crate::vision::{AxialTable, Interpolation, Names, TOWERS, Tower, WindowTable};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The section of a multimodal model's `config.json` for its tower.
const VISION_CONFIG: &str = "vision_config";

/// The tensors of the files, packed weights as matrices, and what quantized them.
type Files<'a> = (&'a TensorTable, &'a Recognised);

/// The tower of a model that also sees: what makes rows of the language model of an image. Every tensor in it exists and has the
/// right shape.
#[derive(Clone, Debug)]
pub struct VisionSpec {
    /// The name of the kind: `SigLIP of Gemma 3`.
    pub name: &'static str,
    /// Channels of a pixel.
    pub channels: usize,
    /// The side of a patch, in pixels.
    pub patch_size: usize,
    /// The patches of the largest image.
    pub largest: Grid,
    /// Whether an image may have fewer; its sides are whole multiples of [`multiple`](Self::multiple) patches.
    pub smaller: bool,
    /// Whether only their number is bounded, as that of `largest`, and not the sides.
    pub any_shape: bool,
    /// The most parts that an image is cut into; each has up to the patches of `largest`.
    pub parts: usize,
    /// The frames of a patch, as which an image is repeated; 1 where a patch is of an image.
    pub frames: usize,
    /// The order of the patches.
    pub order: PatchOrder,
    /// The side of the square of position embeddings that are interpolated to the patches of an image, and how, where they are.
    pub interpolated: Option<(usize, Interpolation)>,
    /// Of each block whether it attends within windows.
    pub windowed: Vec<bool>,
    /// How queries and keys are rotated by the places of patches, where they are.
    pub rope: Option<AxialRope>,
    /// Width of the residual stream of its blocks.
    pub hidden: usize,
    /// Width of a feed-forward layer.
    pub feed_forward: usize,
    /// Heads of queries, and as many of keys and values.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements of a row of the language model.
    pub output: usize,
    /// How images are prepared.
    pub processor: ImageProcessor,
    /// What stands for an image in a prompt.
    pub prompt: ImagePrompt,
    /// The weights by role.
    pub weights: VisionWeights,
}

/// A rotation by two places: the first half of a head's pairs by the row of a patch, the second half by its column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AxialRope {
    /// The base.
    pub theta: f64,
    /// Whether frequencies of rows and columns are every other one of those of a head; otherwise they are alike.
    pub alternating: bool,
    /// Which elements of a head are turned together.
    pub layout: RopeLayout,
}

weights! {
    /// The weights of a tower by role.
    pub struct VisionWeights<W> {
        /// The product that makes a row of the first block of a patch, `[hidden, channels * frames * patch_size * patch_size]`, or of
        /// its first frame.
        pub patches: W::Matrix = matrix,
        /// Those of its further frames, whose outputs are added up, where each frame has a product of its own.
        pub later_frames: Vec<W::Matrix> = list matrix,
        /// What is added to these rows, one for each patch of the largest image or of a square that is interpolated,
        /// `[patches, hidden]`.
        pub positions: Option<W::Matrix> = optional matrix,
        /// The norm of these rows, `[hidden]`.
        pub input_norm: Option<W::Norm> = optional norm,
        /// The blocks in order.
        pub layers: Vec<LayerWeights<W>> = list part,
        /// The norm of the residual stream after them, `[hidden]`.
        pub final_norm: Option<W::Norm> = optional norm,
        /// What makes rows of the language model of that, step by step.
        pub projector: Vec<ProjectorStep<W>> = list part,
        /// What makes rows that are added after the language model's first layers, in their order.
        pub deepstack: Vec<DeepstackWeights<W>> = list part,
    }

    /// What makes further rows of an image of the output of a block.
    pub struct DeepstackWeights<W> {
        /// The block.
        pub block: usize,
        /// The steps.
        pub steps: Vec<ProjectorStep<W>> = list part,
    }
}

impl VisionSpec {
    /// Elements of a patch.
    pub fn patch_elements(&self) -> usize {
        [self.frames, self.patch_size, self.patch_size].into_iter().fold(self.channels, usize::saturating_mul)
    }

    /// The patches of the largest image whose rows a context of so many tokens holds. Where sides bound images that is the largest
    /// one all the same: it is refused only when it is asked for.
    pub fn largest_within(&self, context: usize) -> Grid {
        let places = self.tokens(self.largest).min(context.max(1));
        if self.any_shape { Grid::of_places(places, self.multiple()) } else { self.largest }
    }

    /// The most parts of an image whose rows a context of so many tokens holds.
    pub fn parts_within(&self, context: usize) -> usize {
        self.parts.min(context.div_ceil(self.tokens(self.largest_within(context)).max(1))).max(1)
    }

    /// Elements of the rows of all parts of the largest image in a context of so many tokens.
    pub fn elements_within(&self, context: usize) -> usize {
        self.row_elements(self.largest_within(context)).saturating_mul(self.parts_within(context))
    }

    /// Elements of the rows of an image of these patches, with those that are added after layers of the language model.
    pub fn row_elements(&self, grid: Grid) -> usize {
        let lists = 1 + self.weights.deepstack.len();
        self.tokens(grid).saturating_mul(self.output).saturating_mul(lists)
    }

    /// The rows of the language model that an image of these patches becomes.
    pub fn tokens(&self, grid: Grid) -> usize {
        self.weights.projector.iter().fold(grid, |grid, step| step.left(grid)).patches()
    }

    /// The patches of which the sides of an image are whole multiples.
    pub fn multiple(&self) -> usize {
        self.weights.projector.iter().map(ProjectorStep::side).fold(1, usize::saturating_mul)
    }

    /// The tensors of its weights.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.weights.list().into_iter().flat_map(super::Weight::tensors)
    }

    /// Elements of all weights.
    pub fn parameters(&self) -> u64 {
        elements(self.tensors())
    }
}

/// Where the keys of a tower are.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// In `vision_config`.
    Config(Section<'a>, &'a ConfigFiles),
    /// In a GGUF file of its own.
    Mmproj(&'a Mmproj),
}

/// The table of the tower that a model of this class and with this `vision_config` has, and that section; or that of its `mmproj`.
fn known<'a>(text: &Reader<'a>) -> Result<Result<(&'static Tower, Place<'a>), String>> {
    let Metadata::Config(files) = &text.header.metadata else {
        return Ok(mmproj::known(text)?.map(|(tower, projector)| (tower, Place::Mmproj(projector))));
    };
    let Some(section) = files.config.section(VISION_CONFIG)? else {
        return Ok(Err(format!("config.json has no {VISION_CONFIG}")));
    };
    let kind = section.text("model_type")?;
    let of_kind = |tower: &&&Tower| kind.is_none_or(|kind| tower.model_types.contains(&kind));
    let of_class = TOWERS.iter().filter(|tower| tower.classes.contains(&text.architecture.as_str()));
    Ok(match of_class.clone().find(of_kind) {
        Some(tower) => Ok((*tower, Place::Config(section, files))),
        None => Err(match (kind, of_class.count()) {
            (Some(kind), 1..) => format!("{VISION_CONFIG}.model_type {kind} of {} is not known", text.architecture),
            _ => format!("the tower of {} is not known", text.architecture),
        }),
    })
}

/// The tower of the model whose text `text` reads, with a language model of `sizes`; the tensors that it uses, and those of its
/// file that are for something else.
///
/// # Errors
/// `Architecture` where it has none, or one that is not known; those of [`inspect`](super::inspect) for its keys and tensors.
pub(super) fn resolve(
    text: &Reader<'_>,
    files: Files<'_>,
    sizes: &Sizes,
) -> Result<(VisionSpec, BTreeSet<String>, Vec<String>)> {
    let (tower, place) = known(text)?.map_err(|missing| mmproj::no_tower(text, missing))?;
    let (config, projector) = match place {
        Place::Config(section, _) => (Some(section), None),
        Place::Mmproj(projector) => (None, Some(&projector.metadata)),
    };
    let class = if projector.is_some() { mmproj::CLIP } else { tower.config_class };
    let kind = config.as_ref().map_or(Ok(None), |section| section.text("model_type"))?;
    let reader = Reader {
        header: text.header,
        family: tower.encoder,
        architecture: class.to_owned(),
        model_type: kind.map(str::to_owned),
        config,
        projector,
        assumptions: RefCell::default(),
    };
    let of_text = Language { hidden: sizes.hidden, layers: sizes.layers, context: sizes.context, eps: text.norms()?.1 };
    let (spec, used, unused) = match place {
        Place::Config(_, config) => {
            let prepared = (images::processor(config, tower)?, ImagePrompt::read(text, tower, sizes.vocab)?);
            refuse_others(text, tower)?;
            let (spec, used) = spec(&reader, tower, files, of_text, prepared)?;
            (spec, used, Vec::new())
        }
        Place::Mmproj(projector) => {
            mmproj::check_width(&reader, sizes.hidden)?;
            let processor = mmproj::processor(&reader, &projector.metadata, tower)?;
            let prepared = (processor, ImagePrompt::read(text, tower, sizes.vocab)?);
            let table = mmproj::tensors(projector, tower, &reader)?;
            let (spec, used) = spec(&reader, tower, (&table, files.1), of_text, prepared)?;
            mmproj::check_deepstack(text, tower, spec.weights.deepstack.len())?;
            let unused = mmproj::unused(projector, &used, tower)?;
            (spec, used, unused)
        }
    };
    let section = if projector.is_some() { "mmproj" } else { VISION_CONFIG };
    for assumed in reader.assumptions.into_inner() {
        text.assume(format!("{section}: {assumed}"));
    }
    for assumed in &spec.processor.assumptions {
        text.assume(format!("images: {assumed}"));
    }
    spec.check_processor()?;
    Ok((spec, used, unused))
}

/// Notes a tower that is known and stored, and was not requested.
pub(super) fn note_unused(text: &Reader<'_>) -> Result<()> {
    if text.is_gguf() {
        return Ok(());
    }
    let Ok((tower, ..)) = known(text)? else { return Ok(()) };
    let name = tower.patches.embedding.config;
    let stores = |front: &&str| text.header.tensors.contains_key(&format!("{front}{name}.weight"));
    if tower.fronts.iter().any(stores) {
        text.assume(format!("images are not used: {} is loaded only where it is asked for", tower.name));
    }
    Ok(())
}

/// Refuses keys that would change the tower or its projector.
fn refuse_others(text: &Reader<'_>, tower: &Tower) -> Result<()> {
    let Metadata::Config(files) = &text.header.metadata else { return Ok(()) };
    for (key, expected) in tower.fixed {
        let found = files.config.object().get(*key).filter(|value| !value.is_null()).map(ToString::to_string);
        if let Some(found) = found.filter(|found| found != expected) {
            let (feature, key, expected) = (format!("{key} {found}"), (*key).to_owned(), (*expected).to_owned());
            let kind = ArchitectureErrorKind::Feature { feature, key, expected };
            return Err(Error::Architecture { file: files.config.file().into(), kind });
        }
    }
    Ok(())
}

fn spec(
    reader: &Reader<'_>,
    tower: &Tower,
    files: Files<'_>,
    language: Language,
    (processor, prompt): (ImageProcessor, ImagePrompt),
) -> Result<(VisionSpec, BTreeSet<String>)> {
    let sizes = reader.sizes()?;
    reader.refuse_flags()?;
    let activation = if reader.is_gguf() { mmproj::activation(reader, tower)? } else { reader.activation()? };
    let layers = reader.layers(&sizes)?;
    let ((norm, norm_eps), output_norm_eps) = (reader.norms()?, reader.output_norm_eps()?);
    let factors = reader.factors(&sizes, activation)?;
    let options = Options { norm, norm_eps, output_norm_eps, factors, layers, disentangled: None };
    let table = &tower.patches;
    let [patch_size, channels] = [table.patch_size, table.channels].map(|key| reader.size_or_table(key));
    // llama.cpp knows images of red, green and blue only.
    let channels = if reader.is_gguf() { Ok(3) } else { channels };
    let (patch_size, channels) = (patch_size?, channels?);
    let frames = match tower.mmproj.filter(|_| reader.is_gguf()) {
        Some(table) => table.frames,
        None => reader.size_if_any(table.frames)?.unwrap_or(1),
    };
    let squares = reader.squares(tower)?;
    let window = tower.windows.map(|table| reader.window(table, patch_size, squares.unwrap_or(1))).transpose()?;
    let order = match (squares, window) {
        (Some(side), Some(window)) => PatchOrder::Windows { side, window },
        (Some(side), None) => PatchOrder::Squares { side },
        (None, _) if table.by_pixel => PatchOrder::Pixels { by_channel: reader.is_gguf() },
        (None, _) => PatchOrder::Lines,
    };
    let largest = match reader.size_if_any(table.image_size)? {
        Some(image) if image < patch_size => {
            let [one, other] = [table.image_size, table.patch_size].map(|key| reader.path(&reader.key(key)));
            return Err(reader.contradiction(format!("{one} is {image}"), format!("{other} is {patch_size}")));
        }
        Some(image) => Grid { rows: image / patch_size, columns: image / patch_size },
        None => {
            let side = squares.unwrap_or(processor.joined() as usize);
            Grid::of_places(processor.most_patches() / side.saturating_mul(side).max(1), side)
        }
    };
    let interpolated = reader.interpolated(table.interpolated, patch_size)?;
    let layout = tower.mmproj.filter(|_| reader.is_gguf()).map_or(RopeLayout::HalfSplit, |table| table.layout);
    let rope = tower.rope.map(|table| reader.axial_rope(table, layout, sizes.head_dim)).transpose()?;

    let mut tensors = Tensors::new(reader, files.0, sizes, options, files.1);
    let weight = tower.patches.embedding.config;
    let stored = tower.fronts.iter().find(|front| tensors.stores(&format!("{front}{weight}.weight")));
    tensors.set_front(stored.or(tower.fronts.first()).copied().unwrap_or_default());
    let (patches, later_frames) = tensors.patches(tower, [channels, frames, patch_size, patch_size])?;
    let square = interpolated.map_or(largest, |side| Grid { rows: side, columns: side });
    let positions = table.positions.map(|names| tensors.positions(names, square)).transpose()?;
    let input_norm = table.norm.map(|_| tensors.norm(Role::EmbeddingNorm, None)).transpose()?;
    let layers = (0..sizes.layers).map(|layer| tensors.layer(layer, None)).collect::<Result<Vec<_>>>()?;
    // No more than there are tensors for.
    let windowed = reader.windowed(tower, layers.len())?;
    let final_norm = tensors.norm_if_named(Role::FinalNorm, None)?;
    let mut build =
        Projector { tensors: &mut tensors, grid: largest, order, width: sizes.hidden, language, list: None };
    let projector = build.steps(tower.projector)?;
    let deepstack = deepstack(&mut tensors, tower, (largest, order), language)?;
    let used = tensors.used;
    let weights =
        VisionWeights { patches, later_frames, positions, input_norm, layers, final_norm, projector, deepstack };
    let Sizes { hidden, feed_forward, heads, head_dim, .. } = sizes;
    let mut spec = VisionSpec {
        name: tower.name,
        channels,
        patch_size,
        largest,
        smaller: table.smaller,
        any_shape: table.image_size == Key::NONE,
        parts: processor.most_parts(),
        frames,
        order,
        interpolated: interpolated.map(|side| (side, table.interpolation)),
        windowed,
        rope,
        hidden,
        feed_forward,
        heads,
        head_dim,
        output: language.hidden,
        processor,
        prompt,
        weights,
    };
    let multiple = spec.multiple();
    let whole = |side: usize| side / multiple * multiple;
    spec.largest = Grid { rows: whole(largest.rows), columns: whole(largest.columns) };
    spec.largest = spec.largest_within(language.context);
    Ok((spec, used))
}

impl Reader<'_> {
    /// A size of which the table may have no key.
    pub(super) fn size_if_any(&self, key: Key) -> Result<Option<usize>> {
        if key == Key::NONE { Ok(None) } else { self.size_or_table(key).map(Some) }
    }

    /// The side of squares of patches, where they come in these.
    pub(super) fn squares(&self, tower: &Tower) -> Result<Option<usize>> {
        match tower.mmproj.and_then(|table| table.squares).filter(|_| self.is_gguf()) {
            Some(default) => mmproj::merge(self, (tower.patches.squares.gguf, default.0, default.1)).map(Some),
            None => self.size_if_any(tower.patches.squares),
        }
    }

    /// The side of a window in squares of `side` patches.
    fn window(&self, table: WindowTable, patch_size: usize, side: usize) -> Result<usize> {
        let pixels = if self.is_gguf() {
            self.or_default(None, table.side.config, table.gguf)
        } else {
            self.size_or_table(table.side)?
        };
        match pixels / side / patch_size {
            0 => {
                let one = format!("{} is {pixels}", self.path(table.side.config));
                Err(self.contradiction(one, format!("{side} by {side} patches of {patch_size} pixels become a row")))
            }
            window => Ok(window),
        }
    }

    /// Of each of `blocks` blocks whether it attends within windows.
    fn windowed(&self, tower: &Tower, blocks: usize) -> Result<Vec<bool>> {
        let Some(WindowTable { whole: (key, default, why), every, .. }) = tower.windows else {
            return Ok(vec![false; blocks]);
        };
        if self.is_gguf() {
            let every = self.size_or_table(Key::gguf(every))?;
            return Ok((1..=blocks).map(|block| !block.is_multiple_of(every)).collect());
        }
        let index =
            |value: &Value| value.as_u64().and_then(|block| usize::try_from(block).ok()).filter(|at| *at < blocks);
        let listed = self.listed(key, &format!("a block, from 0 to {}", blocks - 1), index)?;
        let listed = self.or_absent(listed, default.to_vec(), format_args!("{key} {default:?}"), key, why);
        Ok((0..blocks).map(|block| !listed.contains(&block)).collect())
    }

    /// The side of the square of position embeddings, whose number `key` gives. transformers takes the whole part of the root where
    /// that is no square: no published model has such a number.
    fn interpolated(&self, key: Key, patch_size: usize) -> Result<Option<usize>> {
        let Some(count) = self.size_if_any(key)? else { return Ok(None) };
        if self.is_gguf() {
            return match count / patch_size {
                0 => Err(self
                    .contradiction(format!("{} is {count}", self.key(key)), format!("a patch is {patch_size} wide"))),
                side => Ok(Some(side)),
            };
        }
        let side = count.isqrt();
        if side * side != count {
            return Err(self.value(key.config, count, "the square of a whole number".into()));
        }
        Ok(Some(side))
    }

    /// The rotation of heads of `head_dim` elements by rows and columns.
    fn axial_rope(&self, table: AxialTable, layout: RopeLayout, head_dim: usize) -> Result<AxialRope> {
        const KIND: &str = "rope_parameters.rope_type";
        if let Some(kind) = self.fields().text(KIND)?.filter(|kind| !["axial", "default"].contains(kind)) {
            return Err(self.feature(&format!("a rotation {kind} of patches"), KIND, "axial"));
        }
        if !head_dim.is_multiple_of(4) {
            let one = format!("heads have {head_dim} elements");
            return Err(self.contradiction(one, "half of their pairs turn by rows, the others by columns".into()));
        }
        let number = |key: &str| self.fields().number(key);
        let theta = number("rope_parameters.rope_theta")?.or(number("rope_theta")?);
        let theta = if self.is_gguf() { number(&self.gguf_key(".rope.freq_base"))? } else { theta };
        let theta = self.or_default(theta, "rope_theta", table.theta);
        match theta > 1.0 && theta.is_finite() {
            true => Ok(AxialRope { theta, alternating: table.alternating, layout }),
            false => Err(self.value("rope_theta", theta, "a number above 1".into())),
        }
    }
}

impl Tensors<'_> {
    /// The product over a patch of `[channels, frames, rows, columns]` pixels, or over its first frame and those over the others.
    fn patches(&mut self, tower: &Tower, patch: [usize; 4]) -> Result<(LinearWeights, Vec<LinearWeights>)> {
        let Names { gguf, config } = tower.patches.embedding;
        let (hidden, stem) = (self.sizes.hidden as u64, self.pattern(gguf, config));
        let [channels, frames, side, _] = patch;
        let (has_frames, apart) = (tower.patches.frames != Key::NONE, self.reader.is_gguf());
        let said = if has_frames { format!(" of {frames} frames") } else { String::new() };
        let because = format!("width {hidden}, {channels} channels, patches of {side} by {side} pixels{said}");
        let extents = patch.map(|extent| extent as u64);
        let extents = extents.into_iter().enumerate().filter(|(axis, _)| has_frames && !apart || *axis != 1);
        let shape: Vec<u64> = std::iter::once(hidden).chain(extents.map(|(_, extent)| extent)).collect();
        let flat = tower.patches.by_pixel && !apart;
        let shape = if flat { vec![hidden, shape[1..].iter().product()] } else { shape };
        let mut kernel = |frame: usize| -> Result<TensorInfo> {
            let name = if frame == 0 { format!("{stem}.weight") } else { format!("{stem}.weight.{frame}") };
            let stored = self.checked(&name, &shape, &because)?;
            self.check_matrix_dtype(&stored)?;
            // The elements of a kernel lie one after the other: it is a row of a matrix.
            Ok(TensorInfo { shape: vec![hidden, shape[1..].iter().product()], ..stored })
        };
        let weight = kernel(0)?;
        let later = (1..if apart { frames } else { 1 }).map(|frame| kernel(frame).map(LinearWeights::new));
        let later = later.collect::<Result<_>>()?;
        let bias =
            tower.patches.bias.then(|| self.checked(&format!("{stem}.bias"), &[hidden], &because)).transpose()?;
        bias.iter().try_for_each(|bias| self.check_vector_dtype(bias))?;
        Ok((LinearWeights { bias, ..LinearWeights::new(weight) }, later))
    }

    /// The position embeddings of the patches of `grid`.
    fn positions(&mut self, names: Names, grid: Grid) -> Result<LinearWeights> {
        let (name, count) = (format!("{}.weight", self.pattern(names.gguf, names.config)), grid.patches());
        let shape = [count as u64, self.sizes.hidden as u64];
        let because = format!("{} by {} patches, width {}", grid.rows, grid.columns, self.sizes.hidden);
        let stored = self.checked(&name, &shape, &because)?;
        self.check_matrix_dtype(&stored)?;
        Ok(LinearWeights::new(stored))
    }
}
