//! GGUF files with one thing wrong.

use crate::build::{ARRAY, BOOL, F32, F32_VALUE, F64, I32, TEXT, Tree, U8, U32, U64, array, string};
use crate::edit::{Files, Gguf, content};
use crate::table::Table;

const NAME: &str = "m.gguf";

fn tree(bytes: impl AsRef<[u8]>) -> Tree {
    Tree::new().with(NAME, bytes)
}

pub fn cases(table: &mut Table) {
    let llama = Gguf::fixture("llama-3.1/q8_0.gguf");
    let tiny = Gguf::fixture("tinyllama/q8_0.gguf");
    table.accepts("gguf", &tree(llama.build()), NAME);
    table.accepts("gguf of SentencePiece", &tree(tiny.build()), NAME);
    cut_off(table, &llama);
    counts(table, &llama);
    layout(table, &llama);
    wrong_types(table, &llama);
    missing(table, &llama, &tiny);
    values(table, &llama);
    sizes(table, &llama);
    tokenizers(table, &llama, &tiny);
    tensors(table, &llama);
    split(table);
}

/// Cut off where each kind of field begins, and one byte into it.
fn cut_off(table: &mut Table, llama: &Gguf) {
    let (bytes, marks) = llama.marked();
    let wanted = [
        "the version",
        "the number of tensors",
        "the number of keys",
        "the length of key general.architecture",
        "key general.architecture",
        "the type of general.architecture",
        "the value of general.architecture",
        "the value of llama.block_count",
        "the value of llama.rope.freq_base",
        "the type of tokenizer.ggml.tokens",
        "the value of tokenizer.ggml.tokens",
        "the value of tokenizer.ggml.token_type",
        "the value of tokenizer.ggml.merges",
        "the length of the name token_embd.weight",
        "the name token_embd.weight",
        "the number of dimensions of token_embd.weight",
        "dimension 0 of token_embd.weight",
        "dimension 1 of token_embd.weight",
        "the type of token_embd.weight",
        "the offset of token_embd.weight",
    ];
    for what in wanted {
        let at = marks.iter().find(|mark| mark.what == what).unwrap_or_else(|| panic!("no {what}")).at;
        for (where_, len) in [("before", at), ("within", at + 1)] {
            table.refuses(&format!("cut off {where_} {what}"), &tree(&bytes[..len]), NAME, 15, &[NAME, "header"]);
        }
    }
    let data = marks.last().unwrap().at;
    let first = llama.tensors[0].name.as_str();
    let last = llama.tensors.last().unwrap().name.as_str();
    table.refuses("cut off before its data", &tree(&bytes[..data]), NAME, 15, &[NAME, first]);
    table.refuses("cut off within its first tensor", &tree(&bytes[..data + 1]), NAME, 15, &[NAME, first]);
    let end = llama.data.len() - 40;
    table.refuses("cut off within its last tensor", &tree(&bytes[..data + end]), NAME, 15, &[NAME, last]);
}

fn counts(table: &mut Table, llama: &Gguf) {
    let mut overlong = |what: &str, code: u8, says: &str| {
        let file = llama.patched(what, u64::MAX.to_le_bytes());
        table.refuses(&format!("overlong: {what}"), &tree(file), NAME, code, &[NAME, says]);
    };
    for what in ["the number of tensors", "the number of keys"] {
        overlong(what, 10, what);
    }
    overlong("the length of key llama.block_count", 10, "length of a key");
    overlong("the value of general.architecture", 10, "length of a string");
    overlong("the length of the name output_norm.weight", 10, "length of a tensor name");
    overlong("dimension 0 of output_norm.weight", 10, "output_norm.weight");
    overlong("the offset of output_norm.weight", 10, "output_norm.weight");
    let array_length = |kind: u32, length: u64| {
        llama.patched(
            "the value of tokenizer.ggml.tokens",
            [kind.to_le_bytes().as_slice(), &length.to_le_bytes()].concat(),
        )
    };
    let more = |case: &str, table: &mut Table, file: Vec<u8>, code: u8, says: &str| {
        table.refuses(case, &tree(file), NAME, code, &[NAME, says]);
    };
    more("an array of 2^64 - 1 strings", table, array_length(TEXT, u64::MAX), 10, "length of an array");
    more("an array of 2^60 doubles", table, array_length(F64, 1 << 60), 10, "length of an array");
    more("an array of more strings than the file holds", table, array_length(TEXT, 1 << 20), 15, "length of an array");
    let mut first = [TEXT.to_le_bytes().as_slice(), &320_u64.to_le_bytes(), &u64::MAX.to_le_bytes()].concat();
    let file = llama.patched("the value of tokenizer.ggml.tokens", &first);
    more("a token of 2^64 - 1 bytes", table, file, 10, "length of a string");
    first.truncate(12);
    first.extend(200_000_u64.to_le_bytes());
    let file = llama.patched("the value of tokenizer.ggml.tokens", &first);
    more("a token longer than the file", table, file, 15, "length of a string");
    let dimensions = |count: u32| llama.patched("the number of dimensions of output_norm.weight", count.to_le_bytes());
    more("a tensor of 5 dimensions", table, dimensions(5), 10, "output_norm.weight");
    more("a tensor of 2^32 - 1 dimensions", table, dimensions(u32::MAX), 10, "output_norm.weight");
    let number = |what: &str, by: i64, count: usize| llama.patched(what, (count as i64 + by).to_le_bytes());
    let (keys, tensors) = (llama.pairs.len(), llama.tensors.len());
    more("one key more than there are", table, number("the number of keys", 1, keys), 10, NAME);
    more("one key fewer than there are", table, number("the number of keys", -1, keys), 10, NAME);
    more("one tensor more than there are", table, number("the number of tensors", 1, tensors), 10, "tensor name");
    let last = &llama.tensors.last().unwrap().name;
    more("one tensor fewer than there are", table, number("the number of tensors", -1, tensors), 15, last);
    more("no tensors", table, number("the number of tensors", 0, 0), 15, "token_embd.weight");
    more("no keys", table, number("the number of keys", 0, 0), 10, NAME);
}

fn layout(table: &mut Table, llama: &Gguf) {
    let mut case = |case: &str, file: Vec<u8>, code: u8, says: &[&str]| {
        table.refuses(case, &tree(file), NAME, code, &[&[NAME], says].concat());
    };
    for version in [0, 1, 4, u32::MAX] {
        let says = format!("version {version}");
        case(&format!("GGUF version {version}"), llama.patched("the version", version.to_le_bytes()), 10, &[&says]);
    }
    case("a big-endian file", llama.patched("the version", 3_u32.to_be_bytes()), 10, &["big-endian"]);
    let mut twice = llama.clone();
    twice.pairs.push(twice.pairs[3].clone());
    let key = llama.pairs[3].key.clone();
    case("a key twice", twice.build(), 10, &[&key, "twice"]);
    let twice = llama.tensor("output_norm.weight", |info| info.name = "blk.0.attn_norm.weight".into());
    case("a tensor twice", twice.build(), 10, &["blk.0.attn_norm.weight", "twice"]);
    let renamed = |from: &str, to: &str| {
        let mut edited = llama.clone();
        edited.pairs.iter_mut().find(|pair| pair.key == from).unwrap().key = to.into();
        edited.build()
    };
    case("an empty key", renamed("general.name", ""), 10, &["a key is empty"]);
    case("a key of 65536 bytes", renamed("general.name", &"k".repeat(65_536)), 10, &["65536"]);
    case("an empty tensor name", llama.tensor("output_norm.weight", |info| info.name.clear()).build(), 10, &["empty"]);
    let long = llama.tensor("output_norm.weight", |info| info.name = "n".repeat(64));
    case("a tensor name of 64 bytes", long.build(), 10, &["64"]);
    case("a key that is no UTF-8", llama.patched("key general.architecture", b"\xff"), 10, &["UTF-8"]);
    case("a tensor name that is no UTF-8", llama.patched("the name output_norm.weight", b"\xff"), 10, &["UTF-8"]);

    let offset = |offset: u64| llama.patched("the offset of output_norm.weight", offset.to_le_bytes());
    let sound = llama.tensors.iter().find(|info| info.name == "output_norm.weight").unwrap().offset;
    let tensor = ["output_norm.weight"];
    case("an offset of 1", offset(1), 10, &tensor);
    case("an unaligned offset", offset(sound + 1), 10, &tensor);
    case("an offset that leaves a gap", offset(sound + 32), 10, &tensor);
    case("an offset that overlaps", offset(sound.saturating_sub(32)), 10, &tensor);
    case("an offset past the file", offset(1 << 40), 10, &tensor);
    case("an offset of 2^63", offset(1 << 63), 10, &tensor);
    let mut swapped = llama.clone();
    let (one, other) = (swapped.tensors[1].offset, swapped.tensors[2].offset);
    (swapped.tensors[1].offset, swapped.tensors[2].offset) = (other, one);
    let name = swapped.tensors[1].name.clone();
    case("two offsets swapped", swapped.build(), 10, &[&name]);
    for alignment in [0, 3, 48, u32::MAX] {
        let file = llama.u32("general.alignment", alignment).build();
        case(&format!("an alignment of {alignment}"), file, 10, &["general.alignment"]);
    }
    case(
        "an alignment that the offsets do not keep",
        llama.u32("general.alignment", 1 << 16).build(),
        10,
        &["begins at"],
    );
    case(
        "an alignment of another type",
        llama.set("general.alignment", U64, 32_u64.to_le_bytes()).build(),
        10,
        &["general.alignment"],
    );

    let kind = |id: u32| llama.patched("the type of output_norm.weight", id.to_le_bytes());
    for (id, says) in
        [(4, "Q4_2"), (5, "Q4_3"), (31, "Q4_0_4_4"), (36, "IQ4_NL_4_4"), (43, "43"), (u32::MAX, "4294967295")]
    {
        case(&format!("the tensor type {id}"), kind(id), 12, &[says]);
    }
    case(
        "rows of half a block",
        llama.patched("dimension 0 of token_embd.weight", 48_u64.to_le_bytes()),
        10,
        &["token_embd.weight", "48"],
    );
    for id in [13_u32, 100, u32::MAX] {
        let file = llama.patched("the type of llama.block_count", id.to_le_bytes());
        case(&format!("the value type {id}"), file, 10, &["llama.block_count"]);
    }
    let nested = llama.set("llama.block_count", ARRAY, array(ARRAY, 1, array(U8, 1, [2])));
    case("an array of arrays", nested.build(), 10, &["llama.block_count"]);
    case("an array of type 13", llama.set("k", ARRAY, array(13, 1, [0])).build(), 10, &["key k "]);
    case("a bool of 2", llama.set("k", BOOL, [2]).build(), 10, &["key k "]);
    case("a second file behind the first", [llama.build(), llama.build()].concat(), 10, &["second GGUF"]);
}

/// Every key that is read, with a value of another type.
fn wrong_types(table: &mut Table, llama: &Gguf) {
    let numbers = [
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.block_count",
        "llama.attention.head_count",
        "llama.attention.head_count_kv",
        "llama.attention.key_length",
        "llama.attention.value_length",
        "llama.vocab_size",
        "llama.context_length",
        "llama.attention.layer_norm_rms_epsilon",
        "llama.expert_count",
        "llama.rope.dimension_count",
        "llama.rope.freq_base",
        "llama.rope.scaling.factor",
        "llama.rope.scale_linear",
        "general.file_type",
        "general.quantization_version",
        "tokenizer.ggml.bos_token_id",
        "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id",
        "tokenizer.ggml.unknown_token_id",
    ];
    for key in numbers {
        table.refuses(&format!("text as {key}"), &tree(llama.text(key, "2").build()), NAME, 10, &[NAME, key]);
    }
    let texts = [
        "general.architecture",
        "general.name",
        "general.basename",
        "general.type",
        "llama.rope.scaling.type",
        "tokenizer.ggml.model",
        "tokenizer.ggml.pre",
        "tokenizer.chat_template",
        "tokenizer.chat_template.tool_use",
    ];
    for key in texts {
        table.refuses(&format!("a number as {key}"), &tree(llama.u32(key, 2).build()), NAME, 10, &[NAME, key]);
    }
    for key in ["tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_space_prefix"] {
        table.refuses(&format!("a number as {key}"), &tree(llama.u32(key, 1).build()), NAME, 10, &[NAME, key]);
    }
    for key in ["tokens", "scores", "token_type", "merges"].map(|name| format!("tokenizer.ggml.{name}")) {
        table.refuses(&format!("a number as {key}"), &tree(llama.u32(&key, 1).build()), NAME, 10, &[NAME, &key]);
        let bools = llama.set(&key, ARRAY, array(BOOL, 320, [1; 320]));
        table.refuses(&format!("bools as {key}"), &tree(bools.build()), NAME, 10, &[NAME, &key]);
    }
    let key = "llama.embedding_length";
    let mut number = |case: &str, kind: u32, value: Vec<u8>| {
        table.refuses(case, &tree(llama.set(key, kind, value).build()), NAME, 10, &[NAME, key]);
    };
    number("a float as a size", F32_VALUE, 64_f32.to_le_bytes().into());
    number("a bool as a size", BOOL, vec![1]);
    number("a negative size", I32, (-64_i32).to_le_bytes().into());
    number("an array as a size", ARRAY, array(U32, 2, [64_u32.to_le_bytes(); 2].concat()));
    number("a size of 0", U32, 0_u32.to_le_bytes().into());
    number("a size of 2^31", U32, (1_u32 << 31).to_le_bytes().into());
    number("a size of 2^64 - 1", U64, u64::MAX.to_le_bytes().into());
}

fn missing(table: &mut Table, llama: &Gguf, tiny: &Gguf) {
    let required = [
        "general.architecture",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.block_count",
        "llama.attention.head_count",
        "llama.context_length",
        "llama.attention.layer_norm_rms_epsilon",
        "tokenizer.ggml.model",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.merges",
    ];
    for key in required {
        table.refuses(&format!("no {key}"), &tree(llama.without(key).build()), NAME, 10, &[NAME, key]);
    }
    let scores = "tokenizer.ggml.scores";
    table.refuses("no scores", &tree(tiny.without(scores).build()), NAME, 10, &[NAME, scores]);
    let none = llama.without("tokenizer.ggml.model").without("tokenizer.ggml.tokens");
    let none = none.u32("llama.vocab_size", 320);
    table.refuses("no vocabulary", &tree(none.build()), NAME, 15, &["no tokenizer"]);
}

fn values(table: &mut Table, llama: &Gguf) {
    let mut case = |case: &str, file: &Gguf, code: u8, says: &str| {
        table.refuses(case, &tree(file.build()), NAME, code, &[says]);
    };
    let key = "general.architecture";
    case("an unknown architecture", &llama.text(key, "llamma"), 11, "llamma");
    case("no name as the architecture", &llama.text(key, ""), 11, "architecture");
    case("an architecture of bytes", &llama.set(key, TEXT, string(b"\xff")), 10, key);
    case("an architecture of 2 MiB", &llama.text(key, &"x".repeat(2 << 20)), 10, key);
    case("an architecture that clears the screen", &llama.text(key, "\x1b[2J\nfine"), 11, r"\u{1b}");
    case("a mixture of experts", &llama.u32("llama.expert_count", 8), 10, "llama.expert_used_count");
    case("an encoder", &llama.text(key, "t5encoder"), 11, "encoder");
    case("a projector", &llama.text(key, "clip"), 11, "mmproj");
    for (kind, says) in [("mmproj", "mmproj"), ("adapter", "LoRA"), ("imatrix", "importance matrix")] {
        case(&format!("the type {kind} behind other keys"), &llama.text("general.type", kind), 11, says);
        let mut first = llama.text("general.type", kind);
        first.pairs.rotate_right(1);
        case(&format!("the type {kind} in front"), &first, 11, says);
    }
    case("an unknown type of file", &llama.text("general.type", "dataset"), 10, "general.type");
    case("an unknown file type", &llama.u32("general.file_type", 999), 10, "general.file_type");
    case(
        "blocks of another version",
        &llama.u32("general.quantization_version", 3),
        12,
        "general.quantization_version",
    );

    let (kind, factor) = ("llama.rope.scaling.type", "llama.rope.scaling.factor");
    case("an unknown rope scaling", &llama.text(kind, "stretch"), 10, kind);
    case("yarn beside rope frequency factors", &llama.text(kind, "yarn").f32(factor, 4.0), 11, "rope_freqs.weight");
    case("longrope beside rope frequency factors", &llama.text(kind, "longrope"), 11, "rope_freqs.weight");
    let without = llama.without_tensor("rope_freqs.weight");
    case("longrope without its lists", &without.text(kind, "longrope"), 15, "rope_factors_short.weight");
    case("yarn without a factor", &without.text(kind, "yarn"), 10, factor);
    let yarn = without.text(kind, "yarn").f32(factor, 4.0);
    case("yarn without an original context", &yarn, 10, "llama.rope.scaling.original_context_length");
    let context = "llama.rope.scaling.original_context_length";
    case("yarn of no context", &yarn.u32(context, 0), 10, context);
    case("yarn with an attention factor", &yarn.f32("llama.rope.scaling.attn_factor", 2.0), 11, "attn_factor");
    case("a linear factor beside rope frequency factors", &llama.text(kind, "linear").f32(factor, 4.0), 11, factor);
    let plain = llama.without_tensor("rope_freqs.weight").text(kind, "linear");
    for value in [-1.0, f32::NAN, f32::INFINITY] {
        case(&format!("a rope factor of {value}"), &plain.f32(factor, value), 10, factor);
    }
    for (key, values) in [
        ("llama.rope.freq_base", [0.0, -1.0, f32::NAN, f32::INFINITY]),
        ("llama.attention.layer_norm_rms_epsilon", [0.0, -1e-5, 1.0, f32::NAN]),
    ] {
        for value in values {
            case(&format!("{key} of {value}"), &llama.f32(key, value), 10, key);
        }
    }
    let factors = |shape: &[u64], kind: u32| {
        llama.tensor("rope_freqs.weight", |info| (info.shape, info.kind) = (shape.to_vec(), kind))
    };
    case("too many rope frequency factors", &factors(&[16], F32), 15, "rope_freqs.weight");
    case("rope frequency factors in F16", &factors(&[8], 1), 15, "rope_freqs.weight");
}

/// Sizes that contradict the tensors or each other.
fn sizes(table: &mut Table, llama: &Gguf) {
    let mut case = |case: &str, file: &Gguf, code: u8, says: &[&str]| {
        table.refuses(case, &tree(file.build()), NAME, code, &[&[NAME], says].concat());
    };
    let (heads, kv_heads) = ("llama.attention.head_count", "llama.attention.head_count_kv");
    case("3 key and value heads for 4 heads", &llama.u32(kv_heads, 3), 15, &[heads, kv_heads]);
    case("more key and value heads than heads", &llama.u32(kv_heads, 8), 15, &[heads, kv_heads]);
    case("1 key and value head too few", &llama.u32(kv_heads, 1), 15, &["attn_k.weight"]);
    case("as many key and value heads as heads", &llama.u32(kv_heads, 4), 15, &["attn_k.weight"]);
    case("8 heads in place of 4", &llama.u32(heads, 8), 15, &["attn_q.weight"]);
    let implicit = llama.without("llama.attention.key_length").without("llama.rope.dimension_count");
    case("heads that do not divide the width", &implicit.u32(heads, 6), 15, &["llama.embedding_length", heads]);
    let no_dimensions = llama.without("llama.rope.dimension_count").without("llama.attention.value_length");
    let key_length = "llama.attention.key_length";
    case("another head length", &no_dimensions.u32(key_length, 32), 15, &["rope_freqs.weight"]);
    let unscaled = no_dimensions.without_tensor("rope_freqs.weight");
    case("another head length, unscaled", &unscaled.u32(key_length, 32), 15, &["attn_q.weight"]);
    case("an odd head length", &no_dimensions.u32(key_length, 15), 15, &["15"]);
    case(
        "values longer than keys",
        &llama.u32("llama.attention.value_length", 32),
        11,
        &["llama.attention.value_length"],
    );
    let dimensions = "llama.rope.dimension_count";
    case("half of a head rotated", &llama.u32(dimensions, 8), 15, &[dimensions]);
    case("more than a head rotated", &llama.u32(dimensions, 1 << 30), 15, &[dimensions]);
    case("another width", &llama.u32("llama.embedding_length", 128), 15, &["token_embd.weight"]);
    case("another feed-forward width", &llama.u32("llama.feed_forward_length", 64), 15, &["ffn_gate.weight"]);
    case("another vocabulary", &llama.u32("llama.vocab_size", 1000), 15, &["token_embd.weight"]);
    case("a layer too many", &llama.u32("llama.block_count", 3), 15, &["blk.2.attn_norm.weight"]);
    case("2^31 - 1 layers", &llama.u32("llama.block_count", i32::MAX as u32), 15, &["blk.2.attn_norm.weight"]);
    case("a layer too few", &llama.u32("llama.block_count", 1), 15, &["llama.block_count", "blk.1."]);
    case(
        "a tensor of a layer beyond",
        &llama.with_tensor("blk.7.attn_norm.bias", &[64], F32),
        15,
        &["blk.7.attn_norm.bias"],
    );
    let a_layer = |values: &[u32]| {
        let elements: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        llama.set(kv_heads, ARRAY, array(U32, values.len() as u64, elements))
    };
    case("heads for 3 layers of 2", &a_layer(&[2, 2, 2]), 15, &[kv_heads]);
    case("heads for no layer", &a_layer(&[]), 15, &[kv_heads]);
    case("other heads in each layer", &a_layer(&[2, 1]), 11, &[kv_heads]);
    case("2^31 heads in each layer", &a_layer(&[1 << 31; 2]), 10, &[kv_heads]);
    let huge = array(U64, 2, [u64::MAX.to_le_bytes(); 2].concat());
    case("2^64 - 1 heads in each layer", &llama.set(kv_heads, ARRAY, huge), 10, &[kv_heads]);
}

fn tokenizers(table: &mut Table, llama: &Gguf, tiny: &Gguf) {
    let mut case = |case: &str, file: &Gguf, code: u8, says: &[&str]| {
        table.refuses(case, &tree(file.build()), NAME, code, &[&[NAME], says].concat());
    };
    case("an unknown vocabulary", &llama.text("tokenizer.ggml.model", "rwkv"), 10, &["tokenizer.ggml.model", "rwkv"]);
    case("an unknown pre-tokenizer", &llama.text("tokenizer.ggml.pre", "gpt-7"), 10, &["tokenizer.ggml.pre", "gpt-7"]);
    let (tokens, scores, types) = ("tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type");
    let floats = |count: usize, value: f32| array(F32_VALUE, count as u64, value.to_le_bytes().repeat(count));
    let integers = |count: usize, value: i32| array(I32, count as u64, value.to_le_bytes().repeat(count));
    case("a score too few", &tiny.set(scores, ARRAY, floats(479, 0.0)), 15, &[tokens, scores]);
    case("a score that is no number", &tiny.set(scores, ARRAY, floats(480, f32::NAN)), 10, &[scores, "NaN"]);
    case("no score", &tiny.set(scores, ARRAY, floats(0, 0.0)), 15, &[tokens, scores]);
    case("scores as text", &tiny.set(scores, ARRAY, array(TEXT, 480, string("x").repeat(480))), 10, &[scores]);
    case("a type too many", &llama.set(types, ARRAY, integers(321, 1)), 15, &[tokens, types]);
    case("tokens of type 9", &llama.set(types, ARRAY, integers(320, 9)), 10, &[types]);
    case("tokens of type -1", &llama.set(types, ARRAY, integers(320, -1)), 10, &[types]);
    case("tokens as numbers", &llama.set(tokens, ARRAY, integers(320, 1)), 10, &[tokens]);
    let none = llama.set(tokens, ARRAY, array(TEXT, 0, []));
    case("an empty vocabulary", &none.set(types, ARRAY, integers(0, 0)), 10, &[tokens]);
    case(
        "a template of bytes",
        &llama.set("tokenizer.chat_template", TEXT, string(b"\xff")),
        10,
        &["tokenizer.chat_template"],
    );
    let id = "tokenizer.ggml.eos_token_id";
    case("a negative EOS", &llama.set(id, I32, (-1_i32).to_le_bytes()), 10, &[id]);
}

/// Every tensor that a layer needs: absent, of another shape, of a dtype that no weight has.
fn tensors(table: &mut Table, llama: &Gguf) {
    // Without `output.weight` the head is tied, without frequency factors nothing is scaled.
    let needed =
        llama.tensors.iter().filter(|info| !matches!(info.name.as_str(), "output.weight" | "rope_freqs.weight"));
    for info in needed {
        let name = info.name.as_str();
        table.refuses(
            &format!("no {name}"),
            &tree(llama.without_tensor(name).build()),
            NAME,
            15,
            &[NAME, name, "missing"],
        );
        let longer = llama.tensor(name, |info| *info.shape.last_mut().unwrap() += 32);
        table.refuses(&format!("{name} with rows more"), &tree(longer.build()), NAME, 15, &[NAME, name, "shape"]);
    }
    let name = "output.weight";
    let head = llama.tensor(name, |info| info.shape = vec![64, 32]);
    table.refuses("a head of 32 rows", &tree(head.build()), NAME, 15, &[NAME, name]);
    for (kind, says) in [(24, 12), (26, 15), (27, 15), (28, 12)] {
        let file = llama.tensor("blk.0.attn_q.weight", |info| info.kind = kind);
        table.refuses(&format!("a matrix of tensor type {kind}"), &tree(file.build()), NAME, says, &[]);
    }
    let norm = llama.tensor("blk.0.attn_norm.weight", |info| info.kind = 26);
    table.refuses("a norm of integers", &tree(norm.build()), NAME, 15, &["blk.0.attn_norm.weight"]);
    let fused = llama.without_tensor("blk.0.attn_q.weight").without_tensor("blk.0.attn_k.weight");
    let fused = fused.without_tensor("blk.0.attn_v.weight").with_tensor("blk.0.attn_qkv.weight", &[64, 96], F32);
    table.refuses("fused rows that are too few", &tree(fused.build()), NAME, 15, &["blk.0.attn_qkv.weight"]);
    let fused = fused.tensor("blk.0.attn_qkv.weight", |info| info.shape = vec![64, 128]);
    table.accepts("fused rows", &tree(fused.build()), NAME);
    let bias = fused.with_tensor("blk.0.attn_qkv.bias", &[96], F32);
    table.refuses("a fused bias that is too short", &tree(bias.build()), NAME, 15, &["blk.0.attn_qkv.bias"]);
    let bias = llama.with_tensor("blk.0.attn_q.bias", &[32], F32);
    table.refuses("a bias that is too short", &tree(bias.build()), NAME, 15, &["blk.0.attn_q.bias"]);
}

fn split(table: &mut Table) {
    let part = |number: usize| format!("llama-256-q8_0-{number:05}-of-00003.gguf");
    let folder = Files::fixture("llama-256/split");
    let [one, two, three] = [1, 2, 3].map(part);
    table.accepts("a split model", &folder.tree(), "");
    for (number, name) in [(1, &one), (2, &two), (3, &three)] {
        let files = folder.without(name);
        table.refuses(&format!("part {number} missing"), &files.tree(), "", 15, &[name.as_str()]);
        table.refuses(&format!("part {number} empty"), &folder.with(name, "").tree(), "", 10, &[name.as_str()]);
        let cut = folder.get(name).len() - 4096;
        table.refuses(&format!("part {number} cut off"), &folder.cut(name, cut).tree(), "", 15, &[name.as_str()]);
    }
    let swapped = folder.with(&two, folder.get(&three)).with(&three, folder.get(&two));
    table.refuses("two parts swapped", &swapped.tree(), "", 15, &[&two, "split.no"]);
    let again = folder.with(&three, folder.get(&two));
    table.refuses("a part twice", &again.tree(), "", 15, &[&three, "split.no"]);
    let renumbered = Files(Vec::new())
        .with("a-00001-of-00002.gguf", folder.get(&one))
        .with("a-00002-of-00002.gguf", folder.get(&two));
    table.refuses("renumbered as 2 parts", &renumbered.tree(), "", 15, &["split.count"]);
    let single = Files(Vec::new()).with("m.gguf", folder.get(&two));
    table.refuses("a part under another name", &single.tree(), "", 15, &["split.count", "m.gguf"]);
    let whole = folder.with(&two, content("llama-256/q8_0.gguf"));
    table.refuses("a whole model as a part", &whole.tree(), "", 15, &[&two, "split.count"]);
    let twin = folder.with("llama-256-q8_0-2-of-00003.gguf", folder.get(&two));
    table.refuses("a part under two names", &twin.tree(), &one, 15, &["part 2"]);

    let parts = [1, 2, 3].map(|number| Gguf::fixture(&format!("llama-256/split/{}", part(number))));
    let with = |number: usize, gguf: Gguf| folder.with(&part(number), gguf.build()).tree();
    for key in ["split.no", "split.tensors.count"] {
        table.refuses(&format!("a part without {key}"), &with(2, parts[1].without(key)), "", 10, &[&two, key]);
        table.refuses(&format!("a part with text as {key}"), &with(2, parts[1].text(key, "1")), "", 10, &[&two, key]);
    }
    table.refuses(
        "a part without split.count",
        &with(3, parts[2].without("split.count")),
        "",
        15,
        &[&three, "split.count"],
    );
    let count = "split.tensors.count";
    table.refuses("a part of another model", &with(2, parts[1].u32(count, 99)), "", 15, &[&two, count]);
    let name = parts[1].tensors[0].name.clone();
    let more = parts[2].with_tensor(&name, &[256], F32);
    table.refuses("a tensor in two parts", &with(3, more), "", 10, &[&three, &name, "twice"]);
    let more = parts[2].with_tensor("extra.weight", &[256], F32);
    table.refuses("a part with a tensor too many", &with(3, more), "", 15, &[count]);
}
