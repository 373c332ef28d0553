// Few tokens times rows of blocks, for formats whose blocks are whole lines of 16 bytes. Besides what `blocks.cuh` needs, their
// `Format` has
//
//   read_pair(block, pair, q, factors)   blocks `2 * pair` and `2 * pair + 1`, which share bytes

// `T` tokens: a warp computes `ROWS` rows, each lane a pair of blocks at a time.
template <int T>
__device__ __forceinline__ void few(const Product& a) {
    Share<T> share = share_of<T>(a);
    int pairs = a.inputs / 64;
    const uint4* x[T];
    const uint4* steps[T];
    const u8* w[ROWS];
    float sums[T][ROWS] = {};
#pragma unroll
    for (int t = 0; t < T; ++t) {
        x[t] = (const uint4*)a.x + (u64)share.token(a, t) * (4 * pairs);
        steps[t] = (const uint4*)a.steps + (u64)share.token(a, t) * pairs;
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        w[r] = (const u8*)share.part.weight + (u64)share.row(r) * a.row_bytes;
    }
#pragma unroll 2
    for (int pair = threadIdx.x % 32; pair < pairs; pair += 32) {
        u32 q[ROWS][2][8];
        Factors factors[ROWS][2];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const u8* block = w[r] + pair / (Format::BLOCKS / 2) * Format::BYTES;
            Format::read_pair(block, pair % (Format::BLOCKS / 2), q[r], factors[r]);
        }
#pragma unroll
        for (int t = 0; t < T; ++t) {
            uint4 step = load(steps[t] + pair);
            Block of_x[2] = {{__uint_as_float(step.x), step.y}, {__uint_as_float(step.z), step.w}};
            uint4 lines[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                lines[i] = load(x[t] + 4 * pair + i);
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    int low = dot16(q[r][i], lines[2 * i]), high = dot16(q[r][i] + 4, lines[2 * i + 1]);
                    sums[t][r] = add_block<Format>(factors[r][i], low, high, of_x[i], sums[t][r]);
                }
            }
        }
    }
    put_sums(a, share, sums, [](int, int, float sum) { return sum; });
}
