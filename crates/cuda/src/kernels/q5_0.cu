// Q5_0: d in f16, a double word with the high bit of element `i` as bit `i`, then 16 bytes of nibbles as in Q4_0.

struct Format {
    static const int BYTES = 22, BLOCKS = 1, OFFSET = 16, KIND = SIMPLE, TOGETHER = 1;

    static __device__ __forceinline__ void read(const u8* block, int, u32 (&q)[8], Factors& factors) {
        u32 all[5];
        words(block + 2, false, all);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            q[i] = (all[1 + i] & 0x0f0f0f0fu) | fifth_bits(all[0] >> (4 * i));
            q[i + 4] = (all[1 + i] >> 4 & 0x0f0f0f0fu) | fifth_bits(all[0] >> (4 * i + 16));
        }
        factors.d = half_to_float(half_word(block));
        factors.m = 0.0f;
        factors.small = 0;
    }
};
