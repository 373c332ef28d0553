// F16: widened in registers for few tokens, multiplied as it is by tensor cores for many.

struct Stored {
    static const int SIZE = 2;

    static __device__ __forceinline__ void widen(const uint4& line, float (&wide)[8]) {
        u32 pairs[4] = {line.x, line.y, line.z, line.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            wide[2 * i] = half_to_float((u16)pairs[i]);
            wide[2 * i + 1] = half_to_float((u16)(pairs[i] >> 16));
        }
    }

    static __device__ __forceinline__ float one(const u8* row, int index) {
        return half_to_float(((const u16*)row)[index]);
    }
};

__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    mma_f16(c, a, b);
}
