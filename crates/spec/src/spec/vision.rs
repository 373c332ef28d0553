//! Header -> VisionSpec: the tower of a model that also sees, its sizes and its tensors by role.

use super::images::{self, ImagePrompt};
use super::mmproj;
use super::reader::Reader;
use super::tensors::{Options, Tensors};
use super::weights::{mapped, weights};
use super::{LayerWeights, LinearWeights, MapWeights, Norm, NormWeights, Sizes, Stored, WeightTypes, elements};
use crate::block::{DenseActivation, RopeLayout};
use crate::error::{ArchitectureErrorKind, Error, Result};
use crate::family::{Bias, NormKind, Role};
use crate::header::config::{ConfigFiles, Section};
use crate::header::{Fields, Metadata, Projector as Mmproj, TensorInfo, TensorTable};
use crate::quantization::Recognised;
use crate::vision::processor::ImageProcessor;
use crate::vision::{AxialTable, Epsilon, Names, Outputs, Step, TOWERS, Tower};
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

/// The patches of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Patches from top to bottom.
    pub rows: usize,
    /// Patches from left to right.
    pub columns: usize,
}

impl Grid {
    /// The number of patches.
    pub fn patches(self) -> usize {
        self.rows.saturating_mul(self.columns)
    }
}

weights! {
    /// The weights of a tower by role.
    pub struct VisionWeights<W> {
        /// The product that makes a row of the first block of a patch, `[hidden, channels * patch_size * patch_size]`.
        pub patches: W::Matrix = matrix,
        /// What is added to these rows, one for each patch of the largest image, `[patches, hidden]`.
        pub positions: Option<W::Matrix> = optional matrix,
        /// The norm of these rows, `[hidden]`.
        pub input_norm: Option<W::Norm> = optional norm,
        /// The blocks in order.
        pub layers: Vec<LayerWeights<W>> = list part,
        /// The norm of the residual stream after them, `[hidden]`.
        pub final_norm: Option<W::Norm> = optional norm,
        /// What makes rows of the language model of that, step by step.
        pub projector: Vec<ProjectorStep<W>> = list part,
    }
}

/// A step of a projector, over rows of an image. Complete.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum ProjectorStep<W: WeightTypes = Stored> {
    /// Each square of `side` by `side` rows becomes their mean.
    Mean { side: usize },
    /// The rows of each square of `side` by `side` become one, side by side from left to right and then down; `by_element` the first
    /// elements of all of them, then the second ones, and so on.
    Merge { side: usize, by_element: bool },
    /// The norm of each row.
    Norm(W::Norm),
    /// A linear layer.
    Linear(W::Matrix),
    /// An activation.
    Activation(DenseActivation),
}

impl<W: WeightTypes> ProjectorStep<W> {
    fn try_map<'w, M: MapWeights<'w, W>>(&'w self, map: &mut M) -> Result<ProjectorStep<M::To>, M::Error> {
        Ok(match self {
            ProjectorStep::Mean { side } => ProjectorStep::Mean { side: *side },
            &ProjectorStep::Merge { side, by_element } => ProjectorStep::Merge { side, by_element },
            ProjectorStep::Norm(norm) => ProjectorStep::Norm(map.norm(norm)?),
            ProjectorStep::Linear(linear) => ProjectorStep::Linear(map.matrix(linear)?),
            ProjectorStep::Activation(activation) => ProjectorStep::Activation(*activation),
        })
    }

    /// The side of the squares of patches that become one.
    pub fn side(&self) -> usize {
        match self {
            ProjectorStep::Mean { side } | ProjectorStep::Merge { side, .. } => *side,
            ProjectorStep::Norm(_) | ProjectorStep::Linear(_) | ProjectorStep::Activation(_) => 1,
        }
    }

    /// The patches that are left of `grid`.
    pub fn left(&self, grid: Grid) -> Grid {
        Grid { rows: grid.rows / self.side(), columns: grid.columns / self.side() }
    }
}

impl VisionSpec {
    /// Elements of a patch.
    pub fn patch_elements(&self) -> usize {
        self.channels.saturating_mul(self.patch_size).saturating_mul(self.patch_size)
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
    let of_text = (sizes.hidden, text.norms()?.1);
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
        match files.config.object().get(*key).filter(|value| !value.is_null()) {
            Some(value) if value.to_string() != *expected => {
                let (feature, key, expected) = (format!("{key} {value}"), (*key).to_owned(), (*expected).to_owned());
                let kind = ArchitectureErrorKind::Feature { feature, key, expected };
                return Err(Error::Architecture { file: files.config.file().into(), kind });
            }
            _ => {}
        }
    }
    Ok(())
}

fn spec(
    reader: &Reader<'_>,
    tower: &Tower,
    files: Files<'_>,
    (output, text_eps): (usize, f64),
    (processor, prompt): (ImageProcessor, ImagePrompt),
) -> Result<(VisionSpec, BTreeSet<String>)> {
    let sizes = reader.sizes()?;
    reader.refuse_flags()?;
    let activation = if reader.is_gguf() { mmproj::activation(reader, tower)? } else { reader.activation()? };
    let layers = reader.layers(&sizes)?;
    let ((norm, norm_eps), output_norm_eps) = (reader.norms()?, reader.output_norm_eps()?);
    let factors = reader.factors(&sizes, activation)?;
    let options = Options { norm, norm_eps, output_norm_eps, factors, layers, disentangled: None };
    let [image, patch_size, channels] = [tower.patches.image_size, tower.patches.patch_size, tower.patches.channels]
        .map(|key| reader.size_or_table(key));
    // llama.cpp knows images of red, green and blue only.
    let channels = if reader.is_gguf() { Ok(3) } else { channels };
    let (image, patch_size, channels) = (image?, patch_size?, channels?);
    let side = image / patch_size;
    if side == 0 {
        let [one, other] =
            [tower.patches.image_size, tower.patches.patch_size].map(|key| reader.path(&reader.key(key)));
        return Err(reader.contradiction(format!("{one} is {image}"), format!("{other} is {patch_size}")));
    }
    let largest = Grid { rows: side, columns: side };
    let layout = tower.mmproj.filter(|_| reader.is_gguf()).map_or(RopeLayout::HalfSplit, |table| table.layout);
    let rope = tower.rope.map(|table| reader.axial_rope(table, layout, sizes.head_dim)).transpose()?;

    let mut tensors = Tensors::new(reader, files.0, sizes, options, files.1);
    let weight = tower.patches.embedding.config;
    let stored = tower.fronts.iter().find(|front| tensors.stores(&format!("{front}{weight}.weight")));
    tensors.set_front(stored.or(tower.fronts.first()).copied().unwrap_or_default());
    let patches = tensors.patches(tower, [channels, patch_size, patch_size])?;
    let positions = tower.patches.positions.map(|names| tensors.positions(names, largest)).transpose()?;
    let input_norm = tower.patches.norm.map(|_| tensors.norm(Role::EmbeddingNorm, None)).transpose()?;
    let layers = (0..sizes.layers).map(|layer| tensors.layer(layer, None)).collect::<Result<Vec<_>>>()?;
    let final_norm = tensors.norm_if_named(Role::FinalNorm, None)?;
    let mut build = Projector { tensors: &mut tensors, grid: largest, width: sizes.hidden, output, text_eps };
    let projector = tower.projector.iter().map(|step| build.step(step)).collect::<Result<Vec<_>>>()?;
    let used = tensors.used;
    let weights = VisionWeights { patches, positions, input_norm, layers, final_norm, projector };
    let Sizes { hidden, feed_forward, heads, head_dim, .. } = sizes;
    let mut spec = VisionSpec {
        name: tower.name,
        channels,
        patch_size,
        largest,
        smaller: tower.patches.smaller,
        rope,
        hidden,
        feed_forward,
        heads,
        head_dim,
        output,
        processor,
        prompt,
        weights,
    };
    let multiple = spec.multiple();
    spec.largest = Grid { rows: side / multiple * multiple, columns: side / multiple * multiple };
    Ok((spec, used))
}

impl Reader<'_> {
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
    /// The product over a patch of `[channels, rows, columns]` pixels.
    fn patches(&mut self, tower: &Tower, patch: [usize; 3]) -> Result<LinearWeights> {
        let Names { gguf, config } = tower.patches.embedding;
        let (hidden, stem) = (self.sizes.hidden as u64, self.pattern(gguf, config));
        let [channels, side, _] = patch;
        let because = format!("width {hidden}, {channels} channels, patches of {side} by {side} pixels");
        let shape: Vec<u64> = std::iter::once(hidden).chain(patch.map(|side| side as u64)).collect();
        let stored = self.checked(&format!("{stem}.weight"), &shape, &because)?;
        self.check_matrix_dtype(&stored)?;
        // The elements of a kernel lie one after the other: it is a row of a matrix.
        let weight = TensorInfo { shape: vec![hidden, shape[1..].iter().product()], ..stored };
        let bias =
            tower.patches.bias.then(|| self.checked(&format!("{stem}.bias"), &[hidden], &because)).transpose()?;
        bias.iter().try_for_each(|bias| self.check_vector_dtype(bias))?;
        Ok(LinearWeights { bias, ..LinearWeights::new(weight) })
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

/// Resolves a projector step by step: the patches that are left, and the elements of each.
struct Projector<'t, 'a> {
    tensors: &'t mut Tensors<'a>,
    grid: Grid,
    width: usize,
    output: usize,
    text_eps: f64,
}

impl Projector<'_, '_> {
    fn step(&mut self, step: &Step) -> Result<ProjectorStep> {
        let resolved = match *step {
            Step::Mean { tokens, side } => ProjectorStep::Mean { side: self.mean(tokens, side)? },
            Step::Merge { side, by_element } => {
                let side = self.merge(side)?;
                self.width = self.width.saturating_mul(side * side);
                ProjectorStep::Merge { side, by_element }
            }
            Step::Norm { names, kind, eps } => ProjectorStep::Norm(self.norm(names, kind, eps)?),
            Step::Activation(activation) => ProjectorStep::Activation(activation),
            Step::Linear { names, outputs, bias, transposed } => {
                let outputs = if outputs == Outputs::Tower { self.tensors.sizes.hidden } else { self.output };
                let (from, to) = (self.width as u64, outputs as u64);
                let because = format!("rows of {from} elements of the tower, rows of {to} elements");
                let shape = if transposed { [from, to] } else { [to, from] };
                let stem = self.stem(names);
                let name = if self.tensors.stores(&stem) { stem.clone() } else { format!("{stem}.weight") };
                let weight = self.tensors.checked(&name, &shape, &because)?;
                match transposed {
                    true => self.tensors.check_float(&weight, "a float (matrices that are stored by inputs)")?,
                    false => self.tensors.check_matrix_dtype(&weight)?,
                }
                let has_bias = self.has_bias(bias, &stem)?;
                let bias = if has_bias { Some(self.vector(&format!("{stem}.bias"), outputs)?) } else { None };
                self.width = outputs;
                ProjectorStep::Linear(LinearWeights { transposed, bias, ..LinearWeights::new(weight) })
            }
        };
        self.grid = resolved.left(self.grid);
        Ok(resolved)
    }

    /// Whether a linear layer has a bias.
    fn has_bias(&self, bias: Option<Bias>, stem: &str) -> Result<bool> {
        let Metadata::Config(files) = &self.tensors.reader.header.metadata else {
            return Ok(
                bias.is_some_and(|bias| matches!(bias, Bias::Always) || self.tensors.stores(&format!("{stem}.bias")))
            );
        };
        Ok(match bias {
            None => false,
            Some(Bias::Always) => true,
            Some(Bias::Flag(flag)) => files.config.boolean(flag)?.unwrap_or(false),
            Some(Bias::UnlessFlag(flag)) => files.config.boolean(flag)?.unwrap_or(true),
        })
    }

    /// The side of the squares of patches that are joined.
    fn merge(&self, side: (&'static str, usize, &str)) -> Result<usize> {
        let reader = self.tensors.reader;
        let found = match &reader.header.metadata {
            Metadata::Gguf(_) => mmproj::merge(reader)?,
            Metadata::Config(files) => {
                let stored = files.config.unsigned(side.0)?.map(|count| reader.bounded(side.0, count)).transpose()?;
                reader.or_default(stored, side.0, (side.1, side.2))
            }
        };
        let fits = found <= self.grid.rows && found <= self.grid.columns;
        if fits { Ok(found) } else { Err(self.no_squares(side.0, found)) }
    }

    /// The side of the squares of patches that become one row each.
    fn mean(&self, tokens: (&'static str, usize, &str), side: (&'static str, usize, &str)) -> Result<usize> {
        let reader = self.tensors.reader;
        if reader.is_gguf() {
            let (key, stored) = reader.gguf_number(side.0)?;
            let stored = stored.map(|side| reader.bounded(&key, side)).transpose()?;
            let side = reader.or_default(stored, &key, (side.1, side.2));
            return self.squares(&key, side, side);
        }
        let Metadata::Config(files) = &reader.header.metadata else { return Ok(1) };
        let stored = files.config.unsigned(tokens.0)?.map(|count| reader.bounded(tokens.0, count)).transpose()?;
        let count = reader.or_default(stored, tokens.0, (tokens.1, tokens.2));
        let each = count.isqrt();
        if each * each != count || !self.grid.rows.is_multiple_of(each) {
            return Err(self.no_squares(tokens.0, count));
        }
        self.squares(tokens.0, count, self.grid.rows / each)
    }

    fn squares(&self, key: &str, found: usize, side: usize) -> Result<usize> {
        let Grid { rows, columns } = self.grid;
        let divides = rows.is_multiple_of(side) && columns.is_multiple_of(side);
        if divides { Ok(side) } else { Err(self.no_squares(key, found)) }
    }

    fn no_squares(&self, key: &str, found: usize) -> Error {
        let Grid { rows, columns } = self.grid;
        let other = format!("an image is {rows} by {columns} patches, which no such squares make");
        self.tensors.reader.contradiction(format!("{key} is {found}"), other)
    }

    fn norm(&mut self, names: Names, kind: NormKind, eps: Epsilon) -> Result<NormWeights> {
        let (stem, width) = (self.stem(names), self.width);
        let weight = Some(self.vector(&format!("{stem}.weight"), width)?);
        let eps = if eps == Epsilon::Text { self.text_eps } else { self.tensors.options.norm_eps };
        let gguf = self.tensors.reader.is_gguf();
        let kind = match kind {
            NormKind::Rms => Norm::Rms { eps, offset: false },
            NormKind::RmsFromOne => Norm::Rms { eps, offset: !gguf },
            NormKind::PlainLayer => Norm::Layer { eps, offset: false, bias: None },
            NormKind::Layer | NormKind::LayerFromOne => {
                let bias = Some(self.vector(&format!("{stem}.bias"), width)?);
                Norm::Layer { eps, offset: !gguf && kind == NormKind::LayerFromOne, bias }
            }
        };
        Ok(NormWeights { weight, width, kind })
    }

    fn vector(&mut self, name: &str, width: usize) -> Result<TensorInfo> {
        let stored = self.tensors.checked(name, &[width as u64], &format!("{width} elements"))?;
        self.tensors.check_vector_dtype(&stored)?;
        Ok(stored)
    }

    /// The name in this file.
    fn stem(&self, names: Names) -> String {
        if self.tensors.reader.is_gguf() {
            return names.gguf.to_owned();
        }
        let within = format!("model.{}", names.config);
        let stored = ["", ".weight"].iter().any(|end| self.tensors.stores(&format!("{within}{end}")));
        if stored { within } else { names.config.to_owned() }
    }
}
