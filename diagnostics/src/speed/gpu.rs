//! How long a GPU takes for a pass: bytes over bandwidth if that takes longest, else instructions over the issue rate,
//! and launches.

use crate::header::TensorInfo;
use crate::plan::{KvDtype, PREFILL_CHUNK, gpu_launches, kv_bytes_read};
use crate::spec::ModelSpec;
use model_factory_dtypes::DType;
use std::sync::LazyLock;

/// A GPU by its data sheet: multiprocessors, boost clock, and multiply-adds a second of its tensor cores without
/// sparsity: of 16-bit floats accumulated in 32 bits, and of bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    name: &'static str,
    processors: f64,
    megahertz: f64,
    halves: f64,
    bytes: f64,
    /// The share of these rates that single-warp instructions reach (`mma.sync`), which the kernels use.
    warps: f64,
}

/// Rates by product name, from NVIDIA's data sheets of the T4, A10, L4, A100 and H100 (SXM), and the architecture
/// whitepaper of the RTX 4090: half of the operations that they count, as they count a multiply-add as two. The share
/// of single-warp instructions on an H100 was measured on an H800 (arXiv 2402.13499).
#[rustfmt::skip]
const RATES: &[Rates] = &[
    Rates { name: "Tesla T4",                processors:  40.0, megahertz: 1590.0, halves:  32.5e12, bytes:  65.0e12, warps: 1.0 },
    Rates { name: "NVIDIA A10",              processors:  72.0, megahertz: 1695.0, halves:  62.5e12, bytes: 125.0e12, warps: 1.0 },
    Rates { name: "NVIDIA L4",               processors:  58.0, megahertz: 2040.0, halves:  60.5e12, bytes: 121.0e12, warps: 1.0 },
    Rates { name: "NVIDIA A100-SXM4-40GB",   processors: 108.0, megahertz: 1410.0, halves: 156.0e12, bytes: 312.0e12, warps: 1.0 },
    Rates { name: "NVIDIA A100-SXM4-80GB",   processors: 108.0, megahertz: 1410.0, halves: 156.0e12, bytes: 312.0e12, warps: 1.0 },
    Rates { name: "NVIDIA H100 80GB HBM3",   processors: 132.0, megahertz: 1830.0, halves: 494.7e12, bytes: 989.5e12, warps: 0.63 },
    Rates { name: "NVIDIA GeForce RTX 4090", processors: 128.0, megahertz: 2520.0, halves:  82.6e12, bytes: 330.3e12, warps: 1.0 },
];

/// The assumptions for one end of a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Assumed {
    /// The share of the bandwidth that is reached.
    pub(super) memory: f64,
    /// The share of the issue rate that is reached. Loops wait for their loads and for each other's results; the best
    /// published figure for such loops is about eight tenths.
    issue: f64,
    /// The share of tensor-core and issue rate in products with many tokens and in their attention: tiles are fetched
    /// one or two stages before they are used, with a barrier a stage; blocks wait for weights, which another block
    /// next to them hides.
    many: f64,
    /// Seconds from the end of a kernel's work to the full speed of the next one's. In a graph about 0.5 us pass between
    /// kernels (NVIDIA, "Getting Started with CUDA Graphs", V100); the first loads of the next kernel take as long or longer.
    launch: f64,
}

/// The slow end and the fast end. Shares of memory are those of GPUs in general; the others are assumptions without a measurement.
pub(super) fn assumed((low, high): (f64, f64)) -> [Assumed; 2] {
    [
        Assumed { memory: low, issue: 0.4, many: 0.15, launch: 3e-6 },
        Assumed { memory: high, issue: 0.8, many: 0.6, launch: 1e-6 },
    ]
}

/// Instructions of a warp for each element of the cache and query of a key head's group of four or fewer, for one
/// token, counted by hand in the output of `sass.py --loops attention`: 730 of a block of four warps with one query
/// each, for 32 positions of 128 elements of keys and of values.
const ATTEND_ONE: f64 = 4.0 * 730.0 / (32.0 * 128.0 * 2.0);

/// The cost of a prompt's attention for each query, position that it sees and element of a head: instructions of a warp, and
/// multiplications and additions of tensor cores. Counted by hand in the loop of `attend_many` for heads of 128 elements in
/// `sass.py --loops`, 16 queries a warp; products are of two parts by one (F16), or by two without the two lesser parts (F32).
fn attend_many(kv: KvDtype, head_dim: usize) -> (f64, f64) {
    // Chosen like in `Attention::load`. The kernel for few rows takes 1508 instructions in the loops for four queries a
    // warp, and about 200 are assumed between them.
    if !head_dim.is_multiple_of(16) || head_dim > 128 {
        return (1700.0 / (4.0 * 32.0 * 128.0), 0.0);
    }
    match kv {
        KvDtype::F16 => (1154.0 / (16.0 * 64.0 * 128.0), 2.0 * 2.0),
        KvDtype::F32 | KvDtype::Q8_0 => (1235.0 / (16.0 * 32.0 * 128.0), 2.0 * 3.0),
    }
}

/// Schedulers of a multiprocessor, each of which issues an instruction a clock, for compute capability 7.0 to 9.0 (CUDA
/// C++ Programming Guide, "Compute Capabilities").
const SCHEDULERS: f64 = 4.0;

/// Rows of a warp in the kernels for one token (`ROWS` of `common.cuh`).
const ROWS: f64 = 2.0;

/// The compiled code of a dtype's products.
struct Compiled {
    dtype: DType,
    /// The kernel for one token: instructions that a warp issues in an iteration of the inner loop, its
    /// multiplications, and the instructions before and after the loop.
    few: [u32; 3],
    /// The kernel for many tokens: instructions and multiplications of an iteration.
    many: Option<[u32; 2]>,
}

/// The counts that `benches/cuda/sass.py --record` writes.
static COMPILED: LazyLock<Vec<Compiled>> = LazyLock::new(|| {
    let row = |line: &str| {
        let mut cells = line.split('\t');
        let name = cells.next()?;
        let dtype = DType::all().find(|dtype| dtype.name() == name)?;
        let numbers: Vec<u32> = cells.map_while(|cell| cell.parse().ok()).collect();
        let (few, many) = numbers.split_first_chunk()?;
        Some(Compiled { dtype, few: *few, many: many.first_chunk().copied() })
    };
    include_str!("compiled.tsv").lines().filter_map(row).collect()
});

impl Rates {
    pub(super) fn find(name: &str) -> Option<&'static Rates> {
        RATES.iter().find(|rates| rates.name == name)
    }

    /// Warp instructions issued a second.
    fn issued(&self) -> f64 {
        SCHEDULERS * self.processors * self.megahertz * 1e6
    }

    /// Seconds for a token that reads `cache` bytes of keys and values; `None` for a dtype without kernels.
    pub(super) fn token(&self, spec: &ModelSpec, kv: KvDtype, cache: u64, bandwidth: f64, by: Assumed) -> Option<f64> {
        let products = multiplied(spec).map(|matrix| {
            let issued = elements(matrix) * instructions(matrix)?.0 / (by.issue * self.issued());
            Some(issued.max(matrix.bytes as f64 / (by.memory * bandwidth)))
        });
        let products = products.sum::<Option<f64>>()?;
        let cached = cache as f64 / kv_element(kv) * ATTEND_ONE / (by.issue * self.issued());
        let attention = cached.max(cache as f64 / (by.memory * bandwidth));
        Some(products + attention + by.launch * gpu_launches(spec) as f64)
    }

    /// Seconds for a prompt of [`PREFILL_CHUNK`] tokens into an empty cache; `None` if products have no tensor cores.
    pub(super) fn prompt(&self, spec: &ModelSpec, kv: KvDtype, bandwidth: f64, by: Assumed) -> Option<f64> {
        let tokens = PREFILL_CHUNK as f64;
        let layers = spec.weights.layers.iter().flat_map(|layer| layer.linears()).map(|linear| &linear.weight);
        let products = layers.map(|matrix| {
            let macs = tokens * elements(matrix);
            let peak = if matches!(matrix.dtype, DType::F16 | DType::BF16) { self.halves } else { self.bytes };
            let peak = peak * self.warps;
            let issued = macs * instructions(matrix)?.1? / self.issued();
            Some((issued.max(macs / peak) / by.many).max(matrix.bytes as f64 / (by.memory * bandwidth)))
        });
        let products = products.sum::<Option<f64>>()?;
        // Every query sees the positions before it; a pair of them takes as many elements as a token has of keys and values.
        let seen =
            kv_bytes_read(spec, 1, kv) as f64 / kv_element(kv) / 2.0 * (spec.heads / spec.kv_heads.max(1)) as f64;
        let (issued, macs) = attend_many(kv, spec.head_dim);
        let each = (issued / self.issued()).max(macs / (self.halves * self.warps)) / by.many;
        let attention = seen * tokens * tokens / 2.0 * each;
        Some(products + attention + by.launch * gpu_launches(spec) as f64)
    }
}

/// The matrices that a token is multiplied with.
fn multiplied(spec: &ModelSpec) -> impl Iterator<Item = &TensorInfo> {
    spec.matrices().skip(1) // the embedding, of which a row is read; a tied head is listed again
}

fn elements(matrix: &TensorInfo) -> f64 {
    matrix.shape.iter().product::<u64>() as f64
}

fn kv_element(kv: KvDtype) -> f64 {
    kv.head_bytes(256) as f64 / 256.0
}

/// Instructions of a warp for each weight: for one token, and for each of many tokens.
fn instructions(matrix: &TensorInfo) -> Option<(f64, Option<f64>)> {
    let Compiled { few: [issued, macs, around], many, .. } =
        COMPILED.iter().find(|compiled| compiled.dtype == matrix.dtype)?;
    let weights = ROWS * *matrix.shape.last()? as f64;
    let turns = (weights / f64::from(*macs)).ceil();
    let few = (turns * f64::from(*issued) + f64::from(*around)) / weights;
    Some((few, many.map(|[issued, macs]| f64::from(issued) / f64::from(macs))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::profiles::PROFILES;

    #[test]
    fn counts_are_the_recorded_ones() {
        let record = include_str!("../../../benches/cuda/sass.tsv");
        let rows: Vec<Vec<&str>> = record.lines().map(|line| line.split('\t').collect()).collect();
        let at = |column: &str| rows[1].iter().position(|name| *name == column).expect("a column");
        let found = |module: &str, kernel: &str| {
            let row = rows.iter().find(|row| row.len() > 2 && row[..3] == [module, "80", kernel])?;
            Some(["issued", "macs", "around"].map(|column| row[at(column)].parse::<u32>().expect("a number")))
        };
        for Compiled { dtype, few, many } in COMPILED.iter() {
            let module = dtype.name().to_lowercase();
            assert_eq!(found(&module, "few_1"), Some(*few), "{dtype}");
            assert_eq!(found(&module, "many_128").map(|[issued, macs, _]| [issued, macs]), *many, "{dtype}");
        }
        assert_eq!(COMPILED.len(), 14, "the dtypes with kernels");
    }

    #[test]
    fn rates_are_those_of_profiles() {
        let named =
            |rates: &Rates| PROFILES.iter().any(|profile| profile.gpu().is_some_and(|gpu| gpu.name == rates.name));
        assert!(RATES.iter().all(named));
    }
}
