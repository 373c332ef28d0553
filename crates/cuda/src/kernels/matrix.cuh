// The code that the formats of blocks share, besides the products for few tokens.

KERNELS_FOR_FEW

// Many tokens, by tensor cores: a chunk of 64 inputs at a time, two blocks, while the next is unpacked to signed bytes. Each is
// multiplied exactly, in integers, and then scaled.

// The blocks of 32 of a chunk, which share bytes where a stored block has eight.
template <class Format>
__device__ __forceinline__ int block_of_chunk(int chunk, int which) {
    if constexpr (Format::BLOCKS == 8) {
        return chunk / 4 * 8 + Format::block_of(chunk % 4, which);
    } else {
        return 2 * chunk + which;
    }
}

// Their elements and factors, zeros beyond the row.
template <class Format>
__device__ __forceinline__ void read_chunk(const u8* row, int chunk, int blocks, u32 (&q)[2][8], Factors (&factors)[2]) {
    if constexpr (Format::BLOCKS == 8) {
        Format::read_pair(row + chunk / 4 * Format::BYTES, chunk % 4, q, factors);
    } else {
#pragma unroll
        for (int which = 0; which < 2; ++which) {
            factors[which] = {0.0f, 0.0f, 0};
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                q[which][i] = 0;
            }
            if (2 * chunk + which < blocks) {
                Format::read(row + (2 * chunk + which) * Format::BYTES, 0, q[which], factors[which]);
            }
        }
    }
}

// The number of floats that the kernel has of a block of weights and of activations, besides bytes: the kind of format decides.
const int OF_WEIGHTS = Format::KIND == SIMPLE || Format::KIND == HALVES_BYTES ? 1 : Format::KIND == HALVES_LESS ? 3 : 2;
const int OF_TOKENS = Format::KIND == BASED ? 2 : Format::KIND == HALVES_LESS ? 3 : 1;

// Four signed bytes times `by`, each modulo 256: no product of bytes without a sign reaches the next but one.
__device__ __forceinline__ u32 times(u32 four, int by) {
    u32 factor = by & 0xff;
    return __byte_perm((four & 0x00ff00ffu) * factor, (four >> 8 & 0x00ff00ffu) * factor, 0x6240);
}

// Elements without their offset; if the elements of a half times its scale are signed bytes too, these products.
template <class Format>
__device__ __forceinline__ void finish_bytes(const Factors& f, u32 (&q)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (Format::OFFSET) {
            q[i] = ((q[i] | 0x80808080u) - Format::OFFSET * 0x01010101u) ^ 0x80808080u;
        }
        if (Format::KIND == HALVES_LESS) {
            q[i] *= small_of(f, i / 4);
        }
        if (Format::KIND == HALVES_BYTES) {
            q[i] = times(q[i], -small_of(f, i / 4));
        }
    }
}

template <class Format>
__device__ __forceinline__ void factors_of_weights(const Factors& f, float (&all)[OF_WEIGHTS]) {
    if constexpr (Format::KIND == HALVES) {
        all[0] = f.d * (float)small_of(f, 0);
        all[1] = f.d * (float)small_of(f, 1);
    } else {
        all[0] = Format::KIND == HALVES_BYTES ? -f.d : f.d;
        if constexpr (Format::KIND == BASED) {
            all[1] = f.m;
        }
        if constexpr (Format::KIND == HALVES_LESS) {
            all[1] = -(f.m * (float)small_of(f, 2));
            all[2] = -(f.m * (float)small_of(f, 3));
        }
    }
}

template <class Format>
__device__ __forceinline__ void factors_of_token(const Block& x, float (&all)[OF_TOKENS]) {
    all[0] = x.scale;
    if constexpr (Format::KIND == BASED) {
        all[1] = x.scale * (float)(low_sum(x.sums) + high_sum(x.sums));
    }
    if constexpr (Format::KIND == HALVES_LESS) {
        all[1] = x.scale * (float)low_sum(x.sums);
        all[2] = x.scale * (float)high_sum(x.sums);
    }
}

// Sums start from this, the bits of 1.5 * 2^23: as a float it is that number and the sum, of which it is taken away again without
// rounding while the sum is below 2^22. An integer becomes a float by an instruction that takes as long as eight others on 8.0.
#define BIASED 0x4b400000

__device__ __forceinline__ float unbiased(int sum) {
    return __int_as_float(sum) - 12582912.0f;
}

// Adds the products of a block to `sum`: `low` and `high` are those of its halves, or `low` is that of the whole block.
template <class Format>
__device__ __forceinline__ float add_scaled(float sum, int low, int high, const float (&w)[OF_WEIGHTS], const float (&x)[OF_TOKENS]) {
    if constexpr (Format::KIND == HALVES) {
        return fmaf(fmaf(unbiased(high), w[1], unbiased(low) * w[0]), x[0], sum);
    } else {
        sum = fmaf(unbiased(low), w[0] * x[0], sum);
        if constexpr (Format::KIND == BASED) {
            sum = fmaf(w[1], x[1], sum);
        }
        if constexpr (Format::KIND == HALVES_LESS) {
            sum = fmaf(w[2], x[2], fmaf(w[1], x[1], sum));
        }
        return sum;
    }
}

template <int SIDE>
__device__ __forceinline__ void many(const Product& a) {
    __shared__ __align__(128) u8 x[2 * TILE_BYTES(SIDE)];
    __shared__ __align__(128) u8 w[2 * TILE_BYTES(SIDE)];
    __shared__ float of_x[2][2][OF_TOKENS][SIDE];
    __shared__ __align__(8) float of_w[2][2][OF_WEIGHTS][SIDE];
    int first, token0;
    const Part& part = part_of(a, SIDE, SIDE, first, token0);
    int blocks = a.inputs / 32, chunks = (blocks + 1) / 2;
    Lines<SIDE> lines_of_x(a.x, a.inputs, token0, a.tokens, x);
    Fragments<SIDE> fragments(x, w);
    // A thread unpacks a row, and loads the factors of a token; with 64, half of the threads do each.
    int own = threadIdx.x % SIDE;
    bool of_rows = SIDE == TILE_THREADS || threadIdx.x < SIDE, of_tokens = SIDE == TILE_THREADS || !of_rows;
    const u8* row = (const u8*)part.weight + (u64)(first + own < part.rows ? first + own : part.rows - 1) * a.row_bytes;
    const Block* token = (const Block*)a.steps + (u64)(token0 + own < a.tokens ? token0 + own : a.tokens - 1) * blocks;
    auto begin = [&](int chunk) {
        int block = block_of_chunk<Format>(chunk, threadIdx.x % 4 / 2);
        lines_of_x.begin(chunk % 2, 32 * block + threadIdx.x % 2 * 16, block < blocks);
        commit_lines();
    };
    auto end = [&](int chunk) {
        int stage = chunk % 2;
        lines_of_x.end(stage);
        if (of_rows) {
            u32 q[2][8];
            Factors factors[2];
            read_chunk<Format>(row, chunk, blocks, q, factors);
            uint4* to = (uint4*)(w + stage * TILE_BYTES(SIDE) + own * STAGED);
#pragma unroll
            for (int which = 0; which < 2; ++which) {
                finish_bytes<Format>(factors[which], q[which]);
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const u32* four = q[which] + 4 * half;
                    to[2 * which + half ^ own / 2 % 4] = make_uint4(four[0], four[1], four[2], four[3]);
                }
                float all[OF_WEIGHTS];
                factors_of_weights<Format>(factors[which], all);
#pragma unroll
                for (int i = 0; i < OF_WEIGHTS; ++i) {
                    of_w[stage][which][i][own] = all[i];
                }
            }
        }
        if (of_tokens) {
#pragma unroll
            for (int which = 0; which < 2; ++which) {
                int block = block_of_chunk<Format>(chunk, which);
                uint2 step = block < blocks ? load((const uint2*)token + block) : make_uint2(0, 0);
                float all[OF_TOKENS];
                factors_of_token<Format>({__uint_as_float(step.x), step.y}, all);
#pragma unroll
                for (int i = 0; i < OF_TOKENS; ++i) {
                    of_x[stage][which][i][own] = all[i];
                }
            }
        }
    };
    float sums[SIDE / 32][SIDE / 16][4] = {};
    begin(0);
    end(0);
    for (int chunk = 0; chunk < chunks; ++chunk) {
        int stage = chunk % 2;
        wait_for_lines<0>();
        // After it the chunk before this one is not used any more, and this one is there.
        __syncthreads();
        if (chunk + 1 < chunks) {
            begin(chunk + 1);
        }
        // Both at once would need more registers than there are.
#pragma unroll 1
        for (int step = 0; step < 2; ++step) {
            u32 bytes_of_x[SIDE / 32][4], bytes_of_w[2][2];
            float scales[SIDE / 16][OF_TOKENS];
            fragments.tokens(stage, step, bytes_of_x);
#pragma unroll
            for (int g = 0; g < SIDE / 16; ++g) {
#pragma unroll
                for (int i = 0; i < OF_TOKENS; ++i) {
                    scales[g][i] = of_x[stage][step][i][token_of<SIDE>(g)];
                }
            }
#pragma unroll
            for (int n = 0; n < SIDE / 16; ++n) {
                if (n % 2 == 0) {
                    fragments.rows(stage, step, n, bytes_of_w);
                }
                float own_factors[2][OF_WEIGHTS];
#pragma unroll
                for (int i = 0; i < OF_WEIGHTS; ++i) {
                    float2 both = *(const float2*)&of_w[stage][step][i][row_of<SIDE>(n, 0)];
                    own_factors[0][i] = both.x;
                    own_factors[1][i] = both.y;
                }
#pragma unroll
                for (int m = 0; m < SIDE / 32; ++m) {
                    int low[4] = {BIASED, BIASED, BIASED, BIASED}, high[4] = {BIASED, BIASED, BIASED, BIASED};
                    if (Format::KIND == HALVES) {
                        mma_i8_16(low, bytes_of_x[m][0], bytes_of_x[m][1], bytes_of_w[n % 2][0]);
                        mma_i8_16(high, bytes_of_x[m][2], bytes_of_x[m][3], bytes_of_w[n % 2][1]);
                    } else {
                        mma_i8_32(low, bytes_of_x[m], bytes_of_w[n % 2]);
                    }
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        sums[m][n][i] = add_scaled<Format>(sums[m][n][i], low[i], high[i], own_factors[i % 2], scales[2 * m + i / 2]);
                    }
                }
            }
        }
        if (chunk + 1 < chunks) {
            end(chunk + 1);
        }
    }
    put_tile<SIDE>(
        a, part, first, token0, sums, [](int) { return 0; }, [](int, int) { return 0; }, [](int, int, float sum) { return sum; });
}

KERNELS_FOR_MANY

// Rows `ids` of the matrix, widened: a thread takes 32 elements.
KERNEL_OF(256, embed, Embed) {
    int row = blockIdx.x;
    const u8* stored = (const u8*)a.weight + (u64)((const int*)a.ids)[row] * a.row_bytes;
    for (int block = threadIdx.x; block < a.width / 32; block += blockDim.x) {
        u32 q[8];
        Factors factors;
        Format::read(stored + block / Format::BLOCKS * Format::BYTES, block % Format::BLOCKS, q, factors);
        float* out = (float*)a.out + (u64)row * a.width + 32 * block;
        for (int i = 0; i < 32; ++i) {
            out[i] = number<Format>(factors, (int)(i8)(q[i / 4] >> (8 * (i % 4))), i / 16);
        }
    }
}

KERNEL_OF(256, rate, Rate) { repeat<int>(a, mma_i8_32); }
