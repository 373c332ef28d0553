//! The quantization methods that are recognized and not computed, and the keys that announce and describe them. Tables hold data only.

/// The methods, a row each. The file says what its columns mean.
const METHODS: &str = include_str!("methods.txt");

/// A row of the table.
pub(super) struct Method {
    pub(super) name: &'static str,
    /// Values of `quant_method`, in lower case with spaces between them.
    pub(super) quant_methods: &'static str,
    pub(super) file_type: &'static str,
    /// Sets of marks with spaces between them; commas are between the sets.
    pub(super) tensors: &'static str,
}

/// The methods in the order in which they are tried.
pub(super) fn methods() -> impl Iterator<Item = Method> {
    rows().filter_map(|row| {
        let [name, quant_methods, file_type, tensors] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(Method { name, quant_methods, file_type, tensors })
    })
}

fn rows() -> impl Iterator<Item = &'static str> {
    METHODS.lines().filter(|line| !line.starts_with('#'))
}

/// Blocks of experts, which run.
pub(super) const MXFP4: &str = "MXFP4";

/// Of whose formats some run.
pub(super) const COMPRESSED_TENSORS: &str = "compressed-tensors";

/// Floats of 8 bits, which run where a config says what their scales are.
pub(super) const FP8: [&str; 2] = ["FP8 in blocks", "FP8"];

/// Words by columns, which run where a config says what they hold.
pub(super) const BY_COLUMNS: [&str; 2] = ["GPTQ", "AWQ, or GPTQ without g_idx"];

/// Rows with marks that floats of 4 bits have too, which run where a config says what their scales are.
pub(super) const FP4: [&str; 3] = ["NVFP4", COMPRESSED_TENSORS, "BitNet"];

/// Codes of 4 bits and signed integers, which run where a config says so.
pub(super) const BITSANDBYTES: [&str; 2] = ["bitsandbytes 4-bit", "bitsandbytes 8-bit (LLM.int8)"];

/// Words with scales and biases, which run where a config says how many bits their fields have.
pub(super) const MLX: &str = "MLX";

/// I8 matrices with scales, where nothing says how activations are to be quantized.
pub(super) const INT8_WITH_SCALES: &str = "int8 with scales (the layout of compressed-tensors)";

/// Sections of `config.json` that announce a method.
pub(super) const SECTIONS: &[&str] = &["quantization_config", "compression_config", "quantization"];

/// Keys that tell a method where a section has no `quant_method`. The first that is there counts.
pub(super) const TELLING: &[(&str, &str)] = &[
    ("load_in_8bit", "bitsandbytes"),
    ("load_in_4bit", "bitsandbytes"),
    ("quant_algo", "ModelOpt"),
    ("config_groups", "compressed-tensors"),
    ("global_quant_config", "Quark"),
    ("weight_block_size", "FP8"),
    ("w_bit", "AWQ"),
    ("desc_act", "GPTQ"),
];

/// Words for keys worth saying, in the order in which they are said. `{}` stands for a value; words without it stand for `true`.
const DETAILS: &[(&str, &str)] = &[
    ("8 bits", "load_in_8bit"),
    ("4 bits", "load_in_4bit"),
    ("{} bits", "bits w_bit nbits num_bits"),
    ("groups of {}", "in_group_size group_size q_group_size"),
    ("blocks of {}", "weight_block_size"),
    ("{}", "bnb_4bit_quant_type quant_algo weights format type"),
    ("a scale a {}", "strategy"),
    ("{}", "dtype _type quant_type fmt mode"),
    ("{} activations", "activation_scheme"),
];

pub(super) fn details() -> impl Iterator<Item = (&'static str, &'static str)> {
    DETAILS.iter().flat_map(|(words, keys)| keys.split(' ').map(|key| (key, *words)))
}

/// Keys under which nothing is said of weights.
pub(super) const OTHER_PARTS: &str = "input_activations output_activations kv_cache_scheme input_tensors output_tensors \
                                      calibration meta producer";

#[cfg(test)]
mod tests {
    use super::*;
    use model_factory_dtypes::DType;
    use std::collections::HashSet;

    #[test]
    fn every_row_is_a_method_of_its_own() {
        let names: HashSet<_> = methods().map(|method| method.name).collect();
        assert_eq!((names.len(), methods().count()), (rows().count(), rows().count()));
        assert!([MXFP4, MLX, COMPRESSED_TENSORS, INT8_WITH_SCALES].iter().all(|name| names.contains(name)));
        assert!(TELLING.iter().all(|(_, name)| names.contains(name)));
        for Method { name, quant_methods, file_type, tensors } in methods() {
            assert!(!name.is_empty() && ["Q4_K_M", "Q8_0"].contains(&file_type), "{name}: {file_type}");
            assert_eq!(quant_methods, quant_methods.to_lowercase());
            for mark in tensors.split([',', ' ']).filter(|mark| !mark.is_empty()) {
                let (part, dtypes) = mark.split_once(':').unwrap_or((mark, "F8"));
                let known = |name: &str| name == "F8" || DType::all().any(|dtype| dtype.name() == name);
                assert!(!part.trim_matches('*').is_empty() && dtypes.split('/').all(known), "{name}: {mark}");
            }
        }
    }
}
