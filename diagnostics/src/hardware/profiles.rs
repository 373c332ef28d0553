//! Machines described as data, so that a model can be judged for a machine that is not there.

mod arm;

use super::{Cpu, Gpu, Hardware};

/// A machine by name.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// What `--device` takes: lower case with hyphens.
    pub name: &'static str,
    /// The machine in words.
    pub title: &'static str,
    /// Instruction sets as [`Cpu::features`] names them.
    pub features: &'static [&'static str],
    /// Threads.
    pub threads: usize,
    /// How many of them run on cores of less than half the speed of others.
    pub slow_threads: usize,
    /// Bytes of main memory.
    pub memory: u64,
    /// Bytes a second of main memory, by the data sheet; `None` of a kind of machine.
    pub bandwidth: Option<u64>,
    /// Its GPU.
    pub gpu: Option<GpuProfile>,
}

/// A GPU by name.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct GpuProfile {
    /// The product name.
    pub name: &'static str,
    /// Major and minor compute capability.
    pub compute_capability: (u32, u32),
    /// Bytes of device memory.
    pub memory: u64,
    /// Bytes a second of device memory, by the data sheet.
    pub bandwidth: u64,
    /// Whether its memory is the machine's.
    pub shared_memory: bool,
    /// The newest CUDA version that its drivers run; `None` while new ones come.
    pub cuda: Option<(u32, u32)>,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const AVX2: &[&str] = &["avx", "avx2", "fma", "f16c"];
const AVX512: &[&str] = &["avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"];
#[rustfmt::skip]
const AVX512_VNNI_BF16: &[&str] = &[
    "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16",
];
const AVX_VNNI: &[&str] = &["avx", "avx2", "fma", "f16c", "avxvnni"];
/// ARMv8.0, ARMv8.2 without its dot product, with it, and ARMv8.6.
const NEON_8_0: &[&str] = &["neon"];
const NEON_FP16: &[&str] = &["neon", "fp16"];
const NEON: &[&str] = &["neon", "fp16", "dotprod"];
const NEON_BF16: &[&str] = &["neon", "fp16", "dotprod", "i8mm", "bf16"];

/// The processors beside a GPU: enough to load a model onto it.
const HOST: u64 = 64 * GIB;

/// Every profile. `cpu-Ngb` is any processor, without a vector instruction set to rely on.
///
/// Memory of a GPU is the total that nvidia-smi shows, with ECC where the GPU comes with it on: less than what is sold (a
/// Tesla P40 of 24576 MiB has 22919 left). Memory of processors and Jetson modules is as sold. Bandwidth is the width of the memory bus times its data rate, as the makers' data sheets and product
/// briefs give it (NVIDIA for GPUs and Jetson modules, AMD and Intel for processors: channels x data rate x 8 bytes), of
/// the SXM form where there are several. Arm machines have a table of their own, `profiles/arm.rs`.
/// Jetson modules end with the CUDA version of their last JetPack (4.6, 5.1 with NVIDIA's upgrade package).
pub const PROFILES: &[Profile] = &joined::<{ MACHINES.len() + arm::MACHINES.len() }>(MACHINES, arm::MACHINES);

#[rustfmt::skip]
const MACHINES: &[Profile] = &[
    cpu("cpu-2gb",          "any CPU, 2 GiB",                                 &[],               2,    2, None),
    cpu("cpu-4gb",          "any CPU, 4 GiB",                                 &[],               4,    4, None),
    cpu("cpu-8gb",          "any CPU, 8 GiB",                                 &[],               4,    8, None),
    cpu("cpu-16gb",         "any CPU, 16 GiB",                                &[],               8,   16, None),
    cpu("cpu-32gb",         "any CPU, 32 GiB",                                &[],               8,   32, None),
    cpu("cpu-avx2-16gb",    "laptop with AVX2 (Haswell or Zen and later)",    AVX2,              8,   16, None),
    cpu("cpu-avx512-64gb",  "server with AVX-512 (Skylake-SP)",               AVX512,           32,   64, None),
    cpu("cpu-bf16-64gb",    "AVX-512 with VNNI and BF16 (Zen 4)",             AVX512_VNNI_BF16, 16,   64, None),
    cpu("cpu-bf16-512gb",   "large server (Sapphire Rapids, Genoa)",          AVX512_VNNI_BF16, 64,  512, None),
    cpu("ryzen-7950x",      "AMD Ryzen 9 7950X, DDR5-5200",                   AVX512_VNNI_BF16, 32,   64, Some(83.2)),
    cpu("epyc-9654",        "AMD EPYC 9654, DDR5-4800",                       AVX512_VNNI_BF16, 192, 768, Some(460.8)),
    cpu("xeon-8480",        "Intel Xeon Platinum 8480+, DDR5-4800",           AVX512_VNNI_BF16, 112, 512, Some(307.2)),
    cpu("core-i7-12700",    "Intel Core i7-12700, DDR5-4800",                 AVX_VNNI,         20,   32, Some(76.8)),
    cpu("cpu-neon-8gb",     "small ARM machine, 8 GiB",                       NEON,              4,    8, None),
    cpu("cpu-neon-16gb",    "ARM laptop, 16 GiB",                             NEON,              8,   16, None),
    cpu("raspberry-pi-5",   "Raspberry Pi 5, 8 GiB",                          NEON,              4,    8, Some(17.1)),
    cpu("graviton3-64gb",   "AWS Graviton 3",                                 NEON_BF16,        32,   64, None),

    //    name                product                              capability    MiB   GB/s
    gpu("gtx-980",          "NVIDIA GeForce GTX 980",                 5, 2,   4096,  224.0),
    gpu("gtx-980-ti",       "NVIDIA GeForce GTX 980 Ti",              5, 2,   6144,  336.5),
    gpu("m40",              "Tesla M40 24GB",                         5, 2,  22945,  288.0),
    jetson("jetson-nano",    "Jetson Nano",                            5, 3,    4,   25.6, (10, 2), NEON_8_0, 4),
    gpu("p100",             "Tesla P100-SXM2-16GB",                   6, 0,  16384,  732.0),
    gpu("gtx-1050-ti",      "NVIDIA GeForce GTX 1050 Ti",             6, 1,   4096,  112.0),
    gpu("gtx-1060",         "NVIDIA GeForce GTX 1060 6GB",            6, 1,   6144,  192.0),
    gpu("gtx-1080",         "NVIDIA GeForce GTX 1080",                6, 1,   8192,  320.0),
    gpu("gtx-1080-ti",      "NVIDIA GeForce GTX 1080 Ti",             6, 1,  11264,  484.0),
    gpu("p4",               "Tesla P4",                               6, 1,   7611,  192.0),
    gpu("p40",              "Tesla P40",                              6, 1,  22919,  346.0),
    jetson("jetson-tx2",     "Jetson TX2",                             6, 2,    8,   59.7, (10, 2), NEON_8_0, 6),
    gpu("v100-16gb",        "Tesla V100-SXM2-16GB",                   7, 0,  16384,  900.0),
    gpu("v100-32gb",        "Tesla V100-SXM2-32GB",                   7, 0,  32768,  900.0),
    jetson("jetson-xavier-nx",  "Jetson Xavier NX",                    7, 2,    8,   59.7, (12, 2), NEON_FP16, 6),
    jetson("jetson-agx-xavier", "Jetson AGX Xavier",                   7, 2,   32,  136.5, (12, 2), NEON_FP16, 8),
    gpu("gtx-1660-super",   "NVIDIA GeForce GTX 1660 SUPER",          7, 5,   6144,  336.0),
    gpu("rtx-2060",         "NVIDIA GeForce RTX 2060",                7, 5,   6144,  336.0),
    gpu("rtx-2080-ti",      "NVIDIA GeForce RTX 2080 Ti",             7, 5,  11264,  616.0),
    gpu("t4",               "Tesla T4",                               7, 5,  15360,  320.0),
    gpu("a30",              "NVIDIA A30",                             8, 0,  24576,  933.0),
    gpu("a100-40gb",        "NVIDIA A100-SXM4-40GB",                  8, 0,  40960, 1555.0),
    gpu("a100-80gb",        "NVIDIA A100-SXM4-80GB",                  8, 0,  81920, 2039.0),
    gpu("rtx-3060",         "NVIDIA GeForce RTX 3060",                8, 6,  12288,  360.0),
    gpu("rtx-3070",         "NVIDIA GeForce RTX 3070",                8, 6,   8192,  448.0),
    gpu("rtx-3080",         "NVIDIA GeForce RTX 3080",                8, 6,  10240,  760.0),
    gpu("rtx-3090",         "NVIDIA GeForce RTX 3090",                8, 6,  24576,  936.0),
    gpu("a10",              "NVIDIA A10",                             8, 6,  23028,  600.0),
    gpu("a40",              "NVIDIA A40",                             8, 6,  46068,  696.0),
    gpu("rtx-a6000",        "NVIDIA RTX A6000",                       8, 6,  49140,  768.0),
    jetson("jetson-orin-nano", "Jetson Orin Nano 8GB",                 8, 7,    8,   68.0, (12, 6), NEON, 6),
    jetson("jetson-orin-nx",   "Jetson Orin NX 16GB",                  8, 7,   16,  102.4, (12, 6), NEON, 8),
    jetson("jetson-agx-orin",  "Jetson AGX Orin 64GB",                 8, 7,   64,  204.8, (12, 6), NEON, 12),
    gpu("rtx-4060",         "NVIDIA GeForce RTX 4060",                8, 9,   8188,  272.0),
    gpu("rtx-4060-ti-16gb", "NVIDIA GeForce RTX 4060 Ti",             8, 9,  16380,  288.0),
    gpu("rtx-4070",         "NVIDIA GeForce RTX 4070",                8, 9,  12282,  504.0),
    gpu("rtx-4080",         "NVIDIA GeForce RTX 4080",                8, 9,  16376,  716.8),
    gpu("rtx-4090",         "NVIDIA GeForce RTX 4090",                8, 9,  24564, 1008.0),
    gpu("l4",               "NVIDIA L4",                              8, 9,  23034,  300.0),
    gpu("l40s",             "NVIDIA L40S",                            8, 9,  46068,  864.0),
    gpu("h100",             "NVIDIA H100 80GB HBM3",                  9, 0,  81559, 3350.0),
    gpu("h200",             "NVIDIA H200",                            9, 0, 143771, 4800.0),
    Profile { features: NEON_BF16, threads: 72, ..gpu("gh200",            "NVIDIA GH200 96GB",                      9, 0,  97871, 4000.0) },
    gpu("b200",             "NVIDIA B200",                           10, 0, 183359, 8000.0),
    jetson("jetson-thor",    "Jetson AGX Thor",                       11, 0,  128,  273.0, (13, 0), NEON_BF16, 14),
    gpu("rtx-5060",         "NVIDIA GeForce RTX 5060",               12, 0,   8151,  448.0),
    gpu("rtx-5060-ti-16gb", "NVIDIA GeForce RTX 5060 Ti",            12, 0,  16311,  448.0),
    gpu("rtx-5070",         "NVIDIA GeForce RTX 5070",               12, 0,  12227,  672.0),
    gpu("rtx-5080",         "NVIDIA GeForce RTX 5080",               12, 0,  16303,  960.0),
    gpu("rtx-5090",         "NVIDIA GeForce RTX 5090",               12, 0,  32607, 1792.0),
    gpu("rtx-pro-6000",     "NVIDIA RTX PRO 6000 Blackwell",         12, 0,  97887, 1792.0),
    jetson("gb10",           "NVIDIA GB10",                           12, 1,  128,  273.0, (13, 0), NEON_BF16, 20),
];

const fn joined<const N: usize>(first: &[Profile], second: &[Profile]) -> [Profile; N] {
    let (mut all, mut i) = ([first[0]; N], 0);
    while i < N {
        all[i] = if i < first.len() { first[i] } else { second[i - first.len()] };
        i += 1;
    }
    all
}

const fn cpu(
    name: &'static str,
    title: &'static str,
    features: &'static [&'static str],
    threads: usize,
    memory_gib: u64,
    bandwidth: Option<f64>,
) -> Profile {
    let bandwidth = match bandwidth {
        Some(gb_s) => Some(bytes_a_second(gb_s)),
        None => None,
    };
    Profile { name, title, features, threads, slow_threads: 0, memory: memory_gib * GIB, bandwidth, gpu: None }
}

/// A GPU in a machine that can feed it.
const fn gpu(name: &'static str, title: &'static str, major: u32, minor: u32, mib: u64, gb_s: f64) -> Profile {
    let (compute_capability, bandwidth) = ((major, minor), bytes_a_second(gb_s));
    let gpu =
        GpuProfile { name: title, compute_capability, memory: mib * MIB, bandwidth, shared_memory: false, cuda: None };
    Profile { name, title, features: AVX2, threads: 8, slow_threads: 0, memory: HOST, bandwidth: None, gpu: Some(gpu) }
}

/// A machine whose processor and GPU share one memory.
#[allow(clippy::too_many_arguments)] // a row of the table
const fn jetson(
    name: &'static str,
    title: &'static str,
    major: u32,
    minor: u32,
    gib: u64,
    gb_s: f64,
    cuda: (u32, u32),
    features: &'static [&'static str],
    threads: usize,
) -> Profile {
    let (compute_capability, bandwidth, memory) = ((major, minor), bytes_a_second(gb_s), gib * GIB);
    let gpu = GpuProfile { name: title, compute_capability, memory, bandwidth, shared_memory: true, cuda: Some(cuda) };
    Profile { name, title, features, threads, slow_threads: 0, memory, bandwidth: None, gpu: Some(gpu) }
}

const fn bytes_a_second(gb_s: f64) -> u64 {
    (gb_s * 1e9) as u64
}

impl Profile {
    /// The profile of this name.
    pub fn find(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// The machine. A GPU is judged with a build that has its engine, whatever the hardware's `build` then says of this
    /// one.
    pub fn hardware(&'static self) -> Hardware {
        let cpu = Cpu {
            model: self.title.into(),
            features: self.features.to_vec(),
            threads: self.threads,
            slow_threads: self.slow_threads,
            missing: Vec::new(),
        };
        let gpus = self.gpu.iter().map(|gpu| Gpu {
            memory_total: (!gpu.shared_memory).then_some(gpu.memory),
            memory_free: (!gpu.shared_memory).then_some(gpu.memory - gpu.memory / 32),
            shared_memory: gpu.shared_memory,
            cuda: gpu.cuda,
            bandwidth: Some(gpu.bandwidth),
            ..Gpu::described(gpu.name, gpu.compute_capability, gpu.memory)
        });
        let mut hardware = Hardware::described(cpu, self.memory);
        hardware.memory.bandwidth = self.bandwidth;
        hardware.gpu_note = self.gpu.is_none().then(|| "none described".into());
        Hardware { profile: Some(self.name), gpus: gpus.collect(), ..hardware }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_lower_case_and_found() {
        let names: BTreeSet<_> = PROFILES.iter().map(|profile| profile.name).collect();
        assert_eq!(names.len(), PROFILES.len());
        for name in names {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'));
            assert_eq!(Profile::find(name).map(|profile| profile.hardware().profile), Some(Some(name)));
        }
        assert_eq!(Profile::find("cpu"), None);
    }
}
