//! Latent attention: its sizes by the family's keys, and its tensors.

use super::reader::Reader;
use super::routed::ExpertMatrices;
use super::tensors::{Rows, Tensors, rows_of};
use super::weights::{mapped, weights};
use super::{KeysValues, LinearWeights, MapWeights, Norm, NormWeights, Scaling, Stored, WeightTypes};
use crate::error::{Error, Result};
use crate::family::{Key, Role};

weights! {
    /// The weights of latent attention besides those of queries (arXiv 2405.04434, section 2.1). Of a position only its latent
    /// and its rotated part of a key are cached, as one head of keys whose first elements are also the values: queries are
    /// multiplied by `keys` before they attend, and what they attend to by `values`.
    pub struct LatentWeights<W> {
        /// Elements of a latent.
        pub rank: usize,
        /// Elements of a head's query that are not rotated.
        pub plain: usize,
        /// Elements of a head's query after these, and of the key that all heads share, that are rotated.
        pub rotated: usize,
        /// Elements of a head's value.
        pub value_dim: usize,
        /// The second projection of queries, where there are two.
        pub q_up: Option<QueryWeights<W>> = optional part,
        /// The projection of latents and rotated parts of keys, `[rank + rotated, hidden]`.
        pub down: W::Matrix = matrix,
        /// The norm of latents, `[rank]`.
        pub norm: W::Norm = norm,
        /// What makes a head's key of a latent, transposed: `[rank, plain]` of every head.
        pub keys: ExpertMatrices<W::Matrix> = matrices,
        /// What makes a head's value of a latent: `[value_dim, rank]` of every head.
        pub values: ExpertMatrices<W::Matrix> = matrices,
    }

    /// The second projection of queries.
    pub struct QueryWeights<W> {
        /// Elements of its input.
        pub rank: usize,
        /// The norm of its input, `[rank]`.
        pub norm: W::Norm = norm,
        /// The projection, `[heads * (plain + rotated), rank]`.
        pub matrix: W::Matrix = matrix,
    }
}

impl<W: WeightTypes> LatentWeights<W> {
    /// Elements a row of the first projection of queries, and of their last.
    pub fn queries(&self, heads: usize) -> [usize; 2] {
        let whole = heads.saturating_mul(self.plain.saturating_add(self.rotated));
        [self.q_up.as_ref().map_or(whole, |up| up.rank), whole]
    }
}

/// The sizes of latent attention, as the fields of [`LatentWeights`].
#[derive(Clone, Copy, Debug)]
pub(super) struct LatentSizes {
    /// Elements between the two projections of queries; 0 where there is one.
    pub(super) q_rank: usize,
    pub(super) rank: usize,
    pub(super) plain: usize,
    pub(super) rotated: usize,
    pub(super) value_dim: usize,
}

const Q_RANK: Key = Key { gguf: ".attention.q_lora_rank", config: "q_lora_rank" };
const RANK: Key = Key { gguf: ".attention.kv_lora_rank", config: "kv_lora_rank" };
const PLAIN: Key = Key::config("qk_nope_head_dim");
const ROTATED: Key = Key { gguf: ".rope.dimension_count", config: "qk_rope_head_dim" };
const VALUE_DIM: Key = Key { gguf: ".attention.value_length_mla", config: "v_head_dim" };

impl Reader<'_> {
    /// The sizes of latent attention in a model of this width and this many heads, where the family has it. `kv_heads` are the heads
    /// of keys and values that the file says it has.
    pub(super) fn latent_sizes(
        &self,
        hidden: usize,
        heads: usize,
        kv_heads: Option<usize>,
    ) -> Result<Option<LatentSizes>> {
        if self.family.block.latent_eps.is_none() {
            return Ok(None);
        }
        let q_rank = match self.is_gguf() || self.is_null(Q_RANK.config) {
            true => self.size(Q_RANK)?,
            false => self.or_table(Q_RANK, self.size(Q_RANK)?)?,
        };
        let (rank, rotated) = (self.size_or_table(RANK)?, self.size_or_table(ROTATED)?);
        let sizes = |plain, value_dim| LatentSizes { q_rank: q_rank.unwrap_or(0), rank, plain, rotated, value_dim };
        let value_dim = |key: Key| match self.or_table(key, self.size(key)?)? {
            None if hidden.is_multiple_of(heads) => {
                let (size, why) = (hidden / heads, "transformers and llama.cpp default");
                let what = format_args!("values of width / heads = {size} elements");
                Ok(self.or_absent(None, size, what, &self.key(key), why))
            }
            size => self.present(key, size),
        };
        if !self.is_gguf() {
            return Ok(Some(sizes(self.size_or_table(PLAIN)?, value_dim(VALUE_DIM)?)));
        }
        // Files of before April 2025 have the sizes of heads here, later ones those of what is cached.
        const KEY_DIM: [Key; 2] = [Key::gguf(".attention.key_length_mla"), Key::gguf(".attention.key_length")];
        const VALUE_DIMS: [Key; 2] = [VALUE_DIM, Key::gguf(".attention.value_length")];
        let is_older = self.size(KEY_DIM[0])?.is_none();
        let [key_dim, of_values] = [KEY_DIM, VALUE_DIMS].map(|keys| keys[usize::from(is_older)]);
        let key_length = self.present(key_dim, self.size(key_dim)?)?;
        let kv_heads = (self.family.files.keys.kv_heads, kv_heads, if is_older { heads } else { 1 });
        let stored = |key, expected| Ok((key, self.size(key)?, expected));
        let mut expected = vec![kv_heads];
        if !is_older {
            expected.push(stored(KEY_DIM[1], rank.saturating_add(rotated))?);
        }
        // The converter of models with a state leaves `head_dim` of `config.json` there, which nothing uses.
        if !is_older && self.family.block.states.is_none() {
            expected.push(stored(VALUE_DIMS[1], rank)?);
        }
        for (key, found, expected) in expected {
            if let Some(found) = found.filter(|found| *found != expected) {
                let sizes = format!("latents of {rank} elements and {rotated} that are rotated, of {heads} heads");
                return Err(self.contradiction(format!("{} is {found}", self.key(key)), sizes));
            }
        }
        let Some(plain) = key_length.checked_sub(rotated).filter(|plain| *plain > 0) else {
            let rotated = format!("{} is {rotated}", self.key(ROTATED));
            return Err(self.contradiction(format!("{} is {key_length}", self.key(key_dim)), rotated));
        };
        Ok(Some(sizes(plain, value_dim(of_values)?)))
    }
}

impl Tensors<'_> {
    /// The first projection of queries of a layer, and what makes its keys and values.
    pub(super) fn latent(&mut self, layer: usize, sizes: LatentSizes) -> Result<(LinearWeights, KeysValues)> {
        let (at, heads) = (Some(layer), self.sizes.heads as u64);
        let LatentSizes { q_rank, rank, plain, rotated, value_dim } = sizes;
        let (q, q_up) = match q_rank {
            0 => (self.matrix(Role::Q, at)?, None),
            rank => {
                let q = self.matrix(Role::QDown, at)?;
                let norm = self.latent_norm(Role::QDownNorm, layer)?;
                (q, Some(QueryWeights { rank, norm, matrix: self.matrix(Role::QUp, at)? }))
            }
        };
        let (down, norm) = (self.matrix(Role::KvDown, at)?, self.latent_norm(Role::KvDownNorm, layer)?);
        let (keys, values) = if self.stores(&self.weight_name(Role::KvUp, at)) || !self.reader.is_gguf() {
            self.heads_of_both(layer, sizes)?
        } else {
            let because = format!("{heads} heads, latents of {rank} elements");
            let mut stacked = |role, [outputs, inputs]: [usize; 2]| -> Result<ExpertMatrices> {
                let name = self.weight_name(role, at);
                let all = self.stacked(&name, [heads, outputs as u64, inputs as u64], &because)?;
                let factor = self.gguf_factor(&self.stem(role, at), &all, heads)?;
                Ok(ExpertMatrices { stored: vec![LinearWeights { factor, ..LinearWeights::new(all) }], outputs })
            };
            (stacked(Role::LatentKeys, [rank, plain])?, stacked(Role::LatentValues, [value_dim, rank])?)
        };
        let weights = LatentWeights { rank, plain, rotated, value_dim, q_up, down, norm, keys, values };
        Ok((q, KeysValues::Latent(Box::new(weights))))
    }

    /// The rows of keys and of values of every head in the matrix that has both, head by head.
    fn heads_of_both(&mut self, layer: usize, sizes: LatentSizes) -> Result<(ExpertMatrices, ExpertMatrices)> {
        let (LatentSizes { rank, plain, value_dim, .. }, heads) = (sizes, self.sizes.heads);
        let both = self.matrix(Role::KvUp, Some(layer))?;
        let (module, total) = (self.stem(Role::KvUp, Some(layer)), self.shape(Role::KvUp, Some(layer)).0);
        let mut part = |index: usize, first: usize, outputs: usize| {
            let before = (index * (plain + value_dim) + first) as u64;
            let tensor = rows_of(both.weight.clone(), before, total, vec![outputs as u64, rank as u64]);
            self.scaled(Rows { tensor, module: module.clone(), before, total }, Role::KvUp)
        };
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for head in 0..heads {
            keys.push(LinearWeights { transposed: true, ..part(head, 0, plain)? });
            values.push(part(head, plain, value_dim)?);
        }
        // Rows of these are widened one by one, where inputs and outputs change places.
        let widened = |scaling: &Scaling| {
            matches!(scaling, Scaling::Blocks(_) | Scaling::Floats(_) | Scaling::Groups(_) | Scaling::Affine(_))
        };
        let other = both.scaling.as_ref().is_some_and(|scaling| !widened(scaling));
        if let Some(scheme) = self.scheme.filter(|_| other) {
            return Err(Error::Quantization {
                file: scheme.file.clone(),
                scheme: format!("latent attention with {}", scheme.in_words()),
                why: "keys are computed as floats, GGUF blocks, FP8, FP4, MLX's or integers in groups; use the GGUF file of the \
                      same model, or its BF16 checkpoint"
                    .into(),
            });
        }
        Ok((ExpertMatrices { stored: keys, outputs: rank }, ExpertMatrices { stored: values, outputs: value_dim }))
    }

    fn latent_norm(&mut self, role: Role, layer: usize) -> Result<NormWeights> {
        let eps = self.family.block.latent_eps.unwrap_or(self.options.norm_eps);
        Ok(NormWeights { kind: Norm::Rms { eps, offset: false }, ..self.norm(role, Some(layer))? })
    }
}
