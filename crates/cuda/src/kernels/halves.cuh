// Rows of stored 16-bit floats times many tokens of the same, by tensor cores. The file of a dtype defines `multiply`.
// The activations of a token were scaled by the power of two in `steps`, where there is one.

template <int SIDE>
__device__ __forceinline__ void many(const Product& a) {
    __shared__ __align__(128) u8 x[STAGES * TILE_BYTES(SIDE)];
    __shared__ __align__(128) u8 w[STAGES * TILE_BYTES(SIDE)];
    int first, token0;
    const Part& part = part_of(a, SIDE, SIDE, first, token0);
    float sums[SIDE / 32][SIDE / 16][4] = {};
    multiply_tile<SIDE>(a, part, first, token0, x, w, sums, multiply, [](const u8*) {});
    auto scale_of = [&](int token) { return a.steps ? ((const float*)a.steps)[token] : 1.0f; };
    put_tile<SIDE>(
        a, part, first, token0, sums, scale_of, [](int, int) { return 0; }, [](float scale, int, float sum) { return sum * scale; });
}

KERNELS_FOR_MANY

KERNEL_OF(256, rate, Rate) { repeat<float>(a, multiply); }
