//! Encoders and classification heads against the float64 truth of transformers, in both formats.
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why; distances are for reading

use crate::common;

use common::{fixtures, load};
use model_factory::error::EmbedError;
use model_factory::{EmbedOptions, Error, Model, Pooling, Reranker};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
struct Truth {
    texts: Vec<Text>,
    pairs: Vec<Pair>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
    ids: Vec<u32>,
    mean: Vec<f64>,
    cls: Vec<f64>,
    last: Vec<f64>,
}

#[derive(Deserialize)]
struct Pair {
    first: String,
    second: String,
    ids: Vec<u32>,
    scores: Vec<f64>,
}

fn truth() -> BTreeMap<String, Truth> {
    let of = |name: &str| {
        let text = std::fs::read_to_string(fixtures().join("embeddings").join(name)).expect("the truth");
        serde_json::from_str::<BTreeMap<String, Truth>>(&text).expect("the truth")
    };
    of("encoders.json").into_iter().chain(of("vectors.json")).collect()
}

fn folder(name: &str) -> Model {
    if name == "modernbert-cls" {
        let pooling = ["mean", "cls"].map(|pooling| format!("\"classifier_pooling\": \"{pooling}\""));
        return load(changed("modernbert", &[("config.json", &pooling[0], &pooling[1])]).path());
    }
    load(fixtures().join("embeddings").join(name))
}

/// F32 arithmetic through two to four layers, by the length of the truth; the worst found was 1.2e-6.
const TOLERANCE: f64 = 2e-6;

/// The six layers of EmbeddingGemma, whose norms double what they norm; transformers' F32 is 1.5e-5 from the truth.
const OF_GEMMA: f64 = 1e-5;

fn distance(found: &[f32], truth: &[f64]) -> f64 {
    let length = truth.iter().map(|x| x * x).sum::<f64>().sqrt();
    found.iter().zip(truth).map(|(x, truth)| (f64::from(*x) - truth).abs()).fold(0.0, f64::max) / length.max(1.0)
}

/// Every folder and, where llama.cpp's converter makes one, its GGUF file.
fn each(mut test: impl FnMut(&str, &Model, &Truth)) {
    let truth = truth();
    assert_eq!(truth.len(), 20);
    let mut files = 0;
    for (name, truth) in &truth {
        // Safetensors of this one are of no class of transformers.
        if name != "nomic-bert-moe" {
            test(name, &folder(name), truth);
        }
        let file = fixtures().join("embeddings").join(format!("{name}.gguf"));
        if file.exists() {
            files += 1;
            test(&format!("{name}.gguf"), &load(&file), truth);
        }
    }
    assert_eq!(files, 13, "GGUF files");
}

#[test]
fn hidden_states_are_those_of_float64() {
    each(|name, model, truth| {
        let mut worst = 0.0_f64;
        for text in &truth.texts {
            assert_eq!(model.tokenizer().encode(&text.text, true).expect("ids"), text.ids, "{name}: {:?}", text.text);
            for (pooling, truth) in
                [(Pooling::Mean, &text.mean), (Pooling::Cls, &text.cls), (Pooling::Last, &text.last)]
            {
                let options = EmbedOptions::default().pooling(pooling).normalize(false);
                let found = model.embeddings(&[&text.text], &options).expect("a vector");
                let distance = distance(&found.into_vec(), truth);
                let most = match name.trim_end_matches(".gguf") {
                    "embedding-gemma" => OF_GEMMA,
                    // transformers' F32 is 2.6e-6 from it.
                    "eurobert" => 5e-6,
                    _ => TOLERANCE,
                };
                worst = worst.max(distance / most);
                assert!(distance < most, "{name} {pooling}: {:?}: {distance:e}", text.text);
            }
        }
        println!("{name}: {worst:.2} of the bound");
    });
}

#[test]
fn scores_of_pairs_are_those_of_float64() {
    let mut compared = 0;
    each(|name, model, truth| {
        // llama.cpp's converter leaves BERT's pooler out.
        if matches!(name, "cross-encoder.gguf" | "labels.gguf") {
            assert!(model.labels().is_empty(), "{name}");
            assert!(
                model
                    .report()
                    .model
                    .as_ref()
                    .expect("a model")
                    .assumptions
                    .iter()
                    .any(|said| said.contains("cls.weight"))
            );
            let error = model.rank("a", &["b"], &Reranker::classifier()).expect_err("no head");
            assert!(matches!(&error, Error::Embed(of) if **of == EmbedError::NoClassifier), "{error}");
            return;
        }
        // These were made of the model without its head.
        if matches!(name, "eurobert.gguf" | "jina3.gguf") {
            return assert!(model.labels().is_empty(), "{name}");
        }
        if name == "qwen3-score" {
            let error = model.rank("a", &["b"], &Reranker::classifier()).expect_err("no pairs");
            assert!(matches!(&error, Error::Embed(of) if **of == EmbedError::NoPairs), "{error}");
            let reranker = Reranker::classifier().prompt("{query}{document}");
            for Pair { first, second, scores, .. } in &truth.pairs {
                let found = model.rank(first, &[second], &reranker).expect("a score")[0];
                let truth = 1.0 / (1.0 + (-scores[0]).exp());
                assert!((f64::from(found) - truth).abs() < TOLERANCE, "{name}: {found} {truth}");
            }
            return;
        }
        for Pair { first, second, ids, scores } in &truth.pairs {
            let (found, types) = model.tokenizer().encode_pair(first, second).expect("ids").expect("a template");
            assert_eq!(&found, ids, "{name}: {first:?} {second:?}");
            let end = types.iter().position(|kind| *kind == 1);
            assert!(end.is_none_or(|end| found[end - 1] == found[found.len() - 1]), "{name}: after a separator");
            let found = model.label_logits_of_pairs(&[(first, second)]).expect("scores");
            let distance = distance(&found, scores);
            assert!(distance < TOLERANCE, "{name}: {first:?} {second:?}: {distance:e}");
            compared += 1;
        }
        if truth.pairs.is_empty() {
            assert!(model.labels().is_empty(), "{name}");
        }
    });
    assert_eq!(compared, 3 * 16);
}

#[test]
fn documents_are_ranked_by_the_head_and_company_changes_no_bit() {
    let truth = truth();
    for name in [
        "cross-encoder",
        "xlm-roberta",
        "roberta",
        "modernbert",
        "modernbert-cls",
        "eurobert",
        "gte",
        "mpnet",
        "deberta",
    ] {
        let (model, pairs) = (folder(name), &truth[name].pairs);
        let query = &pairs[0].first;
        let documents: Vec<&str> = pairs.iter().map(|pair| pair.second.as_str()).collect();
        let reranker = Reranker::classifier().truncate(true);
        let together = model.rank(query, &documents, &reranker).expect("scores");
        let sigmoid = 1.0 / (1.0 + (-pairs[0].scores[0]).exp());
        assert!((f64::from(together[0]) - sigmoid).abs() < TOLERANCE, "{name}: {} {sigmoid}", together[0]);
        for (document, score) in documents.iter().zip(&together) {
            let alone = model.rank(query, &[document], &reranker).expect("a score");
            assert_eq!(alone[0].to_bits(), score.to_bits(), "{name}: {document:?}");
        }
    }
}

/// The rows of the output head that say yes and no as a classification head, as llama.cpp's converter makes it of a reranker.
#[test]
fn labels_named_yes_and_no_rank_as_the_tokens_do() {
    let (source, copy) = (common::named("qwen3").folder.join("f32"), tempfile::tempdir().expect("a folder"));
    let whole = load(&source);
    let [yes, no] = ["a", "b"].map(|text| whole.tokenizer().token_id(text).expect("a token") as usize);
    let bytes = std::fs::read(source.join("model.safetensors")).expect("weights");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("valid weights");
    let head =
        tensors.tensor("lm_head.weight").or_else(|_| tensors.tensor("model.embed_tokens.weight")).expect("a head");
    let width = head.shape()[1];
    let rows = [no, yes].map(|id| &head.data()[4 * width * id..][..4 * width]).concat();
    let score = safetensors::tensor::TensorView::new(head.dtype(), vec![2, width], &rows).expect("two rows");
    let tensors = tensors.tensors().into_iter().filter(|(name, _)| name != "lm_head.weight");
    let tensors = tensors.chain([("score.weight".to_owned(), score)]);
    safetensors::serialize_to_file(tensors, None, &copy.path().join("model.safetensors")).expect("a file");
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(source.join(name), copy.path().join(name)).expect("a copy");
    }
    let config = std::fs::read_to_string(source.join("config.json")).expect("config.json");
    let mut config: serde_json::Value = serde_json::from_str(&config).expect("JSON");
    config["architectures"] = serde_json::json!(["Qwen3ForSequenceClassification"]);
    config["id2label"] = serde_json::json!({"0": "b", "1": "a"});
    std::fs::write(copy.path().join("config.json"), config.to_string()).expect("a file");
    let (labels, reranker) = (load(copy.path()), Reranker::new("Is {document} in {query}?", "a", "b"));
    let rank = |model: &Model| model.rank("the sea", &["a boat", "Tobin", ""], &reranker).expect("scores");
    let (found, truth) = (rank(&labels), rank(&whole));
    assert!(found.iter().zip(&truth).all(|(a, b)| a.to_bits() == b.to_bits()), "{found:?} {truth:?}");
    assert!(truth[0] != truth[1], "{truth:?}");
    let error = labels.generate("Once", &Default::default()).and_then(|mut generation| generation.text());
    assert!(matches!(error, Err(Error::Embed(of)) if *of == EmbedError::NoHead));
}

#[test]
fn what_ranks_nothing_is_refused_by_name() {
    let model = folder("labels");
    assert_eq!(model.labels(), ["contradiction", "entailment", "neutral"]);
    let error = model.rank("a", &["b"], &Reranker::classifier()).expect_err("three labels");
    assert!(error.to_string().contains("\"entailment\""), "{error}");
    let scores = model.label_logits(&["The cat", "sat"]).expect("scores");
    assert_eq!((scores.rows().len(), scores.columns()), (2, 3));
    // Special tokens that a text spells are letters. This model tells no kinds of tokens apart, and would take it for the pair.
    let (model, text) = (folder("modernbert"), "the[SEP]cat");
    let pair = model.tokenizer().encode_pair("the", "cat").expect("ids").expect("a template").0;
    assert_eq!(model.tokenizer().encode(text, true).expect("ids"), pair);
    let spelled = model.label_logits(&[text]).expect("scores");
    let pair = model.label_logits_of_pairs(&[("the", "cat")]).expect("scores");
    assert_ne!(*spelled, *pair);
    // A head of one label was not trained to say yes.
    let error = model.rank("a", &["b"], &Reranker::new("{query}{document}", "yes", "no")).expect_err("no such labels");
    assert!(error.to_string().contains("LABEL_0"), "{error}");
    let error = folder("nomic-bert").label_logits(&["a"]).expect_err("no head");
    assert!(matches!(&error, Error::Embed(of) if **of == EmbedError::NoClassifier), "{error}");
}

#[test]
fn pairs_that_are_too_long_are_refused_or_cut_at_both_ends() {
    let model = folder("cross-encoder");
    let long = "cat ".repeat(60);
    let error = model.rank("the", &["cat", &long], &Reranker::classifier()).expect_err("64 tokens of 38");
    assert!(
        matches!(&error, Error::Embed(of) if matches!(**of, EmbedError::TooLong { index: 1, tokens: 64, limit: 38, .. })),
        "{error}"
    );
    assert!(error.to_string().contains("model_max_length"), "{error}");
    let cut = Reranker::classifier().truncate(true);
    let score = |query: &str, document: &str| model.rank(query, &[document], &cut).expect("a score")[0];
    // Of 35 tokens a short query keeps its own, and two long texts share them (transformers' `longest_first`).
    assert_eq!(score("the", &long), score("the", &"cat ".repeat(34)));
    assert_eq!(score(&long, &long), score(&"cat ".repeat(17), &"cat ".repeat(18)));
    assert_ne!(score("the", &long), score("the", &"cat ".repeat(33)));
}

/// The folder `name` with other texts in its files.
fn changed(name: &str, changes: &[(&str, &str, &str)]) -> tempfile::TempDir {
    let (source, copy) = (fixtures().join("embeddings").join(name), tempfile::tempdir().expect("a folder"));
    crate::embeddings::copy_folder(&source, copy.path());
    for (file, from, to) in changes {
        let text = std::fs::read_to_string(copy.path().join(file)).unwrap_or_else(|_| (*from).to_owned());
        assert!(text.contains(from), "{file}: {from}");
        std::fs::write(copy.path().join(file), text.replacen(from, to, 1)).expect("a file");
    }
    copy
}

#[test]
fn scores_go_through_what_the_files_name() {
    let score = |changes: &[(&str, &str, &str)]| {
        let folder = changed("cross-encoder", changes);
        load(folder.path()).rank("the cat", &["The cat sat on the mat."], &Reranker::classifier())
    };
    let sigmoid = score(&[]).expect("a score")[0];
    let logit = truth()["cross-encoder"].pairs[0].scores[0];
    let own = ("config_sentence_transformers.json", "", r#"{"activation_fn": "torch.nn.modules.linear.Identity"}"#);
    let modules =
        ("modules.json", "", r#"[{"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}]"#);
    let section = r#"{"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},"#;
    let old = r#"{"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity","#;
    for changes in [&[own, modules][..], &[("config.json", "{", section)], &[("config.json", "{", old)]] {
        let found = score(changes).expect("a score")[0];
        assert!((f64::from(found) - logit).abs() < TOLERANCE && found != sigmoid, "{found} {logit}");
    }
    let error = score(&[("config.json", "{", &old.replace("Identity", "Softmax"))]).expect_err("not computed");
    assert!(error.to_string().contains("Softmax"), "{error}");
}

#[test]
fn heads_and_windows_that_are_not_computed_are_said() {
    let folder = changed(
        "modernbert",
        &[("config.json", "\"classifier_activation\": \"gelu\"", "\"classifier_activation\": \"silu\"")],
    );
    let model = load(folder.path());
    assert!(model.labels().is_empty());
    let said = &model.report().model.as_ref().expect("a model").assumptions;
    assert!(said.iter().any(|said| said.contains("classifier_activation")), "{said:?}");
    let folder = changed("modernbert", &[("config.json", "{", "{\"sliding_window\": 3,")]);
    assert!(refusal(folder.path()).contains("sliding_window"));
}

/// What a template adds fits no context, or is more than any file needs.
#[test]
fn pairs_of_hostile_files_are_refused() {
    let pair = r#""pair":["#;
    let many = format!(r#"{pair}{}"#, r#"{"SpecialToken":{"id":"[CLS]","type_id":0}},"#.repeat(12));
    let folder = changed("cross-encoder", &[("tokenizer.json", pair, &many)]);
    assert!(refusal(folder.path()).contains("at most 16"));
    let few = format!(r#"{pair}{}"#, r#"{"SpecialToken":{"id":"[CLS]","type_id":0}},"#.repeat(4));
    let limit = ("tokenizer_config.json", "\"model_max_length\": 38", "\"model_max_length\": 4");
    let folder = changed("cross-encoder", &[("tokenizer.json", pair, &few), limit]);
    let error = load(folder.path()).rank("the", &["cat"], &Reranker::classifier().truncate(true)).expect_err("7 of 4");
    assert!(error.to_string().contains("9 tokens"), "{error}");
}

/// `config.json` as the model's own code has it, before transformers knew the family.
#[test]
fn nomic_bert_is_known_by_the_keys_of_its_own_code() {
    let source = fixtures().join("embeddings/nomic-bert");
    let copy = tempfile::tempdir().expect("a folder");
    for name in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(source.join(name), copy.path().join(name)).expect("a copy");
    }
    std::fs::copy(source.join("published.json"), copy.path().join("config.json")).expect("a copy");
    let model = load(copy.path());
    let options = EmbedOptions::default().pooling(Pooling::Mean);
    let vectors = |model: &Model| model.embeddings(&["The cat sat"], &options).expect("a vector");
    assert_eq!(vectors(&model), vectors(&folder("nomic-bert")));
    let config = std::fs::read_to_string(copy.path().join("config.json")).expect("config.json");
    for (from, to, says) in [
        ("\"prenorm\": false", "\"prenorm\": true", "prenorm"),
        ("\"rotary_emb_fraction\": 1.0", "\"rotary_emb_fraction\": 0.5", "rotary_emb_fraction"),
        ("\"activation_function\": \"swiglu\"", "\"activation_function\": \"gelu\"", "activation_function"),
    ] {
        assert!(config.contains(from), "{from}");
        std::fs::write(copy.path().join("config.json"), config.replace(from, to)).expect("a file");
        let error = refusal(copy.path());
        assert!(error.contains(says), "{error}");
    }
}

fn refusal(path: &Path) -> String {
    Model::load(path).expect_err("it is refused").to_string()
}

/// Scores by distance are made for the longest text of a step.
#[test]
fn company_and_threads_change_no_bit_of_a_vector() {
    let options = EmbedOptions::default().pooling(Pooling::Mean);
    let texts = ["the cat", "", "The cat sat on the mat, and the cats run.", "日本", "mat the sat the on the cat"];
    for name in [
        "deberta",
        "deberta-labels",
        "jina-bert",
        "mpnet",
        "neobert",
        "embedding-gemma",
        "llama-embed",
        "nomic-bert-moe.gguf",
    ] {
        let path = fixtures().join("embeddings").join(name);
        let of = |model: &Model, texts: &[&str]| {
            let made = model.embeddings(texts, &options).expect("vectors");
            made.vectors().map(|vector| vector.iter().map(|x| x.to_bits()).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let model = common::builder().threads(3).load(&path).expect("a model");
        let together = of(&model, &texts);
        for (text, together) in texts.iter().zip(&together) {
            assert_eq!(of(&model, &[text]), std::slice::from_ref(together), "{name}: {text:?}");
        }
        let one_thread = common::builder().threads(1).load(&path).expect("a model");
        assert_eq!(of(&one_thread, &texts), together, "{name}");
    }
}

/// A vector of EmbeddingGemma is what its dense layers make of the mean.
#[test]
fn dense_layers_after_the_pooling_are_computed_or_refused_by_name() {
    let truth = truth().remove("embedding-gemma").expect("its truth");
    let made = |model: &Model, text: &str| model.embeddings(&[text], &EmbedOptions::default());
    for model in [folder("embedding-gemma"), folder("embedding-gemma.gguf")] {
        let Text { text, mean, .. } = &truth.texts[0];
        let length = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
        let unit: Vec<f64> = mean.iter().map(|x| x / length).collect();
        let vector = made(&model, text).expect("a vector");
        assert!(distance(&vector.into_vec(), &unit) < OF_GEMMA);
        assert_eq!(model.spec().weights.dense.len(), 2);
        assert!(model.spec().is_encoder());
    }
    let model = folder("embedding-gemma");
    let named = EmbedOptions::default().prompt_name("query");
    let prompted = made(&model, "task: the cat | query: sat").expect("a vector");
    assert_eq!(model.embeddings(&["sat"], &named).expect("a vector"), prompted);
    // Another width after the first layer.
    let outputs = [("modules.json", "\"3_Dense\"", "\"2_Dense\"")];
    assert!(refusal(changed("embedding-gemma", &outputs).path()).contains("24 elements"));
    let config = "2_Dense/config.json";
    assert!(refusal(changed("embedding-gemma", &[(config, "16", "17")]).path()).contains("in_features"));
    assert!(refusal(changed("embedding-gemma", &[(config, "24", "25")]).path()).contains("2_Dense/linear.weight"));
    assert!(
        refusal(changed("embedding-gemma", &[(config, "\"bias\": false", "\"bias\": true")]).path())
            .contains("linear.bias")
    );
    for (file, from, to, says) in [
        (config, "Identity", "Mish", "Mish"),
        (config, "{", "{\"module_input_name\": \"token_embeddings\",", "token_embeddings"),
        ("modules.json", "models.Pooling", "models.WordWeights", "WordWeights"),
    ] {
        let model = load(changed("embedding-gemma", &[(file, from, to)]).path());
        let error = made(&model, "a").expect_err("not computed").to_string();
        assert!(error.contains(says), "{error}");
    }
    // Without its flag it is a decoder.
    let flag = ("config.json", "\"use_bidirectional_attention\": true", "\"use_bidirectional_attention\": false");
    assert!(!load(changed("embedding-gemma", &[flag]).path()).spec().is_encoder());
}

/// Llama as its own code makes an encoder of it, and by the key of transformers.
#[test]
fn a_decoder_is_an_encoder_where_a_key_says_so() {
    let names = [("\"llama_bidirec\"", "\"llama\""), ("LlamaBidirectionalModel", "LlamaModel")];
    let causal = ["true", "false"].map(|causal| format!("\"is_causal\": {causal}"));
    let [model_type, class] = names.map(|(from, to)| ("config.json", from, to));
    let embed = |model: &Model| {
        let options = EmbedOptions::default().pooling(Pooling::Mean);
        model.embeddings(&["the cat sat"], &options).expect("a vector")
    };
    let own = embed(&folder("llama-embed"));
    let by_key = load(changed("llama-embed", &[model_type, class]).path());
    assert!(by_key.spec().is_encoder());
    assert_eq!(embed(&by_key), own);
    let decoder = load(changed("llama-embed", &[model_type, class, ("config.json", &causal[1], &causal[0])]).path());
    assert!(!decoder.spec().is_encoder());
    assert_ne!(embed(&decoder), own);
}

/// Keys of DeBERTa 2 that ask for what is not computed, or for other tensors than are stored.
#[test]
fn wrong_keys_of_disentangled_attention_are_refused_by_name() {
    let kinds = "\"pos_att_type\": [";
    for (name, from, to, says) in [
        ("deberta", kinds, "\"pos_att_type\": [\"p2p\",", "p2p"),
        ("deberta", kinds, "\"pos_att_type\": 7, \"unused\": [", "pos_att_type"),
        ("deberta", kinds, "\"pos_att_type\": [7,", "pos_att_type"),
        ("deberta", "\"norm_rel_ebd\": \"layer_norm\"", "\"norm_rel_ebd\": \"rms\"", "norm_rel_ebd"),
        ("deberta", "\"position_buckets\": 8", "\"position_buckets\": 1", "position_buckets"),
        ("deberta", "\"position_buckets\": 8", "\"position_buckets\": 30", "position_buckets"),
        ("deberta", "\"position_buckets\": 8", "\"position_buckets\": 9", "deberta.encoder.rel_embeddings.weight"),
        ("deberta", "\"position_buckets\": 8", "\"position_buckets\": 1e30", "position_buckets"),
        ("deberta", "\"max_relative_positions\": 16", "\"max_relative_positions\": 5", "position_buckets"),
        ("deberta", "\"share_att_key\": true", "\"share_att_key\": false", "pos_key_proj.weight"),
        ("deberta", "\"share_att_key\": true", "\"share_att_key\": 1", "share_att_key"),
        (
            "deberta",
            "\"position_biased_input\": false",
            "\"position_biased_input\": true",
            "position_embeddings.weight",
        ),
        ("deberta", "{", "{\"conv_kernel_size\": 3,", "conv_kernel_size"),
        ("deberta", "{", "{\"attention_head_size\": 4,", "query_proj.weight"),
        ("deberta", "{", "{\"embedding_size\": 8,", "word_embeddings.weight"),
        ("deberta", "{", "{\"embedding_size\": 0,", "embedding_size"),
        ("deberta-labels", "\"embedding_size\": 12", "\"embedding_size\": 16", "word_embeddings.weight"),
        ("deberta-labels", "\"max_relative_positions\": 6", "\"max_relative_positions\": 7", "rel_embeddings.weight"),
    ] {
        let error = refusal(changed(name, &[("config.json", from, to)]).path());
        assert!(error.contains(says), "{name} {to}: {error}");
    }
    // What keys switch off is left aside, as in transformers.
    for (name, from, to, left) in [
        ("deberta", "\"norm_rel_ebd\": \"layer_norm\"", "\"norm_rel_ebd\": \"none\"", "deberta.encoder.LayerNorm.bias"),
        ("deberta", "\"relative_attention\": true", "\"relative_attention\": false", "rel_embeddings.weight"),
        ("deberta-labels", "\"type_vocab_size\": 2", "\"type_vocab_size\": 0", "token_type_embeddings.weight"),
    ] {
        let model = load(changed(name, &[("config.json", from, to)]).path());
        let unused = &model.spec().unused_tensors;
        assert!(unused.iter().any(|tensor| tensor.ends_with(left)), "{to}: {unused:?}");
    }
    let pooler = ("config.json", "\"pooler_hidden_act\": \"gelu\"", "\"pooler_hidden_act\": \"silu\"");
    let model = load(changed("deberta", &[pooler]).path());
    let said = &model.report().model.as_ref().expect("a model").assumptions;
    assert!(model.labels().is_empty() && said.iter().any(|said| said.contains("silu (pooler_hidden_act)")), "{said:?}");
    let class = ("tokenizer_config.json", "DebertaV2Tokenizer", "T5Tokenizer");
    assert!(refusal(changed("deberta-labels", &[class]).path()).contains("DebertaV2Tokenizer next to a spm.model"));
}

/// Keys of models that the same class reads otherwise.
#[test]
fn adapters_of_tasks_are_refused_by_name() {
    let adapters = ("config.json", "{", "{\"lora_adaptations\": [\"retrieval.query\"],");
    let error = refusal(changed("xlm-roberta", &[adapters]).path());
    assert!(error.contains("lora_adaptations") && error.contains("adapters of its tasks"), "{error}");
    load(changed("xlm-roberta", &[("config.json", "{", "{\"lora_adaptations\": null,")]).path());
}

/// The files of GTE's own code: another name of the model in them, and its scaling of the rotation.
#[test]
fn gte_is_known_by_the_names_of_its_own_code() {
    let own = r#""rope_theta": 20000.0, "rope_scaling": {"type": "ntk", "factor": 8.0}, "unused": {"#;
    let [linear, other] = [8.0_f64.powf(0.25), 8.0].map(|factor| {
        format!(r#""rope_theta": 160000.0, "rope_scaling": {{"type": "linear", "factor": {factor}}}, "unused": {{"#)
    });
    let score = |rope: &str, model_type: &str| {
        let class = model_type.replace("new", "New").replace("gte", "Gte") + "ForSequenceClassification";
        let changes = [
            ("config.json", "\"rope_parameters\": {", rope),
            ("config.json", "\"gte\"", &format!("\"{model_type}\"")),
            ("config.json", "GteForSequenceClassification", &class),
        ];
        load(changed("gte", &changes).path()).label_logits(&["The cat sat on the mat."]).expect("a score")[0]
    };
    assert_eq!(score(own, "new"), score(&linear, "gte"));
    assert_ne!(score(own, "new"), score(&other, "gte"));
    let mixed = own.replace("8.0", "8.0, \"mixed_b\": 1.0");
    let folder = changed("gte", &[("config.json", "\"rope_parameters\": {", &mixed)]);
    assert!(refusal(folder.path()).contains("mixed_b"));
}
