// Q4_K: d, dmin and the scales and minima of eight blocks; then 128 bytes of nibbles: 32 bytes hold one block in their low and
// the next in their high halves.

struct Format {
    static const int BYTES = 144, BLOCKS = 8, OFFSET = 0, KIND = BASED;

    static __device__ __forceinline__ void read(const u8* block, int b, u32 (&q)[8], Factors& factors) {
        words(block + 16 + b / 2 * 32, true, q);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            q[i] = q[i] >> (4 * (b % 2)) & 0x0f0f0f0fu;
        }
        small_scales(block, b, factors.d, factors.m);
        factors.small = 0;
    }
};
