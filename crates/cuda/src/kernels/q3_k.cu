// Q3_K: 32 bytes with the high bits, bit `b` of byte `i` for element `i` of block `b`; 64 bytes of pairs of bits as in Q2_K; 12
// bytes with 6-bit scales of 16 elements each, less 32: the low four bits of scale `s` in byte `s % 8`, low for `s < 8`, the
// high two in byte `8 + s % 4` at bit `2 * (s / 4)`; d in f16.

struct Format {
    static const int BYTES = 110, BLOCKS = 8, OFFSET = 4, KIND = HALVES_BYTES, TOGETHER = 2;

    static __device__ __forceinline__ int block_of(int pair, int which) { return 2 * pair + which; }

    static __device__ __forceinline__ void read_pair(const u8* block, int pair, u32 (&q)[2][8], Factors (&factors)[2]) {
        u32 high[8], low[8];
        words(block, false, high);
        words(block + 32 + pair / 2 * 32, false, low);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            u32 pairs = low[i] >> (4 * (pair % 2)), bits = high[i] >> (2 * pair);
            q[0][i] = (pairs & 0x03030303u) | (bits << 2 & 0x04040404u);
            q[1][i] = (pairs >> 2 & 0x03030303u) | (bits << 1 & 0x04040404u);
        }
        // Scales `4 * pair` to `4 * pair + 3`, a byte each; no byte borrows from the next.
        u32 four[1], two[1];
        words(block + 96 + 4 * (pair % 2), false, four);
        words(block + 104, false, two);
        u32 scales = (four[0] >> (4 * (pair / 2)) & 0x0f0f0f0fu) | (two[0] >> (2 * pair) & 0x03030303u) << 4;
        scales = ((scales | 0x80808080u) - 0x20202020u) ^ 0x80808080u;
        float d = half_to_float(half_word(block + 108));
        factors[0] = {d, 0.0f, scales & 0xffffu};
        factors[1] = {d, 0.0f, scales >> 16};
    }

    static __device__ __forceinline__ void read(const u8* block, int b, u32 (&q)[8], Factors& factors) {
        read_one<Format>(block, b / 2, b % 2, q, factors);
    }
};
