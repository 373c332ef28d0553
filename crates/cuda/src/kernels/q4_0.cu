// Q4_0: d in f16, then 16 bytes with element `i` in the low and element `i + 16` in the high half of byte `i`.

struct Format {
    static const int BYTES = 18, BLOCKS = 1, OFFSET = 8, KIND = SIMPLE, TOGETHER = 1;

    static __device__ __forceinline__ void read(const u8* block, int, u32 (&q)[8], Factors& factors) {
        u32 nibbles[4];
        words(block + 2, false, nibbles);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            q[i] = nibbles[i] & 0x0f0f0f0fu;
            q[i + 4] = nibbles[i] >> 4 & 0x0f0f0f0fu;
        }
        factors.d = half_to_float(half_word(block));
        factors.m = 0.0f;
        factors.small = 0;
    }
};
