//! Kernels in bytes of weight per second (one token), next to a plain read of the same bytes, and in operations per second
//! (many tokens), next to what their multiply instruction does only in registers; attention of one token in bytes of cache
//! per second; the pool's hand-over; the operations on rows.
//!
//! One token: `cargo bench --bench kernels -- decode`, its attention: `-- context`. Two operations (multiply, add) count for each weight and token.
//! Environment: `BENCH_THREADS` (default 2), `BENCH_MIB` of weights or cache (default 128, more than the caches hold),
//! `BENCH_INPUTS` columns of the weights (default 2048).

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../examples/bench/peak.rs"]
mod peak;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use half::f16;
use model_factory::kernels::{
    self, BlockScales, Floats, Gain, Input, Isa, Kernel, KvElement, KvTile, Query, RunScales, Scoring, TILE,
};
use model_factory::threads::Pool;
use model_factory_diagnostics::DType;
use model_factory_diagnostics::plan::KV_PAGE;
use std::hint::black_box;
use std::time::Duration;

/// Heads of keys and values.
const KV_HEADS: usize = 8;

const SCORING: Scoring = Scoring { scale: 0.125, cap: None, first: 0 };

/// The length of a row, 5632 or 2880 (with dtypes of 32 elements) for one whose end is no whole step of the products.
fn inputs() -> usize {
    setting("BENCH_INPUTS", 2048)
}

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Numbers that look random.
fn random() -> impl FnMut() -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Rows of small finite numbers, whatever the dtype: bytes below 0x3c in the places of sign and exponent.
fn weights(dtype: DType, bytes: usize) -> Vec<u8> {
    let mut next = random();
    let mut weights: Vec<u8> = (0..bytes / 8).flat_map(|_| next().to_le_bytes()).collect();
    for block in weights.chunks_mut(dtype.block_bytes()) {
        match dtype {
            DType::F32 => block[3] = 0x3c,
            DType::F16 | DType::BF16 | DType::Q4_0 | DType::Q5_0 | DType::Q8_0 => block[1] = 0x3c,
            DType::Q1_0 | DType::Q2_0 => block[1] = 0x3c,
            DType::Q4_1 | DType::Q5_1 | DType::Q4_K | DType::Q5_K => (block[1], block[3]) = (0x3c, 0x3c),
            DType::Q2_K => (block[81], block[83]) = (0x3c, 0x3c),
            DType::Q3_K => block[109] = 0x3c,
            DType::Q6_K => block[209] = 0x3c,
            DType::IQ4_NL | DType::IQ4_XS | DType::IQ3_S | DType::IQ3_XXS | DType::IQ2_S => block[1] = 0x3c,
            DType::IQ2_XS | DType::IQ2_XXS | DType::IQ1_S => block[1] = 0x3c,
            DType::IQ1_M => block[55] = 0x3c, // the top nibble is the scale's
            DType::TQ1_0 => block[53] = 0x3c,
            DType::TQ2_0 => block[65] = 0x3c,
            DType::MXFP4 => block[0] = 0x7c, // an exponent
            DType::NVFP4 => block[..4].fill(0x3c),
            DType::I8 | DType::S8 | DType::F4 | DType::NF4 | DType::FP4 => {} // any byte
            DType::U2 | DType::U3 | DType::U4 | DType::U5 | DType::U6 | DType::U8 => {}
            DType::F8_E4M3 => block[0] &= 0xbf, // no NaN
            other => panic!("no benchmark for {other}"),
        }
    }
    weights
}

/// A sum that reads every byte once.
fn read(pool: &Pool, bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    let chunk = 16 << 10;
    let sum = std::sync::atomic::AtomicU64::new(0);
    pool.run(words.len().div_ceil(chunk), &|task| {
        let words = &words[task * chunk..words.len().min((task + 1) * chunk)];
        let mut lanes = [0u64; 32];
        for words in words.as_chunks::<32>().0 {
            for (lane, word) in lanes.iter_mut().zip(words) {
                *lane = lane.wrapping_add(u64::from_le_bytes(*word));
            }
        }
        sum.fetch_add(lanes.iter().fold(0, |a, &b| a.wrapping_add(b)), std::sync::atomic::Ordering::Relaxed);
    });
    sum.into_inner()
}

/// The kernels for `dtype` on all instruction sets of this machine, the portable one left out.
fn kernels_for(dtype: DType) -> Vec<(Kernel, Isa)> {
    let mut kernels: Vec<(Kernel, Isa)> = Vec::new();
    for isa in Isa::available().into_iter().rev().filter(|&isa| isa != Isa::portable()) {
        let kernel = Kernel::select(dtype, isa).unwrap();
        if kernels.iter().all(|(known, _)| known.name != kernel.name) {
            kernels.push((kernel, isa));
        }
    }
    kernels
}

/// Inputs that share a scale in packed weights.
const GROUP: usize = 128;

/// Weights that share a scale in tables of 4 bits.
const RUN: usize = 64;

/// The product in the longest tasks that the engine cuts, each with outputs of its own.
fn multiply(pool: &Pool, kernel: Kernel, weight: &[u8], input: &Input, y: &mut [f32]) {
    let row_bytes = kernel.row_bytes(input.inputs());
    let tokens = y.len() * row_bytes / weight.len();
    let step = kernel.rows_per_task(weight.len(), input.inputs(), tokens, pool.threads());
    // The scales of a task lie in the cache: what is read of memory is less than in a model, by a 17th in F4.
    let scales = match kernel.dtype {
        DType::F4 => vec![117; step * row_bytes / 16],
        DType::NF4 | DType::FP4 => 0.01f32.to_le_bytes().repeat(step * input.inputs() / RUN),
        DType::U2 | DType::U3 | DType::U4 | DType::U5 | DType::U6 | DType::U8 | DType::S8 | DType::F8_E4M3 => {
            0.01f32.to_le_bytes().repeat(step * input.inputs() / GROUP)
        }
        _ => Vec::new(),
    };
    pool.chunks(y, step * tokens, |task, y| {
        let bytes = y.len() / tokens * row_bytes;
        let rows = &weight[task * step * row_bytes..][..bytes];
        let done = match kernel.dtype {
            DType::F4 => kernel.matmul_scaled(rows, BlockScales::Powers(&scales[..bytes / 16]), input, y),
            DType::NF4 | DType::FP4 => {
                let scales = RunScales::Floats(Floats::new(DType::F32, &scales).unwrap());
                kernel.matmul_scaled(rows, BlockScales::Runs { size: RUN, before: 0, scales }, input, y)
            }
            DType::U2 | DType::U3 | DType::U4 | DType::U5 | DType::U6 | DType::U8 | DType::S8 => {
                let scales = &scales[..bytes / row_bytes * input.inputs() / GROUP * 4];
                let scales = Floats::new(DType::F32, scales).unwrap();
                let scales = match kernel.dtype {
                    DType::U4 | DType::U8 | DType::S8 => BlockScales::Floats { group: GROUP, scales },
                    _ => BlockScales::Affine { group: GROUP, scales, biases: scales },
                };
                kernel.matmul_scaled(rows, scales, input, y)
            }
            DType::F8_E4M3 => {
                let scales = &scales[..(bytes / row_bytes).div_ceil(GROUP) * input.inputs().div_ceil(GROUP) * 4];
                let scales = Floats::new(DType::F32, scales).unwrap();
                let scales = BlockScales::Rectangles { sides: [GROUP; 2], before: 0, scales };
                kernel.matmul_scaled(rows, scales, input, y)
            }
            _ => kernel.matmul(rows, input, y),
        };
        assert!(done.is_ok(), "out of memory");
    });
}

fn decode(criterion: &mut Criterion) {
    let pool = Pool::new(setting("BENCH_THREADS", 2));
    let x: Vec<f32> = (0..inputs()).map(|i| (i as f32 * 0.37).sin()).collect();
    let mut group = criterion.benchmark_group("decode");
    for dtype in Kernel::dtypes() {
        let Some(row_bytes) = dtype.bytes_of(inputs() as u64).map(|bytes| bytes as usize) else { continue };
        let rows = (setting("BENCH_MIB", 128) << 20) / row_bytes;
        let weight = weights(dtype, rows * row_bytes);
        let mut y = vec![0.0; rows];
        group.throughput(Throughput::Bytes(weight.len() as u64));
        group.bench_function(BenchmarkId::new("read", dtype), |bencher| {
            bencher.iter(|| black_box(read(&pool, black_box(&weight))));
        });
        for (kernel, isa) in kernels_for(dtype) {
            let input = Input::prepare(isa, kernel.form, &x, inputs());
            group.bench_function(BenchmarkId::new("product", kernel.name), |bencher| {
                bencher.iter(|| multiply(&pool, kernel, black_box(&weight), &input, &mut y));
            });
        }
    }
}

/// One token's queries, a `group` of them for each of 8 heads of keys and values, on a cache in pages as the decoder's.
fn attend<E: KvElement>(pool: &Pool, isa: Isa, group: usize, head_dim: usize, cache: &[E], q: &[f32], out: &mut [f32]) {
    let len = E::tile_len(head_dim);
    let pages: Vec<&[E]> = cache.chunks_exact(2 * KV_HEADS * KV_PAGE / TILE * len).collect();
    let tiles = pages.len() * KV_PAGE / TILE;
    pool.chunks(out, group * head_dim, |head, out| {
        let q = &q[head * group * head_dim..][..group * head_dim];
        let queries = q.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim));
        let mut queries: Vec<Query<'_>> = queries.map(|(q, out)| Query::new(q, out)).collect();
        let tile = |index: usize| {
            let (page, index) = (pages[index * TILE / KV_PAGE], index % (KV_PAGE / TILE));
            let of = |head: usize| &page[(head * KV_PAGE / TILE + index) * len..][..len];
            KvTile { keys: of(head), values: of(KV_HEADS + head) }
        };
        for index in 0..tiles {
            let then = Some(tile((index + 1).min(tiles - 1)));
            kernels::attend(isa, &mut queries, tile(index), 0..TILE, then, SCORING);
        }
        queries.into_iter().for_each(Query::finish);
    });
}

fn context_of<E: KvElement>(criterion: &mut Criterion, name: &str, narrow: impl Fn(f32) -> E) {
    let pool = Pool::new(setting("BENCH_THREADS", 2));
    let mut group = criterion.benchmark_group(format!("context {name}"));
    let bytes = setting("BENCH_MIB", 128) << 20;
    let cache: Vec<E> = (0..bytes / size_of::<E>()).map(|i| narrow((i % 1999) as f32 * 1e-3 - 1.0)).collect();
    let plain = vec![1; bytes];
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function("read", |bencher| bencher.iter(|| black_box(read(&pool, black_box(&plain)))));
    for isa in Isa::available().into_iter().filter(|isa| ["avx512-vnni", "avx512", "avx2"].contains(&isa.name())) {
        for (queries, head_dim) in [(1, 128), (4, 64), (4, 128), (8, 64)] {
            let q: Vec<f32> = (0..KV_HEADS * queries * head_dim).map(|i| (i as f32 * 0.37).sin()).collect();
            let mut out = vec![0.0; q.len()];
            group.bench_function(BenchmarkId::new(format!("{queries}x{head_dim}"), isa), |bencher| {
                bencher.iter(|| attend(&pool, isa, queries, head_dim, black_box(&cache), &q, &mut out));
            });
        }
    }
}

fn context(criterion: &mut Criterion) {
    context_of(criterion, "f32", |x| x);
    context_of(criterion, "f16", f16::from_f32);
    // Bytes of one value are an even number and a small scale alike.
    context_of(criterion, "q8_0", |_| 0x11u8);
}

/// The ceilings of `kernel` by `threads` threads: its multiply instruction, and that with the scales of blocks, if measured.
fn ceilings(group: &mut BenchmarkGroup<'_, WallTime>, kernel: Kernel, threads: usize) {
    const OPERATIONS: u64 = 1_000_000_000;
    let peak = |kernel, time, scales| if scales { peak::block_peak(kernel, time) } else { peak::peak(kernel, time) };
    for (name, scales) in [("peak", false), ("peak with scales", true)] {
        if peak(&kernel, Duration::ZERO, scales).is_none() {
            continue;
        }
        group.throughput(Throughput::Elements(OPERATIONS));
        group.bench_function(BenchmarkId::new(name, kernel.name), |bencher| {
            bencher.iter_custom(|times| {
                let measure = || peak(&kernel, Duration::from_millis(20), scales).unwrap();
                let speed: f64 = std::thread::scope(|scope| {
                    let threads: Vec<_> = (0..threads).map(|_| scope.spawn(measure)).collect();
                    threads.into_iter().map(|thread| thread.join().unwrap()).sum()
                });
                Duration::from_secs_f64((times * OPERATIONS) as f64 / speed)
            });
        });
    }
}

fn prefill(criterion: &mut Criterion) {
    let pool = Pool::new(setting("BENCH_THREADS", 2));
    let mut group = criterion.benchmark_group("prefill");
    for dtype in Kernel::dtypes() {
        for (kernel, _) in kernels_for(dtype) {
            ceilings(&mut group, kernel, pool.threads());
        }
        for (inputs, rows) in [(2048, 5632), (5632, 2048)] {
            let weight = weights(dtype, rows * dtype.bytes_of(inputs as u64).unwrap() as usize);
            for tokens in [2, 8, 64, 256] {
                let x: Vec<f32> = (0..tokens * inputs).map(|i| (i as f32 * 0.37).sin()).collect();
                let mut y = vec![0.0; rows * tokens];
                group.throughput(Throughput::Elements((2 * rows * inputs * tokens) as u64));
                for (kernel, isa) in kernels_for(dtype) {
                    let input = Input::prepare(isa, kernel.form, &x, inputs);
                    let shape = format!("{inputs}x{rows}/{tokens}");
                    group.bench_function(BenchmarkId::new(kernel.name, shape), |bencher| {
                        bencher.iter(|| multiply(&pool, kernel, black_box(&weight), &input, &mut y));
                    });
                }
            }
        }
    }
}

fn hand_over(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pool");
    let threads = setting("BENCH_THREADS", 2);
    let pool = Pool::new(threads);
    group.bench_function("hot", |bencher| {
        bencher.iter(|| pool.run(threads, &|index| _ = black_box(index)));
    });
    // Each task waits for the other: what it takes until all threads are in the region.
    group.bench_function("rendezvous", |bencher| {
        bencher.iter(|| {
            let arrived = std::sync::atomic::AtomicUsize::new(0);
            pool.run(threads, &|_| {
                arrived.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
                while arrived.load(std::sync::atomic::Ordering::Acquire) < threads {
                    std::hint::spin_loop();
                }
            });
        });
    });
    group.bench_function("parked", |bencher| {
        bencher.iter_custom(|times| {
            let mut total = Duration::ZERO;
            for _ in 0..times {
                std::thread::sleep(Duration::from_micros(500));
                let start = std::time::Instant::now();
                pool.run(threads, &|index| _ = black_box(index));
                total += start.elapsed();
            }
            total
        });
    });
}

fn rows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rows");
    let x: Vec<f32> = (0..inputs()).map(|i| (i as f32 * 0.37).sin()).collect();
    let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut out = vec![0.0; inputs()];
    for isa in Isa::available() {
        group.throughput(Throughput::Elements(inputs() as u64));
        group.bench_function(BenchmarkId::new("rms_norm", isa), |bencher| {
            let weight = Floats::new(DType::F32, &bytes).unwrap();
            bencher.iter(|| kernels::rms_norm(isa, black_box(&x), Gain::Stored(weight), 1e-5, &mut out));
        });
        group.bench_function(BenchmarkId::new("swiglu", isa), |bencher| {
            bencher.iter(|| kernels::swiglu(isa, black_box(&x), &x, &mut out));
        });
        for form in [kernels::Form::Bf16, kernels::Form::Q8] {
            let (pool, mut input) = (Pool::new(1), Input::new());
            group.bench_function(BenchmarkId::new(format!("prepare {form:?}"), isa), |bencher| {
                bencher.iter(|| input.convert(&pool, isa, form, black_box(&x), inputs()));
            });
        }
        // 128 queries of 64 on 512 keys, as 16 rows of 8 heads.
        let (head_dim, queries, keys) = (64, 128, 512);
        let cache: Vec<f32> = (0..keys * head_dim).map(|i| (i as f32 * 0.73).sin()).collect();
        let q: Vec<f32> = (0..queries * head_dim).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut out = vec![0.0; queries * head_dim];
        group.throughput(Throughput::Elements((4 * queries * keys * head_dim) as u64));
        group.bench_function(BenchmarkId::new("attend 128x512x64", isa), |bencher| {
            bencher.iter(|| {
                let heads = q.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim));
                let mut queries: Vec<Query<'_>> = heads.map(|(q, out)| Query::new(q, out)).collect();
                for tile in black_box(&cache).chunks_exact(TILE * head_dim) {
                    let tile = KvTile { keys: tile, values: tile };
                    kernels::attend(isa, &mut queries, tile, 0..TILE, None, SCORING);
                }
                queries.into_iter().for_each(Query::finish);
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = hand_over, rows, decode, context, prefill
}
criterion_main!(benches);
