//! AWQ: the config of AutoAWQ, GPTQModel and transformers -> [`Scheme`].
//!
//! Keys and layout: AutoAWQ 0.2.9 `awq/models/_config.py`, `awq/modules/linear/gemm.py`, transformers 5 `AwqConfig`. What does not run is
//! refused with the key that asks for it.

use super::gptq::{refusal, with_block};
use super::names::Names;
use super::scheme::{ColumnPacked, Kind, Scheme};
use crate::error::Result;
use crate::header::config::{ConfigFiles, Section};
use crate::header::{Fields, Header};
use model_factory_dtypes::PackedDim;

/// What people call the method.
const METHOD: &str = "AWQ";

/// Keys that change nothing here.
const KNOWN: &str = "quant_method method bits w_bit group_size q_group_size zero_point version format modules_to_not_convert backend \
                     do_fuse fuse_max_seq_len modules_to_fuse exllama_config meta sym desc_act lm_head pack_dtype checkpoint_format \
                     offload_to_disk pack_impl quant_type";

/// The scheme of a model's files; `None` when they announce another method.
///
/// # Errors
/// `Quantization` for every scheme that does not run, `Format` for keys of the wrong type.
pub(super) fn read(header: &Header, files: &ConfigFiles) -> Result<Option<Scheme>> {
    with_block(header, files, |block| {
        match block.text("quant_method")?.map(str::to_ascii_lowercase).as_deref() {
            Some("awq") => {}
            None if block.has("w_bit") => {}
            _ => return Ok(None),
        }
        layout(block)?;
        // Zero points are stored in any case: without, the middle of the integers.
        block.boolean("zero_point")?;
        // Which modules these are the tensors say.
        if let Some(mut names) = block.strings("modules_to_not_convert")? {
            names.try_for_each(|name| name.map(drop))?;
        }
        let mut scheme = Scheme::new(METHOD, block, Names::none());
        scheme.notes.unknown(block, KNOWN);
        let packed = ColumnPacked::read(METHOD, block, None, PackedDim::Outputs, 0)?;
        Ok(Some(scheme.with_group(Kind::Columns(packed))))
    })
}

/// Refuses other words than those of gemm, which exllama reads too.
fn layout(block: &Section<'_>) -> Result<()> {
    for key in ["version", "format"] {
        let found = block.text(key)?;
        if !found.is_none_or(|found| ["gemm", "exllama"].contains(&found.to_ascii_lowercase().as_str())) {
            return Err(refusal(block, METHOD, key, found, "gemm"));
        }
    }
    Ok(())
}
