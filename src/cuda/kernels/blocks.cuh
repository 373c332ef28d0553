// Rows of blocks times activations in blocks of 32 signed bytes. The file of a dtype defines `Format`:
//
//   BYTES, BLOCKS     bytes of a stored block, and the blocks of 32 elements in it
//   OFFSET            what every element is too large by
//   KIND              how the factors of 32 elements make numbers of them:
//     SIMPLE            d * q
//     BASED             d * q + m
//     HALVES            d * scale of the half * q
//     HALVES_LESS       d * scale of the half * q - m * minimum of the half
//   read(block, b, q, factors)   the elements of block `b` of 32, four a word in order, and their factors
//
// All products of a half are added exactly, in integers.

__device__ __forceinline__ int small_of(const Factors& f, int index) {
    return (int)(i8)(f.small >> (8 * index));
}

// sum + what 32 elements add to it: `low` and `high` are the products of the halves, of elements with their offset.
template <class Format>
__device__ __forceinline__ float add_block(const Factors& f, int low, int high, const Block& x, float sum) {
    int low_x = low_sum(x.sums), high_x = high_sum(x.sums);
    low -= Format::OFFSET * low_x;
    high -= Format::OFFSET * high_x;
    if (Format::KIND == SIMPLE || Format::KIND == BASED) {
        sum = fmaf((float)(low + high), f.d * x.scale, sum);
        return Format::KIND == BASED ? fmaf(f.m, x.scale * (float)(low_x + high_x), sum) : sum;
    }
    sum = fmaf((float)(small_of(f, 0) * low + small_of(f, 1) * high), f.d * x.scale, sum);
    if (Format::KIND == HALVES_LESS) {
        int less = small_of(f, 2) * low_x + small_of(f, 3) * high_x;
        sum = fmaf(-(float)less, f.m * x.scale, sum);
    }
    return sum;
}

// The number that element `q` of half `half` stands for.
template <class Format>
__device__ __forceinline__ float number(const Factors& f, int q, int half) {
    q -= Format::OFFSET;
    if (Format::KIND == SIMPLE) {
        return f.d * (float)q;
    }
    if (Format::KIND == BASED) {
        return f.d * (float)q + f.m;
    }
    float scaled = f.d * (float)(small_of(f, half) * q);
    return Format::KIND == HALVES_LESS ? scaled - f.m * (float)small_of(f, 2 + half) : scaled;
}

// The bytes of 32 blocks of 32, one for each lane, and the lines of 16 bytes that they may touch.
#define CHUNK (32 / Format::BLOCKS * Format::BYTES)
#define LINES ((CHUNK + 30) / 16)
#define LINES_A_LANE ((LINES + 31) / 32)
// Chunks of a row that are on their way at once, for one and two tokens.
#define AHEAD 2

// Lines of one chunk of a row, brought to registers.
__device__ __forceinline__ void fetch(const u8* row, int row_bytes, int chunk, uint4 (&held)[LINES_A_LANE]) {
    const u8* start = row + chunk * CHUNK;
    int bytes = row_bytes - chunk * CHUNK < CHUNK ? row_bytes - chunk * CHUNK : CHUNK;
    const uint4* line = (const uint4*)((u64)start & ~(u64)15);
    int lines = ((int)((u64)start & 15) + bytes + 15) / 16;
#pragma unroll
    for (int i = 0; i < LINES_A_LANE; ++i) {
        int index = threadIdx.x % 32 + 32 * i;
        if (index < lines) {
            held[i] = line[index];
        }
    }
}

// What the 32 elements of block `block`, in a chunk that was staged at `start`, add to the sums of row `r`.
template <int T>
__device__ __forceinline__ void add_products(
    const Product& a, const Share<T>& share, const u8* start, int block, int r, float (&sums)[T][ROWS]) {
    int lane = threadIdx.x % 32, blocks = a.inputs / 32;
    u32 q[8];
    Factors factors;
    Format::read(start + lane / Format::BLOCKS * Format::BYTES, lane % Format::BLOCKS, q, factors);
#pragma unroll
    for (int t = 0; t < T; ++t) {
        int token = share.token(a, t);
        const uint4* x = (const uint4*)((const u8*)a.x + (u64)token * a.inputs + 32 * block);
        uint4 x_low = x[0], x_high = x[1];
        Block step = ((const Block*)a.steps)[(u64)token * blocks + block];
        int low = dot4(q[0], x_low.x, dot4(q[1], x_low.y, dot4(q[2], x_low.z, dot4(q[3], x_low.w, 0))));
        int high = dot4(q[4], x_high.x, dot4(q[5], x_high.y, dot4(q[6], x_high.z, dot4(q[7], x_high.w, 0))));
        sums[t][r] = add_block<Format>(factors, low, high, step, sums[t][r]);
    }
}

// `T` tokens: a warp computes `ROWS` rows, each lane a block of 32 at a time, from shared memory. Chunks are fetched some time
// before they are needed: one of each row has too few bytes on their way to keep a fast GPU's memory busy.
template <int T>
__device__ __forceinline__ void few(const Product& a) {
    // With more tokens registers are scarce, and a chunk takes longer to compute.
    const int ahead = T <= 2 ? AHEAD : 1;
    // One line more, as the last word may be read beyond its end.
    __shared__ uint4 staged[WARPS][ROWS][LINES_A_LANE * 32 + 1];
    Share<T> share = share_of<T>(a);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int blocks = a.inputs / 32, chunks = (blocks + 31) / 32;
    const u8* w[ROWS];
    uint4 held[ahead][ROWS][LINES_A_LANE];
    float sums[T][ROWS] = {};
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        w[r] = (const u8*)share.part.weight + (u64)share.row(r) * a.row_bytes;
    }
#pragma unroll
    for (int next = 0; next < ahead; ++next) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (next < chunks) {
                fetch(w[r], a.row_bytes, next, held[next][r]);
            }
        }
    }
    for (int begin = 0; begin < chunks; begin += ahead) {
#pragma unroll
        for (int slot = 0; slot < ahead; ++slot) {
            int chunk = begin + slot;
            if (chunk < chunks) {
                __syncwarp();
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
#pragma unroll
                    for (int i = 0; i < LINES_A_LANE; ++i) {
                        staged[warp][r][lane + 32 * i] = held[slot][r][i];
                    }
                }
                __syncwarp();
                if (chunk + ahead < chunks) {
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        fetch(w[r], a.row_bytes, chunk + ahead, held[slot][r]);
                    }
                }
                int block = 32 * chunk + lane;
                if (block < blocks) {
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        const u8* start = (const u8*)staged[warp][r] + ((u64)(w[r] + chunk * CHUNK) & 15);
                        add_products<T>(a, share, start, block, r, sums);
                    }
                }
            }
        }
    }
    put_sums(a, share, sums, [](int, int, float sum) { return sum; });
}

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
    for (int chunk = 0; chunk < blocks; chunk += 4) {
        __syncthreads();
        stage_rows(x, a.x, a.inputs, token0, a.tokens, 32 * chunk);
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
