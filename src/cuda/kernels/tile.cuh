// Many tokens: a block of four warps computes 64 tokens by 64 rows from tiles of both in shared memory, each warp 32 by 32.
//
// A staged row is 128 bytes of operands, whatever their dtype: the fragments of halves (16 inputs) and of signed bytes (32
// inputs) lie alike in 8 words.

#define TILE 64
#define TILE_THREADS 128
// Words of a staged row, and from one to the next: with 4 more, the same word of 8 rows is in 8 different groups of banks.
#define STAGED 32
#define STRIDE 36

// What a thread brings of rows `first..` of a matrix: one line of 16 bytes of each 16th row, zeros beyond the last.
struct Lines {
    const u8* from;
    u64 apart;
    int rows;
    // Bytes of a row from this thread's line on.
    int left;
    uint4 held[TILE / 16];

    __device__ __forceinline__ Lines(u64 matrix, int row_bytes, int first, int count) {
        int row = threadIdx.x / 8, line = threadIdx.x % 8;
        from = (const u8*)matrix + (u64)(first + row) * row_bytes + 16 * line;
        apart = (u64)16 * row_bytes;
        rows = (count - first - row + 15) / 16;
        left = row_bytes - 16 * line;
    }

    // Asks for those of the bytes from `start` on.
    __device__ __forceinline__ void fetch(int start) {
#pragma unroll
        for (int i = 0; i < TILE / 16; ++i) {
            held[i] = i < rows && start < left ? load((const uint4*)(from + i * apart + start)) : make_uint4(0, 0, 0, 0);
        }
    }

    __device__ __forceinline__ void put_down(u32* tile) const {
#pragma unroll
        for (int i = 0; i < TILE / 16; ++i) {
            *(uint4*)(tile + (threadIdx.x / 8 + 16 * i) * STRIDE + threadIdx.x % 8 * 4) = held[i];
        }
    }
};

// The fragments of step `step` of 4: of both groups of 16 tokens, and of the four groups of 8 rows.
__device__ __forceinline__ void fragments(const u32* x, const u32* w, int step, u32 (&a)[2][4], u32 (&b)[4][2]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int group = lane / 4, at = 8 * step + lane % 4;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
        const u32* row = x + (32 * (warp % 2) + 16 * m + group) * STRIDE + at;
        a[m][0] = row[0];
        a[m][1] = row[8 * STRIDE];
        a[m][2] = row[4];
        a[m][3] = row[8 * STRIDE + 4];
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
        const u32* row = w + (32 * (warp / 2) + 8 * n + group) * STRIDE + at;
        b[n][0] = row[0];
        b[n][1] = row[4];
    }
}

// Token and row, within the tile, of accumulator `i` of the groups `m` and `n`.
__device__ __forceinline__ int token_of(int m, int i) {
    return 32 * ((threadIdx.x / 32) % 2) + 16 * m + (threadIdx.x % 32) / 4 + 8 * (i / 2);
}

__device__ __forceinline__ int row_of(int n, int i) {
    return 32 * (threadIdx.x / 64) + 8 * n + 2 * (threadIdx.x % 4) + i % 2;
}

// Products by tensor cores alone, `count` times 8 a warp: what they can do.
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
