//! A sharded repository of 70B geometry, made of sparse files: what a diagnosis transfers, and what it says.

use super::{Place, fixture, json, refused};
use model_factory::Verdict;
use model_factory::diagnostics::Hardware;
use model_factory::diagnostics::hardware::profiles::PROFILES;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::Write;
use std::path::Path;

const LAYERS: u64 = 80;
const HIDDEN: u64 = 8192;
const FEED_FORWARD: u64 = 28672;
const KEYS: u64 = 1024;
const VOCABULARY: u64 = 128_256;
const SHARDS: usize = 30;

/// Bytes of weights in BF16.
const BYTES: u64 = 2 * 70_553_706_496;

/// The acceptance: a diagnosis of 141 GB takes less than this.
const MOST: u64 = 10_000_000;

fn tensors() -> Vec<(String, Vec<u64>)> {
    let mut tensors = vec![("model.embed_tokens.weight".to_owned(), vec![VOCABULARY, HIDDEN])];
    for layer in 0..LAYERS {
        let mut add =
            |name: &str, shape: &[u64]| tensors.push((format!("model.layers.{layer}.{name}.weight"), shape.into()));
        add("input_layernorm", &[HIDDEN]);
        add("self_attn.q_proj", &[HIDDEN, HIDDEN]);
        add("self_attn.k_proj", &[KEYS, HIDDEN]);
        add("self_attn.v_proj", &[KEYS, HIDDEN]);
        add("self_attn.o_proj", &[HIDDEN, HIDDEN]);
        add("post_attention_layernorm", &[HIDDEN]);
        add("mlp.gate_proj", &[FEED_FORWARD, HIDDEN]);
        add("mlp.up_proj", &[FEED_FORWARD, HIDDEN]);
        add("mlp.down_proj", &[HIDDEN, FEED_FORWARD]);
    }
    tensors.push(("model.norm.weight".into(), vec![HIDDEN]));
    tensors.push(("lm_head.weight".into(), vec![VOCABULARY, HIDDEN]));
    tensors
}

/// Writes the repository; its weights are holes.
fn write(folder: &Path) -> u64 {
    let small = fixture("models/llama-3.1/f32-sharded");
    let mut config: Value = serde_json::from_slice(&std::fs::read(small.join("config.json")).unwrap()).unwrap();
    for (key, value) in [
        ("hidden_size", HIDDEN),
        ("intermediate_size", FEED_FORWARD),
        ("num_hidden_layers", LAYERS),
        ("num_attention_heads", 64),
        ("num_key_value_heads", 8),
        ("head_dim", 128),
        ("vocab_size", VOCABULARY),
    ] {
        config[key] = value.into();
    }
    config["dtype"] = "bfloat16".into();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    for name in ["generation_config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(small.join(name), folder.join(name)).unwrap();
    }
    let tensors = tensors();
    let (mut index, mut total) = (Map::new(), 0);
    for (number, shard) in tensors.chunks(tensors.len().div_ceil(SHARDS)).enumerate() {
        let name = format!("model-{:05}-of-{SHARDS:05}.safetensors", number + 1);
        let (mut header, mut end) = (Map::new(), 0);
        for (tensor, shape) in shard {
            let begin = end;
            end += 2 * shape.iter().product::<u64>();
            header.insert(tensor.clone(), json!({"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}));
            index.insert(tensor.clone(), name.clone().into());
        }
        let header = Value::from(header).to_string();
        let mut file = File::create(folder.join(&name)).unwrap();
        file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
        file.write_all(header.as_bytes()).unwrap();
        file.set_len(8 + header.len() as u64 + end).unwrap();
        total += end;
    }
    let index = json!({"metadata": {"total_size": total}, "weight_map": index});
    std::fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
    total
}

#[test]
#[allow(clippy::print_stdout)] // the figure itself
fn a_diagnosis_of_70b_takes_megabytes() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(write(folder.path()), BYTES);
    let place = Place::new();
    place.server.offer("org/Big-70B", folder.path());

    // A machine that holds it, and one that does not: the verdict and the plan are those of the files themselves.
    let mut large: Hardware = PROFILES[0].hardware();
    (large.memory.total, large.memory.available) = (400 << 30, 380 << 30);
    let mut small = large.clone();
    (small.memory.total, small.memory.available) = (64 << 30, 60 << 30);
    for (hardware, runs) in [(&large, true), (&small, false)] {
        let remote = place.builder().diagnose_on("org/Big-70B", hardware);
        let sent = place.server.take_sent();
        println!("{sent} bytes were sent");
        assert!(sent > 0 && sent < MOST, "{sent} bytes");
        assert_eq!(remote.verdict.runs(), runs, "{}", remote.reason);
        if !runs {
            assert_eq!(remote.verdict, Verdict::DoesNotFit);
        }
        let local = place.builder().diagnose_on(folder.path(), hardware);
        assert_eq!(remote.model.as_ref().unwrap().parameters, BYTES / 2);
        assert_eq!(remote.input.bytes(), local.input.bytes());
        let (mut remote, mut local) = (json(&remote), json(&local));
        assert_eq!(remote["input"]["hub"]["repo"], "org/Big-70B");
        remote["input"]["hub"] = Value::Null;
        assert_eq!(remote["input"]["path"], "org/Big-70B");
        local["input"]["path"] = "org/Big-70B".into();
        assert_eq!(remote.as_object_mut(), local.as_object_mut());
        assert!(remote["plan"]["total"].as_u64().unwrap() > BYTES);
    }

    // Loading it on too small a machine fetches no more.
    place.server.take_requests();
    let report = refused(place.builder().memory_limit(8 << 30).load("org/Big-70B"));
    assert_eq!(report.exit_code, 14, "{}", report.reason);
    assert!(place.server.take_sent() < MOST && !place.folder("org/Big-70B").exists());
    assert!(place.server.take_requests().len() < 3 * (SHARDS + 10));
}

/// A GGUF file whose header is megabytes long, as a large vocabulary makes it.
#[test]
fn a_long_header_is_fetched_piece_by_piece() {
    const FILLER: usize = 3 << 20;
    let small = std::fs::read(fixture("models/llama-3.1/q8_0.gguf")).unwrap();
    let (start, rest) = small.split_at(24);
    let pairs = u64::from_le_bytes(start[16..].try_into().unwrap()) + 1;
    let key = b"test.filler";
    let mut pair = Vec::new();
    pair.extend_from_slice(&(key.len() as u64).to_le_bytes());
    pair.extend_from_slice(key);
    pair.extend_from_slice(&9u32.to_le_bytes()); // an array
    pair.extend_from_slice(&0u32.to_le_bytes()); // of u8
    // The tensors' data stays aligned.
    let count = FILLER - pair.len() - 8;
    pair.extend_from_slice(&(count as u64).to_le_bytes());
    pair.resize(FILLER, 7);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long-q8_0.gguf");
    std::fs::write(&path, [&start[..16], &pairs.to_le_bytes(), &pair, rest].concat()).unwrap();

    let place = Place::new();
    place.server.offer("org/long-GGUF", folder.path());
    let remote = place.builder().diagnose("org/long-GGUF");
    let local = place.builder().diagnose(&path);
    assert_eq!((remote.exit_code, &remote.reason), (0, &local.reason));
    assert_eq!(remote.input.files, local.input.files);
    let starts: Vec<u64> =
        place.server.take_requests().iter().filter(|request| request.at_store).filter_map(|r| r.start).collect();
    // 256 KiB, then pieces that double up to 2 MiB, none of them twice.
    let kib = |starts: &[u64]| starts.iter().map(|start| start >> 10).collect::<Vec<_>>();
    assert_eq!(kib(&starts), [0, 256, 512, 1024, 2048]);
    assert!(place.server.take_sent() <= std::fs::metadata(&path).unwrap().len());
}
