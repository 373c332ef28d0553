//! One block on a device: the order of its operations.

use super::device::required;
use super::{Device, Extensions, Operand, Output};
use crate::cancel::CancellationToken;
use crate::error::Result;
use model_factory_spec::block::ExpertInput;
use model_factory_spec::spec::{FeedForwardLayer, FeedForwardWeights, LayerEmbeddingUse, LayerWeights, Mixer};
use std::f32::consts::FRAC_1_SQRT_2;

/// A block of a decoder. A pass calls [`Layer::store`] for all rows, [`Layer::mix`] and then [`Layer::forward`];
/// between them the last layer drops the rows whose logits are not wanted.
pub(super) struct Layer<'l, D: Device> {
    pub(super) device: &'l D,
    pub(super) extensions: &'l Extensions<'l, D>,
    pub(super) weights: &'l LayerWeights<D>,
    pub(super) index: usize,
    /// The factor of the outputs of its sub-layers.
    pub(super) residual: f32,
}

impl<'l, D: Device> Layer<'l, D> {
    /// Stores what later positions need of every row, and leaves in `pass` what [`mix`](Self::mix) needs.
    pub(super) fn store(&self, pass: &mut D::Pass<'_>) -> Result<()> {
        if let Some(altup) = &self.weights.altup {
            required(self.extensions.streams)?.predict(pass, altup)?;
        }
        let Some(mixer) = &self.weights.mixer else { return Ok(()) };
        let store = |pass: &mut D::Pass<'_>, layer: &Mixer<D>| {
            self.device.norm_project(pass, mixer.norm.as_ref(), layer)?;
            match layer.attention() {
                Some(attention) if attention.kv.latent().is_some() => {
                    required(self.extensions.latents)?.absorb_and_store(pass, self.index, attention)
                }
                Some(attention) => self.device.rotate_and_store(pass, self.index, attention),
                None => required(self.extensions.recurrent)?.advance(pass, self.index, layer),
            }
        };
        if let Some(beside) = &mixer.beside {
            store(pass, beside)?;
            required(self.extensions.recurrent)?.swap_aside(pass)?;
        }
        store(pass, &mixer.layer)
    }

    /// Whether it reads keys and values of all rows of the pass, none of which are stored.
    pub(super) fn reads_pass(&self) -> bool {
        self.weights.attention().is_some_and(|attention| !attention.causal)
    }

    /// `mixed` = what the output projection reads. A layer with a state has already left it there.
    pub(super) fn mix(&self, pass: &mut D::Pass<'_>) -> Result<()> {
        match self.weights.attention() {
            Some(attention) if attention.kv.latent().is_some() => {
                required(self.extensions.latents)?.attend_latents(pass, self.index, attention)
            }
            Some(attention) if attention.causal => self.device.attend(pass, self.index, attention),
            Some(attention) => required(self.extensions.encoder)?.attend_all(pass, self.index, attention),
            None => Ok(()),
        }
    }

    /// Brings the residual stream through this block, whose mixer has mixed its rows.
    pub(super) fn forward(&self, pass: &mut D::Pass<'_>, cancel: &CancellationToken) -> Result<()> {
        let &Layer { device, extensions, index, residual, .. } = self;
        let LayerWeights { mixer, feed_forward, altup, layer_embedding, scale, parallel } = self.weights;
        let output = |norm: &'l Option<D::Norm>| Output { norm: norm.as_ref(), scale: residual };
        cancel.check()?;
        self.route_early(pass)?;
        if *parallel {
            self.activate(pass)?;
            cancel.check()?;
        }
        if let Some(mixer) = mixer {
            if let Some(laurel) = &mixer.laurel {
                required(extensions.streams)?.add_laurel(pass, mixer.norm.as_ref(), laurel)?;
            }
            device.linear_add(pass, Operand::Mixed, mixer.layer.output(), output(&mixer.output_norm))?;
            if let Some(beside) = &mixer.beside {
                required(extensions.recurrent)?.swap_aside(pass)?;
                device.linear_add(pass, Operand::Mixed, beside.output(), output(&mixer.output_norm))?;
            }
            if mixer.laurel.is_some() {
                required(extensions.layer_embeddings)?.scale(pass, FRAC_1_SQRT_2)?;
            }
            self.norm_sum(pass, &mixer.sum_norm)?;
            cancel.check()?;
        }
        if !*parallel {
            self.activate(pass)?;
            cancel.check()?;
        }
        if let Some(FeedForwardWeights { layer, beside, output_norm, sum_norm, .. }) = feed_forward {
            match layer {
                FeedForwardLayer::Dense(dense) => {
                    device.linear_add(pass, Operand::Activated, &dense.down, output(output_norm))?;
                }
                FeedForwardLayer::Experts(experts) => {
                    required(extensions.experts)?.experts_add(pass, experts, beside.as_deref(), output(output_norm))?;
                }
            }
            self.norm_sum(pass, sum_norm)?;
        }
        if let Some(altup) = altup {
            cancel.check()?;
            required(extensions.streams)?.correct(pass, altup)?;
        }
        if let Some(embedding) = layer_embedding {
            let LayerEmbeddingUse { gate, output, output_norm } = &**embedding;
            cancel.check()?;
            required(extensions.layer_embeddings)?.gate_layer_input(pass, gate, index)?;
            match altup {
                Some(_) => required(extensions.streams)?.add_layer_embedding(pass, embedding)?,
                None => {
                    let output_of = Output { norm: Some(output_norm), scale: residual };
                    device.linear_add(pass, Operand::Mixed, output, output_of)?;
                }
            }
        }
        match scale.as_deref() {
            Some(&[scale]) if scale != 1.0 => required(extensions.layer_embeddings)?.scale(pass, scale),
            _ => Ok(()),
        }
    }

    fn norm_sum(&self, pass: &mut D::Pass<'_>, norm: &Option<D::Norm>) -> Result<()> {
        norm.as_ref().map_or(Ok(()), |norm| required(self.extensions.encoder)?.norm(pass, norm))
    }

    /// What experts do before the mixer adds to the residual stream.
    fn route_early(&self, pass: &mut D::Pass<'_>) -> Result<()> {
        let Some(experts) = self.weights.experts() else { return Ok(()) };
        match experts.input {
            ExpertInput::AfterMixer | ExpertInput::Weighed => Ok(()),
            ExpertInput::RouterBefore => required(self.extensions.experts)?.route(pass, experts),
            ExpertInput::Before => {
                required(self.extensions.experts)?.norm_route_activate(pass, self.weights.feed_forward_norm(), experts)
            }
        }
    }

    fn activate(&self, pass: &mut D::Pass<'_>) -> Result<()> {
        let Some(layer) = &self.weights.feed_forward else { return Ok(()) };
        let (device, norm) = (self.device, self.weights.feed_forward_norm());
        if let Some(beside) = &layer.beside {
            device.norm_up_activate(pass, Some(&beside.norm), &beside.dense)?;
        }
        match &layer.layer {
            FeedForwardLayer::Dense(dense) => device.norm_up_activate(pass, norm, dense),
            FeedForwardLayer::Experts(experts) if experts.input == ExpertInput::Before => Ok(()),
            FeedForwardLayer::Experts(experts) => {
                required(self.extensions.experts)?.norm_route_activate(pass, norm, experts)
            }
        }
    }
}
