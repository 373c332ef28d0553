//! Header -> ModelSpec: chooses the family, reads the sizes, resolves the tensors, names the variant.

use super::factors::Factors;
use super::names::names;
use super::reader::Reader;
use super::rope;
use super::tensors::{Options, Tensors};
use super::{Embeds, LayerWeights, LinearWeights, ModelSpec, ModelWeights, Rope, Sampling, Sizes, TextLimit};
use crate::error::{Error, Result};
use crate::family::{Evidence, Family, Role};
use crate::header::{Fields, Header, Metadata};
use crate::quantization::{self, Notes, Recognised, Scheme};
use crate::tokenizer::TokenizerSpec;
use model_factory_dtypes::DType;

/// Resolves `header` by the tables of `families`.
///
/// # Errors
/// `Architecture` when no family matches or the model asks for what its block does not have, `Format` for keys that
/// are missing or of the wrong type, `Quantization` for schemes that would need a cast, `Incomplete` for tensors that
/// are missing or contradict the sizes.
pub fn inspect(header: &Header, families: &[&'static Family]) -> Result<ModelSpec> {
    inspect_as(header, families, Wanted::default())
}

/// What of a model is wanted beside the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The head that predicts a further token.
    pub predictor: bool,
}

/// As [`inspect`], with what is `wanted` beside the model.
///
/// # Errors
/// As [`inspect`]; `Architecture` for what is wanted of a model that does not bring it.
pub fn inspect_as(header: &Header, families: &[&'static Family], wanted: Wanted) -> Result<ModelSpec> {
    let mut reader = Reader::new(header)?;
    let family = reader.family(families)?;
    let mut assumptions = Vec::new();
    let in_mxfp4 = family.experts.is_some_and(|table| table.interleaved);
    let recognised = match &header.metadata {
        Metadata::Config(files) => quantization::recognise(header, files, in_mxfp4)?,
        Metadata::Gguf(_) => Recognised::default(),
    };
    let scheme = recognised.scheme.as_ref();
    let labels = reader.labels(family, header, &mut assumptions)?;
    let sizes = Sizes { labels: labels.len(), ..reader.sizes(family, header, &mut assumptions)? };
    reader.refuse_experts(family)?;
    reader.refuse_flags(family)?;
    reader.note_absent_flags(family, &mut assumptions)?;
    reader.check_activation(family, &mut assumptions)?;
    let mut layers = reader.layers(family, header, &sizes, &mut assumptions)?;
    let states = match layers.have_states(sizes.layers) {
        true => reader.state_sizes(family, sizes.hidden, &mut assumptions)?,
        false => None,
    };
    let sizes = Sizes { states, ..sizes };
    let (whole, window_head_dim) = (layers.kinds().described(&sizes), layers.kinds().window_head_dim());
    let mut ropes = match names(family, Role::Positions) || !layers.rotate() {
        true => Vec::new(),
        false => rope::resolve(&reader, family, header, &whole, window_head_dim, &mut assumptions)?,
    };
    if !layers.rotates_windows() {
        ropes.truncate(1);
    }
    let scaled = ropes.iter().filter_map(Rope::scaled_context).max();
    // A step of an encoder takes as many rows as its context has.
    let context = match scaled.filter(|scaled| *scaled > sizes.context && !family.encoder) {
        None => sizes.context,
        Some(scaled) => {
            let key = reader.key(family.keys.context);
            assumptions.push(format!("context {scaled}: YaRN stretches beyond the {} of {key}", sizes.context));
            scaled
        }
    };
    layers.bound_window(context);
    let Factors { multipliers, score_scale, score_cap, activation, experts: scale } =
        reader.factors(family, &whole, &mut assumptions)?;
    // What `AutoModel` of transformers saves has no head.
    let has_head = !family.encoder && !reader.is_base_model(header)?;
    let tied = has_head && reader.tied(family, header, &mut assumptions)?;

    let routing = match (&family.experts, &sizes.experts) {
        (Some(table), Some(experts)) => Some(reader.routing(table, experts, sizes.hidden, scale, &mut assumptions)?),
        _ => None,
    };
    let with_experts = reader.layers_with_experts(family, sizes.layers, &mut assumptions)?;
    let norm_eps = reader.norm_eps(family, &mut assumptions)?;
    let options = Options { norm_eps, score_scale, score_cap, activation, layers };
    let mut tensors = Tensors::new(&reader, family, header, &sizes, options, &recognised);
    let embedding = tensors.matrix(Role::Embedding, None)?;
    let layers = (0..sizes.layers).map(|layer| tensors.layer(layer, routing.filter(|_| with_experts(layer))));
    let layers = layers.collect::<Result<Vec<LayerWeights>>>()?;
    let head_name = format!("{}.weight", tensors.stem(Role::Head, None));
    let stored_head = tied && header.tensors.contains_key(&head_name);
    if stored_head {
        assumptions.push(format!(
            "the head is {head_name} although the embeddings are said to be tied: both are stored, and transformers ties \
             them only where they are equal"
        ));
    }
    let tied_embeddings = tied && !stored_head;
    let head = if tied_embeddings {
        Some(LinearWeights { bias: tensors.bias(Role::Head, None)?, ..embedding.clone() })
    } else if has_head {
        Some(tensors.matrix(Role::Head, None)?)
    } else {
        None
    };
    let final_norm = tensors.norm_if_named(Role::FinalNorm, None)?;
    let classifier = tensors.classifier(labels, &mut assumptions)?.map(Box::new);
    let input = tensors.input()?;
    let layer_embedding = tensors.layer_embedding()?;
    let predictor = match wanted.predictor {
        true => Some(tensors.predictor((&embedding, head.as_ref(), final_norm.as_ref()), routing)?),
        false => None,
    };
    tensors.note_predictor(predictor.is_some(), &mut assumptions)?;
    ropes.iter().flat_map(Rope::tensors).for_each(|tensor| tensors.mark_used(&tensor.name));
    let unused_tensors = tensors.unused()?;
    if let Some(scheme) = scheme {
        note_scheme(scheme, &tensors.plain_modules, &mut assumptions);
    }

    let tokenizer = TokenizerSpec::from_header(header)?;
    let sampling = Sampling::read(header, &mut assumptions)?;
    let embeds = Embeds::read(header, &reader.architecture, &mut assumptions)?;
    let text_limit = TextLimit::read(header, classifier.is_some())?.filter(|limit| limit.tokens < context);
    let mut spec = ModelSpec {
        family: family.id,
        variant: String::new(),
        architecture: reader.architecture.clone(),
        parameters: 0,
        hidden: sizes.hidden,
        feed_forward: whole.feed_forward,
        heads: sizes.heads,
        kv_heads: whole.kv_heads,
        head_dim: whole.head_dim,
        vocab: sizes.vocab,
        context_trained: context,
        ropes,
        multipliers,
        tied_embeddings,
        weights: ModelWeights {
            embedding: embedding.weight,
            input,
            joined: None,
            layer_embedding,
            layers,
            final_norm,
            head,
            classifier,
        },
        predictor: None,
        tokenizer,
        sampling,
        embeds,
        text_limit,
        quantization: quantization::in_words(header)?,
        assumptions,
        unused_tensors,
    };
    let all = spec.tensors().map(super::elements).fold(0, u64::saturating_add);
    let scales = spec.scales().map(super::elements).fold(0, u64::saturating_add);
    spec.parameters = all.saturating_sub(scales);
    if recognised.mxfp4 && spec.matrices().any(|matrix| matrix.dtype == DType::F4) {
        spec.quantization = "MXFP4".into();
    }
    if let Some(scheme) = scheme
        && spec.scales().next().is_some()
    {
        spec.quantization = scheme.in_words();
    }
    spec.variant = variant(&spec, family, header, reader.model_type())?.to_owned();
    spec.predictor = predictor.map(|weights| Box::new(ModelSpec { weights, ..spec.clone() }));
    Ok(spec)
}

/// What was taken for granted of a quantised model.
fn note_scheme(scheme: &Scheme, plain: &[String], assumptions: &mut Vec<String>) {
    if let Some(first) = plain.first() {
        let count = plain.len();
        assumptions.push(format!(
            "{count} modules that {} covers are stored as floats and computed as such; the first is {first}",
            scheme.place
        ));
    }
    let Notes { unknown, defaults } = &scheme.notes;
    if !unknown.is_empty() {
        assumptions.push(format!("no change to the arithmetic by unknown keys: {}", unknown.join(", ")));
    }
    if !defaults.is_empty() {
        let defaults = defaults.join(", ");
        assumptions.push(format!("{defaults}: absent (compressed-tensors' default)"));
    }
}

/// The first variant whose evidence holds.
fn variant(spec: &ModelSpec, family: &Family, header: &Header, model_type: Option<&str>) -> Result<&'static str> {
    let name = match &header.metadata {
        Metadata::Gguf(metadata) => {
            let part = |key| Ok::<_, Error>(metadata.text(key)?.unwrap_or_default().to_lowercase());
            format!("{} {}", part("general.name")?, part("general.basename")?)
        }
        Metadata::Config(_) => String::new(),
    };
    let tokenizer = &spec.tokenizer;
    let template = tokenizer.chat_template().unwrap_or_default();
    let holds = |evidence: &Evidence| match *evidence {
        Evidence::Vocab(vocab) => spec.vocab == vocab,
        Evidence::Hidden(hidden) => spec.hidden == hidden,
        Evidence::Layers(layers) => spec.layers() == layers,
        Evidence::KvHeads(kv_heads) => spec.kv_heads == kv_heads,
        Evidence::Context(context) => spec.context_trained == context,
        Evidence::GroupedQueries => spec.kv_heads < spec.heads,
        Evidence::Theta(theta) => spec.rope().is_some_and(|rope| rope.theta == theta),
        Evidence::BosText(text) => tokenizer.bos_text.as_deref() == Some(text),
        Evidence::EosText(text) => tokenizer.eos_text.as_deref() == Some(text),
        Evidence::Template(part) => template.contains(part),
        Evidence::Pre(pre) => tokenizer.pre.as_deref() == Some(pre),
        Evidence::RopeFactor(factor) => spec.rope().is_some_and(|rope| rope.factor() == Some(factor)),
        Evidence::LongFactor(first) => match spec.rope().map(|rope| &rope.scaling) {
            Some(super::RopeScaling::LongRope { long: super::FrequencyFactors::Values(long), .. }) => {
                long.first().is_some_and(|factor| (factor - first).abs() < 1e-6)
            }
            _ => false,
        },
        Evidence::Windowed => spec.attentions().any(|attention| attention.window.is_some()),
        Evidence::ModelType(kind) => model_type == Some(kind),
        Evidence::RopeScaled => spec.rope().is_some_and(|rope| rope.scaling != super::RopeScaling::Default),
        Evidence::Tied => spec.tied_embeddings,
        Evidence::Name(part) => name.contains(part),
    };
    let matches = |variant: &&crate::family::Variant| variant.any.iter().any(|all| all.iter().all(holds));
    Ok(family.variants.iter().find(matches).map_or(family.name, |variant| variant.name))
}
