//! The sizes of a block -> the shapes of its tensors; where one differs, the error names the absent keys whose defaults
//! were used for these sizes.

use super::latent::LatentSizes;
use super::reader::{Reader, missing};
use super::routed::ExpertSizes;
use super::states::StateSizes;
use super::tensors::Tensors;
use crate::block::DISTANCE_BUCKETS;
use crate::error::{Error, IncompleteKind, Result};
use crate::family::{BlockTable, GateWidth, HeadNorms, Key, Role};

#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) hidden: usize,
    /// Elements of a row of the embedding.
    pub(super) embedding: usize,
    pub(super) feed_forward: usize,
    pub(super) layers: usize,
    /// The number of layers, and in GGUF also the blocks that predict further tokens.
    pub(super) blocks: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) vocab: usize,
    pub(super) context: usize,
    pub(super) states: Option<StateSizes>,
    /// Where attention is latent: a head is then what is cached of a position.
    pub(super) latent: Option<LatentSizes>,
    /// Elements of a token's embedding for a layer; 0 without per-layer embeddings.
    pub(super) layer_embedding: usize,
    /// Tokens that have such an embedding.
    pub(super) layer_vocab: usize,
    /// Residual streams, where there are several; else 0.
    pub(super) streams: usize,
    /// The rank of a residual beside attention; 0 without it.
    pub(super) laurel_rank: usize,
    /// Token types that have a row of their own; 0 where there are none.
    pub(super) token_types: usize,
    /// The row of a text's first token, where positions are rows of a matrix.
    pub(super) first_position: usize,
    /// Rows of embeddings of relative positions; 0 where there are none.
    pub(super) relative_rows: usize,
    /// Labels of a classification head; 0 without a head.
    pub(super) labels: usize,
    pub(super) experts: Option<ExpertSizes>,
    /// What a gate of attention's output is for, where it has a projection of its own.
    pub(super) gate: Option<GateWidth>,
}

impl Sizes {
    /// Rows and columns of the tensor of `role` in this `block`, 1 column for a vector, and the sizes they consist of in words.
    pub(super) fn shape(&self, role: Role, block: &BlockTable) -> (u64, u64, String) {
        let &Sizes { hidden, feed_forward, heads, kv_heads, head_dim, vocab, layers, layer_embedding, .. } = self;
        let &Sizes { context, token_types, first_position, labels, embedding, relative_rows, .. } = self;
        let &Sizes { layer_vocab, streams, laurel_rank, .. } = self;
        let ExpertSizes { count: experts, feed_forward: expert, shared_feed_forward: shared, .. } =
            self.experts.unwrap_or_default();
        let states = self.states.unwrap_or_default();
        let StateSizes { key_heads, value_heads, key_dim, value_dim, normed, channels, kernel, .. } = states;
        let StateSizes { by_element, by_channel, .. } = states;

        let matrix = |(rows, of_rows): (usize, String), (columns, of_columns): (usize, String)| {
            (rows as u64, columns as u64, format!("{of_rows}, {of_columns}"))
        };
        let vector = |(rows, of_rows): (usize, String)| (rows as u64, 1, of_rows);
        let width = || (hidden, format!("width {hidden}"));
        let of_embedding = || match embedding == hidden {
            true => width(),
            false => (embedding, format!("{embedding} elements of an embedding")),
        };
        let vocabulary = || (vocab, format!("vocabulary {vocab}"));
        let positions = || match first_position {
            0 => (context, format!("{context} positions")),
            first => (first + context, format!("{first} and {context} positions")),
        };
        let of_heads = |of: usize| (heads * of, format!("{heads} heads of {of} elements"));
        let latent =
            self.latent.unwrap_or(LatentSizes { q_rank: 0, rank: 0, plain: head_dim, rotated: 0, value_dim: head_dim });
        let LatentSizes { q_rank, rank, plain, rotated, value_dim: of_values } = latent;
        let queries = || of_heads(plain + rotated);
        let q_latents = || (q_rank, format!("latents of queries of {q_rank} elements"));
        let latents = || (rank, format!("latents of {rank} elements"));
        let gated = || (2 * queries().0, format!("{} and as many of their gates", queries().1));
        let keys = || (kv_heads * head_dim, format!("{kv_heads} key and value heads of {head_dim} elements"));
        let inner = || (feed_forward, format!("feed-forward width {feed_forward}"));
        let of_layer = || (layer_embedding, format!("{layer_embedding} elements a layer"));
        let of_layers = || (layers * layer_embedding, format!("{layers} layers of {layer_embedding} elements"));
        let of_streams = || (streams, format!("{streams} streams"));
        let of_rank = || (laurel_rank, format!("rank {laurel_rank}"));
        let of_experts = || (experts, format!("{experts} experts"));
        let of_expert = || (expert, format!("expert width {expert}"));
        let of_shared = || (shared, format!("width {shared} of the shared expert"));
        let value_count = || (value_heads, format!("{value_heads} heads of values"));
        let selects = states.rank > 0;
        let rank_count = || (states.rank, format!("{} elements that steps are made of", states.rank));
        let key_count = || (key_dim, format!("{key_dim} elements of a state"));
        let positions_read = || (kernel, format!("{kernel} positions"));
        let of_keys = || (key_heads * key_dim, format!("{key_heads} heads of keys of {key_dim} elements"));
        let values = || (states.values(), format!("{value_heads} heads of values of {value_dim} elements"));
        match role {
            Role::Embedding => matrix(vocabulary(), of_embedding()),
            Role::Head | Role::NextEmbedding | Role::NextHead => matrix(vocabulary(), width()),
            Role::Positions => matrix(positions(), of_embedding()),
            Role::EmbeddingProjection => matrix(width(), of_embedding()),
            Role::RelativePositions => matrix((relative_rows, format!("{relative_rows} relative positions")), width()),
            Role::PositionKey | Role::PositionQuery => matrix(queries(), width()),
            Role::Distances => {
                let buckets = (DISTANCE_BUCKETS, format!("{DISTANCE_BUCKETS} distances"));
                matrix(buckets, (heads, format!("{heads} heads")))
            }
            Role::TokenTypes => matrix((token_types, format!("{token_types} kinds of tokens")), of_embedding()),
            Role::Classifier => matrix((labels, format!("{labels} labels")), width()),
            Role::ClassifierDense | Role::ConvOut | Role::AltUpInput | Role::AltUpOutput => matrix(width(), width()),
            Role::Qkv => {
                let all = (heads + 2 * kv_heads) * head_dim;
                matrix((all, format!("{} and twice {}", queries().1, keys().1)), width())
            }
            Role::Q if block.gated_attention => matrix(gated(), width()),
            Role::Q => matrix(queries(), width()),
            Role::K | Role::V => matrix(keys(), width()),
            Role::O => matrix(width(), of_heads(of_values)),
            Role::AttentionGate if self.gate == Some(GateWidth::Head) => {
                matrix((heads, format!("{heads} heads")), width())
            }
            Role::AttentionGate => matrix(queries(), width()),
            Role::QDown => matrix(q_latents(), width()),
            Role::QDownNorm => vector(q_latents()),
            Role::QUp => matrix(queries(), q_latents()),
            Role::KvDown => matrix((rank + rotated, format!("{}, {rotated} rotated ones", latents().1)), width()),
            Role::KvDownNorm => vector(latents()),
            Role::KvUp => matrix(of_heads(plain + of_values), latents()),
            Role::LatentKeys => matrix((heads * rank, format!("{heads} heads, {}", latents().1)), of_heads(plain)),
            Role::LatentValues => matrix(of_heads(of_values), latents()),
            Role::Gate | Role::Up => matrix(inner(), width()),
            Role::Down => matrix(width(), inner()),
            Role::LayerEmbedding => matrix((layer_vocab, format!("vocabulary {layer_vocab}")), of_layers()),
            Role::LayerEmbeddingProjection => matrix(of_layers(), width()),
            Role::LayerEmbeddingGate => matrix(of_layer(), width()),
            Role::LayerEmbeddingOutput => matrix(width(), of_layer()),
            Role::LayerEmbeddingNorm => vector(of_layer()),
            Role::LayerScale => vector((1, "one number".into())),
            Role::AltUpRouter => matrix(of_streams(), width()),
            Role::AltUpPrediction => {
                matrix((streams * streams, format!("{streams} by {streams} streams")), of_streams())
            }
            Role::AltUpCorrection => matrix(of_streams(), of_streams()),
            Role::LaurelDown => matrix(of_rank(), width()),
            Role::LaurelUp => matrix(width(), of_rank()),
            Role::Router => matrix(of_experts(), width()),
            Role::ChoiceBias | Role::ExpertScales => vector(of_experts()),
            Role::SharedRouter => matrix((1, "one row".into()), width()),
            Role::ExpertGate | Role::ExpertUp => matrix(of_expert(), width()),
            Role::ExpertDown => matrix(width(), of_expert()),
            Role::SharedGate | Role::SharedUp => matrix(of_shared(), width()),
            Role::SharedDown => matrix(width(), of_shared()),
            Role::QNorm | Role::KNorm => match block.head_norms {
                HeadNorms::OfHead => vector((head_dim, format!("{head_dim} elements a head"))),
                HeadNorms::OfEachHead | HeadNorms::OfAllHeads if role == Role::QNorm => vector(queries()),
                HeadNorms::OfEachHead | HeadNorms::OfAllHeads => vector(keys()),
            },
            Role::Sinks => vector((heads, format!("{heads} heads"))),
            Role::DeltaQkv => {
                let keys = format!("{key_heads} heads of queries and keys of {key_dim} elements");
                matrix((channels, format!("{keys}, {value_heads} of values of {value_dim}")), width())
            }
            Role::DeltaQ | Role::DeltaK => matrix(of_keys(), width()),
            Role::DeltaQkvz => {
                let gates = format!("the same and gates of {value_heads} heads of {value_dim} elements");
                matrix((channels + states.values(), gates), width())
            }
            Role::DeltaBetaAlpha => matrix((2 * value_heads, format!("twice {value_heads} heads")), width()),
            Role::MambaInput if selects && by_element => matrix(values(), width()),
            Role::MambaInput if selects => {
                matrix((2 * values().0, format!("gates and values: twice {}", values().1)), width())
            }
            Role::MambaInput => {
                let keys = format!("{key_heads} groups of keys and queries of {key_dim}");
                matrix((channels, format!("{}, {keys}", values().1)), width())
            }
            Role::MambaStep if selects => matrix(value_count(), rank_count()),
            Role::MambaRank => matrix(rank_count(), values()),
            Role::MambaKey | Role::MambaQuery => matrix(key_count(), values()),
            Role::MambaRankNorm => vector(rank_count()),
            Role::MambaKeyNorm | Role::MambaQueryNorm => vector(key_count()),
            Role::StateGate | Role::DeltaV => matrix(values(), width()),
            Role::StateGateDown | Role::DeltaAlphaDown => matrix(key_count(), width()),
            Role::StateGateUp => matrix(values(), key_count()),
            Role::DeltaAlphaUp => matrix(of_keys(), key_count()),
            Role::StateOut => matrix(width(), values()),
            Role::DeltaBeta | Role::DeltaAlpha | Role::MambaStep => matrix(value_count(), width()),
            Role::StateDecay if by_element => matrix(values(), key_count()),
            Role::StateStepBias if by_channel => vector(of_keys()),
            Role::StateStepBias | Role::StateDecay | Role::MambaSkip => vector(value_count()),
            Role::StateNorm => vector((normed, values().1)),
            Role::Conv => matrix((channels, format!("{channels} channels")), positions_read()),
            Role::ConvQ | Role::ConvK => matrix(of_keys(), positions_read()),
            Role::ConvV => matrix(values(), positions_read()),
            Role::ConvIn => matrix((3 * hidden, format!("three times the width {hidden}")), width()),
            Role::NextProjection => matrix(width(), (2 * hidden, "twice that".into())),
            // The others are norms of the residual stream, or of what is added to it.
            _ => vector(width()),
        }
    }
}

impl Reader<'_> {
    /// The context, without the rows of positions before the first token; 0 where a table has no key of it.
    pub(super) fn stored_context(&self, first_position: usize) -> Result<usize> {
        let key = self.family.files.keys.context;
        if key == Key::NONE {
            return Ok(0);
        }
        let context = self.size_or_table(key)?;
        let left = context.checked_sub(first_position).filter(|context| *context > 0);
        left.ok_or_else(|| self.value(&self.key(key), context, format!("more than {first_position}")))
    }

    /// The vocabulary, of which a key says `stored`; 0 where a table has no key of it.
    pub(super) fn stored_vocab(&self, stored: Option<usize>) -> Result<usize> {
        let key = self.family.files.keys.vocab;
        match (stored, self.gguf()) {
            _ if key == Key::NONE => Ok(0),
            (None, Some(metadata)) => {
                let tokens = metadata.strings("tokenizer.ggml.tokens")?.map_or(0, |tokens| tokens.len());
                let key = self.key(key);
                if tokens == 0 {
                    return Err(missing(self.fields(), &key, "and tokenizer.ggml.tokens is empty too"));
                }
                let what = format_args!("vocabulary = entries of tokenizer.ggml.tokens = {tokens}");
                Ok(self.or_absent(None, tokens, what, &key, "llama.cpp default"))
            }
            (vocab, _) => self.present(key, vocab),
        }
    }
}

/// A size that has a default: its key, its value in words, and the sizes without it, which differ if a shape depends on it.
type Defaulted = (String, String, Sizes);

impl Tensors<'_> {
    /// Returns `checked`, whose shape depends on the sizes of `roles`. If it differs from the stored shape, and one of
    /// these sizes is a default for an absent key, the error says so.
    pub(super) fn explained<T>(&self, checked: Result<T>, roles: &[Role], layer: Option<usize>) -> Result<T> {
        checked.map_err(|mut error| {
            if let Error::Incomplete { kind: IncompleteKind::TensorShape { because, .. }, .. } = &mut error {
                for (key, taken, _) in self.defaulted(roles, layer) {
                    because.push_str(&format!("; {key} is absent and was taken as {taken}"));
                }
            }
            error
        })
    }

    /// The absent keys whose defaults the sizes of `roles` depend on.
    fn defaulted(&self, roles: &[Role], layer: Option<usize>) -> Vec<Defaulted> {
        let (files, sizes) = (&self.family.files, self.sizes(layer));
        let (keys, source, gguf) = (&files.keys, files.defaults_source, self.reader.is_gguf());
        let table = || files.defaults.iter().copied().flatten().filter(|_| !gguf);
        let key = |key: Key| self.reader.key(key);
        let of_key = |name: Key, value: usize, rule: &str, without: Sizes| {
            let in_table = table().any(|(known, _)| *known == name.config);
            let taken = if in_table { format!("{value} ({source})") } else { format!("{rule}, {value}") };
            (key(name), taken, without)
        };
        let Sizes { heads, kv_heads, head_dim, vocab, context, .. } = sizes;
        let width = format!("{} / {}", key(keys.hidden), key(keys.heads));
        // The model's keys do not apply to a layer with heads of its own.
        let (of_model, headless) = (self.sizes, Sizes { head_dim: 0, ..sizes });
        let without_kv = if kv_heads == of_model.kv_heads { Sizes { kv_heads: 0, ..sizes } } else { sizes };
        let without_dim = if head_dim == of_model.head_dim { headless } else { sizes };
        let full = self.family.block.full_attention.filter(|_| !gguf && head_dim != of_model.head_dim);
        let full = full.map(|table| table.head_dim).filter(|(_, default, _)| head_dim == *default);
        let full = full.map(|(name, default, source)| (name.to_owned(), format!("{default} ({source})"), headless));
        let named = [
            of_key(keys.heads, heads, "", Sizes { heads: 0, ..sizes }),
            of_key(keys.kv_heads, kv_heads, &key(keys.heads), without_kv),
            of_key(keys.head_dim, head_dim, &width, without_dim),
            of_key(keys.vocab, vocab, "the entries of tokenizer.ggml.tokens", Sizes { vocab: 0, ..sizes }),
            of_key(keys.context, context, "", Sizes { context: 0, ..sizes }),
        ];
        let of_keys = [keys.heads, keys.kv_heads, keys.head_dim, keys.vocab, keys.context, keys.norm_eps];
        let others = table().filter(|(name, _)| of_keys.iter().all(|key| key.config != *name));
        // The other defaults of tables are for layers with a state.
        let of_states = others.map(|(name, value)| {
            (self.reader.config_key(name), format!("{value} ({source})"), Sizes { states: None, ..sizes })
        });
        let shape = |sizes: &Sizes, role: &Role| {
            let (rows, columns, _) = sizes.shape(*role, &self.family.block);
            (rows, columns)
        };
        let depends = |without: &Sizes| roles.iter().any(|role| shape(without, role) != shape(&sizes, role));
        let defaulted = named.into_iter().chain(full).chain(of_states);
        defaulted.filter(|(key, _, without)| !self.reader.fields().has(key) && depends(without)).collect()
    }
}
