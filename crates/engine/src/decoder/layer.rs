//! One block on a device: the order of its operations.

use super::{Device, Operand, Output, Pass};
use crate::cancel::CancellationToken;
use crate::error::Result;
use model_factory_spec::spec::{BesideWeights, FeedForwardLayer, LayerEmbeddingUse, LayerWeights, Mixer, MixerWeights};

/// A block of a decoder. A pass calls [`Layer::store`] for all rows, [`Layer::mix`] and then [`Layer::forward`]; between them
/// the last layer drops the rows whose logits are not wanted.
pub(super) struct Layer<'l, D: Device> {
    pub(super) device: &'l D,
    pub(super) weights: &'l LayerWeights<D>,
    pub(super) index: usize,
    /// What the outputs of its sub-layers are multiplied by.
    pub(super) residual: f32,
}

impl<'l, D: Device> Layer<'l, D> {
    /// Stores what later positions need of every row, and leaves in `pass` what [`mix`](Self::mix) needs.
    pub(super) fn store(&self, pass: &mut Pass<'_, D>) -> Result<()> {
        let &Layer { device, index, .. } = self;
        let MixerWeights { norm, layer, .. } = &self.weights.mixer;
        let Pass { batch, hidden, projected, mixed, .. } = pass;
        device.norm_project(batch, hidden, norm.as_ref(), &layer.inputs(), projected)?;
        match layer {
            Mixer::Attention(attention) => device.rotate_and_store(batch, index, attention, projected),
            Mixer::DeltaNet(net) => device.delta_net(batch, index, net, projected, mixed),
            Mixer::ShortConv(conv) => device.short_conv(batch, index, &conv.conv, projected, mixed),
            Mixer::Mamba2(mamba) => device.mamba2(batch, index, mamba, projected, mixed),
        }
    }

    /// Whether it reads keys and values of all rows of the pass, of which nothing is stored.
    pub(super) fn reads_pass(&self) -> bool {
        self.weights.mixer.layer.attention().is_some_and(|attention| !attention.causal)
    }

    /// `pass.mixed` = what the output projection reads. What has a state has left it there.
    pub(super) fn mix(&self, pass: &mut Pass<'_, D>) -> Result<()> {
        let Pass { batch, projected, mixed, .. } = pass;
        match self.weights.mixer.layer.attention() {
            Some(attention) => self.device.attend(batch, self.index, attention, projected, mixed),
            None => Ok(()),
        }
    }

    /// Brings the residual stream through this block, whose mixer has mixed its rows.
    ///
    /// # Errors
    /// `Cancelled` before the next operation once `cancel` is; those of the operations.
    pub(super) fn forward(&self, pass: &mut Pass<'_, D>, cancel: &CancellationToken) -> Result<()> {
        let &Layer { device, index, residual, .. } = self;
        let LayerWeights { mixer, feed_forward, layer_embedding, scale, parallel } = self.weights;
        let output = |norm: &'l Option<D::Norm>| Output { norm: norm.as_ref(), scale: residual };
        cancel.check()?;
        if *parallel {
            self.activate(pass)?;
            cancel.check()?;
        }
        let Pass { batch, hidden, mixed, product, .. } = pass;
        let of_mixer = output(&mixer.output_norm);
        device.linear_add(batch, Operand::Mixed(mixed), mixer.layer.output(), of_mixer, product, hidden)?;
        if let Some(norm) = &mixer.sum_norm {
            device.norm(batch, norm, hidden)?;
        }
        cancel.check()?;
        if !*parallel {
            self.activate(pass)?;
            cancel.check()?;
        }
        let Pass { batch, hidden, mixed, layer_inputs, activated, routed, product, .. } = pass;
        let output = output(&feed_forward.output_norm);
        match (&feed_forward.layer, &feed_forward.beside) {
            (FeedForwardLayer::Dense(dense), _) => {
                device.linear_add(batch, Operand::Activated(activated), &dense.down, output, product, hidden)?;
            }
            (FeedForwardLayer::Experts(experts), None) => {
                device.experts_add(batch, routed, experts, output, product, hidden)?;
            }
            (FeedForwardLayer::Experts(experts), Some(beside)) => {
                let BesideWeights { dense, output_norm, experts_norm, .. } = &**beside;
                let normed = |norm| Output { norm: Some(norm), scale: 1.0 };
                device.begin_sum(batch, mixed)?;
                let operand = Operand::Activated(activated);
                device.linear_add(batch, operand, &dense.down, normed(output_norm), product, mixed)?;
                cancel.check()?;
                device.experts_add(batch, routed, experts, normed(experts_norm), product, mixed)?;
                device.add_sum(batch, mixed, output, hidden)?;
            }
        }
        if let Some(norm) = &feed_forward.sum_norm {
            device.norm(batch, norm, hidden)?;
        }
        if let Some(embedding) = layer_embedding {
            let LayerEmbeddingUse { gate, output, output_norm } = &**embedding;
            cancel.check()?;
            device.gate_layer_input(batch, hidden, gate, layer_inputs, index, mixed)?;
            let normed = Output { norm: Some(output_norm), scale: residual };
            device.linear_add(batch, Operand::Mixed(mixed), output, normed, product, hidden)?;
        }
        match scale.as_deref() {
            Some(&[scale]) if scale != 1.0 => device.scale(batch, scale, hidden),
            _ => Ok(()),
        }
    }

    /// Computes the activations of the feed-forward layer.
    fn activate(&self, pass: &mut Pass<'_, D>) -> Result<()> {
        let Pass { batch, hidden, activated, routed, .. } = pass;
        let (device, norm) = (self.device, self.weights.feed_forward_norm());
        if let Some(beside) = &self.weights.feed_forward.beside {
            device.norm_up_activate(batch, hidden, Some(&beside.norm), &beside.dense, activated)?;
        }
        match &self.weights.feed_forward.layer {
            FeedForwardLayer::Dense(dense) => device.norm_up_activate(batch, hidden, norm, dense, activated),
            FeedForwardLayer::Experts(experts) => device.norm_route_activate(batch, hidden, norm, experts, routed),
        }
    }
}
