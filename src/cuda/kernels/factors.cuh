// What the formats of blocks are described by, for `blocks.cuh`.

#define SIMPLE 0
#define BASED 1
#define HALVES 2
#define HALVES_LESS 3

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

// d * scale and -(dmin * minimum) of block `b` of the eight in a stored block that begins with d and dmin in f16 and 12 bytes of
// 6-bit scales and minima (Q4_K, Q5_K).
__device__ __forceinline__ void small_scales(const u8* block, int b, float& d, float& m) {
    u32 head[1];
    words(block, true, head);
    const u8* s = block + 4;
    u32 scale, minimum;
    if (b < 4) {
        scale = s[b] & 63;
        minimum = s[b + 4] & 63;
    } else {
        scale = (s[b + 4] & 15) | (u32)(s[b - 4] >> 6) << 4;
        minimum = (s[b + 4] >> 4) | (u32)(s[b] >> 6) << 4;
    }
    d = half_to_float((u16)head[0]) * (float)(int)scale;
    m = -(half_to_float((u16)(head[0] >> 16)) * (float)(int)minimum);
}
