// Q4_1: d and m in f16, then 16 bytes of nibbles as in Q4_0.

struct Format {
    static const int BYTES = 20, BLOCKS = 1, OFFSET = 0, KIND = BASED, TOGETHER = 1;

    static __device__ __forceinline__ void read(const u8* block, int, u32 (&q)[8], Factors& factors) {
        u32 all[5];
        words(block, true, all);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            q[i] = all[1 + i] & 0x0f0f0f0fu;
            q[i + 4] = all[1 + i] >> 4 & 0x0f0f0f0fu;
        }
        factors.d = half_to_float((u16)all[0]);
        factors.m = half_to_float((u16)(all[0] >> 16));
        factors.small = 0;
    }
};
