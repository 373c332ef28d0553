//! GGUF models whose vision tower is asked for, with one thing wrong in its file, or with another model's.

use crate::build::{ARRAY, BOOL, F32_VALUE, TEXT, Tree, array, string};
use crate::edit::Gguf;
use crate::table::Table;

const MODEL: &str = "m.gguf";
pub(crate) const TOWER: &str = "mmproj-m.gguf";

fn floats(values: &[f32]) -> Vec<u8> {
    array(F32_VALUE, values.len() as u64, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
}

pub fn cases(table: &mut Table) {
    let text = Gguf::seeing("gemma-3", "gguf/q8_0.gguf").build();
    let tower = Gguf::seeing("gemma-3", "gguf/mmproj-f16.gguf");
    let tree = |tower: &[u8]| Tree::new().with(MODEL, &text).with(TOWER, tower);
    table.accepts("a GGUF model whose tower is not asked for", &tree(b"GGUF"), MODEL);
    table.vision = true;
    table.accepts("a GGUF model with its tower", &tree(&tower.build()), MODEL);
    files(table, &text, &tower);
    cut_off(table, &text, &tower);
    let mut refuses = |case: &str, edited: &Gguf, code: u8, says: &[&str]| {
        table.refuses(&format!("mmproj: {case}"), &tree(&edited.build()), MODEL, code, says);
    };
    let numbers: &[(&str, u32, u8, &str)] = &[
        ("clip.vision.projection_dim", 48, 15, "the language model is 64 wide: these files do not belong together"),
        ("clip.vision.projection_dim", 0, 15, "clip.vision.projection_dim is 0"),
        ("clip.vision.image_size", 0, 10, "clip.vision.image_size"),
        ("clip.vision.image_size", 13, 15, "clip.vision.image_size is 13"),
        ("clip.vision.image_size", 112, 15, "v.position_embd.weight"),
        ("clip.vision.image_size", 8960, 10, "clip.vision.image_size"),
        ("clip.vision.image_size", u32::MAX, 10, "clip.vision.image_size"),
        ("clip.vision.patch_size", 0, 10, "clip.vision.patch_size"),
        ("clip.vision.patch_size", 28, 15, "v.patch_embd.weight"),
        ("clip.vision.embedding_length", 0, 10, "clip.vision.embedding_length"),
        ("clip.vision.embedding_length", 42, 15, "v.patch_embd.weight"),
        ("clip.vision.embedding_length", 41, 15, "no divisor"),
        ("clip.vision.feed_forward_length", 0, 10, "clip.vision.feed_forward_length"),
        ("clip.vision.feed_forward_length", 71, 15, "v.blk.0.ffn_up.weight"),
        ("clip.vision.block_count", 0, 10, "clip.vision.block_count"),
        ("clip.vision.block_count", 3, 15, "v.blk.2.ln1.weight"),
        ("clip.vision.block_count", 1, 12, "v.blk.1."),
        ("clip.vision.block_count", i32::MAX as u32, 15, "v.blk.2.ln1.weight"),
        ("clip.vision.attention.head_count", 0, 10, "clip.vision.attention.head_count"),
        ("clip.vision.attention.head_count", 3, 15, "clip.vision.attention.head_count is 3"),
        ("clip.vision.projector.scale_factor", 0, 10, "clip.vision.projector.scale_factor"),
        ("clip.vision.projector.scale_factor", 3, 15, "clip.vision.projector.scale_factor is 3"),
    ];
    for (key, value, code, says) in numbers {
        refuses(&format!("{key} is {value}"), &tower.u32(key, *value), *code, &[TOWER, says]);
    }
    for key in [
        "image_size",
        "patch_size",
        "embedding_length",
        "feed_forward_length",
        "block_count",
        "image_mean",
        "image_std",
    ] {
        let key = format!("clip.vision.{key}");
        refuses(&format!("no {key}"), &tower.without(&key), 10, &[TOWER, &key, "is missing"]);
        refuses(&format!("{key} is a text"), &tower.text(&key, "much"), 10, &[TOWER, &key]);
    }
    for key in ["clip.vision.attention.head_count", "clip.vision.attention.layer_norm_epsilon", "clip.projector_type"] {
        refuses(&format!("no {key}"), &tower.without(key), 10, &[TOWER, key, "is missing"]);
    }
    let no_scale = tower.without("clip.vision.projector.scale_factor");
    table.accepts("a tower whose squares have llama.cpp's own side", &tree(&no_scale.build()), MODEL);
    let mut refuses = |case: &str, edited: &Gguf, code: u8, says: &[&str]| {
        table.refuses(&format!("mmproj: {case}"), &tree(&edited.build()), MODEL, code, says);
    };
    for kind in ["mlp", "gemma3nv", "qwen2a", "", "\u{202e}gemma3"] {
        refuses(
            &format!("the projector {kind}"),
            &tower.text("clip.projector_type", kind),
            11,
            &[TOWER, "is not known"],
        );
    }
    let pixtral = tower.text("clip.projector_type", "pixtral");
    refuses("the projector of another family", &pixtral, 15, &[TOWER, "do not belong together"]);
    refuses("a projector that is a number", &tower.u32("clip.projector_type", 3), 10, &["clip.projector_type"]);
    refuses(
        "no vision",
        &tower.set("clip.has_vision_encoder", BOOL, [0]),
        11,
        &[TOWER, "clip.has_vision_encoder is false"],
    );
    refuses("vision by a number", &tower.u32("clip.has_vision_encoder", 1), 10, &["clip.has_vision_encoder"]);
    refuses("no activation", &tower.without("clip.use_gelu"), 11, &[TOWER, "quick GELU"]);
    let silu = tower.set("clip.use_silu", BOOL, [1]);
    refuses("two activations", &silu, 15, &[TOWER, "clip.use_gelu is true", "clip.use_silu"]);
    refuses("another activation", &silu.set("clip.use_gelu", BOOL, [0]), 11, &[TOWER, "clip.use_silu"]);
    refuses("an activation that is a text", &tower.text("clip.use_gelu", "yes"), 10, &["clip.use_gelu"]);
    for epsilon in [0.0, -1.0, 1.0, f32::NAN, f32::INFINITY] {
        let edited = tower.f32("clip.vision.attention.layer_norm_epsilon", epsilon);
        refuses(&format!("an epsilon of {epsilon}"), &edited, 10, &[TOWER, "layer_norm_epsilon"]);
    }
    for (case, key, values) in [
        ("no means", "image_mean", &[][..]),
        ("one mean", "image_mean", &[0.5]),
        ("four means", "image_mean", &[0.5; 4]),
        ("a mean that is no number", "image_mean", &[0.5, f32::NAN, 0.5]),
        ("a deviation of zero", "image_std", &[0.5, 0.0, 0.5]),
        ("an endless deviation", "image_std", &[f32::INFINITY; 3]),
        ("a negative deviation", "image_std", &[-0.5; 3]),
    ] {
        let key = format!("clip.vision.{key}");
        refuses(case, &tower.set(&key, ARRAY, floats(values)), 10, &[TOWER, &key]);
    }
    let texts = array(TEXT, 3, [string("a"), string("b"), string("c")].concat());
    refuses(
        "means that are texts",
        &tower.set("clip.vision.image_mean", ARRAY, texts),
        10,
        &["clip.vision.image_mean"],
    );
    every_tensor(&tower, &mut refuses);
    for name in
        ["v.class_embd", "v.blk.0.attn_q_norm.weight", "v.blk.0.ls1.weight", "mm.0.weight", "output.weight.scale"]
    {
        refuses(&format!("{name} too"), &tower.with_tensor(name, &[40], 0), 12, &[TOWER, name]);
    }
    refuses(
        "a tensor of the text",
        &tower.with_tensor("output_norm.weight", &[64], 0),
        10,
        &[TOWER, "output_norm.weight"],
    );
    // Q8_0 by its number in ggml.
    let blocks = tower.with_tensor("a.blk.0.ffn_up.weight", &[32, 32], 8);
    refuses("other blocks", &blocks.u32("general.quantization_version", 3), 12, &["general.quantization_version 3"]);
    let sound = tower.with_tensor("a.blk.0.ln1.weight", &[40], 0);
    table.accepts("a tower with sound beside it", &tree(&sound.build()), MODEL);
    table.vision = false;
}

/// Other files in the place of either.
fn files(table: &mut Table, text: &[u8], tower: &Gguf) {
    let with = |name: &str, bytes: &[u8]| Tree::new().with(MODEL, text).with(name, bytes);
    table.refuses(
        "mmproj: none",
        &with("other.gguf", b"GGUF"),
        MODEL,
        11,
        &["no mmproj*.gguf lies in", ".mmproj(path)"],
    );
    let bytes = tower.build();
    let two = with(TOWER, &bytes).with("m-mmproj.gguf", &bytes);
    table.refuses("mmproj: two", &two, MODEL, 16, &[TOWER, "m-mmproj.gguf", ".mmproj(path)", "--mmproj FILE"]);
    table.refuses("mmproj: a text", &with(TOWER, text), MODEL, 11, &[TOWER, "gemma3, expected clip"]);
    table.refuses("mmproj: empty", &with(TOWER, b""), MODEL, 10, &[TOWER, "empty"]);
    table.refuses("mmproj: JSON", &with(TOWER, b"{}"), MODEL, 10, &[TOWER, "JSON"]);
    table.refuses("mmproj: the magic", &with(TOWER, b"GGUF"), MODEL, 15, &[TOWER, "header"]);
    let part = tower.set("split.count", 2, 2_u16.to_le_bytes());
    table.refuses("mmproj: a part", &with(TOWER, &part.build()), MODEL, 15, &[TOWER, "split.count"]);
    table.refuses("mmproj: by itself", &Tree::new().with(TOWER, &bytes), TOWER, 11, &[TOWER, "a multimodal projector"]);
    table.refuses("mmproj: twice", &with(TOWER, &bytes), TOWER, 11, &[TOWER, "a multimodal projector"]);
    let llama = Tree::new().with(MODEL, Gguf::fixture("llama-3.1/q8_0.gguf").build()).with(TOWER, &bytes);
    table.refuses("mmproj: of another family", &llama, MODEL, 15, &["gemma3", "llama", "do not belong together"]);
    let gemma = Tree::new().with(MODEL, Gguf::fixture("gemma-3/q8_0.gguf").build()).with(TOWER, &bytes);
    table.refuses("mmproj: of another width", &gemma, MODEL, 15, &[TOWER, "do not belong together"]);
    let wider = tower.without("clip.vision.projection_dim");
    let gemma = Tree::new().with(MODEL, Gguf::fixture("gemma-3/q8_0.gguf").build()).with(TOWER, wider.build());
    table.refuses("mmproj: of another width that it does not say", &gemma, MODEL, 15, &["no <start_of_image>"]);
    let older = tower.set("general.type", TEXT, string("model"));
    table.accepts("a tower that calls itself a model", &with(TOWER, &older.build()), MODEL);
    let other = tower.u32("general.alignment", 3);
    table.refuses("mmproj: another alignment", &with(TOWER, &other.build()), MODEL, 10, &[TOWER, "general.alignment"]);
}

/// Cut off where each kind of field begins, and within its data.
fn cut_off(table: &mut Table, text: &[u8], tower: &Gguf) {
    let (bytes, marks) = tower.marked();
    let data = marks.last().unwrap().at;
    for (index, mark) in marks.iter().enumerate().step_by(7).filter(|(_, mark)| mark.at > 4) {
        let tree = Tree::new().with(MODEL, text).with(TOWER, &bytes[..mark.at]);
        table.refuses(&format!("mmproj: cut off before {} ({index})", mark.what), &tree, MODEL, 15, &[TOWER]);
    }
    for len in [data + 1, bytes.len() - 1000] {
        let tree = Tree::new().with(MODEL, text).with(TOWER, &bytes[..len]);
        table.refuses(&format!("mmproj: cut off at {len}"), &tree, MODEL, 15, &[TOWER, "tensor"]);
    }
}

/// No tensor of a tower is absent, of another shape or of I32.
pub(crate) fn every_tensor(tower: &Gguf, refuses: &mut impl FnMut(&str, &Gguf, u8, &[&str])) {
    for info in &tower.tensors {
        let name = info.name.as_str();
        refuses(&format!("no {name}"), &tower.without_tensor(name), 15, &[TOWER, name, "is missing"]);
        let longer = tower.tensor(name, |info| *info.shape.last_mut().unwrap() += 1);
        refuses(&format!("{name} of another shape"), &longer, 15, &[TOWER, name, "has shape"]);
        // I32 by its number in ggml.
        refuses(&format!("{name} of I32"), &tower.tensor(name, |info| info.kind = 26), 15, &[TOWER, name, "I32"]);
    }
}
