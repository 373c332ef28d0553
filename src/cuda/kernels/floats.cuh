// Rows of stored floats times activations. The file of a dtype defines `Stored`: `SIZE`, the bytes of an element, and
// `widen(words, floats)` for the elements of 16 bytes, `one(address, index)` for a single one.

// `T` tokens: a warp computes `ROWS` rows, each lane 16 bytes at a time.
template <int T>
__device__ __forceinline__ void few(const Product& a) {
    const int each = 16 / Stored::SIZE;
    int lane = threadIdx.x % 32, first;
    const Part& part = part_of(a, blockIdx.x, WARPS * ROWS, first);
    first += threadIdx.x / 32 * ROWS;
    int token0 = blockIdx.y * T;
    const float* x[T];
    const u8* w[ROWS];
    float sums[T][ROWS] = {};
#pragma unroll
    for (int t = 0; t < T; ++t) {
        int token = token0 + t < a.tokens ? token0 + t : a.tokens - 1;
        x[t] = (const float*)a.x + (u64)token * a.inputs;
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        int row = first + r < part.rows ? first + r : part.rows - 1;
        w[r] = (const u8*)part.weight + (u64)row * a.row_bytes;
    }
    if (a.whole) {
        const int ahead = 4;
        int lines = a.inputs / each;
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
                    float wide[ROWS][each];
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        Stored::widen(held[i][r], wide[r]);
                    }
#pragma unroll
                    for (int t = 0; t < T; ++t) {
#pragma unroll
                        for (int quad = 0; quad < each / 4; ++quad) {
                            float4 v = ((const float4*)x[t])[line * (each / 4) + quad];
#pragma unroll
                            for (int r = 0; r < ROWS; ++r) {
                                sums[t][r] = fmaf(wide[r][4 * quad], v.x, sums[t][r]);
                                sums[t][r] = fmaf(wide[r][4 * quad + 1], v.y, sums[t][r]);
                                sums[t][r] = fmaf(wide[r][4 * quad + 2], v.z, sums[t][r]);
                                sums[t][r] = fmaf(wide[r][4 * quad + 3], v.w, sums[t][r]);
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
                float wide = Stored::one(w[r], i);
#pragma unroll
                for (int t = 0; t < T; ++t) {
                    sums[t][r] = fmaf(wide, x[t][i], sums[t][r]);
                }
            }
        }
    }
#pragma unroll
    for (int t = 0; t < T; ++t) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float sum = warp_sum(sums[t][r]);
            if (lane == 0 && token0 + t < a.tokens && first + r < part.rows) {
                put(a, part, token0 + t, first + r, sum);
            }
        }
    }
}

KERNEL_OF(32 * WARPS, few_1, Product) { few<1>(a); }
KERNEL_OF(32 * WARPS, few_2, Product) { few<2>(a); }
KERNEL_OF(32 * WARPS, few_4, Product) { few<4>(a); }
KERNEL_OF(32 * WARPS, few_8, Product) { few<8>(a); }

// Rows `ids` of the matrix, widened.
KERNEL_OF(256, embed, Embed) {
    int row = blockIdx.x;
    const u8* stored = (const u8*)a.weight + (u64)((const int*)a.ids)[row] * a.row_bytes;
    for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
        ((float*)a.out)[(u64)row * a.width + i] = Stored::one(stored, i);
    }
}
