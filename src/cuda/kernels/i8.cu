// I8 with scales: y = scale of x * scale of w * sum of (x - zero) * w, in exact integers up to the scales.

// The integers of 16 bytes of weights and activations, less the zero point's part.
__device__ __forceinline__ int dot16(const uint4& w, const uint4& x, int zero) {
    int sum = dot4(w.x, x.x, dot4(w.y, x.y, dot4(w.z, x.z, dot4(w.w, x.w, 0))));
    if (zero != 0) {
        const u32 ones = 0x01010101u;
        sum -= zero * dot4(w.x, ones, dot4(w.y, ones, dot4(w.z, ones, dot4(w.w, ones, 0))));
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
    // With scales of groups, sums are exact up to the end of what shares one.
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
KERNEL_OF(TILE_THREADS, many, Product) {
    __shared__ __align__(16) u32 x[TILE * STRIDE];
    __shared__ __align__(16) u32 w[TILE * STRIDE];
    __shared__ int sums_of_w[TILE];
    int first, token0;
    const Part& part = part_of(a, TILE, TILE, first, token0);
    int sums[2][4][4] = {};
    for (int row = threadIdx.x; row < TILE; row += TILE_THREADS) {
        sums_of_w[row] = 0;
    }
    Lines lines_of_x(a.x, a.inputs, token0, a.tokens), lines_of_w(part.weight, a.inputs, first, part.rows);
    lines_of_x.fetch(0);
    lines_of_w.fetch(0);
    for (int start = 0; start < a.inputs; start += 4 * STAGED) {
        __syncthreads();
        lines_of_x.put_down(x);
        lines_of_w.put_down(w);
        __syncthreads();
        // What comes next is on its way while this is multiplied; behind the end there are zeros.
        lines_of_x.fetch(start + 4 * STAGED);
        lines_of_w.fetch(start + 4 * STAGED);
        if (a.zeros) {
            for (int row = threadIdx.x; row < TILE; row += TILE_THREADS) {
                int sum = 0;
                for (int i = 0; i < STAGED; ++i) {
                    sum = dot4(w[row * STRIDE + i], 0x01010101u, sum);
                }
                sums_of_w[row] += sum;
            }
        }
        for (int step = 0; step < 4; ++step) {
            u32 of_x[2][4], of_w[4][2];
            fragments(x, w, step, of_x, of_w);
#pragma unroll
            for (int m = 0; m < 2; ++m) {
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    mma_i8_32(sums[m][n], of_x[m], of_w[n]);
                }
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                int token = token0 + token_of(m, i), row = first + row_of(n, i);
                if (token < a.tokens && row < part.rows) {
                    Row step = ((const Row*)a.steps)[token];
                    int sum = sums[m][n][i] - step.zero * sums_of_w[row_of(n, i)];
                    put(a, part, token, row, finish(part, row, (float)sum, step.scale));
                }
            }
        }
    }
}

KERNEL_OF(256, rate, Rate) { repeat<int>(a, mma_i8_32); }
