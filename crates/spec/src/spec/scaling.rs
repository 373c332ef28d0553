//! Matrices with scales of their own, of integers or of floats of 4 or 8 bits: what the config says of a module, crossed with the tensors that are stored for it.

use super::tensors::{Rows, Tensors, rows_of};
use super::{Factor, FloatScales, Groups, Int8, Int8Activations, Scaling, elements};
use crate::error::{Error, Result};
use crate::family::Role;
use crate::header::TensorInfo;
use crate::quantization::{Activations, COLUMNS, FP8_SCALES, Fp4, Kind, Packed, Scheme, WeightScales};
use model_factory_dtypes::{DType, I8_MAX_INPUTS};

/// Elements that kernels multiply together: groups are a multiple of them.
pub(super) const BLOCK: u64 = 32;

/// Tensors that only other schemes have with such a weight, and what they would mean.
const FOREIGN: &[(&str, &str)] =
    &[("weight_g_idx", "inputs grouped out of order"), ("output_scale", "quantised outputs")];

impl Tensors<'_> {
    /// How the numbers of the matrix in `rows` are scaled; `None` for a matrix of plain floats.
    pub(super) fn scaling(&mut self, rows: &Rows, role: Role) -> Result<Option<Scaling>> {
        let Some(scheme) = self.scheme else { return Ok(None) };
        let embedding = matches!(role, Role::Embedding | Role::LayerEmbedding);
        let class = if embedding { "Embedding" } else { "Linear" };
        let (module, weight) = (rows.module.as_str(), &rows.tensor);
        let group = scheme.group(module, class);
        if scheme.is_mlx() {
            return self.words(scheme, group, rows);
        }
        // No other matrix is of these: packed words have them from the config.
        let by_columns = weight.name.ends_with(COLUMNS);
        let fields = matches!(weight.dtype, DType::U2 | DType::U3 | DType::U4 | DType::U8);
        let packed = fields && (by_columns || weight.name.ends_with("_packed"));
        let scaled = [DType::I8, DType::F8_E4M3, DType::F4, DType::NF4, DType::FP4, DType::S8];
        if !scaled.contains(&weight.dtype) && !packed {
            return self.plain(scheme, group.is_ok(), rows).map(|()| None);
        }
        let stored = format!("tensor {} is {}", weight.name, if packed { "packed" } else { weight.dtype.name() });
        let refusal = |scheme, why| Error::Quantization { file: self.file_of(weight).into(), scheme, why };
        let group = match group {
            _ if embedding => {
                let why =
                    "rows of an embedding are read as they are, and only floats are; quantise only the linear layers";
                return Err(refusal(format!("a quantized embedding ({stored})"), why.into()));
            }
            Ok(group) => group,
            Err(says) => return Err(self.conflict(says, stored)),
        };
        for (suffix, meaning) in FOREIGN {
            let name = format!("{module}.{suffix}");
            // That of a FP8 cache is the same for keys and values.
            if self.stores(&name) && !(*suffix == "output_scale" && matches!(group.kind, Kind::Fp8(_) | Kind::Fp4(_))) {
                let says = format!("{} describes integers in order", group.place);
                return Err(self.conflict(says, format!("tensor {name} is stored for {meaning}")));
            }
        }
        let (describes, fits) = match group.kind {
            Kind::Packed(_) => ("packed", packed && !by_columns),
            Kind::Columns(_) => ("packed", by_columns),
            Kind::Fp8(_) => ("F8_E4M3", weight.dtype == DType::F8_E4M3),
            Kind::Fp4(_) => ("F4", weight.dtype == DType::F4),
            Kind::Int8 { .. } => ("int8", weight.dtype == DType::I8),
            Kind::Words(_) => ("MLX's", false),
            Kind::FourBit(four) => (four.dtype.name(), weight.dtype == four.dtype),
            Kind::Int8Rows => ("int8", weight.dtype == DType::S8),
        };
        if !fits {
            return Err(self.conflict(format!("{} describes {describes} weights", group.place), stored));
        }
        let inputs = weight.shape.get(1).copied().unwrap_or(1);
        match group.kind {
            Kind::Columns(kind) => self.columns(&group.place, kind, rows, role).map(Scaling::Columns).map(Some),
            Kind::Packed(scales) => self.groups(&group.place, scales, rows).map(Scaling::Groups).map(Some),
            Kind::Fp8(scales) => self.float_scales(&group.place, scales, rows).map(Scaling::Floats).map(Some),
            Kind::Fp4(fp4) => self.scales_of_blocks(&group.place, fp4, rows).map(Scaling::Blocks).map(Some),
            Kind::FourBit(four) => self.runs(&group.place, four, rows).map(Scaling::Runs).map(Some),
            Kind::Int8Rows => self.integer_rows(rows).map(Scaling::IntegerRows).map(Some),
            Kind::Words(_) => Ok(None),
            Kind::Int8 { .. } if inputs > I8_MAX_INPUTS => {
                let why = format!("sums of integers are exact in 32 bits up to rows of {I8_MAX_INPUTS}");
                Err(refusal(format!("int8 in rows of {inputs} ({stored})"), why))
            }
            Kind::Int8 { weights, activations } => {
                let zero_point = format!("{module}.weight_zero_point");
                if self.stores(&zero_point) {
                    let says = format!("{} describes symmetric weights", group.place);
                    return Err(self.conflict(says, format!("tensor {zero_point} is stored")));
                }
                let (scale, size) = self.weight_scale(&group.place, weights, rows)?;
                let activations = self.activation_parts(&group.place, activations, module)?;
                Ok(Some(Scaling::Int8(Int8 { scale, group: size, activations })))
            }
        }
    }

    /// The scales and the zero points of the packed matrix in `rows`.
    fn groups(&mut self, place: &str, packed: Packed, rows: &Rows) -> Result<Groups> {
        let (scale, size) = self.weight_scale(place, packed.scales, rows)?;
        if !(size as u64).is_multiple_of(BLOCK) {
            return Err(Error::Quantization {
                file: self.file_of(&rows.tensor).into(),
                scheme: format!("groups of {size} packed weights (tensor {})", rows.tensor.name),
                why: format!("integers are multiplied in blocks of {BLOCK} that share a scale"),
            });
        }
        let words = [&rows.tensor.name, &format!("{}.weight_shape", rows.module)].map(|name| name.clone());
        self.used.extend(words);
        for suffix in ["input_scale", "input_zero_point"] {
            let name = format!("{}.{suffix}", rows.module);
            if self.stores(&name) {
                let says = format!("{place} says that activations are floats");
                return Err(self.conflict(says, format!("tensor {name} is stored")));
            }
        }
        let zero_point = self.zero_point(place, packed, rows)?;
        Ok(Groups { scale, size, zero_point })
    }

    /// The zero points of the packed matrix in `rows`. compressed-tensors up to 0.9.3 left them out where all are 0.
    fn zero_point(&mut self, place: &str, packed: Packed, rows: &Rows) -> Result<Option<TensorInfo>> {
        let name = format!("{}.weight_zero_point", rows.module);
        let Some(stored) = self.table.get(&name).cloned() else { return Ok(None) };
        if packed.symmetric {
            let says = format!("{place} describes symmetric weights");
            return Err(self.conflict(says, format!("tensor {name} is stored")));
        }
        let (outputs, inputs) = (rows.tensor.shape[0], rows.tensor.shape[1]);
        let columns = if let WeightScales::Group(size) = packed.scales { inputs / size } else { 1 };
        let bits = u64::from(packed.bits);
        let each = match stored.dtype {
            DType::I8 => 1,
            DType::I32 => 32 / bits, // of one word
            _ => return Err(self.wrong_dtype(&stored, "I8, or I32 (packed zero points)")),
        };
        let expected = vec![rows.total.div_ceil(each), columns];
        if stored.shape != expected {
            return Err(self.wrong_shape(&stored, expected, format!("zero points of {} outputs", rows.total)));
        }
        if !rows.before.is_multiple_of(each) {
            let other = format!("the part of {} from output {} on begins within a word", rows.module, rows.before);
            return Err(self.conflict(format!("tensor {name} is packed"), other));
        }
        self.used.insert(name);
        let shape = vec![outputs.div_ceil(each), columns];
        Ok(Some(rows_of(stored, rows.before / each, rows.total.div_ceil(each), shape)))
    }

    /// The scales of the floats of 4 bits in `rows`.
    fn scales_of_blocks(&mut self, place: &str, fp4: Fp4, rows: &Rows) -> Result<TensorInfo> {
        let (weight, name) = (&rows.tensor, format!("{}.weight_scale", rows.module));
        let [outputs, inputs] = [weight.shape[0], weight.shape[1]];
        if !inputs.is_multiple_of(BLOCK) {
            return Err(Error::Quantization {
                file: self.file_of(weight).into(),
                scheme: format!("rows of {inputs} floats of 4 bits (tensor {})", weight.name),
                why: format!("they are multiplied in blocks of {BLOCK}"),
            });
        }
        let Some(scale) = self.table.get(&name).cloned() else {
            return Err(self.conflict(format!("tensor {} is F4", weight.name), format!("its scale {name} is missing")));
        };
        let dtype = if fp4 == Fp4::Powers { DType::F8_E8M0 } else { DType::F8_E4M3 };
        // compressed-tensors stores exponents as integers.
        if scale.dtype != dtype && (fp4, scale.dtype) != (Fp4::Powers, DType::U8) {
            let expected = if fp4 == Fp4::Powers { "U8 or F8_E8M0 (exponents)" } else { "F8_E4M3 (scales)" };
            return Err(self.wrong_dtype(&scale, expected));
        }
        let expected = vec![rows.total, inputs / fp4.size()];
        if scale.shape != expected {
            return Err(self.wrong_shape(&scale, expected, format!("weights by groups of {} by {place}", fp4.size())));
        }
        self.used.extend([name, weight.name.clone()]);
        let shape = vec![outputs, expected[1]];
        Ok(rows_of(TensorInfo { dtype, ..scale }, rows.before, rows.total, shape))
    }

    /// What the products of the matrix in `rows` are scaled by: one float for all of the stored tensor, of floats of 4 bits.
    pub(super) fn factor(&mut self, rows: &Rows) -> Result<Option<Factor>> {
        if self.reader.is_gguf() {
            return self.gguf_factor(&rows.module, &rows.tensor, 1);
        }
        let kind = self.scheme.and_then(|scheme| scheme.group(&rows.module, "Linear").ok()).map(|group| group.kind);
        let wanted = match kind {
            Some(Kind::Fp4(fp4)) if rows.tensor.dtype == DType::F4 => fp4.whole().map(|end| (end, fp4)),
            _ => None,
        };
        let other = Fp4::WHOLE.into_iter().filter(|end| wanted.is_none_or(|(wanted, _)| wanted != *end));
        let mut other = other.map(|end| format!("{}.{end}", rows.module));
        if let (Some(_), Some(name)) = (self.scheme, other.find(|name| self.stores(name))) {
            let stored = format!("tensor {} is {}", rows.tensor.name, rows.tensor.dtype);
            return Err(self.conflict(format!("tensor {name} is stored"), format!("{stored}, not scaled by it")));
        }
        let Some((end, fp4)) = wanted else { return Ok(None) };
        let tensor = self.single(&format!("{}.{end}", rows.module), "one scale for a matrix")?;
        self.check_float(&tensor, "F32, F16 or BF16 (scales)")?;
        Ok(Some(Factor { tensor, divides: fp4 == Fp4::Divided }))
    }

    /// The `count` floats that a GGUF file has for the products of the matrix `weight`, where it has some: NVFP4 (llama.cpp).
    pub(super) fn gguf_factor(&mut self, stem: &str, weight: &TensorInfo, count: u64) -> Result<Option<Factor>> {
        let name = format!("{stem}.scale");
        if weight.dtype != DType::NVFP4 || !self.stores(&name) {
            return Ok(None);
        }
        let tensor = self.checked(&name, &[count], "scales of products")?;
        if tensor.dtype != DType::F32 {
            return Err(self.wrong_dtype(&tensor, "F32 (scales)"));
        }
        Ok(Some(Factor { tensor, divides: false }))
    }

    /// Takes note of a matrix of floats that the config would have quantised; no scale may be stored with it.
    pub(super) fn plain(&mut self, scheme: &Scheme, covered: bool, rows: &Rows) -> Result<()> {
        let scales = [FP8_SCALES[0], FP8_SCALES[1], "SCB"].map(|end| format!("{}.{end}", rows.module));
        if let Some(scale) = scales.iter().find(|scale| self.stores(scale)) {
            let stored = format!("tensor {} is {}", rows.tensor.name, rows.tensor.dtype);
            let expected = scheme.dtypes().join(" or ");
            let (one, other) = (format!("tensor {scale} is stored"), format!("{stored}, not {expected}"));
            return Err(self.conflict(one, other));
        }
        if covered && !self.plain_modules.contains(&rows.module) {
            self.plain_modules.push(rows.module.clone());
        }
        Ok(())
    }

    /// The scales of the rows of integers, and how many inputs share one.
    fn weight_scale(&mut self, place: &str, scales: WeightScales, rows: &Rows) -> Result<(TensorInfo, usize)> {
        let inputs = rows.tensor.shape.get(1).copied().unwrap_or(1);
        if let WeightScales::Group(size) = scales
            && !inputs.is_multiple_of(size)
        {
            let one = format!("{place} has groups of {size}");
            let other = format!("tensor {} has {inputs} inputs, no multiple of it", rows.tensor.name);
            return Err(self.conflict(one, other));
        }
        let FloatScales { scale, block: [_, size], .. } = self.float_scales(place, scales, rows)?;
        let shape = if scales == WeightScales::Tensor { vec![1] } else { scale.shape };
        Ok((TensorInfo { shape, ..scale }, size))
    }

    /// The scales of the rows.
    fn float_scales(&mut self, place: &str, scales: WeightScales, rows: &Rows) -> Result<FloatScales> {
        let weight = &rows.tensor;
        let names = FP8_SCALES.map(|end| format!("{}.{end}", rows.module));
        let [inverse, usual] = &names;
        let name = if weight.dtype == DType::F8_E4M3 && self.stores(inverse) { inverse } else { usual };
        let Some(scale) = self.table.get(name).cloned() else {
            let stored = format!("tensor {} is {}", weight.name, weight.dtype);
            return Err(self.conflict(stored, format!("its scale {name} is missing")));
        };
        self.used.insert(name.clone());
        self.checked_scales(place, scales, rows, scale)
    }

    /// The scales of the rows of expert `expert` of `count`, whose matrices in FP8 are stacked in one tensor, and so are their scales
    /// (transformers' `FP8Experts`); `None` for floats that the config would have quantised.
    pub(super) fn stacked_scales(&mut self, rows: &Rows, [expert, count]: [u64; 2]) -> Result<Option<Scaling>> {
        let Some(scheme) = self.scheme else { return Ok(None) };
        let group = scheme.group(&rows.module, "Linear");
        let name = format!("{}_scale_inv", rows.tensor.name.trim_end_matches(".weight"));
        let scale = self.table.get(&name).cloned();
        let stored = format!("tensor {} is {}", rows.tensor.name, rows.tensor.dtype);
        if rows.tensor.dtype != DType::F8_E4M3 {
            return match scale {
                None => self.plain(scheme, group.is_ok(), rows).map(|()| None),
                Some(_) => Err(self.conflict(format!("tensor {name} is stored"), format!("{stored}, not F8_E4M3"))),
            };
        }
        let group = group.map_err(|says| self.conflict(says, stored.clone()))?;
        let Some(scale) = scale else {
            return Err(self.conflict(stored, format!("its scale {name} is missing")));
        };
        let Kind::Fp8(scales) = group.kind else {
            return Err(self.conflict(format!("{} describes no FP8", group.place), stored));
        };
        if scale.shape.first() != Some(&count) {
            let expected = std::iter::once(count).chain(scale.shape.iter().skip(1).copied()).collect();
            return Err(self.wrong_shape(&scale, expected, format!("scales of {count} experts")));
        }
        self.used.insert(name);
        let (shape, parts) = (scale.shape[1..].to_vec(), rows.total / rows.tensor.shape[0]);
        let inputs = rows.tensor.shape[1];
        let scales = match (scales, shape.as_slice()) {
            // One for each projection.
            (WeightScales::Tensor, [part, 1]) if *part == parts => WeightScales::Block([rows.total / parts, inputs]),
            (WeightScales::Tensor, [1, 1]) => WeightScales::Block([rows.total, inputs]),
            (scales, _) => scales,
        };
        let of_expert = rows_of(TensorInfo { shape: vec![count], ..scale }, expert, count, vec![1]);
        let scale = TensorInfo { shape, ..of_expert };
        self.checked_scales(&group.place, scales, rows, scale).map(Scaling::Floats).map(Some)
    }

    /// The scales of the rows, stored as `scale`.
    fn checked_scales(
        &mut self,
        place: &str,
        scales: WeightScales,
        rows: &Rows,
        mut scale: TensorInfo,
    ) -> Result<FloatScales> {
        let weight = &rows.tensor;
        // MXFP8, whose exponents compressed-tensors stores as integers.
        if (weight.dtype, scales, scale.dtype) == (DType::F8_E4M3, WeightScales::Group(BLOCK), DType::U8) {
            scale.dtype = DType::F8_E8M0;
        }
        let [outputs, inputs] = [0, 1].map(|i| weight.shape.get(i).copied().unwrap_or(1));
        let [height, width] = match scales {
            WeightScales::Tensor => [rows.total, inputs],
            WeightScales::Channel => [1, inputs],
            WeightScales::Group(size) => [1, size],
            WeightScales::Block(sides) => sides,
        };
        let expected = vec![rows.total.div_ceil(height), inputs.div_ceil(width)];
        let right = match scales {
            WeightScales::Tensor => scale.shape.is_empty() || scale.shape == [1],
            WeightScales::Channel => scale.shape == expected || scale.shape == [rows.total],
            WeightScales::Group(_) => scale.shape == expected,
            // ModelOpt writes the latter.
            WeightScales::Block(_) => scale.shape == expected || scale.shape == [expected[0], 1, expected[1], 1],
        };
        if !right {
            let expected = if scales == WeightScales::Tensor { vec![1] } else { expected };
            let because = format!("weights {scales} by {place}");
            return Err(self.wrong_shape(&scale, expected, because));
        }
        if weight.dtype == DType::F8_E4M3 && width < inputs && !width.is_multiple_of(BLOCK) {
            return Err(Error::Quantization {
                file: self.file_of(weight).into(),
                scheme: format!("blocks of {width} inputs (tensor {})", weight.name),
                why: format!("the inputs of a block that are multiplied together are a multiple of {BLOCK}"),
            });
        }
        match (weight.dtype, scale.dtype) {
            (DType::F8_E4M3, DType::F8_E8M0) => {}
            (DType::F8_E4M3, _) => self.check_float(&scale, "F32, F16, BF16 or F8_E8M0 (scales)")?,
            _ => self.check_float(&scale, "F32, F16 or BF16 (scales)")?,
        }
        let first = rows.before / height;
        let shape = vec![(rows.before + outputs).div_ceil(height) - first, expected[1]];
        Ok(FloatScales {
            scale: rows_of(scale, first, expected[0], shape),
            block: [height, width].map(|side| side as usize),
            before: (rows.before % height) as usize,
        })
    }

    /// What is stored for the activations of a module: nothing unless they are static.
    fn activation_parts(&mut self, place: &str, activations: Activations, module: &str) -> Result<Int8Activations> {
        let [scale, zero_point] = ["input_scale", "input_zero_point"].map(|suffix| format!("{module}.{suffix}"));
        let says = format!("{place} says activations {activations}");
        let wanted = match activations {
            Activations::Static { zero_point, .. } => [true, zero_point.is_some()],
            Activations::PerToken { .. } | Activations::PerTensor { .. } => [false, false],
        };
        for (name, wanted) in [&scale, &zero_point].into_iter().zip(wanted) {
            let stored = self.stores(name);
            if stored != wanted {
                let found = if stored { "is stored" } else { "is missing" };
                return Err(self.conflict(says, format!("tensor {name} {found}")));
            }
        }
        Ok(match activations {
            Activations::PerToken { symmetric } => Int8Activations::PerToken { symmetric },
            Activations::PerTensor { symmetric } => Int8Activations::PerTensor { symmetric },
            Activations::Static { zero_point: wanted, .. } => {
                let scale = self.single(&scale, &says)?;
                self.check_float(&scale, "F32, F16 or BF16 (scales)")?;
                let zero_point = wanted.map(|()| self.single(&zero_point, &says)).transpose()?;
                if let Some(zero_point) = &zero_point
                    && zero_point.dtype != DType::I8
                {
                    return Err(self.wrong_dtype(zero_point, "I8"));
                }
                Int8Activations::Static { scale, zero_point }
            }
        })
    }

    /// The tensor `name` of one element, as `[1]`.
    pub(super) fn single(&mut self, name: &str, because: &str) -> Result<TensorInfo> {
        let Some(tensor) = self.table.get(name).cloned() else {
            return Err(self.reader.absent_tensor(name, Vec::new()));
        };
        if elements([&tensor]) != 1 {
            return Err(self.wrong_shape(&tensor, vec![1], because.to_owned()));
        }
        self.used.insert(name.to_owned());
        Ok(TensorInfo { shape: vec![1], ..tensor })
    }

    /// What the file of the scheme says, and what is stored.
    pub(super) fn conflict(&self, one: String, other: String) -> Error {
        match self.scheme {
            Some(scheme) => Error::contradiction(&scheme.file, one, other),
            None => self.reader.contradiction(one, other),
        }
    }
}
