// I8 with scales: y = scale of x * scale of w * sum of (x - zero) * w, in exact integers up to the scales.

#define ONES 0x01010101u

// The products of 16 bytes of weights and activations, minus the part of the zero point.
__device__ __forceinline__ int dot16(const uint4& w, const uint4& x, int zero) {
    int sum = dot4(w.x, x.x, dot4(w.y, x.y, dot4(w.z, x.z, dot4(w.w, x.w, 0))));
    if (zero != 0) {
        sum -= zero * dot4(w.x, ONES, dot4(w.y, ONES, dot4(w.z, ONES, dot4(w.w, ONES, 0))));
    }
    return sum;
}

__device__ __forceinline__ float finish(const Part& part, int row, float sum, float x_scale) {
    sum *= x_scale;
    return part.scales_a_row > 1 ? sum : sum * stored_float(part.scales, part.scales_code, part.scales_a_row ? row : 0);
}

template <int T>
__device__ __forceinline__ void few(const Product& a) {
    Share<T> share = share_of<T>(a);
    const Part& part = share.part;
    int lane = threadIdx.x % 32;
    const u8* w[ROWS];
    const u8* x[T];
    Row steps[T];
    int exact[T][ROWS] = {};
    float scaled[T][ROWS] = {};
    // With scales of groups, sums are exact up to the end of the inputs that share one.
    bool groups = part.scales_a_row > 1;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        w[r] = (const u8*)part.weight + (u64)share.row(r) * a.row_bytes;
    }
#pragma unroll
    for (int t = 0; t < T; ++t) {
        int token = share.token(a, t);
        x[t] = (const u8*)a.x + (u64)token * a.inputs;
        steps[t] = ((const Row*)a.steps)[token];
    }
    if (a.whole && (!groups || part.group % 16 == 0)) {
        const int ahead = 4;
        int lines = a.inputs / 16;
        for (int start = lane; start < lines; start += 32 * ahead) {
            uint4 held[ahead][ROWS];
#pragma unroll
            for (int i = 0; i < ahead; ++i) {
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    int line = start + 32 * i;
                    held[i][r] = line < lines ? ((const uint4*)w[r])[line] : make_uint4(0, 0, 0, 0);
                }
            }
#pragma unroll
            for (int i = 0; i < ahead; ++i) {
                int line = start + 32 * i;
                if (line < lines) {
#pragma unroll
                    for (int t = 0; t < T; ++t) {
                        uint4 v = ((const uint4*)x[t])[line];
#pragma unroll
                        for (int r = 0; r < ROWS; ++r) {
                            int sum = dot16(held[i][r], v, steps[t].zero);
                            if (groups) {
                                int scale = share.row(r) * part.scales_a_row + 16 * line / part.group;
                                float of_group = stored_float(part.scales, part.scales_code, scale);
                                scaled[t][r] = fmaf((float)sum, of_group, scaled[t][r]);
                            } else {
                                exact[t][r] += sum;
                            }
                        }
                    }
                }
            }
        }
    } else {
        for (int i = lane; i < a.inputs; i += 32) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
#pragma unroll
                for (int t = 0; t < T; ++t) {
                    int product = (int)(i8)w[r][i] * ((int)(i8)x[t][i] - steps[t].zero);
                    if (groups) {
                        int scale = share.row(r) * part.scales_a_row + i / part.group;
                        float of_group = stored_float(part.scales, part.scales_code, scale);
                        scaled[t][r] = fmaf((float)product, of_group, scaled[t][r]);
                    } else {
                        exact[t][r] += product;
                    }
                }
            }
        }
    }
    auto scale = [&](int t, int row, float sum) { return finish(part, row, sum, steps[t].scale); };
    if (groups) {
        put_sums(a, share, scaled, scale);
    } else {
        put_sums(a, share, exact, scale);
    }
}

KERNELS_FOR_FEW

// Many tokens, by tensor cores, with one scale a row or for all.
template <int SIDE>
__device__ __forceinline__ void many(const Product& a) {
    __shared__ __align__(128) u8 x[STAGES * TILE_BYTES(SIDE)];
    __shared__ __align__(128) u8 w[STAGES * TILE_BYTES(SIDE)];
    int first, token0;
    const Part& part = part_of(a, SIDE, SIDE, first, token0);
    int sums[SIDE / 32][SIDE / 16][4] = {};
    int sum_of_w = 0;
    multiply_tile<SIDE>(a, part, first, token0, x, w, sums, mma_i8_32, [&](const u8* tile) {
        // Each thread takes a row, and its lines in their order in memory.
        if (a.zeros && threadIdx.x < SIDE) {
            const uint4* row = (const uint4*)(tile + threadIdx.x * STAGED);
#pragma unroll
            for (int i = 0; i < STAGED / 16; ++i) {
                sum_of_w += dot16(row[i], make_uint4(ONES, ONES, ONES, ONES), 0);
            }
        }
    });
    // These replace the tiles, which are not used any more.
    int* sums_of_w = (int*)w;
    if (threadIdx.x < SIDE) {
        sums_of_w[threadIdx.x] = sum_of_w;
    }
    __syncthreads();
    struct OfRow {
        float scale;
        int sum;
    };
    auto of_row = [&](int row, int in_tile) {
        return OfRow{stored_float(part.scales, part.scales_code, part.scales_a_row ? row : 0), sums_of_w[in_tile]};
    };
    put_tile<SIDE>(
        a, part, first, token0, sums, [&](int token) { return ((const Row*)a.steps)[token]; }, of_row,
        [](const Row& of_token, const OfRow& of_row, int sum) {
            return (float)(sum - of_token.zero * of_row.sum) * of_token.scale * of_row.scale;
        });
}

KERNELS_FOR_MANY

KERNEL_OF(256, rate, Rate) { repeat<int>(a, mma_i8_32); }
