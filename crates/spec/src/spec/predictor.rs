//! The head that predicts a further token: one more block, with the tensors that combine its inputs.

use super::tensors::Tensors;
use super::weights::{mapped, weights};
use super::{LinearWeights, MapWeights, ModelWeights, NormWeights, Routing, Stored, WeightTypes};
use crate::error::{ArchitectureErrorKind, Error, Result};
use crate::family::Role;
use crate::header::Fields;

weights! {
    /// The input of a prediction head: the projection of the normed embedding of a token, followed by the normed hidden
    /// state of the position before, as the output head of the model reads it.
    pub struct JoinedInput<W> {
        /// The norm of the embedding, `[hidden]`.
        pub embedding_norm: W::Norm = norm,
        /// The norm of the hidden state, `[hidden]`.
        pub hidden_norm: W::Norm = norm,
        /// The projection of both, `[hidden, 2 * hidden]`.
        pub projection: W::Matrix = matrix,
    }
}

/// The embedding, the output head and the norm before it, which a prediction head shares with its model.
type Shared<'a> = (&'a LinearWeights, Option<&'a LinearWeights>, Option<&'a NormWeights>);

impl Tensors<'_> {
    /// The prediction head as a model of one block.
    ///
    /// # Errors
    /// `Architecture` where there is no head or it is not supported; `Incomplete` where a tensor of it is missing.
    pub(super) fn predictor(&mut self, shared: Shared<'_>, routing: Option<Routing>) -> Result<ModelWeights> {
        let (embedding, head, final_norm) = shared;
        let head = match (self.predictor_name(), head) {
            (None, _) if self.family.head.predictors.is_some() => {
                Err(format!("that of the family {} is not supported", self.family.id))
            }
            (None, _) => Err(format!("models of the family {} have none", self.family.id)),
            (Some(name), _) if !self.stores(&name) => Err(format!("tensor {name} is not stored")),
            (Some(_), None) => Err("it guesses by the output head of its model, which has none".into()),
            (Some(_), Some(head)) => Ok(head),
        };
        let head = head.map_err(|missing| {
            let kind = ArchitectureErrorKind::NoPredictor { missing };
            Error::Architecture { file: self.reader.fields().file().into(), kind }
        })?;
        self.refuse_predictors()?;
        self.predicts = true;
        let layer = self.predictor_layer();
        let at = Some(layer);
        let stored = |tensors: &Self, role| tensors.stores(&tensors.weight_name(role, at));
        let routing = routing.filter(|_| stored(self, Role::Router));
        // GGUF files may have an own embedding and output head for it, as in llama.cpp.
        let own = |tensors: &mut Self, role| stored(tensors, role).then(|| tensors.matrix(role, at)).transpose();
        let (own_embedding, own_head) = (own(self, Role::NextEmbedding)?, own(self, Role::NextHead)?);
        let norm = match final_norm.filter(|_| self.reader.is_gguf() && !stored(self, Role::NextNorm)) {
            Some(norm) => norm.clone(),
            None => self.norm(Role::NextNorm, at)?,
        };
        let weights = ModelWeights {
            embedding: LinearWeights::new(own_embedding.unwrap_or_else(|| embedding.clone()).weight),
            input: None,
            joined: Some(Box::new(JoinedInput {
                embedding_norm: self.norm(Role::NextEmbeddingNorm, at)?,
                hidden_norm: self.norm(Role::NextHiddenNorm, at)?,
                projection: self.matrix(Role::NextProjection, at)?,
            })),
            layer_embedding: None,
            altup: None,
            layers: vec![self.layer(layer, routing)?],
            final_norm: Some(norm),
            head: Some(own_head.unwrap_or_else(|| head.clone())),
            classifier: None,
            dense: Vec::new(),
        };
        self.predicts = false;
        Ok(weights)
    }

    /// Notes a prediction head that is stored and was not requested.
    pub(super) fn note_predictor(&self, is_used: bool) -> Result<()> {
        let Some(key) = self.family.head.predictors.map(|key| self.reader.key(key)) else { return Ok(()) };
        let said = self.reader.fields().unsigned(&key)?.filter(|predictors| *predictors > 0);
        let name = self.predictor_name().filter(|name| self.stores(name));
        let because = match (said, &name) {
            _ if is_used => return Ok(()),
            (Some(predictors), _) => format!("{key} is {predictors}"),
            (None, Some(name)) => format!("{name} is stored"),
            (None, None) => return Ok(()),
        };
        let how =
            if name.is_some() { "; a load that asks for them guesses tokens by them (ModelBuilder::mtp)" } else { "" };
        self.reader.assume(format!("multi-token prediction layers are not used: {because}{how}"));
        Ok(())
    }

    /// The layer number in the names of its block.
    fn predictor_layer(&self) -> usize {
        if self.reader.is_gguf() { self.sizes.layers } else { 0 }
    }

    /// The tensor that shows whether there is a head.
    fn predictor_name(&self) -> Option<String> {
        self.family.head.predictors.filter(|_| self.names(Role::NextProjection))?;
        Some(self.weight_name(Role::NextProjection, Some(self.predictor_layer())))
    }

    /// Refuses heads of several blocks, and in safetensors a head with an embedding of its own.
    fn refuse_predictors(&self) -> Result<()> {
        const OWN_EMBEDDING: &str = "mtp_use_dedicated_embeddings";
        let fields = self.reader.fields();
        if let Some(key) = self.family.head.predictors.map(|key| self.reader.key(key))
            && let Some(count @ 2..) = fields.unsigned(&key)?
        {
            return Err(self.reader.feature(&format!("a prediction head of {count} blocks"), &key, "1"));
        }
        let Some(config) = self.reader.config else { return Ok(()) };
        if let Some(name) = self.table.keys().find(|name| name.starts_with("mtp.layers.1.")) {
            return Err(self.reader.feature("a prediction head of several blocks", name, "no such tensor"));
        }
        if config.boolean(OWN_EMBEDDING)? == Some(true) {
            let feature = "a prediction head with an embedding of its own";
            return Err(self.reader.feature(feature, OWN_EMBEDDING, "false"));
        }
        Ok(())
    }
}
