//! StarCoder, SantaCoder: GPT-2 with one head of keys and values.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "gpt_bigcode",
    gguf_architectures: &["starcoder"],
    model_types: &[("gpt_bigcode", &["GPTBigCodeForCausalLM"])],
    files: FileTable { multi_query: Some(("multi_query", "")), transposed: false, ..gpt2::FAMILY.files },
    block: BlockTable { qkv_order: QkvOrder::ByHeads, ..gpt2::FAMILY.block },
    name: "StarCoder",
    ..gpt2::FAMILY
};
