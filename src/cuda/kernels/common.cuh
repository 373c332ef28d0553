// What every kernel uses: stored floats, sums over a warp, and the arguments of a product.

#define FULL 0xffffffffu
#define INFINITE __uint_as_float(0x7f800000u)

// Codes of stored float dtypes, as `arguments.rs` gives them.
#define CODE_F32 0
#define CODE_F16 1
#define CODE_BF16 2

__device__ __forceinline__ float bf16_to_float(u16 bits) {
    return __uint_as_float((u32)bits << 16);
}

// The nearest, ties to even; a NaN stays one.
__device__ __forceinline__ u16 float_to_bf16(float wide) {
    u32 bits = __float_as_uint(wide);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (u16)(bits >> 16) | 0x40;
    }
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

// Element `index` of a stored vector.
__device__ __forceinline__ float stored_float(u64 address, int code, int index) {
    if (code == CODE_F32) {
        return ((const float*)address)[index];
    }
    u16 bits = ((const u16*)address)[index];
    return code == CODE_F16 ? half_to_float(bits) : bf16_to_float(bits);
}

// The sum over all lanes, in every lane.
template <class N>
__device__ __forceinline__ N warp_sum(N value) {
    for (int step = 16; step > 0; step /= 2) {
        value += __shfl_xor_sync(FULL, value, step);
    }
    return value;
}

// One of the matrices that a launch multiplies: they stand side by side in the output and share dtype and input.
struct Part {
    u64 weight;
    u64 bias;
    u64 scales;
    int rows;
    // The output column of its first row.
    int column;
    int bias_code;
    int scales_code;
    // Scales of a row; 0 where all rows share one, and without scales.
    int scales_a_row;
    // Inputs that share one.
    int group;
};

struct Product {
    // The activations as prepared: rows of floats, halves or signed bytes.
    u64 x;
    // What belongs to a row of them: see `Prepare`.
    u64 steps;
    // F32 [tokens, width].
    u64 y;
    Part parts[3];
    int count;
    int inputs;
    int row_bytes;
    int tokens;
    int width;
    // Whether the product is added to what `y` holds.
    int add;
    // Whether the zero points of int8 rows may differ from 0.
    int zeros;
    // Whether rows of weights and activations are whole numbers of 16 bytes.
    int whole;
};

// Scale and sums of a block of 32 signed bytes: the sums of its halves are the two 16-bit halves of `sums`.
struct Block {
    float scale;
    u32 sums;
};

// Scale and zero point of a row of signed bytes.
struct Row {
    float scale;
    int zero;
};

__device__ __forceinline__ int low_sum(u32 sums) {
    return (int)(short)(sums & 0xffff);
}

__device__ __forceinline__ int high_sum(u32 sums) {
    return (int)(short)(sums >> 16);
}

// The part that block number `block` of a launch computes, at `each` rows a block, and its first row in that part.
__device__ __forceinline__ const Part& part_of(const Product& a, int block, int each, int& first) {
    int index = 0;
    while (index + 1 < a.count) {
        int blocks = (a.parts[index].rows + each - 1) / each;
        if (block < blocks) {
            break;
        }
        block -= blocks;
        ++index;
    }
    first = block * each;
    return a.parts[index];
}

// Puts one output where it belongs.
__device__ __forceinline__ void put(const Product& a, const Part& part, int token, int row, float value) {
    if (part.bias) {
        value += stored_float(part.bias, part.bias_code, row);
    }
    float* y = (float*)a.y + (u64)token * a.width + part.column + row;
    *y = a.add ? *y + value : value;
}

// `N` words from an even address, or, if `aligned`, from one of whole words. Otherwise reads up to a word beyond them.
template <int N>
__device__ __forceinline__ void words(const u8* from, bool aligned, u32 (&to)[N]) {
    const u32* at = (const u32*)((u64)from & ~(u64)3);
    if (aligned) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            to[i] = at[i];
        }
        return;
    }
    int shift = 8 * (int)((u64)from & 3);
    u32 low = at[0];
#pragma unroll
    for (int i = 0; i < N; ++i) {
        u32 high = at[i + 1];
        to[i] = __funnelshift_r(low, high, shift);
        low = high;
    }
}

__device__ __forceinline__ u16 half_word(const u8* from) {
    return *(const u16*)from;
}

struct Embed {
    u64 weight;
    u64 ids;
    u64 out;
    int width;
    int row_bytes;
};

// Warps of a block, and rows of a warp, in the kernels for few tokens.
#define WARPS 4
#define ROWS 2
