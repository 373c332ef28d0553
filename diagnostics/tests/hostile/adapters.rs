//! Adapters with one thing wrong: every key and every tensor of a folder of PEFT and of a GGUF adapter, refused by file and by tensor or
//! key, without reading a weight.

mod keys;

use crate::build::{ARRAY, F32 as GGUF_F32, F32_VALUE, F64, TEXT, Tree, U32, array, string};
use crate::edit::{Files, Gguf, fixtures};
use crate::within_two_gibibytes;
use model_factory_diagnostics::adapter::AdapterSpec;
use model_factory_diagnostics::family::REGISTRY;
use model_factory_diagnostics::header::Header;
use model_factory_diagnostics::source::{Format, probe};
use model_factory_diagnostics::spec::{ModelSpec, inspect};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::io::Read;
use std::path::Path;

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";
const GGUF: &str = "adapter.gguf";
/// The files that PEFT saves of a tokenizer.
const ADDED: &str = "added_tokens.json";
const WORDS: &str = "tokenizer_config.json";

/// Fewest adapters that are refused.
const LEAST: usize = 300;

/// What was read so far, for a model.
struct Cases {
    model: ModelSpec,
    format: Format,
    names: HashSet<String>,
    refused: usize,
    failures: Vec<String>,
}

impl Cases {
    fn new(base: &str) -> Cases {
        let header = Header::read(probe(&crate::edit::fixture(base)).unwrap()).unwrap();
        let (model, format) = (inspect(&header, REGISTRY).unwrap(), header.source.format);
        Cases { model, format, names: HashSet::new(), refused: 0, failures: Vec::new() }
    }

    /// `file`, or the folder of `tree` where that is empty, is refused with `code` by an error that names one of its files and has all
    /// of `says` in it.
    fn refuses(&mut self, case: &str, tree: &Tree, file: &str, code: u8, says: &[&str]) {
        self.refused += 1;
        let failure = match AdapterSpec::read(&tree.path(file), &self.model, self.format) {
            Ok(_) => Some("it was accepted".to_owned()),
            Err(error) => {
                let (found, text) = (error.exit_code(), error.to_string());
                let silent: Vec<_> = says.iter().filter(|part| !text.contains(**part)).collect();
                let named = [CONFIG, TENSORS, GGUF, ADDED, WORDS].iter().any(|name| text.contains(name));
                let one_line = !text.contains('\n') && text.len() < 2000;
                (found != code || !silent.is_empty() || !named || !one_line)
                    .then(|| format!("expected {code} with {silent:?}, found {found}: {text}"))
            }
        };
        self.failures.extend(failure.map(|failure| format!("{case}: {failure}")));
        if !self.names.insert(case.to_owned()) {
            self.failures.push(format!("{case}: the name appears twice"));
        }
    }

    fn accepts(&mut self, case: &str, tree: &Tree, file: &str) {
        if let Err(error) = AdapterSpec::read(&tree.path(file), &self.model, self.format) {
            self.failures.push(format!("{case}: expected to be read, found {error}"));
        }
    }

    fn finish(self) -> usize {
        assert!(self.failures.is_empty(), "{} adapters failed:\n{}", self.failures.len(), self.failures.join("\n"));
        self.refused
    }
}

/// A file of the archive of adapters for llama-3.2.
fn stored(name: &str) -> Vec<u8> {
    let archive = std::fs::File::open(fixtures().join("adapters/llama-3.2.tar.gz")).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let mut entries = archive.entries().unwrap().map(|entry| entry.unwrap());
    let mut entry = entries.find(|entry| entry.path().unwrap() == Path::new(name)).unwrap();
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).unwrap();
    bytes
}

/// The files of the adapter `first`, in BF16.
fn sound() -> Files {
    Files([CONFIG, TENSORS].map(|name| (name.to_owned(), stored(&format!("first/{name}")))).into())
}

#[test]
fn refuses_every_adapter_with_one_thing_wrong_by_name() {
    within_two_gibibytes("adapters::refuses_every_adapter_with_one_thing_wrong_by_name", || {
        let mut folders = Cases::new("llama-3.2/bf16");
        let files = sound();
        folders.accepts("a sound folder", &files.tree(), "");
        keys::cases(&mut folders, &files);
        tensors(&mut folders, &files);
        damage(&mut folders, &files);
        vocabulary(&mut folders, &files);
        let mut ggufs = Cases::new("llama-3.2/q8_0.gguf");
        let gguf = Gguf::read("converted.gguf", &stored("converted.gguf"));
        ggufs.accepts("a sound GGUF adapter", &Tree::new().with(GGUF, gguf.build()), GGUF);
        gguf_keys(&mut ggufs, &gguf);
        gguf_tensors(&mut ggufs, &gguf);
        let counts = [folders.finish(), ggufs.finish()];
        let all = counts[0] + counts[1];
        println!("{all} adapters are refused: {} folders of PEFT, {} GGUF files", counts[0], counts[1]);
        assert!(all >= LEAST, "only {all}");
    });
}

/// Adapters that name experts one by one, for models whose files do not.
#[test]
fn experts_that_lie_in_one_tensor_take_no_adapters() {
    for (base, layer) in
        [("gpt-oss/bf16", "model.layers.0.mlp.experts"), ("llama-4/bf16", "model.layers.1.feed_forward.experts")]
    {
        let mut cases = Cases::new(base);
        let files = alone(&format!("base_model.model.{layer}.3.up_proj"), "up_proj");
        let says = [TENSORS, "is for one expert", "stores all experts of a layer in one tensor"];
        cases.refuses(base, &files.tree(), "", 15, &says);
        let parameters = alone(&format!("base_model.model.{layer}"), "experts")
            .json(CONFIG, |keys| drop(keys.insert("target_parameters".into(), json!(["experts.gate_up_proj"]))));
        let says = [CONFIG, "target_parameters", "such as that of all experts of a layer, is not computed"];
        cases.refuses("target_parameters", &parameters.tree(), "", 11, &says);
        assert_eq!(cases.finish(), 2);
    }
}

/// An adapter for the layer of this name, which ends by `target`.
fn alone(layer: &str, target: &str) -> Files {
    let config = json!({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": [target]});
    let header = json!({
        format!("{layer}.lora_A.weight"): {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]},
        format!("{layer}.lora_B.weight"): {"dtype": "F32", "shape": [4, 2], "data_offsets": [32, 64]},
    });
    let tensors = crate::build::safetensors(&header.to_string(), 64);
    Files(vec![(CONFIG.into(), config.to_string().into_bytes()), (TENSORS.into(), tensors)])
}

/// The header with its entry `name` changed, and its data as the sizes then are.
fn with_entry(files: &Files, name: &str, change: impl FnOnce(&mut Map<String, Value>) -> usize) -> Files {
    let mut entries = header(files);
    let mut entry = entries.remove(name).unwrap();
    let bytes = change(entry.as_object_mut().unwrap());
    let mut end = 0;
    for other in entries.values_mut().filter(|entry| entry.get("data_offsets").is_some()) {
        let length = other["data_offsets"][1].as_u64().unwrap() - other["data_offsets"][0].as_u64().unwrap();
        other["data_offsets"] = json!([end, end + length]);
        end += length;
    }
    entry["data_offsets"] = json!([end, end + bytes as u64]);
    entries.insert(name.into(), entry);
    files.with(TENSORS, crate::build::safetensors(&Value::Object(entries).to_string(), end as usize + bytes))
}

fn header(files: &Files) -> Map<String, Value> {
    let (length, rest) = files.get(TENSORS).split_first_chunk::<8>().unwrap();
    serde_json::from_slice(&rest[..u64::from_le_bytes(*length) as usize]).unwrap()
}

/// Every tensor: missing, of other names, shapes and dtypes.
fn tensors(cases: &mut Cases, files: &Files) {
    let entries = header(files);
    let names: Vec<&String> = entries.keys().filter(|name| *name != "__metadata__").collect();
    assert_eq!(names.len(), 2 * 2 * 7);
    for name in names {
        let shape: Vec<usize> = serde_json::from_value(entries[name]["shape"].clone()).unwrap();
        let [rows, columns] = shape[..] else { panic!("{name} is no matrix") };
        let renamed = |to: &str| {
            files.header(TENSORS, |header| {
                let entry = header.remove(name).unwrap();
                header.insert(to.into(), entry);
            })
        };
        let missing = format!("{} is missing", name);
        cases.refuses(
            &format!("{name} is another layer's"),
            &renamed(&name.replace("layers.", "layers.1")).tree(),
            "",
            15,
            &[TENSORS, "is missing"],
        );
        let front = name.strip_suffix(".weight").unwrap();
        for end in ["", ".default.weight", ".bias", ".base_layer.weight"] {
            let to = format!("{front}{end}");
            cases.refuses(&format!("{name} is {end:?}"), &renamed(&to).tree(), "", 11, &[TENSORS, &to]);
        }
        let gone = with_entry(files, name, |_| 0).header(TENSORS, |header| drop(header.remove(name)));
        cases.refuses(&format!("no {name}"), &gone.tree(), "", 15, &[TENSORS, &missing]);
        for other in [
            vec![rows + 1, columns],
            vec![rows, columns - 1],
            vec![rows * columns],
            vec![1, rows, columns],
            vec![0, columns],
            vec![],
        ] {
            let edited = with_entry(files, name, |entry| {
                entry.insert("shape".into(), json!(other));
                2 * other.iter().product::<usize>()
            });
            let says = format!("{name} has shape {other:?}, expected [{rows}, {columns}]");
            cases.refuses(&format!("{name} of {other:?}"), &edited.tree(), "", 15, &[TENSORS, &says]);
        }
        for (dtype, bytes) in [("I8", 1), ("F64", 8), ("F8_E4M3", 1), ("I64", 8), ("BOOL", 1), ("I16", 2)] {
            let edited = with_entry(files, name, |entry| {
                entry.insert("dtype".into(), json!(dtype));
                bytes * rows * columns
            });
            let says = format!("{name} is {dtype}, expected F32, F16 or BF16");
            cases.refuses(&format!("{name} in {dtype}"), &edited.tree(), "", 15, &[TENSORS, &says]);
        }
    }
}

/// The file of the tensors, and what stands in it of one.
fn damage(cases: &mut Cases, files: &Files) {
    const NAME: &str = "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight";
    let values: &[(&str, Value, u8)] = &[
        ("data_offsets", json!([0, 3]), 10),
        ("data_offsets", json!([8, 4]), 10),
        ("data_offsets", json!([1, 769]), 10),
        ("data_offsets", json!([1_000_000, 1_000_768]), 10),
        ("data_offsets", json!([u64::MAX - 767, u64::MAX]), 10),
        ("data_offsets", json!([-1, 767]), 10),
        ("data_offsets", json!([0]), 10),
        ("data_offsets", json!("all"), 10),
        ("data_offsets", json!(null), 10),
        ("shape", json!([u64::MAX, u64::MAX]), 10),
        ("shape", json!([-4, 96]), 10),
        ("shape", json!([4.5, 96]), 10),
        ("shape", json!("[4, 96]"), 10),
        ("shape", json!([1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 96]), 15),
        ("dtype", json!("BF17"), 12),
        ("dtype", json!(16), 10),
        ("dtype", json!(null), 10),
    ];
    for (key, value, code) in values {
        let edited = files.header(TENSORS, |header| header[NAME][key] = value.clone());
        cases.refuses(&format!("{key} of a tensor is {value}"), &edited.tree(), "", *code, &[TENSORS]);
    }
    // Two tensors in one place, with a place that nobody has.
    let overlapping = files.header(TENSORS, |header| {
        let other = NAME.replace("layers.0.mlp.down_proj", "layers.0.mlp.up_proj");
        header[&other]["data_offsets"] = header[&NAME.replace("down_proj", "gate_proj")]["data_offsets"].clone();
    });
    cases.refuses("two tensors overlap", &overlapping.tree(), "", 10, &[TENSORS, "begins at"]);
    let twice = files.header_text(TENSORS, |text| {
        text.replace("layers.0.self_attn.k_proj", "layers.0.self_attn.q_proj").into_bytes()
    });
    cases.refuses("names that appear twice", &twice.tree(), "", 10, &[TENSORS]);
    let none = files.with(TENSORS, crate::build::safetensors("{}", 0));
    cases.refuses("no tensors", &none.tree(), "", 15, &[TENSORS, "is missing"]);
    cases.refuses("no file of tensors", &files.without(TENSORS).tree(), "", 15, &[TENSORS, "is missing"]);
    cases.refuses("no file of keys", &files.without(CONFIG).tree(), "", 15, &[CONFIG, "is missing"]);
    let pickled = files.renamed(TENSORS, "adapter_model.bin");
    cases.refuses("tensors of torch.save", &pickled.tree(), "", 15, &[TENSORS, "save_pretrained"]);
    let longer = [files.get(TENSORS), &[0; 3]].concat();
    cases.refuses(
        "more bytes than tensors",
        &files.with(TENSORS, longer).tree(),
        "",
        10,
        &[TENSORS, "follow the last tensor"],
    );
    let length = files.get(TENSORS).len();
    for part in 0..30 {
        let cut = length * part / 30;
        let code = if cut == 0 { 10 } else { 15 };
        cases.refuses(&format!("cut off after {cut} bytes"), &files.cut(TENSORS, cut).tree(), "", code, &[TENSORS]);
    }
    // A whole other layer, by the names of both its tensors.
    for (from, to) in [
        ("layers.1.", "layers.9."),
        ("model.model.layers", "model.vision_tower.layers"),
        ("self_attn.k_proj", "self_attn.k_norm.k_proj"),
        ("mlp.up_proj", "mlp.experts.0.up_proj"),
        ("mlp.gate_proj", "mlp.gate.gate_proj"),
    ] {
        let edited = files.header_text(TENSORS, |text| text.replace(from, to).into_bytes());
        let says = [TENSORS, "no linear layer of the model"];
        cases.refuses(&format!("{to} in the place of {from}"), &edited.tree(), "", 15, &says);
    }
}

/// Tokens that the adapter was trained with, beside it.
fn vocabulary(cases: &mut Cases, files: &Files) {
    let rows = cases.model.vocab;
    let decoder = |id: usize| json!({ "added_tokens_decoder": { id.to_string(): { "content": "<new>" } } }).to_string();
    for (name, text, code, says) in [
        (
            ADDED,
            json!({ "<new>": rows }).to_string(),
            15,
            format!("it adds token {rows}, but the model has rows for {rows}"),
        ),
        (ADDED, json!({ "<a>": 3, "<b>": u64::MAX }).to_string(), 15, "it adds token 18446744073709551615".to_owned()),
        (ADDED, "[]".to_owned(), 10, ADDED.to_owned()),
        (ADDED, "{".to_owned(), 10, ADDED.to_owned()),
        (WORDS, decoder(rows), 15, format!("it adds token {rows}")),
        (WORDS, decoder(rows + 70_000), 15, format!("it adds token {}", rows + 70_000)),
        (WORDS, json!({ "added_tokens_decoder": [1] }).to_string(), 10, "added_tokens_decoder".to_owned()),
    ] {
        cases.refuses(&format!("{name}: {text}"), &files.with(name, &text).tree(), "", code, &[name, &says]);
    }
    cases.accepts("tokens of the model", &files.with(ADDED, json!({ "<old>": rows - 1 }).to_string()).tree(), "");
    cases.accepts("a decoder of the model's tokens", &files.with(WORDS, decoder(rows - 1)).tree(), "");
}

/// The keys of a GGUF adapter.
fn gguf_keys(cases: &mut Cases, sound: &Gguf) {
    let tree = |gguf: &Gguf| Tree::new().with(GGUF, gguf.build());
    for key in ["general.type", "adapter.type", "adapter.lora.alpha"] {
        let says = [GGUF, &format!("key {key} is missing")];
        cases.refuses(&format!("no {key}"), &tree(&sound.without(key)), GGUF, 10, &says);
    }
    let no_architecture = sound.without("general.architecture");
    cases.refuses("no architecture", &tree(&no_architecture), GGUF, 15, &[GGUF, "general.architecture is nothing"]);
    for (key, value, code, says) in [
        ("general.type", "model", 10, "expected adapter"),
        ("general.type", "", 10, "expected adapter"),
        ("adapter.type", "control_vector", 10, "expected lora"),
        ("adapter.type", "LoRA", 10, "expected lora"),
        ("general.architecture", "qwen2", 15, "the model is llama"),
        ("general.architecture", "", 15, "the model is llama"),
        ("general.architecture", "line\nline", 15, "the model is llama"),
    ] {
        cases.refuses(&format!("{key} is {value:?}"), &tree(&sound.text(key, value)), GGUF, code, &[GGUF, key, says]);
    }
    for key in ["general.type", "adapter.type", "general.architecture"] {
        for (kind, value) in [(U32, 7_u32.to_le_bytes().to_vec()), (ARRAY, array(TEXT, 1, string("lora")))] {
            let case = format!("{key} of type {kind}");
            cases.refuses(&case, &tree(&sound.set(key, kind, value)), GGUF, 10, &[GGUF, key]);
        }
    }
    const ALPHA: &str = "adapter.lora.alpha";
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        cases.refuses(&format!("alpha is {value}"), &tree(&sound.f32(ALPHA, value)), GGUF, 10, &[GGUF, ALPHA]);
    }
    for value in [1e300_f64, -1e40] {
        let edited = sound.set(ALPHA, F64, value.to_le_bytes());
        cases.refuses(&format!("alpha is {value}"), &tree(&edited), GGUF, 10, &[GGUF, ALPHA, "finite float32"]);
    }
    for (kind, value) in [(TEXT, string("8")), (ARRAY, array(F32_VALUE, 1, 8_f32.to_le_bytes()))] {
        let case = format!("alpha of type {kind}");
        cases.refuses(&case, &tree(&sound.set(ALPHA, kind, value)), GGUF, 10, &[GGUF, ALPHA]);
    }
    let begins = sound.set("adapter.alora.invocation_tokens", ARRAY, array(U32, 1, 5_u32.to_le_bytes()));
    cases.refuses("an aLoRA", &tree(&begins), GGUF, 11, &[GGUF, "aLoRA"]);
    for value in [3, 0] {
        let edited = sound.u32("general.alignment", value);
        cases.refuses(&format!("alignment {value}"), &tree(&edited), GGUF, 10, &[GGUF, "general.alignment"]);
    }
}

/// The tensors of a GGUF adapter, and the file.
fn gguf_tensors(cases: &mut Cases, sound: &Gguf) {
    let tree = |bytes: Vec<u8>| Tree::new().with(GGUF, bytes);
    for info in &sound.tensors {
        let (name, shape) = (&info.name, &info.shape);
        let is_b = name.ends_with("lora_b");
        let gone = tree(sound.without_tensor(name).build());
        cases.refuses(&format!("no {name}"), &gone, GGUF, 15, &[GGUF, &format!("{name} is missing")]);
        for (to, code) in [
            (name.replace(".lora_", ".lora_c"), 11),
            (name.replace(".weight.lora_", ".bias.lora_"), 11),
            (name.replace("blk.", "blk.4"), 15),
        ] {
            let edited = sound.tensor(name, |info| info.name.clone_from(&to));
            cases.refuses(&format!("{name} is {to}"), &tree(edited.build()), GGUF, code, &[GGUF]);
        }
        let shapes: [(&str, Vec<u64>); 4] = [
            ("wider", vec![shape[0] + 1, shape[1]]),
            ("longer", vec![shape[0], shape[1] + 1]),
            ("a vector", vec![shape[0] * shape[1]]),
            ("of experts", vec![shape[0], shape[1], 2]),
        ];
        for (what, other) in shapes {
            let edited = sound.tensor(name, |info| info.shape = other);
            // The rank of a pair is the one that A has.
            let is_a_of_another_rank = !is_b && what == "longer";
            let says = if is_a_of_another_rank { "lora_b has shape".to_owned() } else { format!("{name} has shape") };
            cases.refuses(&format!("{name} {what}"), &tree(edited.build()), GGUF, 15, &[GGUF, &says]);
        }
        // Q4_0 asks for rows of whole blocks before anything else.
        for kind in [8, 24, 26, 28] {
            let edited = sound.tensor(name, |info| (info.kind, info.shape) = (kind, vec![32 * shape[0], shape[1]]));
            let says = "expected F32, F16 or BF16";
            cases.refuses(&format!("{name} of type {kind}"), &tree(edited.build()), GGUF, 15, &[GGUF, name, says]);
        }
        for (what, value) in [("the type", 99_u32.to_le_bytes().to_vec()), ("the offset", 7_u64.to_le_bytes().to_vec())]
        {
            let damaged = tree(sound.patched(&format!("{what} of {name}"), value));
            let code = if what == "the type" { 12 } else { 10 };
            cases.refuses(&format!("{what} of {name} is wrong"), &damaged, GGUF, code, &[GGUF]);
        }
    }
    let embedding = sound.with_tensor("token_embd.weight.lora_a", &[64, 4], GGUF_F32).with_tensor(
        "token_embd.weight.lora_b",
        &[4, 256],
        GGUF_F32,
    );
    cases.refuses("an embedding", &tree(embedding.build()), GGUF, 15, &[GGUF, "token_embd"]);
    let norm = sound.with_tensor("blk.0.attn_norm.weight", &[64], GGUF_F32);
    cases.refuses("a norm", &tree(norm.build()), GGUF, 11, &[GGUF, "attn_norm.weight"]);
    let mut none = sound.clone();
    none.tensors.clear();
    none.data.clear();
    cases.refuses("no tensors", &tree(none.build()), GGUF, 15, &[GGUF, "is missing"]);
    let whole = sound.build();
    for part in 0..40 {
        let cut = whole.len() * part / 40;
        let code = if cut == 0 { 10 } else { 15 };
        cases.refuses(&format!("cut off after {cut} bytes"), &tree(whole[..cut].to_vec()), GGUF, code, &[GGUF]);
    }
    // A matrix of one row has one dimension in GGUF: an adapter of rank 1 is no vector.
    let mut one = sound.clone();
    for info in &mut one.tensors {
        if info.name.ends_with("lora_a") { info.shape[1] = 1 } else { info.shape[0] = 1 }
    }
    let name = one.tensors[0].name.clone();
    cases.accepts("a GGUF adapter of rank 1", &tree(one.tensor(&name, |_| {}).build()), GGUF);
}
