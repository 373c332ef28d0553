// Q6_K: 128 bytes of low nibbles, 64 bytes of high pairs, 16 signed scales of 16 elements each, d in f16. Of each half of four
// blocks, block `j` has its nibbles in 32 bytes, those of `j % 2`, low for `j < 2`, and its pairs at bit `2 * j` of 32 bytes.

struct Format {
    static const int BYTES = 210, BLOCKS = 8, OFFSET = 32, KIND = HALVES;

    static __device__ __forceinline__ void read(const u8* block, int b, u32 (&q)[8], Factors& factors) {
        int half = b / 4, j = b % 4;
        u32 high[8];
        words(block + 64 * half + 32 * (j % 2), false, q);
        words(block + 128 + 32 * half, false, high);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            q[i] = (q[i] >> (4 * (j / 2)) & 0x0f0f0f0fu) | (high[i] >> (2 * j) & 0x03030303u) << 4;
        }
        factors.d = half_to_float(half_word(block + 208));
        factors.m = 0.0f;
        factors.small = block[192 + 2 * b] | (u32)block[193 + 2 * b] << 8;
    }
};
