// What the formats of blocks have in common beside the products for few tokens.

KERNELS_FOR_FEW

// Many tokens, by tensor cores: four blocks of 32 at a time, each multiplied exactly and then scaled.
KERNEL_OF(TILE_THREADS, many, Product) {
    __shared__ __align__(16) u32 x[TILE * STRIDE];
    __shared__ __align__(16) u32 w[TILE * STRIDE];
    __shared__ Block steps[TILE][4];
    __shared__ Factors factors[TILE][4];
    int first, token0;
    const Part& part = part_of(a, TILE, TILE, first, token0);
    int blocks = a.inputs / 32;
    float sums[2][4][4] = {};
    Lines lines_of_x(a.x, a.inputs, token0, a.tokens);
    lines_of_x.fetch(0);
    for (int chunk = 0; chunk < blocks; chunk += 4) {
        __syncthreads();
        lines_of_x.put_down(x);
        for (int item = threadIdx.x; item < TILE * 4; item += TILE_THREADS) {
            int row = item / 4, block = chunk + item % 4;
            u32 q[8] = {};
            Factors found = {};
            Block step = {};
            if (first + row < part.rows && block < blocks) {
                const u8* at = (const u8*)part.weight + (u64)(first + row) * a.row_bytes;
                Format::read(at + block / Format::BLOCKS * Format::BYTES, block % Format::BLOCKS, q, found);
            }
            if (token0 + row < a.tokens && block < blocks) {
                step = ((const Block*)a.steps)[(u64)(token0 + row) * blocks + block];
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                w[row * STRIDE + 8 * (item % 4) + i] = q[i];
            }
            factors[row][item % 4] = found;
            steps[row][item % 4] = step;
        }
        __syncthreads();
        lines_of_x.fetch(32 * chunk + 4 * STAGED);
        for (int step = 0; step < 4; ++step) {
            u32 of_x[2][4], of_w[4][2];
            fragments(x, w, step, of_x, of_w);
#pragma unroll
            for (int n = 0; n < 4; ++n) {
#pragma unroll
                for (int m = 0; m < 2; ++m) {
                    int low[4] = {}, high[4] = {};
                    if (Format::KIND == SIMPLE || Format::KIND == BASED) {
                        mma_i8_32(low, of_x[m], of_w[n]);
                    } else {
                        mma_i8_16(low, of_x[m][0], of_x[m][1], of_w[n][0]);
                        mma_i8_16(high, of_x[m][2], of_x[m][3], of_w[n][1]);
                    }
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const Factors& f = factors[row_of(n, i)][step];
                        const Block& block = steps[token_of(m, i)][step];
                        sums[m][n][i] = add_block<Format>(f, low[i], high[i], block, sums[m][n][i]);
                    }
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
                    put(a, part, token, row, sums[m][n][i]);
                }
            }
        }
    }
}

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
