//! Metadata -> activation, factors and caps: what activations are multiplied by in addition to the weights.

use super::reader::Reader;
use super::{Activation, Multipliers, Sizes};
use crate::error::Result;
use crate::family::{BlockTable, Factor, FactorOf, Key, Role};
use serde_json::Value;

pub(super) struct Factors {
    pub(super) multipliers: Multipliers,
    pub(super) score_scale: f32,
    pub(super) score_cap: Option<f32>,
    pub(super) alibi: Option<f32>,
    pub(super) qkv_limit: Option<f32>,
    /// The activation with the numbers that the files give.
    pub(super) activation: Activation,
    /// The factor of the weights of experts.
    pub(super) experts: f32,
    /// Factors of the products of matrices.
    pub(super) products: Vec<(&'static [Role], f64)>,
    /// Those of values, keys and queries of Mamba-2.
    pub(super) state_inputs: [f64; 3],
}

impl Factor {
    /// The factor of this key of `config.json`, without a default.
    pub(crate) const fn of_config(of: FactorOf, key: &'static str) -> Factor {
        Factor::new(of, Key::config(key))
    }

    /// A number whose absence changes nothing.
    pub(crate) const fn new(of: FactorOf, key: Key) -> Factor {
        Factor { of, key, gguf_default: None, config_default: None }
    }
}

impl Reader<'_> {
    /// The activation, by its name in `config.json`.
    pub(super) fn activation(&self) -> Result<Activation> {
        let BlockTable { activation: (default, names), other_activations, .. } = self.family.block;
        let key = match self.fields().has("hidden_activation") && !self.is_gguf() {
            // Gemma's own key takes precedence over the common one.
            true => "hidden_activation".to_owned(),
            false => self.key(Key { gguf: ".hidden_activation", config: "hidden_act" }),
        };
        match self.fields().text(&key)? {
            Some(name) => {
                let mut known = std::iter::once(&self.family.block.activation).chain(other_activations);
                let found = known.find(|(_, names)| names.contains(&name)).map(|(activation, _)| *activation);
                found.ok_or_else(|| self.feature(&format!("activation {name}"), &key, names[0]))
            }
            None if self.is_gguf() => Ok(default),
            None => {
                let what = format_args!("activation {}", names[0]);
                Ok(self.or_absent(None, default, what, "hidden_act", &self.class_default()))
            }
        }
    }

    pub(super) fn factors(&self, sizes: &Sizes, activation: Activation) -> Result<Factors> {
        let family = self.family;
        let by_root = |width: f64| (1.0 / width.sqrt()) as f32;
        let mut factors = Factors {
            multipliers: Multipliers::NONE,
            score_scale: 1.0 / (sizes.latent.map_or(sizes.head_dim, |of| of.plain + of.rotated) as f32).sqrt(),
            score_cap: None,
            alibi: None,
            qkv_limit: None,
            activation,
            experts: 1.0,
            products: Vec::new(),
            state_inputs: [1.0; 3],
        };
        let Factors {
            multipliers,
            score_scale,
            score_cap,
            alibi,
            qkv_limit,
            activation,
            experts,
            products,
            state_inputs,
        } = &mut factors;
        if family.block.scores_by_head {
            *score_scale = 1.0 / sizes.head_dim as f32;
        }
        let rooted = family.head.embedding_root_flag.filter(|_| !self.is_gguf());
        let rooted = rooted.map_or(Ok(Some(true)), |flag| self.flag(flag))?.unwrap_or(false);
        if family.head.embedding_by_root_of_width && rooted {
            multipliers.embedding = (sizes.hidden as f64).sqrt() as f32;
        }
        let wide = family.block.gguf_score_scale.iter().find(|(layers, _)| self.is_gguf() && *layers == sizes.layers);
        if let Some((layers, source)) = wide {
            let width = sizes.hidden / sizes.heads;
            *score_scale = by_root(width as f64);
            self.assume(format!(
                "scores divided by the root of {width}: no key says it for {layers} layers ({source})"
            ));
        }
        for factor in family.block.factors {
            if factor.of == FactorOf::Alibi && self.alibi(sizes.layers)?.is_none() {
                continue;
            }
            let Some(value) = self.factor(factor)? else { continue };
            match factor.of {
                FactorOf::Embedding => multipliers.embedding = value as f32,
                FactorOf::Residual => multipliers.residual = value as f32,
                FactorOf::ResidualByRootOfLayers => {
                    multipliers.residual = (value / (sizes.layers as f64).sqrt()) as f32
                }
                FactorOf::Scores => *score_scale = value as f32,
                FactorOf::ScoresTimes => *score_scale *= value as f32,
                FactorOf::ScoresByRoot => *score_scale = by_root(value),
                FactorOf::ScoreCap => *score_cap = Some(value as f32),
                FactorOf::Logits => multipliers.logits = value as f32,
                FactorOf::Products(roles) => products.push((roles, value)),
                FactorOf::StateInput(part) => state_inputs[part] = value,
                FactorOf::Alibi => *alibi = Some(value as f32),
                FactorOf::QkvLimit => *qkv_limit = Some(value as f32),
                FactorOf::LogitDivisor => multipliers.logits = (1.0 / value) as f32,
                FactorOf::LogitWidth => multipliers.logits = (value / sizes.hidden as f64) as f32,
                FactorOf::LogitCap => multipliers.logit_cap = Some(value as f32),
                FactorOf::Experts => *experts = value as f32,
                FactorOf::GateLimit | FactorOf::GateAlpha => {
                    if let Activation::ClampedSwiGlu { limit, alpha, .. } = activation {
                        *(if factor.of == FactorOf::GateLimit { limit } else { alpha }) = value as f32;
                    }
                }
            }
        }
        match self.alibi(sizes.layers)?.filter(|_| factors.alibi.is_none()) {
            Some(Factor { key, .. }) => {
                Err(self.feature("positions without ALiBi", &self.key(*key), "a positive number"))
            }
            None => Ok(factors),
        }
    }

    /// The factor of the table that says how scores depend on distances, where they do in a model of so many `layers`.
    pub(super) fn alibi(&self, layers: usize) -> Result<Option<&'static Factor>> {
        match self.family.rope.by_layers {
            Some((rotating, _)) if layers == rotating => return Ok(None),
            Some((rotating, sloped)) if layers != sloped => {
                let key = self.key(self.family.files.keys.layers);
                let expected = format!("{rotating}, which rotate, or {sloped}, which have ALiBi");
                return Err(self.feature(&format!("a model of {layers} layers"), &key, &expected));
            }
            _ => {}
        }
        Ok(self.family.block.factors.iter().find(|factor| factor.of == FactorOf::Alibi))
    }

    /// A number of the table; `None` where it is absent and that changes nothing. 0 in GGUF counts as absent, as in llama.cpp.
    fn factor(&self, factor: &Factor) -> Result<Option<f64>> {
        let key = self.key(factor.key);
        let default = if self.is_gguf() { factor.gguf_default } else { factor.config_default };
        if key.is_empty() {
            return Ok(default.map(|(value, _)| value));
        }
        let stored = match key.split_once('[') {
            Some((list, index)) => self.number_in_list(list, index.trim_end_matches(']'))?,
            None => self.fields().number(&key)?,
        };
        match stored {
            Some(0.0) if self.is_gguf() => Ok(None),
            // Far beyond every factor in use, and within what an f32 holds.
            Some(value) if (1e-9..=1e9).contains(&value) => Ok(Some(value)),
            Some(value) => Err(self.value(&key, value, "a number between 1e-9 and 1e9".into())),
            // A cap that is null means no cap; a clamped gate always needs its numbers.
            None if self.is_null(&key) => match factor.of {
                FactorOf::GateLimit | FactorOf::GateAlpha => Err(self.value(&key, "null", "a number".into())),
                _ => Ok(None),
            },
            None => Ok(default.map(|default| self.or_default(None, &key, default))),
        }
    }

    /// A number of a list of `config.json`; `None` where that is absent or null.
    fn number_in_list(&self, key: &str, index: &str) -> Result<Option<f64>> {
        let list = self.config.and_then(|config| config.object().get(key)).filter(|list| !list.is_null());
        let entry = |list: &Value| list.as_array()?.get(index.parse::<usize>().ok()?)?.as_f64();
        let wrong = |list| self.value(key, list, format!("a list with a number at {index}"));
        list.map(|list| entry(list).ok_or_else(|| wrong(list))).transpose()
    }
}
