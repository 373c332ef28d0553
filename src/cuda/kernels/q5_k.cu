// Q5_K: d, dmin and the scales and minima of eight blocks; 32 bytes with the high bits, bit `b` of byte `i` for element `i` of
// block `b`; then 128 bytes of nibbles as in Q4_K.

struct Format {
    static const int BYTES = 176, BLOCKS = 8, OFFSET = 0, KIND = BASED;

    static __device__ __forceinline__ void read(const u8* block, int b, u32 (&q)[8], Factors& factors) {
        u32 high[8];
        words(block + 16, true, high);
        words(block + 48 + b / 2 * 32, true, q);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            q[i] = (q[i] >> (4 * (b % 2)) & 0x0f0f0f0fu) | (high[i] >> b & 0x01010101u) << 4;
        }
        small_scales(block, b, factors.d, factors.m);
        factors.small = 0;
    }
};
