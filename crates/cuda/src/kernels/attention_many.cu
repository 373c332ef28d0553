// Attention of prompts by tensor cores, from 7.5 on: a block of four warps takes 64 queries, a warp 16 of them, and goes over the
// positions in tiles with a running softmax. The factors of products are halves: queries and weights are sums of two halves, and so
// are keys and values of a cache in F32, after division by powers of two that keep them in range. Products then have 22 bits.
//
// A tile's rows lie an odd number of lines of 16 bytes apart: `ldmatrix` reads the same line of eight rows from eight different
// groups of four banks.

#if __CUDA_ARCH__ >= 750 && DIM % 16 == 0 && DIM <= 128

#define MANY_QUERIES (16 * ATTEND_WARPS)
// Positions of a tile, which lies within a page, and the number of halves whose sum is a stored element.
#define POSITIONS (HALVES ? 64 : 32)
#define PARTS (HALVES ? 1 : 2)
#define LINES (DIM / 8)
#define ROW_BYTES ((LINES | 1) * 16)
#define PART_BYTES (POSITIONS * ROW_BYTES)
#define STEPS (DIM / 16)

// The power of two by which numbers up to `largest` in magnitude are divided, so that they are below 2^15. The least half is
// 2^-24: two halves have 22 bits of a number down to 2^-17 of the largest, and below that are off by 2^-39 of the largest at most.
__device__ __forceinline__ float power_of(float largest) {
    u32 exponent = __float_as_uint(largest) >> 23;
    return __uint_as_float((exponent < 15 ? 1 : exponent - 14) << 23);
}

// The factor of weights, which are at most 1, for the same reason; their sum has it too, so that it cancels.
#define WEIGHT_POWER 32768.0f

// 1 / power, exactly.
__device__ __forceinline__ float inverse_of(float power) {
    return __uint_as_float((254u << 23) - __float_as_uint(power));
}

// Two numbers as sums of two halves.
__device__ __forceinline__ void split(float x, float y, u32& high, u32& low) {
    u16 a = float_to_half(x), b = float_to_half(y);
    high = a | (u32)b << 16;
    low = float_to_half(x - half_to_float(a)) | (u32)float_to_half(y - half_to_float(b)) << 16;
}

// A tile of keys or of values on its way to shared memory. Rows from `present` on are zeros: their memory may hold NaN.
#if HALVES
struct Tile {
    LinesToShared<LINES / 2> lines;
    u32 to;

    // A thread brings every other line of a row.
    __device__ __forceinline__ explicit Tile(u8* shared)
        : to(shared_address(shared) + threadIdx.x / 2 * ROW_BYTES + threadIdx.x % 2 * 16) {}

    __device__ __forceinline__ void begin(u64 address, int present) {
        const u8* from[LINES / 2];
#pragma unroll
        for (int i = 0; i < LINES / 2; ++i) {
            from[i] = (const u8*)address + threadIdx.x / 2 * (2 * DIM) + threadIdx.x % 2 * 16 + 32 * i;
        }
        lines.begin(to, 32, from, 0, (int)threadIdx.x / 2 < present);
        commit_lines();
    }

    // After it the tile is there, and the tile before it is not used any more.
    __device__ __forceinline__ void end(float&) const {
        lines.end(to, 32);
        wait_for_lines<0>();
        __syncthreads();
    }
};
#else
struct Tile {
    // Lines of a thread, of eight elements: every fourth of a row.
    static const int OWN = (LINES + 3) / 4;
    float4 held[OWN][2];
    u8* to;
    float* largest;

    __device__ __forceinline__ Tile(u8* shared, float* largest)
        : to(shared + threadIdx.x / 4 * ROW_BYTES + threadIdx.x % 4 * 16), largest(largest) {}

    __device__ __forceinline__ void begin(u64 address, int present) {
        const float4* from = (const float4*)(address + threadIdx.x / 4 * (4 * DIM) + threadIdx.x % 4 * 32);
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            bool is = (int)threadIdx.x / 4 < present && 4 * i + threadIdx.x % 4 < LINES;
            held[i][0] = is ? load(from + 8 * i) : float4{0.0f, 0.0f, 0.0f, 0.0f};
            held[i][1] = is ? load(from + 8 * i + 1) : float4{0.0f, 0.0f, 0.0f, 0.0f};
        }
    }

    // Like the other `end`; `power` becomes the divisor of the elements, and is never less than it was.
    __device__ __forceinline__ void end(float& power) const {
        float most = 0.0f;
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const float4& x = held[i][j];
                most = fmaxf(most, fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w))));
            }
        }
        for (int step = 16; step > 0; step /= 2) {
            most = fmaxf(most, __shfl_xor_sync(FULL, most, step));
        }
        if (threadIdx.x % 32 == 0) {
            largest[threadIdx.x / 32] = most;
        }
        __syncthreads();
        power = fmaxf(power, power_of(fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3]))));
        float down = inverse_of(power);
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            uint4 high, low;
            split(held[i][0].x * down, held[i][0].y * down, high.x, low.x);
            split(held[i][0].z * down, held[i][0].w * down, high.y, low.y);
            split(held[i][1].x * down, held[i][1].y * down, high.z, low.z);
            split(held[i][1].z * down, held[i][1].w * down, high.w, low.w);
            if (4 * i + threadIdx.x % 4 < LINES) {
                *(uint4*)(to + 64 * i) = high;
                *(uint4*)(to + PART_BYTES + 64 * i) = low;
            }
        }
        __syncthreads();
    }
};
#endif

// Adds the products of 16 elements: of both halves of `high + low` with each of `of_tile`, but for the two low ones.
__device__ __forceinline__ void multiply_parts(
    float (&sum)[4], const u32 (&high)[4], const u32 (&low)[4], const u32 (&of_tile)[PARTS][2]) {
    if (PARTS == 2) {
        mma_f16(sum, high, of_tile[PARTS - 1]);
    }
    mma_f16(sum, low, of_tile[0]);
    mma_f16(sum, high, of_tile[0]);
}

KERNEL_OF(ATTEND_THREADS, attend_many, Attend) {
    __shared__ __align__(128) u8 tiles[2 * PART_BYTES];
    __shared__ int last;
#if HALVES
    Tile keys(tiles), values(tiles + PART_BYTES);
    const int values_at = PART_BYTES;
#else
    __shared__ float largest[2][ATTEND_WARPS];
    Tile keys(tiles, largest[0]), values(tiles, largest[1]);
    const int values_at = 0;
#endif
    // The last rows of a prompt see the most positions: they begin first.
    Queries queries = ((const Queries*)a.queries)[gridDim.x - 1 - blockIdx.x];
    HeadsOfBlock own_heads = heads_of_block(a);
    int count = own_heads.count * queries.rows, total = a.heads + 2 * a.kv_heads;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64* pages = (const u64*)a.pages + queries.pages;
    int end = queries.position + queries.rows;
    Range range = range_of_block(a, queries, POSITIONS);

    // Two queries of this lane, at the rows `lane / 4` and `lane / 4 + 8` of the fragments.
    int own[2];
    float factor[2], most[2], sum[2];
    u32 q_high[STEPS][4], q_low[STEPS][4];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        int query = 16 * warp + 8 * j + lane / 4;
        query = query < count ? query : count - 1;
        int row = query / own_heads.count;
        const float* from =
            (const float*)a.qkv + ((u64)(queries.first + row) * total + own_heads.first + query % own_heads.count) * DIM + 2 * (lane % 4);
        float magnitude = 0.0f;
#pragma unroll
        for (int i = 0; i < DIM / 8; ++i) {
            float2 x = load((const float2*)(from + 8 * i));
            magnitude = fmaxf(magnitude, fmaxf(fabsf(x.x), fabsf(x.y)));
        }
        for (int step = 1; step < 4; step *= 2) {
            magnitude = fmaxf(magnitude, __shfl_xor_sync(FULL, magnitude, step));
        }
        float power = power_of(magnitude), down = inverse_of(power);
#pragma unroll
        for (int i = 0; i < DIM / 8; ++i) {
            float2 x = load((const float2*)(from + 8 * i));
            split(x.x * down, x.y * down, q_high[i / 2][2 * (i % 2) + j], q_low[i / 2][2 * (i % 2) + j]);
        }
        own[j] = queries.position + row;
        factor[j] = a.scale * LOG2_E * power;
        most[j] = -INFINITE;
        sum[j] = 0.0f;
    }
    float out[DIM / 8][4] = {};
    float of_values = HALVES ? 1.0f : 0.0f;
    u32 at = shared_address(tiles);
    u32 key = at + (lane / 16 * 8 + lane % 8) * ROW_BYTES + lane / 8 % 2 * 16;
    u32 value = at + values_at + (lane / 8 % 2 * 8 + lane % 8) * ROW_BYTES + lane / 16 * 16;

    if (range.first < range.last) {
        keys.begin(tile_address(a, pages, 0, own_heads.kv, range.first * POSITIONS), end - range.first * POSITIONS);
    }
    for (int t = range.first; t < range.last; ++t) {
        int start = t * POSITIONS;
        float of_keys = HALVES ? 1.0f : 0.0f;
        keys.end(of_keys);
        values.begin(tile_address(a, pages, 1, own_heads.kv, start), end - start);
        float scores[POSITIONS / 8][4] = {};
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
#pragma unroll
            for (int n = 0; n < POSITIONS / 8; n += 2) {
                u32 b[2][PARTS][2];
#pragma unroll
                for (int part = 0; part < PARTS; ++part) {
                    load_matrices(key + part * PART_BYTES + 8 * n * ROW_BYTES + 32 * step, b[0][part][0], b[0][part][1], b[1][part][0],
                                  b[1][part][1]);
                }
                multiply_parts(scores[n], q_high[step], q_low[step], b[0]);
                multiply_parts(scores[n + 1], q_high[step], q_low[step], b[1]);
            }
        }
        bool all_seen = start + POSITIONS <= queries.position + 1 && (!a.window || end - start <= a.window);
        float base[2], weight[2], highest[2] = {most[0], most[1]};
#pragma unroll
        for (int n = 0; n < POSITIONS / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                int position = start + 8 * n + 2 * (lane % 4) + i % 2, query = own[i / 2];
                bool seen = all_seen || (position <= query && (!a.window || query - position < a.window));
                scores[n][i] = seen ? scores[n][i] * (factor[i / 2] * of_keys) : -INFINITE;
                highest[i / 2] = fmaxf(highest[i / 2], scores[n][i]);
            }
        }
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            for (int step = 1; step < 4; step *= 2) {
                highest[j] = fmaxf(highest[j], __shfl_xor_sync(FULL, highest[j], step));
            }
            // A query may have seen no position so far.
            base[j] = highest[j] == -INFINITE ? 0.0f : highest[j];
            weight[j] = exp2_fast(most[j] - base[j]);
            most[j] = highest[j];
            sum[j] *= weight[j];
        }
        float before = of_values;
        values.end(of_values);
        if (t + 1 < range.last) {
            keys.begin(tile_address(a, pages, 0, own_heads.kv, start + POSITIONS), end - start - POSITIONS);
        }
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            weight[j] *= HALVES ? 1.0f : before * inverse_of(of_values);
        }
#pragma unroll
        for (int n = 0; n < DIM / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                out[n][i] *= weight[i / 2];
            }
        }
#pragma unroll
        for (int step = 0; step < POSITIONS / 16; ++step) {
            u32 high[4], low[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float* two = scores[2 * step + i / 2] + 2 * (i % 2);
                two[0] = exp2_fast(two[0] - base[i % 2]) * WEIGHT_POWER;
                two[1] = exp2_fast(two[1] - base[i % 2]) * WEIGHT_POWER;
                sum[i % 2] += two[0] + two[1];
                split(two[0], two[1], high[i], low[i]);
            }
#pragma unroll
            for (int n = 0; n < DIM / 8; n += 2) {
                u32 b[2][PARTS][2];
#pragma unroll
                for (int part = 0; part < PARTS; ++part) {
                    load_transposed(value + part * PART_BYTES + 16 * step * ROW_BYTES + 16 * n, b[0][part][0], b[0][part][1],
                                    b[1][part][0], b[1][part][1]);
                }
                multiply_parts(out[n], high, low, b[0]);
                multiply_parts(out[n + 1], high, low, b[1]);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        for (int step = 1; step < 4; step *= 2) {
            sum[j] += __shfl_xor_sync(FULL, sum[j], step);
        }
        int query = 16 * warp + 8 * j + lane / 4;
        if (query < count) {
            u64 row = queries.first + query / own_heads.count;
            Target to = target_of(a, row * a.heads + own_heads.first + query % own_heads.count, most[j], sum[j], lane % 4 == 0);
#pragma unroll
            for (int n = 0; n < DIM / 8; ++n) {
                float2 two = {out[n][2 * j] * (to.factor * of_values), out[n][2 * j + 1] * (to.factor * of_values)};
                *(float2*)(to.out + 8 * n + 2 * (lane % 4)) = two;
            }
        }
    }
    put_parts_together(a, queries, own_heads, last);
}

#endif
