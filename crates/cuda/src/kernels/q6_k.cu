// Q6_K: 128 bytes of low nibbles, 64 bytes of high pairs, 16 signed scales of 16 elements each, d in f16. Of each half of four
// blocks, block `j` has its nibbles in 32 bytes, those of `j % 2`, low for `j < 2`, and its pairs at bit `2 * j` of 32 bytes.

struct Format {
    static const int BYTES = 210, BLOCKS = 8, OFFSET = 32, KIND = HALVES, TOGETHER = 2;

    // Pair `p` consists of blocks `block_of(p, 0)` and `block_of(p, 1)`, which share their nibbles.
    static __device__ __forceinline__ int block_of(int pair, int which) { return pair / 2 * 4 + pair % 2 + 2 * which; }

    static __device__ __forceinline__ void read_pair(const u8* block, int pair, u32 (&q)[2][8], Factors (&factors)[2]) {
        int half = pair / 2, j = pair % 2;
        u32 low[8], high[8];
        words(block + 64 * half + 32 * j, false, low);
        words(block + 128 + 32 * half, false, high);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            u32 bits = high[i] >> (2 * j);
            q[0][i] = (low[i] & 0x0f0f0f0fu) | (bits << 4 & 0x30303030u);
            q[1][i] = (low[i] >> 4 & 0x0f0f0f0fu) | (bits & 0x30303030u);
        }
#pragma unroll
        for (int which = 0; which < 2; ++which) {
            factors[which] = {half_to_float(half_word(block + 208)), 0.0f, half_word(block + 192 + 2 * block_of(pair, which))};
        }
    }

    static __device__ __forceinline__ void read(const u8* block, int b, u32 (&q)[8], Factors& factors) {
        read_one<Format>(block, b / 4 * 2 + b % 2, b % 4 / 2, q, factors);
    }
};
