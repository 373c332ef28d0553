// Rows of stored floats times activations. The file of a dtype defines `Stored`: `SIZE`, the bytes of an element, and
// `widen(words, floats)` for the elements of 16 bytes, `one(address, index)` for a single one.

// `T` tokens: a warp computes `ROWS` rows, each lane 16 bytes at a time.
template <int T>
__device__ __forceinline__ void few(const Product& a) {
    const int each = 16 / Stored::SIZE;
    Share<T> share = share_of<T>(a);
    int lane = threadIdx.x % 32;
    const float* x[T];
    const u8* w[ROWS];
    float sums[T][ROWS] = {};
#pragma unroll
    for (int t = 0; t < T; ++t) {
        x[t] = (const float*)a.x + (u64)share.token(a, t) * a.inputs;
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        w[r] = (const u8*)share.part.weight + (u64)share.row(r) * a.row_bytes;
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
    put_sums(a, share, sums, [](int, int, float sum) { return sum; });
}

KERNELS_FOR_FEW

// Rows `ids` of the matrix, widened.
KERNEL_OF(256, embed, Embed) {
    int row = blockIdx.x;
    const u8* stored = (const u8*)a.weight + (u64)((const int*)a.ids)[row] * a.row_bytes;
    for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
        ((float*)a.out)[(u64)row * a.width + i] = Stored::one(stored, i);
    }
}
