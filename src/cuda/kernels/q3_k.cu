// Q3_K: 32 bytes with the high bits, bit `b` of byte `i` for element `i` of block `b`; 64 bytes of pairs of bits as in Q2_K; 12
// bytes with 6-bit scales of 16 elements each, less 32: the low four bits of scale `s` in byte `s % 8`, low for `s < 8`, the
// high two in byte `8 + s % 4` at bit `2 * (s / 4)`; d in f16.

struct Format {
    static const int BYTES = 110, BLOCKS = 8, OFFSET = 4, KIND = HALVES;

    static __device__ __forceinline__ u32 scale(const u8* scales, int s) {
        u32 low = scales[s % 8] >> (4 * (s / 8)) & 15;
        u32 high = scales[8 + s % 4] >> (2 * (s / 4)) & 3;
        return ((low | high << 4) - 32) & 0xff;
    }

    static __device__ __forceinline__ void read(const u8* block, int b, u32 (&q)[8], Factors& factors) {
        u32 high[8];
        words(block, false, high);
        words(block + 32 + b / 4 * 32, false, q);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            q[i] = (q[i] >> (2 * (b % 4)) & 0x03030303u) | (high[i] >> b & 0x01010101u) << 2;
        }
        factors.d = half_to_float(half_word(block + 108));
        factors.m = 0.0f;
        factors.small = scale(block + 96, 2 * b) | scale(block + 96, 2 * b + 1) << 8;
    }
};
