//! The first sub-layer of a block on a device: what mixes the positions of a sequence.

use super::{AttentionOptions, Conv, DeltaNet, Device, HeadOptions, Mamba2, Pass, Stored};
use crate::error::{Error, Result};
use crate::kernels::Scoring;
use crate::weights::Weights;
use model_factory_spec::spec::{
    self, AttentionWeights, ConvWeights, DeltaInput, DeltaNetWeights, KeyValueWeights, LinearWeights, Mamba2Weights,
    MixerWeights, NormWeights, ShortConvWeights,
};

/// A mixer with its norms. A pass calls [`Mixer::store`] for all rows and then [`Mixer::mix`] for those that are wanted.
pub(super) struct Mixer<D: Device> {
    norm: Option<D::Norm>,
    layer: Layer<D>,
    pub(super) output_norm: Option<D::Norm>,
    pub(super) sum_norm: Option<D::Norm>,
}

enum Layer<D: Device> {
    Attention(Attention<D>),
    DeltaNet(Box<DeltaNetLayer<D>>),
    ShortConv(ShortConvLayer<D>),
    Mamba2(Box<Mamba2Layer<D>>),
}

struct Attention<D: Device> {
    q: D::Matrix,
    q_norm: Option<D::Norm>,
    /// `None` where it reads those that another layer stores.
    kv: Option<KeysValues<D>>,
    rope: Option<usize>,
    options: AttentionOptions<D>,
    o: D::Matrix,
}

struct DeltaNetLayer<D: Device> {
    /// Whose products stand side by side.
    inputs: Vec<D::Matrix>,
    net: DeltaNet<D::Vector, D::Norm>,
    out: D::Matrix,
}

struct ShortConvLayer<D: Device> {
    bcx: D::Matrix,
    conv: Conv<D::Vector>,
    out: D::Matrix,
}

struct Mamba2Layer<D: Device> {
    /// Whose products stand side by side.
    inputs: Vec<D::Matrix>,
    mamba: Mamba2<D::Vector, D::Norm>,
    out: D::Matrix,
}

struct KeysValues<D: Device> {
    k: D::Matrix,
    /// `None` where the keys before their norm are the values.
    v: Option<D::Matrix>,
    k_norm: Option<D::Norm>,
    v_norm_eps: Option<f32>,
}

impl<D: Device> Mixer<D> {
    pub(super) fn new(device: &D, weights: &Weights, mixer: &MixerWeights) -> Result<Mixer<D>> {
        let MixerWeights { norm, layer, output_norm, sum_norm } = mixer;
        let of = |norm: &Option<NormWeights>| norm.as_ref().map(|norm| device.load_norm(weights, norm)).transpose();
        Ok(Mixer {
            norm: of(norm)?,
            layer: match layer {
                spec::Mixer::Attention(attention) => Layer::Attention(Attention::new(device, weights, attention)?),
                spec::Mixer::DeltaNet(net) => Layer::DeltaNet(Box::new(DeltaNetLayer::new(device, weights, net)?)),
                spec::Mixer::ShortConv(conv) => Layer::ShortConv(ShortConvLayer::new(device, weights, conv)?),
                spec::Mixer::Mamba2(mamba) => Layer::Mamba2(Box::new(Mamba2Layer::new(device, weights, mamba)?)),
            },
            output_norm: of(output_norm)?,
            sum_norm: of(sum_norm)?,
        })
    }

    /// Stores what later positions need of every row, and leaves in `pass` what [`mix`](Self::mix) needs.
    pub(super) fn store(&self, device: &D, index: usize, pass: &mut Pass<'_, D>) -> Result<()> {
        let Pass { batch, hidden, projected, mixed, .. } = pass;
        let norm = self.norm.as_ref();
        match &self.layer {
            Layer::Attention(attention) => attention.store(device, index, norm, pass),
            Layer::DeltaNet(layer) => {
                let DeltaNetLayer { inputs, net, .. } = &**layer;
                let inputs: Vec<&D::Matrix> = inputs.iter().collect();
                device.norm_project(batch, hidden, norm, &inputs, projected)?;
                device.delta_net(batch, index, net, projected, mixed)
            }
            Layer::ShortConv(ShortConvLayer { bcx, conv, .. }) => {
                device.norm_project(batch, hidden, norm, &[bcx], projected)?;
                device.short_conv(batch, index, conv, projected, mixed)
            }
            Layer::Mamba2(layer) => {
                let Mamba2Layer { inputs, mamba, .. } = &**layer;
                let inputs: Vec<&D::Matrix> = inputs.iter().collect();
                device.norm_project(batch, hidden, norm, &inputs, projected)?;
                device.mamba2(batch, index, mamba, projected, mixed)
            }
        }
    }

    /// Whether later positions need what it stores.
    pub(super) fn stores(&self) -> bool {
        match &self.layer {
            Layer::Attention(attention) => attention.kv.is_some(),
            Layer::DeltaNet(_) | Layer::ShortConv(_) | Layer::Mamba2(_) => true,
        }
    }

    /// Whether it reads keys and values of all rows of the pass, of which nothing is stored.
    pub(super) fn reads_pass(&self) -> bool {
        matches!(&self.layer, Layer::Attention(attention) if !attention.options.causal)
    }

    /// `pass.mixed` = what the output projection reads. What has a state has left it there.
    pub(super) fn mix(&self, device: &D, index: usize, pass: &mut Pass<'_, D>) -> Result<()> {
        let Pass { batch, projected, mixed, .. } = pass;
        match &self.layer {
            Layer::Attention(attention) => device.attend(batch, index, &attention.options, projected, mixed),
            Layer::DeltaNet(_) | Layer::ShortConv(_) | Layer::Mamba2(_) => Ok(()),
        }
    }

    /// The output projection.
    pub(super) fn output(&self) -> &D::Matrix {
        match &self.layer {
            Layer::Attention(attention) => &attention.o,
            Layer::DeltaNet(net) => &net.out,
            Layer::ShortConv(conv) => &conv.out,
            Layer::Mamba2(mamba) => &mamba.out,
        }
    }

    /// In the order of [`spec::Mixer::linears`].
    pub(super) fn matrices(&self) -> impl Iterator<Item = &D::Matrix> {
        let (inputs, others): (&[D::Matrix], _) = match &self.layer {
            Layer::Attention(Attention { q, kv, o, .. }) => {
                let (k, v) = kv.as_ref().map_or((None, None), |kv| (Some(&kv.k), kv.v.as_ref()));
                (&[], [Some(q), k, v, Some(o)])
            }
            Layer::DeltaNet(net) => (&net.inputs, [Some(&net.out), None, None, None]),
            Layer::ShortConv(conv) => (&[], [Some(&conv.bcx), Some(&conv.out), None, None]),
            Layer::Mamba2(mamba) => (&mamba.inputs, [Some(&mamba.out), None, None, None]),
        };
        inputs.iter().chain(others.into_iter().flatten())
    }
}

impl<D: Device> Attention<D> {
    /// Stores keys and values of every row, where they are its own, and leaves the queries in `pass`.
    fn store(&self, device: &D, index: usize, norm: Option<&D::Norm>, pass: &mut Pass<'_, D>) -> Result<()> {
        let Attention { q, q_norm, kv, rope, .. } = self;
        let Pass { batch, hidden, projected, .. } = pass;
        let (k, v) = kv.as_ref().map_or((None, None), |kv| (Some(&kv.k), kv.v.as_ref()));
        let heads = HeadOptions {
            q_norm: q_norm.as_ref(),
            k_norm: kv.as_ref().and_then(|kv| kv.k_norm.as_ref()),
            v_norm_eps: kv.as_ref().and_then(|kv| kv.v_norm_eps),
            rope: *rope,
            stored: match (k, v) {
                (Some(_), Some(_)) if !self.options.causal => Stored::Pass,
                (Some(_), Some(_)) => Stored::KeysValues,
                (Some(_), None) => Stored::Keys,
                (None, _) => Stored::Nothing,
            },
        };
        let matrices: Vec<&D::Matrix> = [Some(q), k, v].into_iter().flatten().collect();
        device.norm_project(batch, hidden, norm, &matrices, projected)?;
        device.rotate_and_store(batch, index, heads, projected)
    }

    fn new(device: &D, weights: &Weights, attention: &AttentionWeights) -> Result<Attention<D>> {
        let matrix = |linear: &LinearWeights| device.matrix(weights, linear);
        let norm = |norm: &Option<NormWeights>| norm.as_ref().map(|norm| device.load_norm(weights, norm)).transpose();
        let own = attention.kv.own().map(|KeyValueWeights { k, v, k_norm, v_norm_eps }| {
            Ok::<_, Error>(KeysValues {
                k: matrix(k)?,
                v: v.as_ref().map(matrix).transpose()?,
                k_norm: norm(k_norm)?,
                v_norm_eps: v_norm_eps.map(|eps| eps as f32),
            })
        });
        Ok(Attention {
            q: matrix(&attention.q)?,
            q_norm: norm(&attention.q_norm)?,
            kv: own.transpose()?,
            rope: attention.rope,
            options: AttentionOptions {
                causal: attention.causal,
                window: attention.window,
                scoring: Scoring { scale: attention.score_scale, cap: attention.score_cap },
                sinks: attention.sinks.as_ref().map(|sinks| device.vector(weights, sinks)).transpose()?,
            },
            o: matrix(&attention.o)?,
        })
    }
}

impl<D: Device> DeltaNetLayer<D> {
    fn new(device: &D, weights: &Weights, net: &DeltaNetWeights) -> Result<DeltaNetLayer<D>> {
        let matrix = |linear: &LinearWeights| device.matrix(weights, linear);
        let &DeltaNetWeights { key_heads, value_heads, key_dim, value_dim, sharing, decay_is_log, .. } = net;
        Ok(DeltaNetLayer {
            inputs: [net.qkvz.linears(), net.ba.linears()]
                .concat()
                .into_iter()
                .flatten()
                .map(matrix)
                .collect::<Result<_>>()?,
            net: DeltaNet {
                key_heads,
                value_heads,
                key_dim,
                value_dim,
                sharing,
                by_key_head: [&net.qkvz, &net.ba].map(DeltaInput::by_key_head),
                conv: conv_of(device, weights, &net.conv)?,
                dt_bias: device.vector(weights, &net.dt_bias)?,
                decay: device.vector(weights, &net.decay)?,
                decay_is_log,
                norm: device.load_norm(weights, &net.norm)?,
            },
            out: matrix(&net.out)?,
        })
    }
}

impl<D: Device> ShortConvLayer<D> {
    fn new(device: &D, weights: &Weights, conv: &ShortConvWeights) -> Result<ShortConvLayer<D>> {
        Ok(ShortConvLayer {
            bcx: device.matrix(weights, &conv.bcx)?,
            conv: conv_of(device, weights, &conv.conv)?,
            out: device.matrix(weights, &conv.out)?,
        })
    }
}

impl<D: Device> Mamba2Layer<D> {
    fn new(device: &D, weights: &Weights, mamba: &Mamba2Weights) -> Result<Mamba2Layer<D>> {
        let matrix = |linear: &LinearWeights| device.matrix(weights, linear);
        let &Mamba2Weights { heads, groups, head_dim, state_dim, step_limit, decay_is_log, .. } = mamba;
        Ok(Mamba2Layer {
            inputs: [&mamba.input, &mamba.gate, &mamba.step].into_iter().map(matrix).collect::<Result<_>>()?,
            mamba: Mamba2 {
                heads,
                groups,
                head_dim,
                state_dim,
                step_limit,
                conv: conv_of(device, weights, &mamba.conv)?,
                step_bias: device.vector(weights, &mamba.step_bias)?,
                decay: device.vector(weights, &mamba.decay)?,
                decay_is_log,
                skip: device.vector(weights, &mamba.skip)?,
                norm: device.load_norm(weights, &mamba.norm)?,
            },
            out: matrix(&mamba.out)?,
        })
    }
}

fn conv_of<D: Device>(device: &D, weights: &Weights, conv: &ConvWeights) -> Result<Conv<D::Vector>> {
    Ok(Conv {
        weight: device.vector(weights, &conv.weight)?,
        bias: conv.bias.as_ref().map(|bias| device.vector(weights, bias)).transpose()?,
        channels: conv.channels(),
        kernel: conv.kernel(),
    })
}
