//! The steps from a tower's blocks to rows of the language model.

use super::mmproj;
use super::names::fill;
use super::patches::{Grid, PatchOrder};
use super::tensors::Tensors;
use super::vision::DeepstackWeights;
use super::{LinearWeights, MapWeights, Norm, NormWeights, Stored, WeightTypes};
use crate::block::DenseActivation;
use crate::error::{Error, Result};
use crate::family::{Bias, Key, NormKind};
use crate::header::{Fields, Metadata, TensorInfo};
use crate::vision::{DeepstackTable, Epsilon, Names, Outputs, Step, Tower};
use serde_json::Value;

/// A step of a projector, over rows of an image. Complete.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum ProjectorStep<W: WeightTypes = Stored> {
    /// Each square of `side` by `side` rows becomes their mean.
    Mean { side: usize },
    /// The rows of each square of `side` by `side` become one, side by side from left to right and then down; `by_element` the first
    /// elements of all of them, then the second ones, and so on.
    Merge { side: usize, by_element: bool },
    /// The rows of each square of `side` by `side`, which come one after the other, become one.
    Squares { side: usize },
    /// The norm of each row.
    Norm(W::Norm),
    /// A linear layer.
    Linear(W::Matrix),
    /// An activation.
    Activation(DenseActivation),
}

impl<W: WeightTypes> ProjectorStep<W> {
    pub(super) fn try_map<'w, M: MapWeights<'w, W>>(&'w self, map: &mut M) -> Result<ProjectorStep<M::To>, M::Error> {
        Ok(match self {
            ProjectorStep::Mean { side } => ProjectorStep::Mean { side: *side },
            &ProjectorStep::Merge { side, by_element } => ProjectorStep::Merge { side, by_element },
            ProjectorStep::Squares { side } => ProjectorStep::Squares { side: *side },
            ProjectorStep::Norm(norm) => ProjectorStep::Norm(map.norm(norm)?),
            ProjectorStep::Linear(linear) => ProjectorStep::Linear(map.matrix(linear)?),
            ProjectorStep::Activation(activation) => ProjectorStep::Activation(*activation),
        })
    }

    /// The side of the squares of patches that become one.
    pub fn side(&self) -> usize {
        match self {
            ProjectorStep::Mean { side } | ProjectorStep::Merge { side, .. } | ProjectorStep::Squares { side } => *side,
            ProjectorStep::Norm(_) | ProjectorStep::Linear(_) | ProjectorStep::Activation(_) => 1,
        }
    }

    /// The patches that are left of `grid`.
    pub fn left(&self, grid: Grid) -> Grid {
        Grid { rows: grid.rows / self.side(), columns: grid.columns / self.side() }
    }
}

/// What a tower has to know of the language model.
#[derive(Clone, Copy)]
pub(super) struct Language {
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) context: usize,
    pub(super) eps: f64,
}

/// Resolves a projector step by step: the patches that are left, and the elements of each.
pub(super) struct Projector<'t, 'a> {
    pub(super) tensors: &'t mut Tensors<'a>,
    pub(super) grid: Grid,
    pub(super) order: PatchOrder,
    pub(super) width: usize,
    pub(super) language: Language,
    /// Which of the lists of rows it makes that are added after layers of the language model, and of which block.
    pub(super) list: Option<(usize, usize)>,
}

impl Projector<'_, '_> {
    /// The `steps` in order, without those that the files deny.
    pub(super) fn steps(&mut self, steps: &[Step]) -> Result<Vec<ProjectorStep>> {
        let mut resolved = Vec::with_capacity(steps.len());
        for step in steps {
            if self.has(step)? {
                resolved.push(self.step(step)?);
            }
        }
        Ok(resolved)
    }

    fn has(&self, step: &Step) -> Result<bool> {
        let Step::Norm { names, flag: Some((flag, default, why)), .. } = *step else { return Ok(true) };
        match &self.tensors.reader.header.metadata {
            Metadata::Gguf(_) => Ok(self.tensors.stores(&format!("{}.weight", self.stem(names)))),
            Metadata::Config(files) => {
                Ok(self.tensors.reader.or_default(files.config.boolean(flag)?, flag, (default, why)))
            }
        }
    }

    fn step(&mut self, step: &Step) -> Result<ProjectorStep> {
        let resolved = match *step {
            Step::Mean { tokens, side } => ProjectorStep::Mean { side: self.mean(tokens, side)? },
            Step::Merge { side, gguf, by_element } => {
                let side = self.merge(side, gguf)?;
                self.width = self.width.saturating_mul(side * side);
                ProjectorStep::Merge { side, by_element }
            }
            Step::Squares => {
                let side = match self.order {
                    PatchOrder::Squares { side } | PatchOrder::Windows { side, .. } => side,
                    PatchOrder::Lines | PatchOrder::Pixels { .. } => 1,
                };
                self.width = self.width.saturating_mul(side.saturating_mul(side));
                ProjectorStep::Squares { side }
            }
            Step::Norm { names, kind, eps, .. } => ProjectorStep::Norm(self.norm(names, kind, eps)?),
            Step::Activation(activation) => ProjectorStep::Activation(activation),
            Step::Linear { names, outputs, bias, transposed } => {
                let stem = self.stem(names);
                let outputs = self.outputs(outputs, &stem)?;
                let (from, to) = (self.width as u64, outputs as u64);
                let because = format!("rows of {from} elements of the tower, rows of {to} elements");
                let shape = if transposed { [from, to] } else { [to, from] };
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

    /// Elements of the outputs of a linear layer.
    fn outputs(&self, outputs: Outputs, stem: &str) -> Result<usize> {
        let (reader, width) = (self.tensors.reader, self.language.hidden);
        Ok(match outputs {
            Outputs::Tower => self.tensors.sizes.hidden,
            Outputs::Same => self.width,
            Outputs::Text => width,
            Outputs::By(key, default, why) => match &reader.header.metadata {
                Metadata::Gguf(_) => {
                    let stored =
                        self.tensors.table.get(&format!("{stem}.weight")).and_then(|stored| stored.shape.first());
                    // One that is absent is missed by its name.
                    stored.map_or(Ok(1), |rows| reader.bounded(stem, *rows))?
                }
                Metadata::Config(files) => {
                    let stored = files.config.unsigned(key)?.map(|count| reader.bounded(key, count)).transpose()?;
                    reader.or_default(stored, key, (default, why))
                }
            },
            Outputs::TextBy(key) => match reader.size(Key::config(key))?.filter(|size| *size != width) {
                Some(other) => {
                    let one = format!("{} is {other}", reader.path(key));
                    return Err(reader.contradiction(one, format!("the language model is {width} wide")));
                }
                None => width,
            },
        })
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
    fn merge(&self, side: (&'static str, usize, &str), gguf: (&'static str, usize, &str)) -> Result<usize> {
        let reader = self.tensors.reader;
        let found = match &reader.header.metadata {
            Metadata::Gguf(_) => mmproj::merge(reader, gguf)?,
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
        let eps = match eps {
            Epsilon::Text => self.language.eps,
            Epsilon::Encoder => self.tensors.options.norm_eps,
            Epsilon::Of(eps) => eps,
        };
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
            return fill(names.gguf, self.list.map(|(_, block)| block));
        }
        let name = fill(names.config, self.list.map(|(list, _)| list));
        let within = format!("model.{name}");
        let stored = ["", ".weight"].iter().any(|end| self.tensors.stores(&format!("{within}{end}")));
        if stored || self.tensors.front().starts_with("model.") { within } else { name }
    }
}

/// What makes the rows that are added after the language model's first layers.
pub(super) fn deepstack(
    tensors: &mut Tensors<'_>,
    tower: &Tower,
    (grid, order): (Grid, PatchOrder),
    language: Language,
) -> Result<Vec<DeepstackWeights>> {
    let (key, listed) = match &tower.deepstack {
        _ if tensors.reader.is_gguf() => mmproj::deepstack(tensors.reader, tower, tensors.sizes.layers)?,
        Some(table) => listed(tensors, table)?,
        None => return Ok(Vec::new()),
    };
    if listed.len() > language.layers {
        let other = format!("the language model has {} layers, after which their rows are added", language.layers);
        return Err(tensors.reader.contradiction(format!("{key} has {} blocks", listed.len()), other));
    }
    let steps = tower.deepstack.map_or(&[][..], |table| table.steps);
    let of_block = |(list, block): (usize, usize)| {
        let (width, list) = (tensors.sizes.hidden, Some((list, block)));
        let mut build = Projector { tensors: &mut *tensors, grid, order, width, language, list };
        Ok(DeepstackWeights { block, steps: build.steps(steps)? })
    };
    listed.into_iter().enumerate().map(of_block).collect()
}

/// The blocks of whose outputs further rows are made, by `config.json`, and the key.
fn listed(tensors: &Tensors<'_>, table: &DeepstackTable) -> Result<(String, Vec<usize>)> {
    let ((key, default, why), reader) = (table.blocks, tensors.reader);
    let blocks = tensors.sizes.layers;
    let known = format!("a block, from 0 to {}", blocks - 1);
    let index = |value: &Value| value.as_u64().and_then(|block| usize::try_from(block).ok()).filter(|at| *at < blocks);
    let listed = reader.listed(key, &known, index)?;
    let what = format_args!("{key} {default:?}");
    let listed = reader.or_absent(listed, default.to_vec(), what, key, why);
    let path = reader.path(key);
    if listed.last().is_some_and(|last| *last >= blocks) {
        return Err(reader.contradiction(format!("{path} is {listed:?}"), format!("the tower has {blocks} blocks")));
    }
    // transformers adds them in the order of the blocks, whatever that of the list.
    if !listed.is_sorted_by(|one, next| one < next) {
        return Err(reader.value(key, format!("{listed:?}"), "blocks in ascending order, none of them twice".into()));
    }
    Ok((path, listed))
}
