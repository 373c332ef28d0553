// Attention over the pages of the cache. Two definitions stand before it: `DIM`, the elements of a head, and `HALVES`, 1 where
// keys and values are F16 and 0 where they are F32.

// Consecutive rows of one sequence, whose queries read keys and values together.
struct Queries {
    int first;
    int rows;
    int position;
    int pages;
};

struct Attend {
    u64 qkv;
    u64 out;
    u64 queries;
    u64 pages;
    // The result of each part of the positions: maximum, sum and weighted values, [rows, heads, parts, DIM + 2].
    u64 partial;
    // How many blocks have written theirs, of those with the same queries: zeros, which the last block leaves again.
    u64 arrived;
    int heads;
    int kv_heads;
    int layer;
    // Positions that a row attends to, including its own, or 0 for all.
    int window;
    int parts;
    // Query heads of one key head that a block takes at a time.
    int heads_a_block;
    float scale;
    int unused;
};

#define ATTEND_WARPS 4
#define ATTEND_THREADS (32 * ATTEND_WARPS)
#define MOST_QUERIES (4 * ATTEND_WARPS)
// The factor of scores, so that weights are powers of two.
#define LOG2_E 1.44269504f
// The most parts of the positions of a row.
#define MOST_PARTS 64

// Quads of elements of a row in shared memory, the last filled up with zeros, and the stride of rows. The stride is odd, so
// that the same quad of eight rows is in eight different groups of banks.
#define QUADS ((DIM + 3) / 4)
#define ROW_STRIDE (QUADS | 1)
// Quads of a row that each lane adds up.
#define QUADS_A_LANE ((QUADS + 31) / 32)

// 32 positions of keys or values of one head are contiguous in one page: whole lines of 16 bytes. Where quads lie within
// a row, each thread takes some lines.
#define QUADS_A_LINE (HALVES ? 2 : 1)
#define TILE_LINES (32 * DIM / (4 * QUADS_A_LINE))
#define LINES_A_THREAD ((TILE_LINES + ATTEND_THREADS - 1) / ATTEND_THREADS)
#define WHOLE_QUADS (DIM % 4 == 0)

// The address of the keys (0) or values (1) of a head from a position on, to the end of its page.
__device__ __forceinline__ u64 tile_address(const Attend& a, const u64* pages, int which, int head, int position) {
    u64 row = (((u64)a.layer * 2 + which) * a.kv_heads + head) * PAGE + position % PAGE;
    return load(pages + position / PAGE) + row * ((HALVES ? 2 : 4) * DIM);
}

// The query heads that a block takes, which share the keys of head `kv`.
struct HeadsOfBlock {
    int kv;
    int first;
    int count;
};

__device__ __forceinline__ HeadsOfBlock heads_of_block(const Attend& a) {
    int group = a.heads / a.kv_heads;
    int groups = (group + a.heads_a_block - 1) / a.heads_a_block;
    int kv = blockIdx.y / groups, first = blockIdx.y % groups * a.heads_a_block;
    return {kv, kv * group + first, group - first < a.heads_a_block ? group - first : a.heads_a_block};
}

// Tiles of positions, up to `last`.
struct Range {
    int first;
    int last;
};

// The tiles of this block's part of the positions.
__device__ __forceinline__ Range range_of_block(const Attend& a, const Queries& queries, int positions) {
    int end = (queries.position + queries.rows + positions - 1) / positions;
    int begin = a.window && queries.position + 1 > a.window ? (queries.position + 1 - a.window) / positions : 0;
    int each = (end - begin + a.parts - 1) / a.parts;
    int first = begin + (int)blockIdx.z * each;
    return {first, first + each < end ? first + each : end};
}

// The output address of the weighted values of a head of a row, and their factor.
struct Target {
    float* out;
    float factor;
};

// The target of head `head` of all rows, whose scores are at most `most` and whose weights have this sum; with several parts, these
// are written too, by the lane that `keeps`.
__device__ __forceinline__ Target target_of(const Attend& a, u64 head, float most, float sum, bool keeps) {
    if (a.parts == 1) {
        return {(float*)a.out + head * DIM, sum == 0.0f ? 0.0f : 1.0f / sum};
    }
    float* partial = (float*)a.partial + (head * a.parts + blockIdx.z) * (DIM + 2);
    if (keeps) {
        partial[0] = most;
        partial[1] = sum;
    }
    return {partial + 2, 1.0f};
}

// Begins to load this thread's lines of a tile.
__device__ __forceinline__ void fetch_tile(u64 from, uint4 (&held)[LINES_A_THREAD]) {
#pragma unroll
    for (int i = 0; i < LINES_A_THREAD; ++i) {
        int line = ATTEND_THREADS * i + threadIdx.x;
        if (WHOLE_QUADS && line < TILE_LINES) {
            held[i] = load((const uint4*)from + line);
        }
    }
}

__device__ __forceinline__ float4 widened(u32 low, u32 high) {
    return {half_to_float((u16)low), half_to_float((u16)(low >> 16)), half_to_float((u16)high), half_to_float((u16)(high >> 16))};
}

// Puts a tile into shared memory, as floats: the loaded lines, or, where quads reach over the end of a row, each element.
__device__ __forceinline__ void put_tile(float4* rows, u64 from, const uint4 (&held)[LINES_A_THREAD]) {
    if (!WHOLE_QUADS) {
        for (int row = threadIdx.x / 32; row < 32; row += ATTEND_WARPS) {
            for (int i = threadIdx.x % 32; i < 4 * QUADS; i += 32) {
                float value = 0.0f;
                if (i < DIM) {
                    int at = row * DIM + i;
                    value = HALVES ? half_to_float(load((const u16*)from + at)) : load((const float*)from + at);
                }
                ((float*)rows)[4 * row * ROW_STRIDE + i] = value;
            }
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < LINES_A_THREAD; ++i) {
        int line = ATTEND_THREADS * i + threadIdx.x;
        if (line < TILE_LINES) {
            u32 words[4] = {held[i].x, held[i].y, held[i].z, held[i].w};
            if (HALVES) {
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    int quad = 2 * line + j;
                    rows[quad / QUADS * ROW_STRIDE + quad % QUADS] = widened(words[2 * j], words[2 * j + 1]);
                }
            } else {
                rows[line / QUADS * ROW_STRIDE + line % QUADS] = {
                    __uint_as_float(words[0]), __uint_as_float(words[1]), __uint_as_float(words[2]), __uint_as_float(words[3])};
            }
        }
    }
}

__device__ __forceinline__ void multiply_add(float4& sum, const float4& a, const float4& b) {
    sum.x = fmaf(a.x, b.x, sum.x);
    sum.y = fmaf(a.y, b.y, sum.y);
    sum.z = fmaf(a.z, b.z, sum.z);
    sum.w = fmaf(a.w, b.w, sum.w);
}

// Merges the parts of this block's queries, if it is the last block that has computed one. Their order is fixed: whichever is last,
// the bits are the same. `last` is shared.
__device__ __forceinline__ void put_parts_together(const Attend& a, const Queries& queries, const HeadsOfBlock& heads, int& last) {
    if (a.parts == 1) {
        return;
    }
    // This block's results are written before it is counted.
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        u32* arrived = (u32*)a.arrived + blockIdx.x * gridDim.y + blockIdx.y;
        last = atomicInc(arrived, a.parts - 1) == a.parts - 1;
    }
    __syncthreads();
    if (!last) {
        return;
    }
    __threadfence();
    int lane = threadIdx.x % 32;
    for (int n = threadIdx.x / 32; n < heads.count * queries.rows; n += ATTEND_WARPS) {
        u64 head = (u64)(queries.first + n / heads.count) * a.heads + heads.first + n % heads.count;
        // Other blocks' stores are in the second-level cache.
        const float* partial = (const float*)a.partial + head * a.parts * (DIM + 2);
        float factors[MOST_PARTS / 32], most = -INFINITE, sum = 0.0f;
#pragma unroll
        for (int i = 0; i < MOST_PARTS / 32; ++i) {
            factors[i] = 32 * i + lane < a.parts ? __ldcg(partial + (32 * i + lane) * (DIM + 2)) : -INFINITE;
            most = fmaxf(most, factors[i]);
        }
        for (int step = 16; step > 0; step /= 2) {
            most = fmaxf(most, __shfl_xor_sync(FULL, most, step));
        }
#pragma unroll
        for (int i = 0; i < MOST_PARTS / 32; ++i) {
            if (32 * i + lane < a.parts) {
                factors[i] = exp2_fast(factors[i] - most);
                sum += factors[i] * __ldcg(partial + (32 * i + lane) * (DIM + 2) + 1);
            }
        }
        sum = warp_sum(sum);
#pragma unroll
        for (int i = 0; i < MOST_PARTS / 32; ++i) {
            factors[i] /= sum;
        }
        float values[(DIM + 31) / 32] = {};
#pragma unroll
        for (int i = 0; i < MOST_PARTS / 32; ++i) {
            for (int part = 32 * i; part < 32 * i + 32 && part < a.parts; ++part) {
                float factor = __shfl_sync(FULL, factors[i], part % 32);
#pragma unroll
                for (int j = 0; j < (DIM + 31) / 32; ++j) {
                    if (32 * j + lane < DIM) {
                        values[j] = fmaf(factor, __ldcg(partial + part * (DIM + 2) + 2 + 32 * j + lane), values[j]);
                    }
                }
            }
        }
#pragma unroll
        for (int j = 0; j < (DIM + 31) / 32; ++j) {
            if (32 * j + lane < DIM) {
                ((float*)a.out)[head * DIM + 32 * j + lane] = values[j];
            }
        }
    }
}

// A running softmax over tiles of 32 positions: a lane computes the score of a position, and some quads of values. A warp takes
// `N` queries; beyond the last query of the block it computes the last once more and drops the result.
template <int N>
__device__ __forceinline__ void attend_to(const Attend& a, const Queries& queries, const HeadsOfBlock& of_block, u8* shared) {
    float4* tile = (float4*)shared;
    float4* q = tile + 32 * ROW_STRIDE;
    uint4 held[LINES_A_THREAD];
    int heads = of_block.count, count = heads * queries.rows;
    int total = a.heads + 2 * a.kv_heads;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64* pages = (const u64*)a.pages + queries.pages;
    // Query `n` is head `n % heads` of row `n / heads`.
    for (int n = warp; n < count; n += ATTEND_WARPS) {
        const float* from = (const float*)a.qkv + ((u64)(queries.first + n / heads) * total + of_block.first + n % heads) * DIM;
        for (int i = lane; i < 4 * QUADS; i += 32) {
            ((float*)q)[4 * n * QUADS + i] = i < DIM ? from[i] : 0.0f;
        }
    }
    int end = queries.position + queries.rows;
    Range range = range_of_block(a, queries, 32);

    const float4* own_q[N];
    int own[N];
    float most[N], sum[N];
    float4 out[N][QUADS_A_LANE];
#pragma unroll
    for (int n = 0; n < N; ++n) {
        int query = warp + ATTEND_WARPS * n < count ? warp + ATTEND_WARPS * n : count - 1;
        own_q[n] = q + query * QUADS;
        own[n] = queries.position + query / heads;
        most[n] = -INFINITE;
        sum[n] = 0.0f;
#pragma unroll
        for (int i = 0; i < QUADS_A_LANE; ++i) {
            out[n][i] = {0.0f, 0.0f, 0.0f, 0.0f};
        }
    }
    u64 keys = 0;
    if (range.first < range.last) {
        keys = tile_address(a, pages, 0, of_block.kv, 32 * range.first);
        fetch_tile(keys, held);
    }
    for (int t = range.first; t < range.last; ++t) {
        __syncthreads();
        put_tile(tile, keys, held);
        // The next loads are in flight while this is computed.
        u64 values = tile_address(a, pages, 1, of_block.kv, 32 * t);
        fetch_tile(values, held);
        __syncthreads();
        int position = 32 * t + lane;
        float weight[N];
        float4 products[N] = {};
        const float4* key = tile + lane * ROW_STRIDE;
#pragma unroll 8
        for (int i = 0; i < QUADS; ++i) {
            float4 of_key = key[i];
#pragma unroll
            for (int n = 0; n < N; ++n) {
                multiply_add(products[n], own_q[n][i], of_key);
            }
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
            float score = (products[n].x + products[n].y) + (products[n].z + products[n].w);
            bool seen = position <= own[n] && (!a.window || own[n] - position < a.window);
            score = seen ? score * (a.scale * LOG2_E) : -INFINITE;
            float highest = score;
            for (int step = 16; step > 0; step /= 2) {
                highest = fmaxf(highest, __shfl_xor_sync(FULL, highest, step));
            }
            highest = fmaxf(highest, most[n]);
            // A tile may hold no position that this query sees.
            float factor = highest == -INFINITE ? 1.0f : exp2_fast(most[n] - highest);
            weight[n] = seen ? exp2_fast(score - highest) : 0.0f;
            sum[n] = sum[n] * factor + warp_sum(weight[n]);
            most[n] = highest;
#pragma unroll
            for (int i = 0; i < QUADS_A_LANE; ++i) {
                out[n][i] = {out[n][i].x * factor, out[n][i].y * factor, out[n][i].z * factor, out[n][i].w * factor};
            }
        }
        __syncthreads();
        put_tile(tile, values, held);
        if (t + 1 < range.last) {
            keys = tile_address(a, pages, 0, of_block.kv, 32 * (t + 1));
            fetch_tile(keys, held);
        }
        __syncthreads();
        // After the last position there is unwritten memory, which may hold NaN.
        int last = end - 32 * t < 32 ? end - 32 * t : 32;
#pragma unroll 8
        for (int slot = 0; slot < last; ++slot) {
            float4 value[QUADS_A_LANE];
#pragma unroll
            for (int i = 0; i < QUADS_A_LANE; ++i) {
                value[i] = tile[slot * ROW_STRIDE + (lane + 32 * i < QUADS ? lane + 32 * i : QUADS - 1)];
            }
#pragma unroll
            for (int n = 0; n < N; ++n) {
                float of_slot = __shfl_sync(FULL, weight[n], slot);
#pragma unroll
                for (int i = 0; i < QUADS_A_LANE; ++i) {
                    multiply_add(out[n][i], {of_slot, of_slot, of_slot, of_slot}, value[i]);
                }
            }
        }
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
        int query = warp + ATTEND_WARPS * n;
        if (query < count) {
            u64 row = queries.first + query / heads;
            Target to = target_of(a, row * a.heads + of_block.first + query % heads, most[n], sum[n], lane == 0);
#pragma unroll
            for (int i = 0; i < QUADS_A_LANE; ++i) {
                float of_quad[4] = {out[n][i].x, out[n][i].y, out[n][i].z, out[n][i].w};
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    if (128 * i + 4 * lane + j < DIM) {
                        to.out[128 * i + 4 * lane + j] = of_quad[j] * to.factor;
                    }
                }
            }
        }
    }
}

KERNEL_OF(ATTEND_THREADS, attend, Attend) {
    SHARED_BYTES(shared);
    __shared__ int last;
    Queries queries = ((const Queries*)a.queries)[blockIdx.x];
    HeadsOfBlock heads = heads_of_block(a);
    int count = heads.count * queries.rows;
    if (count <= ATTEND_WARPS) {
        attend_to<1>(a, queries, heads, shared);
    } else if (count <= 2 * ATTEND_WARPS) {
        attend_to<2>(a, queries, heads, shared);
    } else {
        attend_to<4>(a, queries, heads, shared);
    }
    put_parts_together(a, queries, heads, last);
}
