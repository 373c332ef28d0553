use super::*;
use crate::header::{Header, Metadata};
use crate::source;

enum Value<'a> {
    Text(&'a str),
    Id(u32),
    Flag(bool),
    Texts(&'a [&'a str]),
    Floats(&'a [f32]),
    Ints(&'a [i32]),
}
use Value::{Flag, Floats, Id, Ints, Text, Texts};

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// A GGUF file of `pairs` and one F32 tensor (ggml `docs/gguf.md`).
fn file(pairs: &[(&str, Value)]) -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend(1u64.to_le_bytes());
    out.extend((pairs.len() as u64).to_le_bytes());
    let array = |out: &mut Vec<u8>, kind: u32, len: usize| {
        out.extend([9u32.to_le_bytes(), kind.to_le_bytes()].concat());
        out.extend((len as u64).to_le_bytes());
    };
    for (key, value) in pairs {
        put_text(&mut out, key);
        match value {
            Text(text) => {
                out.extend(8u32.to_le_bytes());
                put_text(&mut out, text);
            }
            Id(id) => out.extend([4u32.to_le_bytes(), id.to_le_bytes()].concat()),
            Flag(flag) => {
                out.extend(7u32.to_le_bytes());
                out.push(u8::from(*flag));
            }
            Texts(texts) => {
                array(&mut out, 8, texts.len());
                texts.iter().for_each(|text| put_text(&mut out, text));
            }
            Floats(values) => {
                array(&mut out, 6, values.len());
                values.iter().for_each(|value| out.extend(value.to_le_bytes()));
            }
            Ints(values) => {
                array(&mut out, 5, values.len());
                values.iter().for_each(|value| out.extend(value.to_le_bytes()));
            }
        }
    }
    put_text(&mut out, "x");
    out.extend(1u32.to_le_bytes());
    out.extend(8u64.to_le_bytes());
    out.extend(0u32.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.resize(out.len().next_multiple_of(32) + 32, 0);
    out
}

fn spec_of(pairs: &[(&str, Value)]) -> Result<TokenizerSpec> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, file(pairs)).unwrap();
    let header = Header::read(source::probe(&path).unwrap()).unwrap();
    match &header.metadata {
        Metadata::Gguf(metadata) => spec(metadata),
        Metadata::Config(_) => unreachable!("a GGUF file"),
    }
}

const LLAMA: [&str; 6] = ["<unk>", "<s>", "</s>", "▁a", "b", "<|im_end|>"];

#[test]
fn the_llama_kind_has_defaults_and_says_so() {
    let scores = [0.0; 6];
    let spec = spec_of(&[(MODEL, Text("llama")), (TOKENS, Texts(&LLAMA)), (SCORES, Floats(&scores))]).unwrap();
    assert_eq!(spec.kind, TokenizerKind::SentencePiece);
    assert_eq!((spec.bos, spec.eos, spec.add_bos, spec.add_eos), (Some(1), Some(2), true, false));
    assert_eq!((spec.bos_text.as_deref(), spec.add_space_prefix, spec.tokens), (Some("<s>"), true, 6));
    assert_eq!(spec.stop_ids.keys().copied().collect::<Vec<_>>(), [2, 5]);
    assert_eq!(spec.assumptions.len(), 3, "{:?}", spec.assumptions);
}

#[test]
fn keys_override_the_defaults() {
    let scores = [0.0; 6];
    let pairs = [
        (MODEL, Text("llama")),
        (TOKENS, Texts(&LLAMA)),
        (SCORES, Floats(&scores)),
        ("tokenizer.ggml.bos_token_id", Id(3)),
        ("tokenizer.ggml.eos_token_id", Id(4)),
        ("tokenizer.ggml.eot_token_id", Id(0)),
        ("tokenizer.ggml.eom_token_id", Id(700)),
        ("tokenizer.ggml.add_bos_token", Flag(false)),
        ("tokenizer.ggml.add_space_prefix", Flag(false)),
        ("tokenizer.chat_template", Text("{{ x }}<|im_end|>")),
    ];
    let spec = spec_of(&pairs).unwrap();
    assert_eq!((spec.bos, spec.eos, spec.add_bos, spec.add_space_prefix), (Some(3), Some(4), false, false));
    assert_eq!(spec.stop_ids.keys().copied().collect::<Vec<_>>(), [0, 2, 4, 5]);
    assert_eq!(spec.stop_ids[&5], ["token text <|im_end|>", "chat template"]);
    assert!(spec.assumptions.iter().any(|what| what.contains("700")), "{:?}", spec.assumptions);
}

#[test]
fn byte_level_vocabularies_get_bos_by_their_pre_tokenizer() {
    let of = |pre: Option<&'static str>| {
        let mut pairs = vec![
            (MODEL, Text("gpt2")),
            (TOKENS, Texts(&["a", "b", "ab", "<|eot_id|>"])),
            (MERGES, Texts(&["a b"])),
            ("tokenizer.ggml.bos_token_id", Id(2)),
            ("tokenizer.ggml.eos_token_id", Id(3)),
        ];
        pairs.extend(pre.map(|pre| (PRE, Text(pre))));
        spec_of(&pairs).unwrap()
    };
    assert!(of(Some("llama-bpe")).add_bos);
    assert!(!of(Some("qwen2")).add_bos);
    let absent = of(None);
    assert_eq!((absent.pre.as_deref(), absent.add_bos), (Some("default"), false));
    assert!(absent.assumptions.iter().any(|what| what.contains(PRE)), "{:?}", absent.assumptions);
}

#[test]
fn refuses_what_it_does_not_know_by_name() {
    let scores = [0.0; 6];
    let tokens = || (TOKENS, Texts(&LLAMA));
    let llama = || (MODEL, Text("llama"));
    let cases: [(&str, Vec<(&str, Value)>); 8] = [
        ("model", vec![(MODEL, Text("rwkv")), tokens()]),
        ("no model", vec![tokens()]),
        ("pre", vec![(MODEL, Text("gpt2")), tokens(), (MERGES, Texts(&["a b"])), (PRE, Text("llama-bpe2"))]),
        ("no merges", vec![(MODEL, Text("gpt2")), tokens(), (PRE, Text("qwen2"))]),
        ("no scores", vec![llama(), tokens()]),
        ("no tokens", vec![llama()]),
        (
            "id is a text",
            vec![llama(), tokens(), (SCORES, Floats(&scores)), ("tokenizer.ggml.eos_token_id", Text("2"))],
        ),
        ("type 9", vec![llama(), tokens(), (SCORES, Floats(&scores)), (TYPES, Ints(&[1, 1, 1, 9, 1, 1]))]),
    ];
    for (what, pairs) in cases {
        let found = spec_of(&pairs);
        assert!(matches!(found, Err(Error::Format { .. })), "{what}: {found:?}");
    }
    let short = [llama(), tokens(), (SCORES, Floats(&[0.0]))];
    assert!(matches!(spec_of(&short), Err(Error::Incomplete { .. })));
    assert_eq!(spec_of(&[("general.name", Text("x"))]).unwrap().kind, TokenizerKind::Missing);
    assert_eq!(spec_of(&[(MODEL, Text("no_vocab"))]).unwrap().kind, TokenizerKind::Missing);
}

#[test]
fn every_pre_tokenizer_has_one_entry() {
    let mut names: Vec<&str> = pre::PRE_TOKENIZERS.iter().flat_map(|pre| pre.names.split(' ')).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    assert!(pre::names().contains("llama-bpe"));
}

#[test]
fn gemma_4_merges_characters_and_always_has_a_bos() {
    let tokens = ["<eos>", "<bos>", "a", "▁a", "▁"];
    let with = |model: &'static str, add_bos| {
        let pairs = [
            (MODEL, Text(model)),
            (PRE, Text("gemma4")),
            (TOKENS, Texts(&tokens)),
            (MERGES, Texts(&["▁ a"])),
            (BOS, Id(1)),
            (EOS, Id(0)),
            (ADD_BOS, Flag(add_bos)),
        ];
        spec_of(&pairs).unwrap()
    };
    for spec in [with("gemma4", true), with("gpt2", true), with("gemma4", false)] {
        assert_eq!((spec.kind, spec.pre.as_deref()), (TokenizerKind::CharacterBpe, Some("gemma4")));
        assert_eq!((spec.add_bos, spec.add_space_prefix), (true, false));
    }
    let said = |add_bos| with("gemma4", add_bos).assumptions.iter().any(|what| what.contains(ADD_BOS));
    assert_eq!((said(true), said(false)), (false, true));
    let unmerged = [(MODEL, Text("gemma4")), (TOKENS, Texts(&tokens))];
    assert!(matches!(spec_of(&unmerged), Err(Error::Format { .. })));
}

#[test]
fn each_family_stops_where_its_turns_end() {
    for (family, eos, tokens, types, stops) in [
        // HTML tags are added tokens in Gemma's vocabularies; `</s>` ends strikethrough text.
        ("gemma 3", 0, &["<eos>", "<bos>", "</s>", "<end_of_turn>"][..], &[3, 3, 4, 3][..], &[0, 3][..]),
        ("gemma 4", 0, &["<eos>", "</s>", "<turn|>", "<|turn>", "<|tool_response>"], &[3, 1, 3, 3, 4], &[0, 2, 4]),
        (
            "gpt-oss",
            3,
            &["<|start|>", "<|end|>", "<|message|>", "<|return|>", "<|call|>", "<|endoftext|>"],
            &[3; 6],
            &[3, 4, 5],
        ),
        ("phi-3.5-moe", 1, &["<|assistant|>", "<|endoftext|>", "<|end|>", "</s>"], &[3, 3, 3, 4], &[1, 2, 3]),
        ("granite", 0, &["<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"], &[3; 3], &[0]),
        ("mistral", 1, &["<s>", "</s>", "[INST]", "[/INST]", "[THINK]"], &[3; 5], &[1]),
        ("smollm3", 1, &["<|end_of_text|>", "<|im_end|>", "<|im_start|>", "<think>"], &[3, 3, 3, 4], &[0, 1]),
        ("olmo 3", 0, &["<|endoftext|>", "<|im_start|>", "<|im_end|>"], &[3; 3], &[0, 2]),
        ("olmoe", 1, &["|||IP_ADDRESS|||", "<|endoftext|>", "<|padding|>"], &[4, 3, 3], &[1]),
        ("lfm2", 2, &["<|startoftext|>", "<|endoftext|>", "<|im_end|>", "<|im_start|>"], &[3; 4], &[1, 2]),
        ("qwen3.5", 2, &["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>"], &[3, 3, 3, 4], &[0, 2]),
    ] {
        let pairs = [
            (MODEL, Text("gpt2")),
            (PRE, Text("gpt-2")),
            (TOKENS, Texts(tokens)),
            (TYPES, Ints(types)),
            (MERGES, Texts(&[])),
            (EOS, Id(eos)),
        ];
        let found: Vec<u32> = spec_of(&pairs).unwrap().stop_ids.into_keys().collect();
        assert_eq!(found, stops, "{family}");
    }
}

#[test]
fn a_file_without_a_vocabulary_still_names_its_ids() {
    let spec = spec_of(&[
        (MODEL, Text("no_vocab")),
        ("tokenizer.ggml.bos_token_id", Id(3)),
        ("tokenizer.ggml.eos_token_id", Id(4)),
        ("tokenizer.ggml.eot_token_id", Id(9)),
        ("tokenizer.ggml.add_bos_token", Flag(true)),
    ]);
    let spec = spec.unwrap();
    assert_eq!((spec.kind, spec.bos, spec.eos, spec.add_bos), (TokenizerKind::Missing, Some(3), Some(4), true));
    assert_eq!(spec.stop_ids.keys().copied().collect::<Vec<_>>(), [4, 9]);
}

#[test]
fn every_template_is_read_by_its_name() {
    let scores = [0.0; 6];
    let pairs = [
        (MODEL, Text("llama")),
        (TOKENS, Texts(&LLAMA)),
        (SCORES, Floats(&scores)),
        ("tokenizer.chat_template.tool_use", Text("t")),
        ("tokenizer.chat_template.default", Text("other")),
        ("tokenizer.chat_template", Text("d")),
        ("tokenizer.chat_templates", Texts(&["tool_use", "rag"])),
    ];
    let found = |pairs: &[(&str, Value)]| {
        let spec = spec_of(pairs).unwrap();
        let describe = |(name, template): (&String, &crate::tokenizer::ChatTemplateSource)| {
            format!("{name}={} from {}", template.text, template.place.key.as_deref().unwrap())
        };
        let lost = spec.assumptions.iter().filter(|what| what.contains("chat_templates")).count();
        (spec.chat_templates.iter().map(describe).collect::<Vec<_>>(), lost)
    };
    let tool = "tool_use=t from tokenizer.chat_template.tool_use".to_owned();
    assert_eq!(found(&pairs), (vec!["default=d from tokenizer.chat_template".into(), tool.clone()], 1));
    assert_eq!(
        found(&pairs[..5]),
        (vec!["default=other from tokenizer.chat_template.default".into(), tool.clone()], 0)
    );
    assert_eq!(found(&pairs[..4]), (vec![tool], 0));
}
