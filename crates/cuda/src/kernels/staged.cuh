// Few tokens times rows of blocks, from shared memory: for formats whose rows are not whole words or lines.

// Besides what `blocks.cuh` needs, a `Format` has
//
//   TOGETHER                             the blocks of 32 that a lane takes at a time, 1 or 2
//   read_pair(block, pair, q, factors)   where that is 2: blocks `block_of(pair, 0)` and `block_of(pair, 1)`, which share bytes

// Lanes that share a stored block, the bytes that 32 lanes take, and the lines of 16 bytes that these may touch.
#define LANES_A_BLOCK (Format::BLOCKS / Format::TOGETHER)
#define CHUNK (32 / LANES_A_BLOCK * Format::BYTES)
#define LINES ((CHUNK + 30) / 16)
#define LINES_A_LANE ((LINES + 31) / 32)
// Chunks of a row that are in flight at once, for one and two tokens.
#define AHEAD (2 / Format::TOGETHER)

// Loads the lines of one chunk of a row into registers.
__device__ __forceinline__ void fetch(const u8* row, int row_bytes, int chunk, uint4 (&held)[LINES_A_LANE]) {
    const u8* start = row + chunk * CHUNK;
    int bytes = row_bytes - chunk * CHUNK < CHUNK ? row_bytes - chunk * CHUNK : CHUNK;
    const uint4* line = (const uint4*)(start - ((u64)start & 15));
    int lines = ((int)((u64)start & 15) + bytes + 15) / 16;
#pragma unroll
    for (int i = 0; i < LINES_A_LANE; ++i) {
        int index = threadIdx.x % 32 + 32 * i;
        if (index < lines) {
            held[i] = line[index];
        }
    }
}

// The blocks that this lane takes: of which stored block in a chunk, and how the format finds them there.
template <class Format>
__device__ __forceinline__ void read_own(const u8* start, u32 (&q)[Format::TOGETHER][8], Factors (&factors)[Format::TOGETHER]) {
    int lane = threadIdx.x % 32;
    const u8* stored = start + lane / LANES_A_BLOCK * Format::BYTES;
    if constexpr (Format::TOGETHER == 2) {
        Format::read_pair(stored, lane % LANES_A_BLOCK, q, factors);
    } else {
        Format::read(stored, lane % LANES_A_BLOCK, q[0], factors[0]);
    }
}

// The number of its block `which` in a chunk.
template <class Format>
__device__ __forceinline__ int own_block(int which) {
    int lane = threadIdx.x % 32;
    if constexpr (Format::TOGETHER == 2) {
        return lane / LANES_A_BLOCK * Format::BLOCKS + Format::block_of(lane % LANES_A_BLOCK, which);
    } else {
        return lane;
    }
}

// Adds this lane's blocks of chunk `chunk`, which was staged at `start`, to the sums of row `r`.
template <int T>
__device__ __forceinline__ void add_products(
    const Product& a, const Share<T>& share, const u8* start, int chunk, int r, float (&sums)[T][ROWS]) {
    int blocks = a.inputs / 32;
    u32 q[Format::TOGETHER][8];
    Factors factors[Format::TOGETHER];
    read_own<Format>(start, q, factors);
#pragma unroll
    for (int t = 0; t < T; ++t) {
        u64 token = share.token(a, t);
#pragma unroll
        for (int i = 0; i < Format::TOGETHER; ++i) {
            int block = 32 * Format::TOGETHER * chunk + own_block<Format>(i);
            const uint4* x = (const uint4*)((const u8*)a.x + token * a.inputs + 32 * block);
            uint4 low = load(x), high = load(x + 1);
            uint2 step = load((const uint2*)a.steps + token * blocks + block);
            Block of_x = {__uint_as_float(step.x), step.y};
            sums[t][r] = add_block<Format>(factors[i], dot16(q[i], low), dot16(q[i] + 4, high), of_x, sums[t][r]);
        }
    }
}

// `T` tokens: a warp computes `ROWS` rows, each lane `TOGETHER` blocks of 32 at a time, from shared memory. Chunks are fetched some time
// before they are needed: one chunk of each row has too few bytes in flight to keep a fast GPU's memory busy.
template <int T>
__device__ __forceinline__ void few(const Product& a) {
    // With more tokens registers are scarce, and a chunk takes longer to compute.
    const int ahead = T <= 2 ? AHEAD : 1;
    // One line more, as the last word may be read beyond its end.
    __shared__ uint4 staged[WARPS][ROWS][LINES_A_LANE * 32 + 1];
    Share<T> share = share_of<T>(a);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int blocks = a.inputs / 32, chunks = (blocks + 32 * Format::TOGETHER - 1) / (32 * Format::TOGETHER);
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
                if (32 * Format::TOGETHER * chunk + own_block<Format>(0) < blocks) {
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        const u8* start = (const u8*)staged[warp][r] + ((u64)(w[r] + chunk * CHUNK) & 15);
                        add_products<T>(a, share, start, chunk, r, sums);
                    }
                }
            }
        }
    }
    put_sums(a, share, sums, [](int, int, float sum) { return sum; });
}
