//! GGUF models of Qwen3-VL and Qwen3.5 whose vision tower is asked for, with one thing wrong in its file: kernels of frames, rows of
//! blocks that are added after layers, bounds of pixels.

use crate::build::{ARRAY, BOOL, TEXT, Tree, array, string};
use crate::edit::Gguf;
use crate::mmproj::{TOWER, every_tensor};
use crate::table::Table;

const MODEL: &str = "m.gguf";
const LISTS: &str = "clip.vision.is_deepstack_layers";

fn flags(values: &[u8]) -> Vec<u8> {
    array(BOOL, values.len() as u64, values)
}

pub fn cases(table: &mut Table) {
    let text = Gguf::seeing("qwen3-vl", "gguf/f32.gguf");
    let tower = Gguf::seeing("qwen3-vl", "gguf/mmproj-f16.gguf");
    let with = |text: &Gguf, tower: &Gguf| Tree::new().with(MODEL, text.build()).with(TOWER, tower.build());
    table.vision = true;
    table.accepts("a Qwen3-VL in GGUF with its tower", &with(&text, &tower), MODEL);
    let pixels = |tower: &Gguf, of: &str, value: u32| tower.u32(&format!("clip.vision.image_{of}_pixels"), value);
    let published = tower.without("clip.vision.image_min_pixels").without("clip.vision.image_max_pixels");
    table.accepts("a tower without bounds of pixels", &with(&text, &published), MODEL);
    table.accepts("a tower with one bound of pixels", &with(&text, &pixels(&published, "max", 1 << 20)), MODEL);
    let mut refuses = |case: &str, edited: &Gguf, code: u8, says: &[&str]| {
        table.refuses(&format!("mmproj of Qwen3-VL: {case}"), &with(&text, edited), MODEL, code, says);
    };
    let numbers: &[(&str, u32, u8, &str)] = &[
        ("clip.vision.projection_dim", 64, 15, "the language model is 48 wide: these files do not belong together"),
        ("clip.vision.image_size", 0, 10, "clip.vision.image_size"),
        ("clip.vision.image_size", 7, 15, "clip.vision.image_size is 7"),
        ("clip.vision.image_size", 56, 15, "v.position_embd.weight"),
        ("clip.vision.image_size", i32::MAX as u32, 15, "v.position_embd.weight"),
        ("clip.vision.image_size", u32::MAX, 10, "clip.vision.image_size"),
        ("clip.vision.patch_size", 0, 10, "clip.vision.patch_size"),
        ("clip.vision.patch_size", 16, 15, "v.patch_embd.weight"),
        ("clip.vision.patch_size", 257, 10, "clip.vision.patch_size"),
        ("clip.vision.spatial_merge_size", 0, 10, "clip.vision.spatial_merge_size"),
        ("clip.vision.spatial_merge_size", 3, 15, "mm.0.weight"),
        ("clip.vision.spatial_merge_size", 65, 10, "clip.vision.spatial_merge_size"),
        ("clip.vision.attention.head_count", 24, 15, "heads have 2 elements"),
        ("clip.vision.block_count", 2, 15, "is_deepstack_layers has 3 entries"),
        ("clip.vision.image_min_pixels", 0, 10, "clip.vision.image_min_pixels"),
        ("clip.vision.image_max_pixels", 0, 10, "clip.vision.image_max_pixels"),
        ("clip.vision.image_max_pixels", u32::MAX, 10, "clip.vision.image_max_pixels"),
        ("clip.vision.image_min_pixels", 9217, 15, "image_max_pixels is 9216"),
    ];
    for (key, value, code, says) in numbers {
        refuses(&format!("{key} is {value}"), &tower.u32(key, *value), *code, &[TOWER, says]);
    }
    refuses("pixels by a text", &tower.text("clip.vision.image_min_pixels", "few"), 10, &["image_min_pixels"]);
    for key in ["clip.vision.spatial_merge_size", "clip.vision.image_size", LISTS] {
        refuses(&format!("no {key}"), &tower.without(key), 10, &[TOWER, key, "is missing"]);
    }
    for (case, value, code, says) in [
        ("of too few blocks", flags(&[1, 1]), 15, "is_deepstack_layers has 2 entries"),
        ("of too many blocks", flags(&[1, 1, 0, 0]), 15, "is_deepstack_layers has 4 entries"),
        ("of no block", flags(&[0; 3]), 15, "n_deepstack_layers is 2"),
        ("of another block", flags(&[1, 0, 1]), 15, "v.deepstack.2.norm.weight"),
        ("of all blocks", flags(&[1; 3]), 15, "v.deepstack.2.norm.weight"),
        ("of one block", flags(&[1, 0, 0]), 15, "n_deepstack_layers is 2"),
        ("by texts", array(TEXT, 3, [string("a"), string("b"), string("c")].concat()), 10, LISTS),
    ] {
        refuses(&format!("further rows {case}"), &tower.set(LISTS, ARRAY, value), code, &[says]);
    }
    refuses("further rows by one flag", &tower.set(LISTS, BOOL, [1]), 10, &[TOWER, LISTS]);
    refuses("another activation", &tower.set("clip.use_gelu", BOOL, [0]), 11, &[TOWER, "quick GELU"]);
    every_tensor(&tower, &mut refuses);
    for name in ["v.patch_embd.weight.2", "v.blk.0.attn_q.weight", "v.deepstack.2.norm.weight", "mm.1.weight"] {
        refuses(&format!("{name} too"), &tower.with_tensor(name, &[48, 48], 0), 12, &[TOWER, name]);
    }
    let fewer = text.u32("qwen3vl.n_deepstack_layers", 3);
    table.refuses(
        "a Qwen3-VL in GGUF that adds rows of more blocks",
        &with(&fewer, &tower),
        MODEL,
        15,
        &["n_deepstack_layers is 3", "makes rows of 2 blocks: these files do not belong together"],
    );
    let other = Gguf::seeing("qwen3.5", "gguf/f32.gguf");
    let own = Gguf::seeing("qwen3.5", "gguf/mmproj-f32.gguf");
    table.accepts("a Qwen3.5 in GGUF with its tower", &with(&other, &own), MODEL);
    let says = [TOWER, LISTS, "rows of blocks that are added after layers"];
    table.refuses("a Qwen3.5 with the tower of a Qwen3-VL", &with(&other, &tower), MODEL, 11, &says);
    table.refuses(
        "a Qwen3.5 whose tower makes further rows",
        &with(&other, &own.set(LISTS, ARRAY, flags(&[0, 1]))),
        MODEL,
        11,
        &says,
    );
    table.refuses(
        "a Qwen3-VL with the tower of a Qwen3.5",
        &with(&text, &own),
        MODEL,
        15,
        &["n_deepstack_layers is 2", "makes rows of 0 blocks"],
    );
    let gemma = Gguf::seeing("gemma-3", "gguf/q8_0.gguf");
    table.refuses(
        "a Gemma 3 with the tower of a Qwen3-VL",
        &with(&gemma, &tower),
        MODEL,
        15,
        &["for language models of qwen3vl or qwen3vlmoe or qwen35 or qwen35moe", "do not belong together"],
    );
    table.vision = false;
}
