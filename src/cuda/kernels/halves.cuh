// Rows of stored 16-bit floats times many tokens of the same, by tensor cores. The file of a dtype defines `multiply`.
// The activations of a token were scaled by a power of two where `steps` says by which.

KERNEL_OF(TILE_THREADS, many, Product) {
    __shared__ __align__(16) u32 x[TILE * STRIDE];
    __shared__ __align__(16) u32 w[TILE * STRIDE];
    int first, token0;
    const Part& part = part_of(a, TILE, TILE, first, token0);
    float sums[2][4][4] = {};
    Lines lines_of_x(a.x, a.row_bytes, token0, a.tokens), lines_of_w(part.weight, a.row_bytes, first, part.rows);
    lines_of_x.fetch(0);
    lines_of_w.fetch(0);
    for (int start = 0; start < a.row_bytes; start += 4 * STAGED) {
        __syncthreads();
        lines_of_x.put_down(x);
        lines_of_w.put_down(w);
        __syncthreads();
        // What comes next is on its way while this is multiplied; behind the end there are zeros.
        lines_of_x.fetch(start + 4 * STAGED);
        lines_of_w.fetch(start + 4 * STAGED);
        for (int step = 0; step < 4; ++step) {
            u32 of_x[2][4], of_w[4][2];
            fragments(x, w, step, of_x, of_w);
#pragma unroll
            for (int m = 0; m < 2; ++m) {
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    multiply(sums[m][n], of_x[m], of_w[n]);
                }
            }
        }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                int token = token0 + token_of(m, i), row = first + row_of(n, i);
                if (token < a.tokens && row < part.rows) {
                    float scale = a.steps ? ((const float*)a.steps)[token] : 1.0f;
                    put(a, part, token, row, sums[m][n][i] * scale);
                }
            }
        }
    }
}

KERNEL_OF(256, rate, Rate) { repeat<float>(a, multiply); }
