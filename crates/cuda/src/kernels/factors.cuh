// The descriptions of the formats of blocks, for `blocks.cuh`.

#define SIMPLE 0
#define BASED 1
#define HALVES 2
#define HALVES_LESS 3
#define HALVES_BYTES 4

struct Factors {
    float d;
    float m;
    // Signed bytes from the lowest: the scales of both halves, then their minima.
    u32 small;
};

// Four bits as the fifth bits of four bytes. Every bit of the product belongs to one bit of `four`: none carries.
__device__ __forceinline__ u32 fifth_bits(u32 four) {
    return ((four & 15) * 0x00204081u & 0x01010101u) << 4;
}

// One block of a pair.
template <class Format>
__device__ __forceinline__ void read_one(const u8* block, int pair, int which, u32 (&q)[8], Factors& factors) {
    u32 both[2][8];
    Factors of_both[2];
    Format::read_pair(block, pair, both, of_both);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        q[i] = which ? both[1][i] : both[0][i];
    }
    factors = which ? of_both[1] : of_both[0];
}

// The factors of blocks `2 * pair` and the next of the eight, from the first line of a stored block that begins with d and dmin in
// f16 and 12 bytes of 6-bit scales and minima (Q4_K, Q5_K): `d` times the scale, and `dmin` times the minimum to subtract.
__device__ __forceinline__ void small_scales(const uint4& head, int pair, Factors (&factors)[2]) {
    int shift = 16 * (pair % 2);
    u32 first = head.y >> shift, second = head.z >> shift, third = head.w >> shift;
    u32 scales = first & 0x3f3f, minima = second & 0x3f3f;
    if (pair >= 2) {
        scales = (third & 0x0f0f) | (first >> 2 & 0x3030);
        minima = (third >> 4 & 0x0f0f) | (second >> 2 & 0x3030);
    }
    float d = half_to_float((u16)head.x), m = -half_to_float((u16)(head.x >> 16));
    factors[0] = {d * (float)(int)(scales & 0xff), m * (float)(int)(minima & 0xff), 0};
    factors[1] = {d * (float)(int)(scales >> 8 & 0xff), m * (float)(int)(minima >> 8 & 0xff), 0};
}
