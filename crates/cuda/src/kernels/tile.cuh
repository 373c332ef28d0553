// Many tokens: a block of four warps computes `SIDE` tokens by `SIDE` rows, 64 or 128, from tiles of both in shared memory, each
// warp a quarter. Sums have the same bits with both sizes: the products of a pair are added up in the order of the inputs.
//
// A staged row is 64 bytes of operands, whatever their dtype: two steps of 32, and the fragments of 16 halves and of 32 signed
// bytes have the same layout in them. Its line `l` of 16 bytes lies at `l ^ (row / 2 % 4)`. In eight consecutive rows the same
// line is therefore in eight different groups of four banks: `ldmatrix`, which reads so, has no bank conflict, and neither have the
// copies, of which eight lanes write two whole rows.

#define TILE_THREADS 128
#define STAGED 64
#define TILE_BYTES(side) ((side) * STAGED)

// The lines of rows `first..` of a matrix that a thread loads: its line of each 32nd row. After the last row it loads the last
// again, which `put_tile` leaves out.
template <int SIDE>
struct Lines {
    const u8* from[SIDE / 32];
    // The address of its line in a stage.
    u32 to;
    LinesToShared<SIDE / 32> lines;

    __device__ __forceinline__ Lines(u64 matrix, int row_bytes, int first, int count, const void* tiles) {
        int own = threadIdx.x / 4;
#pragma unroll
        for (int i = 0; i < SIDE / 32; ++i) {
            int row = first + own + 32 * i < count ? first + own + 32 * i : count - 1;
            from[i] = (const u8*)matrix + (u64)row * row_bytes;
        }
        to = shared_address(tiles) + own * STAGED + (threadIdx.x % 4 ^ own / 2 % 4) * 16;
    }

    // The line from byte `offset` on of each row, or zeros.
    __device__ __forceinline__ void begin(int stage, int offset, bool is) {
        lines.begin(to + stage * TILE_BYTES(SIDE), 32 * STAGED, from, offset, is);
    }

    __device__ __forceinline__ void end(int stage) const {
        lines.end(to + stage * TILE_BYTES(SIDE), 32 * STAGED);
    }
};

// The addresses from which a lane reads its fragments of the first stage.
template <int SIDE>
struct Fragments {
    u32 of_x;
    u32 of_w;

    __device__ __forceinline__ Fragments(const void* x, const void* w) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        int swizzle = lane / 2 % 4;
        of_x = shared_address(x) + (warp % 2 * (SIDE / 2) + lane % 16) * STAGED + (lane / 16 ^ swizzle) * 16;
        of_w = shared_address(w) + (warp / 2 * (SIDE / 2) + lane / 16 * 8 + lane % 8) * STAGED + (lane / 8 % 2 ^ swizzle) * 16;
    }

    // Loads the fragments of all groups of 16 tokens.
    __device__ __forceinline__ void tokens(int stage, int step, u32 (&a)[SIDE / 32][4]) const {
#pragma unroll
        for (int m = 0; m < SIDE / 32; ++m) {
            u32 at = (of_x ^ 32 * step) + stage * TILE_BYTES(SIDE) + 16 * STAGED * m;
            load_matrices(at, a[m][0], a[m][1], a[m][2], a[m][3]);
        }
    }

    // Loads the fragments of the groups `n` and `n + 1` of 8 rows.
    __device__ __forceinline__ void rows(int stage, int step, int n, u32 (&b)[2][2]) const {
        u32 at = (of_w ^ 32 * step) + stage * TILE_BYTES(SIDE) + 8 * STAGED * n;
        load_matrices(at, b[0][0], b[0][1], b[1][0], b[1][1]);
    }
};

// The sums of a tile by tensor cores, of rows of weights that are stored as the products read them. `each_stage(w)` sees every staged
// tile of weights.
template <int SIDE, class Sum, class Multiply, class EachStage>
__device__ __forceinline__ void multiply_tile(
    const Product& a, const Part& part, int first, int token0, u8* x, u8* w, Sum (&sums)[SIDE / 32][SIDE / 16][4],
    Multiply multiply, EachStage each_stage) {
    Lines<SIDE> lines_of_x(a.x, a.row_bytes, token0, a.tokens, x), lines_of_w(part.weight, a.row_bytes, first, part.rows, w);
    Fragments<SIDE> fragments(x, w);
    int line = threadIdx.x % 4 * 16;
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        int offset = stage * STAGED + line;
        lines_of_x.begin(stage, offset, offset < a.row_bytes);
        lines_of_w.begin(stage, offset, offset < a.row_bytes);
        commit_lines();
        lines_of_x.end(stage);
        lines_of_w.end(stage);
    }
    for (int start = 0; start < a.row_bytes; start += STAGES * STAGED) {
#pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            if (start + stage * STAGED >= a.row_bytes) {
                break;
            }
            wait_for_lines<STAGES - 2>();
            // After it the tile before this one is not used any more, and this one is there.
            __syncthreads();
            const int next = (stage + STAGES - 1) % STAGES;
            int offset = start + (stage + STAGES - 1) * STAGED + line;
            lines_of_x.begin(next, offset, offset < a.row_bytes);
            lines_of_w.begin(next, offset, offset < a.row_bytes);
            commit_lines();
            each_stage(w + stage * TILE_BYTES(SIDE));
#pragma unroll
            for (int step = 0; step < 2; ++step) {
                u32 of_x[SIDE / 32][4];
                fragments.tokens(stage, step, of_x);
#pragma unroll
                for (int n = 0; n < SIDE / 16; n += 2) {
                    u32 of_w[2][2];
                    fragments.rows(stage, step, n, of_w);
#pragma unroll
                    for (int m = 0; m < SIDE / 32; ++m) {
                        multiply(sums[m][n], of_x[m], of_w[0]);
                        multiply(sums[m][n + 1], of_x[m], of_w[1]);
                    }
                }
            }
            lines_of_x.end(next);
            lines_of_w.end(next);
        }
    }
    wait_for_lines<0>();
    __syncthreads();
}

// Token of group `g` of 8, and row `j` of group `n` of 8, that a lane has sums of, within the tile.
template <int SIDE>
__device__ __forceinline__ int token_of(int g) {
    return SIDE / 2 * (threadIdx.x / 32 % 2) + 8 * g + threadIdx.x % 32 / 4;
}

template <int SIDE>
__device__ __forceinline__ int row_of(int n, int j) {
    return SIDE / 2 * (threadIdx.x / 64) + 8 * n + 2 * (threadIdx.x % 4) + j;
}

// Stores `value(of_token(token), of_row(row, its number in the tile), sum)` as each output.
template <int SIDE, class Sum, class OfToken, class OfRow, class Value>
__device__ __forceinline__ void put_tile(
    const Product& a, const Part& part, int first, int token0, const Sum (&sums)[SIDE / 32][SIDE / 16][4], OfToken of_token,
    OfRow of_row, Value value) {
    const int groups = SIDE / 16;
    decltype(of_token(0)) tokens[groups];
    token0 += token_of<SIDE>(0);
#pragma unroll
    for (int g = 0; g < groups; ++g) {
        tokens[g] = of_token(token0 + 8 * g < a.tokens ? token0 + 8 * g : a.tokens - 1);
    }
#pragma unroll
    for (int n = 0; n < SIDE / 16; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            int in_tile = row_of<SIDE>(n, j), row = first + in_tile;
            if (row < part.rows) {
                auto own = of_row(row, in_tile);
                float bias = part.bias ? stored_float(part.bias, part.bias_code, row) : 0.0f;
                float* y = (float*)a.y + (u64)token0 * a.width + part.column + row;
#pragma unroll
                for (int g = 0; g < groups; ++g) {
                    if (token0 + 8 * g < a.tokens) {
                        float found = value(tokens[g], own, sums[g / 2][n][2 * (g % 2) + j]);
                        found = part.bias ? found + bias : found;
                        *y = a.add ? *y + found : found;
                    }
                    y += (u64)8 * a.width;
                }
            }
        }
    }
}

// Only products by tensor cores, `count` times 8 a warp, to measure their speed.
struct Rate {
    u64 out;
    int count;
    int unused;
};

template <class Sum>
__device__ __forceinline__ void repeat(const Rate& a, void (*product)(Sum (&)[4], const u32 (&)[4], const u32 (&)[2])) {
    Sum sums[8][4] = {};
    u32 x[4], w[2];
    for (int i = 0; i < 4; ++i) {
        x[i] = threadIdx.x * (i + 1) & 0x03030303u;
    }
    w[0] = threadIdx.x & 0x01010101u;
    w[1] = ~w[0] & 0x01010101u;
    for (int step = 0; step < a.count; ++step) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            product(sums[i], x, w);
        }
    }
    Sum all = 0;
    for (int i = 0; i < 8; ++i) {
        all += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
    }
    ((Sum*)a.out)[blockIdx.x * blockDim.x + threadIdx.x] = all;
}
