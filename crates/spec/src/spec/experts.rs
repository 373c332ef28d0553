//! Routed feed-forward layers by the family's keys: their sizes, how tokens are given to experts, which layers they are.

use super::Sizes;
use super::names::fill;
use super::reader::{Reader, missing};
use super::routed::{ExpertGroups, ExpertSizes, Normalization, Routing};
use super::single::SubLayer;
use crate::block::RouterScore;
use crate::error::Result;
use crate::family::{DENSE, DenseLayers, ExpertTable, Key, Normalized, Role};
use serde_json::Value;

/// More experts than any model has: what a file claims beyond that is refused before anything is made for each of them.
const MAX_EXPERTS: usize = 4096;

/// The same of all layers together.
const MAX_EXPERTS_IN_ALL: usize = 1 << 16;

impl ExpertTable {
    /// Whether one layer of every so many has experts.
    pub(super) fn lies_in_some_layers(&self) -> bool {
        self.dense_layers.is_some_and(|dense| dense.place.is_some())
    }
}

impl Reader<'_> {
    pub(super) fn expert_sizes(&self, dense: usize, layers: usize) -> Result<Option<ExpertSizes>> {
        let Some(table) = &self.family.experts else { return Ok(None) };
        // One expert of some layers is no choice, but their dense layer.
        let fewest = if table.lies_in_some_layers() { 2 } else { 1 };
        let said = match table.flag {
            _ if self.single_layers()?.is_some_and(|layers| !layers.contains(&SubLayer::Experts)) => false,
            None if !table.optional => true,
            _ if self.is_gguf() => self.gguf_experts()? >= fewest,
            Some(flag) => self.fields().boolean(flag)?.unwrap_or(false),
            None => {
                let counts = table.count.iter().map(|key| self.fields().unsigned(key.config));
                counts.collect::<Result<Vec<_>>>()?.iter().all(|count| count.is_none_or(|count| count >= fewest))
            }
        };
        if !said {
            return Ok(None);
        }
        let stored = table.count.iter().map(|key| Ok(self.size(*key)?.map(|count| (self.key(*key), count))));
        let mut stored = stored.collect::<Result<Vec<_>>>()?.into_iter().flatten();
        let Some((key, count)) = stored.next() else {
            let key = table.count.first().map(|key| self.key(*key)).unwrap_or_default();
            return Err(missing(self.fields(), &key, "the number of experts is never guessed from tensor shapes"));
        };
        if let Some((other, found)) = stored.find(|(_, found)| *found != count) {
            return Err(self.contradiction(format!("{key} is {count}"), format!("{other} is {found}")));
        }
        if count > MAX_EXPERTS {
            return Err(self.value(&key, count, format!("a number between 1 and {MAX_EXPERTS}")));
        }
        if count.saturating_mul(layers) > MAX_EXPERTS_IN_ALL {
            let expected = format!("at most {MAX_EXPERTS_IN_ALL} experts in {layers} layers together");
            return Err(self.value(&key, count, expected));
        }
        let chosen = self.chosen(table.chosen, layers)?;
        if chosen > count {
            let chosen_key = self.key(table.chosen);
            return Err(self.contradiction(format!("{key} is {count}"), format!("{chosen_key} is {chosen}")));
        }
        let feed_forward = match table.feed_forward {
            Some(key) => self.present(key, self.or_table(key, self.size_a_layer(key, layers)?)?)?,
            None => dense,
        };
        Ok(Some(ExpertSizes {
            count,
            chosen,
            feed_forward,
            shared_feed_forward: self.shared_width(table, feed_forward, layers)?,
        }))
    }

    /// The number of experts that are chosen for a token, which `config.json` may repeat for each layer.
    fn chosen(&self, key: Key, layers: usize) -> Result<usize> {
        let name = self.key(key);
        let list = self.config.and_then(|config| config.object().get(&name)).filter(|list| list.is_array());
        let Some(_) = list else { return self.size_or_table(key) };
        let listed = self.listed(&name, "a number", Value::as_u64)?.unwrap_or_default();
        match listed.first() {
            Some(first) if listed.len() == layers && listed.iter().all(|chosen| chosen == first) => {
                self.bounded(&name, *first)
            }
            Some(_) if listed.len() == layers => {
                Err(self.feature("a number that differs between layers", &name, "one number for all layers"))
            }
            _ => Err(self.entries(&name, listed.len(), layers)),
        }
    }

    /// Width of the shared expert: by its key, or by the number of experts of width `each` that it stands for.
    fn shared_width(&self, table: &ExpertTable, each: usize, layers: usize) -> Result<usize> {
        // 0 in `config.json` is none.
        let none = |key: Key| Ok(!self.is_gguf() && self.fields().unsigned(key.config)? == Some(0));
        let width = match table.shared_feed_forward {
            Some(key) if none(key)? => Some(0),
            Some(key) => self.size_a_layer(key, layers)?,
            None => None,
        };
        let (None, Some(key)) = (width, table.shared_count) else { return Ok(width.unwrap_or(0)) };
        let name = self.key(key);
        let count = match self.fields().unsigned(&name)? {
            Some(0) => 0,
            None if self.is_gguf() || self.is_null(&name) || self.default(key) == Some(0.0) => 0,
            _ => self.size_or_table(key)?,
        };
        Ok(count.saturating_mul(each))
    }

    /// How tokens are given to experts, whose weights are multiplied by `scale`.
    pub(super) fn routing(&self, sizes: &Sizes, scale: f32) -> Result<Option<Routing>> {
        let (Some(table), Some(experts)) = (&self.family.experts, &sizes.experts) else { return Ok(None) };
        let family_score = self.score(table)?;
        let groups = self.groups(table, family_score, experts)?;
        let normalized = match table.normalized {
            Normalized::Fixed(normalized) => normalized,
            Normalized::Flag { gguf, .. } if self.is_gguf() => {
                self.fields().boolean(&self.gguf_key(".expert_weights_norm"))?.unwrap_or(gguf)
            }
            Normalized::Flag { config, absent, .. } => {
                let what = if absent { "weights of experts by their sum" } else { "weights of experts as they are" };
                self.or_absent(self.fields().boolean(config)?, absent, what, config, &self.class_default())
            }
        };
        const JITTER: &str = "router_jitter_noise";
        let score = match (family_score, self.is_gguf()) {
            (RouterScore::SparseMixer { .. }, false) => match self.fields().number(JITTER)? {
                Some(jitter) if (0.0..1.0).contains(&jitter) => RouterScore::SparseMixer { jitter },
                Some(jitter) => return Err(self.value(JITTER, jitter, "a number from 0 to below 1".into())),
                None => family_score,
            },
            (score, _) => score,
        };
        // A softmax of those that are chosen has a sum of 1.
        let normalized = normalized && score != RouterScore::SoftmaxOfChosen;
        let normalized = normalized.then_some(Normalization { added: table.added_to_sum, least: table.least_sum });
        let router_scale = if table.by_root_of_width { 1.0 / (sizes.hidden as f32).sqrt() } else { 1.0 };
        let &ExpertSizes { count: experts, chosen, .. } = experts;
        Ok(Some(Routing { experts, chosen, score, groups, normalized, scale, router_scale }))
    }

    /// The groups of experts, where not all of them may be chosen from.
    fn groups(&self, table: &ExpertTable, score: RouterScore, sizes: &ExpertSizes) -> Result<Option<ExpertGroups>> {
        let Some(groups) = table.groups else {
            return match self.gguf_number(".expert_group_count")? {
                (key, Some(count @ 2..)) => {
                    Err(self.feature(&format!("experts in {count} groups"), &key, "1, or no such key"))
                }
                _ => Ok(None),
            };
        };
        if let (Some((key, [without, with])), false) = (groups.method, self.is_gguf()) {
            match self.fields().text(key)? {
                Some(method) if method == with => {}
                None => return Ok(self.or_absent(None, None, "experts without groups", key, &self.class_default())),
                Some(method) if method == without => return Ok(None),
                Some(other) => {
                    let feature = format!("experts chosen by {other}");
                    return Err(self.feature(&feature, key, &format!("{without} or {with}")));
                }
            }
        }
        let [count_key, chosen_key] = [groups.count, groups.chosen];
        let sized = |key| self.or_table(key, self.size(key)?);
        let Some(count) = sized(count_key)?.filter(|count| *count > 1) else { return Ok(None) };
        let chosen = self.present(chosen_key, sized(chosen_key)?)?;
        if chosen == count {
            return Ok(None);
        }
        let best = if score == RouterScore::Sigmoid { 2 } else { groups.best };
        let size = self.part(count_key, count, table.count[0], sizes.count)?;
        if chosen > count || chosen.saturating_mul(size) < sizes.chosen || size < best {
            let one = format!("{} is {count}, {} is {chosen}", self.key(count_key), self.key(chosen_key));
            return Err(self.contradiction(one, format!("{} of {} experts are chosen", sizes.chosen, sizes.count)));
        }
        Ok(Some(ExpertGroups { count, chosen, best }))
    }

    /// The kind of scores: the family's, or what the file says. Refuses a file that says another.
    fn score(&self, table: &ExpertTable) -> Result<RouterScore> {
        /// llama.cpp's numbers: a softmax, a sigmoid, and a softmax of those that are chosen; 0 is none.
        const SOFTMAX: u64 = 1;
        const SIGMOID: u64 = 2;
        const SOFTMAX_OF_CHOSEN: u64 = 3;
        let (config_key, scores) = table.scores.unwrap_or_default();
        if let (Some((default, _)), false) = (scores.first(), self.is_gguf() || config_key.is_empty()) {
            let name = self.fields().text(config_key)?;
            let name =
                self.or_absent(name, default, format_args!("experts by {default}"), config_key, &self.class_default());
            let found = scores.iter().find(|(known, _)| *known == name).map(|(_, score)| *score);
            return found.ok_or_else(|| self.feature(&format!("experts by {name}"), config_key, default));
        }
        let (key, function) = self.gguf_number(".expert_gating_func")?;
        let is = |score: RouterScore, function| match score {
            RouterScore::Sigmoid => function == SIGMOID,
            _ => [SOFTMAX, SOFTMAX_OF_CHOSEN].contains(&function),
        };
        let Some(function) = function.filter(|function| *function != 0) else { return Ok(table.score) };
        let mut known = scores.iter().map(|(_, score)| *score).chain([table.score]);
        let expected = if table.score == RouterScore::Sigmoid { "2, a sigmoid" } else { "1, a softmax" };
        let unknown = || self.feature(&format!("experts by function {function}"), &key, expected);
        known.find(|score| is(*score, function)).ok_or_else(unknown)
    }

    /// Whether a layer has experts, of `layers`.
    pub(super) fn layers_with_experts(&self, layers: usize) -> Result<impl Fn(usize) -> bool + use<>> {
        let (experts, single) = (self.family.experts, self.single_layers()?);
        let table = experts.and_then(|table| table.dense_layers).unwrap_or(DENSE);
        let others = if self.is_gguf() { None } else { self.listed_layers(table.others, layers)? };
        // A model without experts may have a step of 0.
        let unread = others.is_some() || self.is_gguf() && self.gguf_experts()? == 0;
        let steps = if self.is_gguf() { table.step.gguf } else { table.step.config };
        let step = match steps {
            "" => None,
            _ if unread => None,
            _ => self.interval(&self.key(table.step))?.map(|every| every as u64),
        };
        let (step, at) = match table.place.filter(|_| !self.is_gguf()) {
            Some(place) => {
                let [every, at] = self.place(&place)?.map(|number| number as u64);
                (Some(every), every - 1 - at)
            }
            None => (step.or(experts.map(|_| 1)), 0),
        };
        let listed = if self.is_gguf() { None } else { self.listed_layers(table.list, layers)? };
        let (mut first, mut dense) = (0, listed.unwrap_or_default());
        let last = self.last_with_experts(table.last, layers)?;
        let is_dense = |kind: &Value| match kind.as_str()? {
            "dense" => Some(true),
            "sparse" => Some(false),
            _ => None,
        };
        let kinds = match self.listed(table.kinds, "dense or sparse", is_dense)? {
            // Nothing is made for each of more layers than may have experts.
            None if table.gguf_without_router && self.is_gguf() && layers <= MAX_EXPERTS_IN_ALL => {
                Some(self.without_router(layers))
            }
            kinds => kinds,
        };
        match kinds {
            Some(kinds) if kinds.len() != layers => return Err(self.entries(table.kinds, kinds.len(), layers)),
            Some(kinds) => dense = (0..).zip(kinds).filter(|(_, dense)| *dense).map(|(layer, _)| layer).collect(),
            None => first = self.first_dense(&table, layers)?,
        }
        Ok(move |layer: usize| {
            if let Some(single) = &single {
                return single.get(layer) == Some(&SubLayer::Experts);
            }
            let layer = layer as u64;
            if let Some(others) = &others {
                return others.binary_search(&layer).is_ok();
            }
            let counts = layer <= last && step.is_some_and(|step| (layer + 1 + at).is_multiple_of(step));
            counts && layer >= first && dense.binary_search(&layer).is_err()
        })
    }

    /// The number of dense layers in front.
    fn first_dense(&self, table: &DenseLayers, layers: usize) -> Result<u64> {
        let key = self.key(table.first);
        let (default, source) = table.config_first;
        match self.fields().unsigned(&key)? {
            Some(count) if count > layers as u64 => {
                Err(self.value(&key, count, format!("at most {layers}, all layers")))
            }
            Some(count) => Ok(count),
            None if self.is_gguf() || source.is_empty() => Ok(0),
            None => {
                let what = format_args!("no experts in the first {default} layers");
                Ok(self.or_absent(None, default as u64, what, &key, source))
            }
        }
    }

    /// The last layer that may have experts.
    fn last_with_experts(&self, key: &str, layers: usize) -> Result<u64> {
        let last = layers.saturating_sub(1) as u64;
        if key.is_empty() || self.is_gguf() || self.fields().number(key)? == Some(-1.0) {
            return Ok(last);
        }
        match self.fields().unsigned(key)? {
            Some(beyond) if beyond > last => {
                Err(self.value(key, beyond, format!("-1, or at most {last}, the last layer")))
            }
            found => Ok(found.unwrap_or(last)),
        }
    }

    /// For each layer whether it has no router.
    fn without_router(&self, layers: usize) -> Vec<bool> {
        let name = self.family.name_of(Role::Router).map_or("", |names| names.gguf);
        let stored = |layer| self.header.tensors.contains_key(&format!("{}.weight", fill(name, Some(layer))));
        (0..layers).map(|layer| !stored(layer)).collect()
    }
}
