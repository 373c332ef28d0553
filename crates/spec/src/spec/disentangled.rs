//! Disentangled attention (DeBERTa, arXiv 2006.03654; transformers `modeling_deberta_v2.py`): scores of queries and keys have
//! terms of queries with keys of relative positions (`c2p`), and of keys with queries of relative positions (`p2c`).

use super::reader::Reader;
use super::tensors::Tensors;
use super::weights::{mapped, weights};
use super::{MapWeights, Stored, WeightTypes};
use crate::block::RelativePositions;
use crate::error::Result;
use crate::family::Role;
use serde_json::Value;

weights! {
    /// Relative positions, which all layers share.
    pub struct RelativeWeights<W> {
        /// Their embeddings, `[2 * span, hidden]`.
        pub rows: W::Matrix = matrix,
        /// The norm of a row.
        pub norm: Option<W::Norm> = optional norm,
        /// Which of them a pair of positions has.
        pub positions: RelativePositions,
    }

    /// What a layer makes of relative positions: a score also has the product of its query with the key of their distance, and of
    /// its key with the query of that.
    pub struct PositionScores<W> {
        /// The projection of their keys, `[heads * head_dim, hidden]`.
        pub keys: Option<W::Matrix> = optional matrix,
        /// The projection of their queries, the same.
        pub queries: Option<W::Matrix> = optional matrix,
    }
}

/// What the keys of `config.json` say of relative positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disentangled {
    /// None where the flag of them is off.
    positions: Option<RelativePositions>,
    /// Whether queries attend to keys of positions, and keys to queries of these.
    kinds: [bool; 2],
    /// Whether those are made by the projections of tokens.
    shared: bool,
    normed: bool,
}

impl Disentangled {
    /// Rows of embeddings.
    pub(super) fn rows(&self) -> usize {
        self.positions.map_or(0, |positions| 2 * positions.span)
    }

    /// The factor of scores: they are divided by the root of the number of their terms too, even where there are no positions.
    pub(super) fn score_factor(&self) -> f32 {
        let terms = 1 + self.kinds.iter().filter(|kind| **kind).count();
        (1.0 / (terms as f64).sqrt()) as f32
    }
}

impl Reader<'_> {
    /// What the keys say of relative positions, in families that have them, of a model of so many positions.
    pub(super) fn disentangled(&self, context: usize) -> Result<Option<Disentangled>> {
        const KINDS: &str = "pos_att_type";
        const BUCKETS: &str = "position_buckets";
        const MOST: &str = "max_relative_positions";
        if !self.family.block.disentangled {
            return Ok(None);
        }
        let fields = self.fields();
        let named: Vec<&str> = match self.config.and_then(|config| config.object().get(KINDS)) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(kinds)) => kinds.split('|').map(str::trim).collect(),
            Some(Value::Array(kinds)) => kinds.iter().map(|kind| kind.as_str().unwrap_or("no text")).collect(),
            Some(other) => return Err(self.value(KINDS, other, "c2p, p2c or both".into())),
        };
        if let Some(other) = named.iter().find(|kind| !["c2p", "p2c", ""].contains(&kind.to_lowercase().as_str())) {
            return Err(self.feature(&format!("scores by positions of the kind {other:?}"), KINDS, "c2p, p2c or both"));
        }
        let has = |kind: &str| named.iter().any(|named| named.eq_ignore_ascii_case(kind));
        // Numbers below 1 mean none.
        let number = |key| Ok(fields.number(key)?.filter(|number| *number >= 1.0).map(|number| number as u64));
        let flag = |key| Ok(fields.boolean(key)?.unwrap_or(false));
        let positions = if flag("relative_attention")? {
            let most = number(MOST)?.map_or(Ok(context), |most| self.bounded(MOST, most))?;
            let buckets = number(BUCKETS)?.map(|buckets| self.bounded(BUCKETS, buckets)).transpose()?;
            let furthest = buckets.map(|_| most);
            // The last row is that of a position past those with a row of their own.
            if buckets.is_some_and(|buckets| buckets < 2 || most <= buckets / 2 + 1) {
                let found = format!("{} with {most} relative positions", buckets.unwrap_or_default());
                return Err(self.value(BUCKETS, found, format!("2 at least, and less than twice {MOST}")));
            }
            Some(RelativePositions { span: buckets.unwrap_or(most), furthest })
        } else {
            None
        };
        let norms = fields.text("norm_rel_ebd")?.unwrap_or("none");
        let named: Vec<String> = norms.split('|').map(|norm| norm.trim().to_lowercase()).collect();
        if let Some(other) = named.iter().find(|norm| !["none", "layer_norm"].contains(&norm.as_str())) {
            return Err(self.feature(
                &format!("the norm {other:?} of relative positions"),
                "norm_rel_ebd",
                "layer_norm",
            ));
        }
        let normed = named.iter().any(|norm| norm == "layer_norm");
        Ok(Some(Disentangled { positions, kinds: ["c2p", "p2c"].map(has), shared: flag("share_att_key")?, normed }))
    }
}

impl Tensors<'_> {
    /// The embeddings of relative positions, where scores have terms by them.
    pub(super) fn relative_positions(&mut self) -> Result<Option<RelativeWeights>> {
        let Some(Disentangled { positions: Some(positions), normed, .. }) = self.options.disentangled else {
            return Ok(None);
        };
        let rows = self.matrix(Role::RelativePositions, None)?;
        let norm = if normed { Some(self.norm(Role::RelativePositionNorm, None)?) } else { None };
        Ok(Some(RelativeWeights { rows, norm, positions }))
    }

    /// What `layer` makes of relative positions.
    pub(super) fn position_scores(&mut self, layer: usize) -> Result<Option<Box<PositionScores>>> {
        let Some(Disentangled { positions: Some(_), kinds, shared, .. }) = self.options.disentangled else {
            return Ok(None);
        };
        let roles = if shared { [Role::K, Role::Q] } else { [Role::PositionKey, Role::PositionQuery] };
        let mut of = |kind: usize| kinds[kind].then(|| self.matrix(roles[kind], Some(layer))).transpose();
        let (keys, queries) = (of(0)?, of(1)?);
        Ok((keys.is_some() || queries.is_some()).then(|| Box::new(PositionScores { keys, queries })))
    }
}
