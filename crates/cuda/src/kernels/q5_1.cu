// Q5_1: d and m in f16, a double word with the high bit of element `i` as bit `i`, then 16 bytes of nibbles as in Q4_0.

struct Format {
    static const int BYTES = 24, BLOCKS = 1, OFFSET = 0, KIND = BASED, TOGETHER = 1;

    static __device__ __forceinline__ void read(const u8* block, int, u32 (&q)[8], Factors& factors) {
        u32 all[6];
        words(block, true, all);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            q[i] = (all[2 + i] & 0x0f0f0f0fu) | fifth_bits(all[1] >> (4 * i));
            q[i + 4] = (all[2 + i] >> 4 & 0x0f0f0f0fu) | fifth_bits(all[1] >> (4 * i + 16));
        }
        factors.d = half_to_float((u16)all[0]);
        factors.m = half_to_float((u16)(all[0] >> 16));
        factors.small = 0;
    }
};
