// Q2_K: 16 bytes with the scale of 16 elements in the low and their minimum in the high half, 64 bytes of pairs of bits, d and
// dmin in f16. Block `b` has its pairs in 32 bytes of one half of the 64, at bit `2 * (b % 4)`.

struct Format {
    static const int BYTES = 84, BLOCKS = 8, OFFSET = 0, KIND = HALVES_LESS, TOGETHER = 2;

    static __device__ __forceinline__ int block_of(int pair, int which) { return 2 * pair + which; }

    static __device__ __forceinline__ void read_pair(const u8* block, int pair, u32 (&q)[2][8], Factors (&factors)[2]) {
        u32 all[8], smalls[1], both[1];
        words(block + 16 + pair / 2 * 32, true, all);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            q[0][i] = all[i] >> (4 * (pair % 2)) & 0x03030303u;
            q[1][i] = all[i] >> (4 * (pair % 2) + 2) & 0x03030303u;
        }
        words(block + 4 * pair, true, smalls);
        words(block + 80, true, both);
        float d = half_to_float((u16)both[0]), m = half_to_float((u16)(both[0] >> 16));
        u32 scales = smalls[0] & 0x0f0f0f0fu, minima = smalls[0] >> 4 & 0x0f0f0f0fu;
        factors[0] = {d, m, (scales & 0xffffu) | minima << 16};
        factors[1] = {d, m, scales >> 16 | (minima & 0xffff0000u)};
    }

    static __device__ __forceinline__ void read(const u8* block, int b, u32 (&q)[8], Factors& factors) {
        read_one<Format>(block, b / 2, b % 2, q, factors);
    }
};
