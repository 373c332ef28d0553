//! Several residual streams, a residual beside attention and sparse gates, with one thing wrong.

use crate::build::{ARRAY, F32, F32_VALUE, Tree, array};
use crate::edit::{Files, Gguf};
use crate::refuses_values;
use crate::table::Table;
use serde_json::{Value, json};

const NAME: &str = "m.gguf";
const FOLDER: &str = "gemma-3n";
const OTHER: &str = "gemma-3n-other";

pub fn cases(table: &mut Table) {
    gguf(table);
    let parts = |first: f64| json!([first, 0.95]);
    let listed = "activation_sparsity_pattern";
    let values: [(_, _, Value, _, _); 27] = [
        (FOLDER, "altup_num_inputs", json!(0), 10, "altup_num_inputs"),
        (FOLDER, "altup_num_inputs", json!(17), 10, "between 1 and 16"),
        (FOLDER, "altup_num_inputs", json!(1u64 << 40), 10, "altup_num_inputs"),
        (FOLDER, "altup_num_inputs", json!("four"), 10, "altup_num_inputs"),
        (FOLDER, "altup_num_inputs", json!(3), 15, "altup.modality_router.weight"),
        (FOLDER, "altup_num_inputs", json!(5), 15, "altup"),
        (FOLDER, "altup_active_idx", json!(1), 11, "altup_active_idx"),
        (FOLDER, "altup_correct_scale", json!("yes"), 10, "altup_correct_scale"),
        (FOLDER, "laurel_rank", json!(0), 10, "laurel_rank"),
        (FOLDER, "laurel_rank", json!(32), 15, "laurel.linear_left.weight"),
        (FOLDER, listed, parts(1.0), 10, "activation_sparsity_pattern[0]"),
        (FOLDER, listed, parts(-0.1), 10, "activation_sparsity_pattern[0]"),
        (FOLDER, listed, json!(["most", 0]), 10, "activation_sparsity_pattern[0]"),
        (FOLDER, listed, json!([0.95, 0.95, 0.95]), 15, listed),
        (FOLDER, listed, json!(0.95), 10, listed),
        (FOLDER, "intermediate_size", json!([128, 128, 96]), 15, "intermediate_size"),
        (FOLDER, "intermediate_size", json!([128, 0]), 10, "intermediate_size"),
        (FOLDER, "intermediate_size", json!([128, 96]), 15, "layers.1.mlp"),
        (FOLDER, "intermediate_size", json!([128, "x"]), 10, "intermediate_size[1]"),
        (FOLDER, "vocab_size_per_layer_input", json!(380), 15, "embed_tokens_per_layer"),
        (FOLDER, "vocab_size_per_layer_input", json!(0), 10, "vocab_size_per_layer_input"),
        (FOLDER, "hidden_size_per_layer_input", json!(16), 15, "per_layer"),
        (FOLDER, "hidden_activation", json!("silu"), 11, "hidden_activation"),
        (OTHER, "num_kv_shared_layers", json!(5), 15, "num_kv_shared_layers"),
        (OTHER, "num_kv_shared_layers", json!(1), 15, "layers.3.self_attn.k_proj"),
        (OTHER, "laurel_rank", json!(null), 15, "laurel.linear_left.weight"),
        (OTHER, "vocab_size_per_layer_input", json!(null), 15, "262144"),
    ];
    refuses_values(table, values);
    let files = Files::fixture("gemma-3n/bf16");
    for name in
        ["altup_projections.2.weight", "layers.1.altup.correct_output_scale", "layers.0.laurel.linear_right.weight"]
    {
        let name = format!("model.{name}");
        let without = files.header("model.safetensors", |header| {
            let tensor = header.remove(&name).unwrap();
            header.insert("another".to_owned(), tensor);
        });
        table.refuses(&format!("no {name}"), &without.tree(), "", 15, &[&name]);
    }
}

fn floats(values: &[f32]) -> Vec<u8> {
    array(F32_VALUE, values.len() as u64, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
}

fn gguf(table: &mut Table) {
    let file = Gguf::fixture("gemma-3n/q8_0.gguf");
    table.accepts("several residual streams", &Tree::new().with(NAME, file.build()), NAME);
    let list = "gemma3n.activation_sparsity_scale";
    let deviations = |values: &[f32]| file.set(list, ARRAY, floats(values));
    let dense = deviations(&[-1.5, f32::NEG_INFINITY]);
    table.accepts("gates that all count in a layer", &Tree::new().with(NAME, dense.build()), NAME);
    let mut case = |case: &str, file: &Gguf, code: u8, says: &str| {
        table.refuses(case, &Tree::new().with(NAME, file.build()), NAME, code, &[NAME, says]);
    };
    case("no list of sparsity", &file.without(list), 10, list);
    case("a list of sparsity for three layers", &deviations(&[1.5; 3]), 15, list);
    for wrong in [f32::NAN, f32::INFINITY, 16.0, -1e30] {
        case(&format!("gates from {wrong} deviations on"), &deviations(&[1.5, wrong]), 10, list);
    }
    let (streams, active) = ("gemma3n.altup.num_inputs", "gemma3n.altup.active_idx");
    case("no number of streams", &file.without(streams), 10, streams);
    case("no streams", &file.u32(streams, 0), 10, streams);
    case("2^32 - 1 streams", &file.u32(streams, u32::MAX), 10, streams);
    case("three streams", &file.u32(streams, 3), 15, "altup");
    case("five streams", &file.u32(streams, 5), 15, "altup");
    case("another stream", &file.u32(active, 2), 11, active);
    for tensor in [
        "altup_proj",
        "altup_unembd_proj",
        "blk.0.altup_router",
        "blk.0.altup_router_norm",
        "blk.1.altup_predict_coef",
        "blk.1.altup_correct_coef",
        "blk.1.altup_correct_scale",
        "blk.0.laurel_l",
        "blk.1.laurel_r",
        "blk.1.laurel_post_norm",
        "per_layer_token_embd",
        "blk.1.inp_gate",
    ] {
        let name = format!("{tensor}.weight");
        case(&format!("no {tensor} of Gemma 3n"), &file.without_tensor(&name), 15, &name);
    }
    let scale = "blk.1.altup_correct_scale.weight";
    case("a scale of another width", &file.without_tensor(scale).with_tensor(scale, &[16], F32), 15, scale);
}
