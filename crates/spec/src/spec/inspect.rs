//! Header -> ModelSpec: chooses the family, reads the sizes, resolves the tensors, names the variant.

use super::Mixer;
use super::kinds::Which;
use super::reader::Reader;
use super::rope;
use super::tensors::{Options, Tensors};
use super::unused::CACHE_SCALES;
use super::vision;
use super::{
    Embeds, FrequencyFactors, LinearWeights, ModelSpec, ModelWeights, Module, Rope, RopeScaling, RouterScore, Sampling,
    Sizes, TextLimit, elements,
};
use crate::error::{Error, Result};
use crate::family::{Evidence, Family, Role, Variant};
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

/// What is loaded in addition to the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The head that predicts a further token.
    pub predictor: bool,
    /// The tower that makes rows of images.
    pub vision: bool,
}

/// Like [`inspect`], with what is `wanted` in addition.
///
/// # Errors
/// The errors of [`inspect`]; `Architecture` when something is wanted that the model does not have.
pub fn inspect_as(header: &Header, families: &[&'static Family], wanted: Wanted) -> Result<ModelSpec> {
    let reader = Reader::new(header, families)?;
    let family = reader.family;
    let in_mxfp4 = family.experts.is_some_and(|table| table.interleaved);
    let recognised = match &header.metadata {
        Metadata::Config(files) => quantization::recognise(header, files, in_mxfp4)?,
        Metadata::Gguf(_) => Recognised::default(),
    };
    let matrices = recognised.scheme.as_ref().map_or(Ok(None), |scheme| scheme.with_matrices(header))?;
    let labels = reader.labels()?;
    let sizes = Sizes { labels: labels.len(), ..reader.sizes()? };
    let disentangled = reader.disentangled(sizes.context)?;
    let sizes = Sizes { relative_rows: disentangled.map_or(0, |of| of.rows()), ..sizes };
    reader.refuse_experts()?;
    reader.refuse_flags()?;
    reader.note_absent_flags()?;
    let activation = reader.activation()?;
    let mut layers = reader.layers(&sizes)?;
    let states = if layers.with_state.any(sizes.layers) { reader.state_sizes(sizes.hidden)? } else { None };
    let sizes = Sizes { states, ..sizes };
    let whole = layers.kinds.described(&sizes);
    let mut ropes = match matches!(layers.rotated, Which::None) {
        true => Vec::new(),
        false => {
            let head_dim = sizes.latent.map_or(whole.head_dim, |latent| latent.rotated);
            rope::resolve(&reader, &Sizes { head_dim, ..whole }, layers.kinds.window_head_dim())?
        }
    };
    if matches!(layers.kinds.with_window, Which::None) {
        ropes.truncate(1);
    }
    layers.query_scale = rope::query_scale(&reader, &sizes)?;
    let context = reader.context_with(&ropes, sizes.context)?;
    layers.bound_window(context);
    let mut factors = reader.factors(&whole, activation)?;
    factors.score_scale *= ropes.first().map_or(1.0, |rope| rope.score_factor as f32);
    factors.score_scale *= disentangled.map_or(1.0, |of| of.score_factor());
    let multipliers = factors.multipliers;
    // Models saved from transformers' `AutoModel` have no head.
    let has_head = !reader.encodes()? && !reader.is_base_model()?;
    let tied = has_head && reader.tied()?;
    let routing = reader.routing(&sizes, factors.experts)?;
    let with_experts = reader.layers_with_experts(sizes.layers)?;
    let ((norm, norm_eps), output_norm_eps) = (reader.norms()?, reader.output_norm_eps()?);
    let options = Options { norm, norm_eps, output_norm_eps, factors, layers, disentangled };

    let mut tensors = Tensors::new(&reader, matrices.as_ref().unwrap_or(&header.tensors), sizes, options, &recognised);
    let embedding = tensors.matrix(Role::Embedding, None)?;
    let layers = (0..sizes.layers).map(|layer| tensors.layer(layer, routing.filter(|_| with_experts(layer))));
    let layers = layers.collect::<Result<Vec<_>>>()?;
    let (head, tied_embeddings) = if has_head { tensors.head(&embedding, tied)? } else { (None, false) };
    let final_norm = tensors.norm_if_named(Role::FinalNorm, None)?;
    let (layers, passes) = tensors.passes(layers, final_norm.as_ref())?;
    let classifier = tensors.classifier(labels)?.map(Box::new);
    let embeds = Embeds::read(&reader)?;
    let dense = tensors.dense_layers(embeds.by().map(|by| by.pooling.len()))?;
    let input = tensors.input()?;
    let (layer_embedding, altup) = (tensors.layer_embedding()?, tensors.altup()?);
    let shared = (&embedding, head.as_ref(), final_norm.as_ref());
    let predictor = wanted.predictor.then(|| tensors.predictor(shared, routing)).transpose()?;
    tensors.note_predictor(predictor.is_some())?;
    tensors.used.extend(ropes.iter().flat_map(Rope::tensors).map(|tensor| tensor.name.clone()));
    let mut aside = Vec::new();
    let vision = match wanted.vision {
        true => {
            let (vision, used, unused) =
                vision::resolve(&reader, (tensors.table, &recognised), &Sizes { context, ..sizes })?;
            tensors.used.extend(used);
            aside = unused;
            Some(Box::new(vision))
        }
        false => vision::note_unused(&reader).map(|()| None)?,
    };
    let mut unused_tensors = tensors.unused()?;
    unused_tensors.extend(aside);
    if let Some(scheme) = &recognised.scheme {
        note_scheme(scheme, &tensors.plain_modules, &unused_tensors, &reader);
    }
    let embedding = LinearWeights { bias: None, ..embedding };
    let weights = ModelWeights {
        embedding,
        input,
        joined: None,
        layer_embedding,
        altup,
        layers,
        final_norm,
        head,
        classifier,
        dense,
    };

    let tokenizer = TokenizerSpec::from_header(header)?;
    let sampling = Sampling::read(&reader)?;
    let text_limit = TextLimit::read(header, weights.classifier.is_some())?.filter(|limit| limit.tokens < context);
    let (architecture, model_type) = (reader.architecture.clone(), reader.model_type.clone());
    let lacks_sections = family.rope.sections.is_some() && ropes.iter().any(|rope| rope.sections.is_none());
    let images = family.head.images.filter(|_| !lacks_sections);
    let mut spec = ModelSpec {
        family: family.id,
        variant: String::new(),
        architecture,
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
        weights,
        passes,
        predictor: None,
        vision: None,
        tokenizer,
        sampling,
        embeds,
        images,
        text_limit,
        quantization: quantization::in_words(header)?,
        assumptions: reader.assumptions.into_inner(),
        unused_tensors,
    };
    spec.parameters = elements(spec.tensors()).saturating_sub(elements(spec.scales()));
    if recognised.mxfp4 && spec.matrices().any(|matrix| matrix.dtype == DType::F4) {
        spec.quantization = "MXFP4".into();
    }
    if let Some(scheme) = recognised.scheme.filter(|_| spec.scales().next().is_some()) {
        spec.quantization = scheme.in_words();
    }
    spec.variant = variant(&spec, family, header, model_type.as_deref())?.to_owned();
    spec.predictor = predictor.map(|weights| Box::new(ModelSpec { weights, ..spec.clone() }));
    spec.vision = vision;
    Ok(spec)
}

impl Reader<'_> {
    /// The context that `ropes` extend to, of a model whose key gives `stored`.
    fn context_with(&self, ropes: &[Rope], stored: usize) -> Result<usize> {
        // A step of an encoder has as many rows as its context.
        let scaled = if self.encodes()? { None } else { ropes.iter().filter_map(Rope::scaled_context).max() };
        let Some(scaled) = scaled.filter(|scaled| *scaled > stored) else { return Ok(stored) };
        let key = self.key(self.family.files.keys.context);
        self.assume(format!("context {scaled}: YaRN stretches beyond the {stored} of {key}"));
        Ok(scaled)
    }
}

impl Tensors<'_> {
    /// The output head, and whether it is the `embedding`.
    fn head(&mut self, embedding: &LinearWeights, tied: bool) -> Result<(Option<LinearWeights>, bool)> {
        let name = self.weight_name(Role::Head, None);
        if tied && !self.stores(&name) {
            let total = embedding.outputs() as u64;
            let module = Some(Module::whole(self.stem(Role::Head, None), total));
            return Ok((Some(LinearWeights { bias: self.bias(Role::Head, None)?, module, ..embedding.clone() }), true));
        }
        if tied {
            self.reader.assume(format!(
                "the head is {name} although the embeddings are said to be tied: both are stored, and transformers ties \
                 them only where they are equal"
            ));
        }
        Ok((Some(self.matrix(Role::Head, None)?), false))
    }
}

/// Notes the assumptions on a quantized model.
fn note_scheme(scheme: &Scheme, plain: &[String], unused: &[String], reader: &Reader<'_>) {
    if let Some(first) = plain.first() {
        let (count, place) = (plain.len(), &scheme.place);
        reader.assume(format!(
            "{count} modules that {place} covers are stored as floats and computed as such; the first is {first}"
        ));
    }
    let Notes { unknown, defaults, floats } = &scheme.notes;
    if !unknown.is_empty() {
        reader.assume(format!("no change to the arithmetic by unknown keys: {}", unknown.join(", ")));
    }
    if !defaults.is_empty() {
        reader.assume(format!("{}: absent (the format's default)", defaults.join(", ")));
    }
    let of_cache = |name: &&String| CACHE_SCALES.iter().any(|end| name.ends_with(end));
    if let Some(first) = unused.iter().find(of_cache) {
        let count = unused.iter().filter(of_cache).count();
        reader.assume(format!(
            "{count} scales of an FP8 cache are not used, as it keeps what is computed; the first is {first}"
        ));
    }
    if !floats.is_empty() {
        reader.assume(format!("activations and cache are not quantized, which {} would have", floats.join(", ")));
    }
}

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
            Some(RopeScaling::LongRope { long: FrequencyFactors::Values(long), .. }) => {
                long.first().is_some_and(|factor| (factor - first).abs() < 1e-6)
            }
            _ => false,
        },
        Evidence::Windowed => spec.attentions().any(|attention| attention.window.is_some()),
        Evidence::SigmoidScores => spec
            .weights
            .layers
            .iter()
            .any(|layer| layer.experts().is_some_and(|experts| experts.routing.score == RouterScore::Sigmoid)),
        Evidence::PlainlyNormed => {
            spec.weights.layers.iter().flat_map(|layer| layer.mixers()).any(|mixer| match mixer {
                Mixer::Mamba(mamba) => mamba.selection.as_ref().is_some_and(|selection| selection.norm_eps.is_some()),
                _ => false,
            })
        }
        Evidence::ModelType(kind) => model_type == Some(kind),
        Evidence::RopeScaled => spec.rope().is_some_and(|rope| rope.scaling != RopeScaling::Default),
        Evidence::Tied => spec.tied_embeddings,
        Evidence::Name(part) => name.contains(part),
    };
    let matches = |variant: &&Variant| variant.any.iter().any(|all| all.iter().all(holds));
    Ok(family.variants.iter().find(matches).map_or(family.name, |variant| variant.name))
}
