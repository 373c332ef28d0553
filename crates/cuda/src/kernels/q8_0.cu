// Q8_0: d in f16, then 32 signed bytes.

struct Format {
    static const int BYTES = 34, BLOCKS = 1, OFFSET = 0, KIND = SIMPLE, TOGETHER = 1;

    static __device__ __forceinline__ void read(const u8* block, int, u32 (&q)[8], Factors& factors) {
        words(block + 2, false, q);
        factors.d = half_to_float(half_word(block));
        factors.m = 0.0f;
        factors.small = 0;
    }
};
