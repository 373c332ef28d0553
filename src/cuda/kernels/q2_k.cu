// Q2_K: 16 bytes with the scale of 16 elements in the low and their minimum in the high half, 64 bytes of pairs of bits, d and
// dmin in f16. Block `b` has its pairs in 32 bytes of one half of the 64, at bit `2 * (b % 4)`.

struct Format {
    static const int BYTES = 84, BLOCKS = 8, OFFSET = 0, KIND = HALVES_LESS;

    static __device__ __forceinline__ void read(const u8* block, int b, u32 (&q)[8], Factors& factors) {
        words(block + 16 + b / 4 * 32, true, q);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            q[i] = q[i] >> (2 * (b % 4)) & 0x03030303u;
        }
        u32 both[1];
        words(block + 80, true, both);
        factors.d = half_to_float((u16)both[0]);
        factors.m = half_to_float((u16)(both[0] >> 16));
        u32 low = block[2 * b], high = block[2 * b + 1];
        factors.small = (low & 15) | (high & 15) << 8 | (low >> 4) << 16 | (high >> 4) << 24;
    }
};
