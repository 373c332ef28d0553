// F32: multiplied as it is.

struct Stored {
    static const int SIZE = 4;

    static __device__ __forceinline__ void widen(const uint4& line, float (&wide)[4]) {
        wide[0] = __uint_as_float(line.x);
        wide[1] = __uint_as_float(line.y);
        wide[2] = __uint_as_float(line.z);
        wide[3] = __uint_as_float(line.w);
    }

    static __device__ __forceinline__ float one(const u8* row, int index) {
        return ((const float*)row)[index];
    }
};
