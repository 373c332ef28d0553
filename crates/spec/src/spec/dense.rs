//! Header -> the dense layers after the pooling, of sentence-transformers and in GGUF.

use super::tensors::Tensors;
use super::weights::{mapped, weights};
use super::{LinearWeights, MapWeights, Stored, WeightTypes};
use crate::block::DenseActivation;
use crate::error::Result;
use crate::header::config::JsonFile;
use crate::header::{Fields, Metadata};

weights! {
    /// A linear layer over a vector of a text: before the output layer of a classification head, or after the pooling.
    pub struct DenseLayer<W> {
        /// The linear layer, `[outputs, inputs]`.
        pub linear: W::Matrix = matrix,
        /// The activation of its output; `None` where there is none.
        pub activation: Option<DenseActivation>,
        /// The norm of the activated output, `[outputs]`.
        pub norm: Option<W::Norm> = optional norm,
    }
}

/// The activations of sentence-transformers' dense layers, by the ends of their names.
const ACTIVATIONS: &[(&str, Option<DenseActivation>)] = &[
    ("Identity", None),
    ("Tanh", Some(DenseActivation::Tanh)),
    ("GELU", Some(DenseActivation::Gelu)),
    ("ReLU", Some(DenseActivation::Relu)),
];

/// What a dense layer's `config.json` says that is not computed; `None` where all is.
pub(super) fn unsupported(config: &JsonFile) -> Result<Option<String>> {
    let name = config.text("activation_function")?.unwrap_or_default();
    let known = ACTIVATIONS.iter().any(|(end, _)| name.ends_with(end));
    // It may also be over the vector of every token.
    let input = config.text("module_input_name")?.filter(|input| *input != "sentence_embedding");
    Ok(match (known, input) {
        (false, _) => Some(format!("a dense layer with the activation {name:?}")),
        (true, Some(input)) => Some(format!("a dense layer over {input}")),
        (true, None) => None,
    })
}

impl Tensors<'_> {
    /// The dense layers after so many poolings, in their order. Layers that are not computed are left aside: then the files do not
    /// say how a text becomes a vector.
    pub(super) fn dense_layers(&mut self, poolings: Option<usize>) -> Result<Vec<DenseLayer>> {
        let mut layers: Vec<DenseLayer> = Vec::new();
        let Metadata::Config(files) = &self.header.metadata else { return self.gguf_dense_layers() };
        let pooled = poolings.unwrap_or(0) as u64 * self.sizes.hidden as u64;
        for (folder, config) in files.sentence_transformers.iter().flat_map(|files| &files.dense) {
            let names = ["weight", "bias"].map(|end| format!("{folder}/linear.{end}"));
            if poolings.is_none() {
                self.used.extend(names);
                continue;
            }
            let size = |key: &'static str| {
                let size = config.unsigned(key)?.filter(|size| (1..=i32::MAX as u64).contains(size));
                size.ok_or_else(|| {
                    let found = config.object().get(key).map_or("nothing".into(), ToString::to_string);
                    crate::error::Error::key_value(config.file(), key, found, "a size of a vector")
                })
            };
            let (inputs, outputs) = (size("in_features")?, size("out_features")?);
            let given = layers.last().map_or(pooled, |layer| layer.linear.weight.shape[0]);
            if inputs != given {
                let one = format!("in_features of {folder} is {inputs}");
                return Err(self.reader.contradiction(one, format!("the vector before it has {given} elements")));
            }
            let because = format!("in_features {inputs} and out_features {outputs} of {folder}");
            let weight = self.checked(&names[0], &[outputs, inputs], &because)?;
            self.check_matrix_dtype(&weight)?;
            let bias = match config.boolean("bias")?.unwrap_or(true) {
                true => Some(self.checked(&names[1], &[outputs], &because)?),
                false => None,
            };
            bias.iter().try_for_each(|bias| self.check_vector_dtype(bias))?;
            let name = config.text("activation_function")?.unwrap_or_default();
            let activation = ACTIVATIONS.iter().find(|(end, _)| name.ends_with(end)).and_then(|(_, known)| *known);
            let linear = LinearWeights { bias, ..LinearWeights::new(weight) };
            layers.push(DenseLayer { linear, activation, norm: None });
        }
        Ok(layers)
    }

    /// The layers that llama.cpp's converter adds with `--sentence-transformers-dense-modules`, without activations.
    fn gguf_dense_layers(&mut self) -> Result<Vec<DenseLayer>> {
        let mut layers: Vec<DenseLayer> = Vec::new();
        for &(name, inputs, outputs) in self.family.head.dense {
            let weight = format!("{name}.weight");
            if !self.stores(&weight) {
                continue;
            }
            let size = |key| self.reader.present(key, self.reader.size(key)?);
            let (inputs, outputs) = (size(inputs)? as u64, size(outputs)? as u64);
            let given = layers.last().map_or(self.sizes.hidden as u64, |layer| layer.linear.weight.shape[0]);
            if inputs != given {
                let one = format!("{weight} has {inputs} inputs");
                return Err(self.reader.contradiction(one, format!("the vector before it has {given} elements")));
            }
            let weight = self.checked(&weight, &[outputs, inputs], &format!("{outputs} outputs, {inputs} inputs"))?;
            self.check_matrix_dtype(&weight)?;
            layers.push(DenseLayer { linear: LinearWeights::new(weight), activation: None, norm: None });
        }
        Ok(layers)
    }
}
