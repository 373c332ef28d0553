// Code that every kernel uses: stored floats, sums over a warp, and the arguments of a product.

#define FULL 0xffffffffu
#define INFINITE __uint_as_float(0x7f800000u)

// Codes of stored float dtypes, as `arguments.rs` gives them.
#define CODE_F32 0
#define CODE_F16 1
#define CODE_BF16 2

// Positions of a page of the cache, [layers, 2, kv_heads, PAGE, dim]: keys first, then values.
#define PAGE 256

__device__ __forceinline__ float bf16_to_float(u16 bits) {
    return __uint_as_float((u32)bits << 16);
}

// The nearest BF16, ties to even; NaN stays NaN.
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
    // Inputs that share a scale.
    int group;
};

struct Product {
    // The activations as prepared: rows of floats, halves or signed bytes.
    u64 x;
    // The steps of each row of the activations: see `Prepare`.
    u64 steps;
    // The output, F32 [tokens, width].
    u64 y;
    Part parts[3];
    int count;
    int inputs;
    int row_bytes;
    int tokens;
    int width;
    // Whether the product is added to the contents of `y`.
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

// The part that this block computes, at `each` rows and `tokens` tokens a block, and its first row in that part and its first
// token. Blocks that follow each other take the same rows, which are read from memory once.
__device__ __forceinline__ const Part& part_of(const Product& a, int each, int tokens, int& first, int& token0) {
    int tiles = (a.tokens + tokens - 1) / tokens, block = blockIdx.x / tiles, index = 0;
    token0 = blockIdx.x % tiles * tokens;
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

// Stores one output.
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
    const u32* at = (const u32*)(from - ((u64)from & 3));
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

// Word `i` of a line.
__device__ __forceinline__ u32 word(const uint4& line, int i) {
    return i == 0 ? line.x : i == 1 ? line.y : i == 2 ? line.z : line.w;
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

// The outputs of a warp of these kernels: `ROWS` rows of a part for `T` tokens. After the last row or token it computes the last
// one again, which `put_sums` leaves out.
template <int T>
struct Share {
    const Part& part;
    int first;
    int token0;

    __device__ __forceinline__ int row(int r) const {
        return first + r < part.rows ? first + r : part.rows - 1;
    }

    __device__ __forceinline__ int token(const Product& a, int t) const {
        return token0 + t < a.tokens ? token0 + t : a.tokens - 1;
    }
};

template <int T>
__device__ __forceinline__ Share<T> share_of(const Product& a) {
    int first, token0;
    const Part& part = part_of(a, WARPS * ROWS, T, first, token0);
    return {part, first + (int)threadIdx.x / 32 * ROWS, token0};
}

// Adds up every output over the lanes and stores `finish(t, row, sum)`.
template <int T, class N, class Finish>
__device__ __forceinline__ void put_sums(const Product& a, const Share<T>& share, const N (&sums)[T][ROWS], Finish finish) {
#pragma unroll
    for (int t = 0; t < T; ++t) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float sum = (float)warp_sum(sums[t][r]);
            int token = share.token0 + t, row = share.first + r;
            if (threadIdx.x % 32 == 0 && token < a.tokens && row < share.part.rows) {
                put(a, share.part, token, row, finish(t, row, sum));
            }
        }
    }
}

// The kernels for up to 1, 2, 4 and 8 tokens, each `few<T>` of the file that uses this macro.
#define KERNELS_FOR_FEW                                     \
    KERNEL_OF(32 * WARPS, few_1, Product) { few<1>(a); }    \
    KERNEL_OF(32 * WARPS, few_2, Product) { few<2>(a); }    \
    KERNEL_OF(32 * WARPS, few_4, Product) { few<4>(a); }    \
    KERNEL_OF(32 * WARPS, few_8, Product) { few<8>(a); }

// The kernels for many tokens, by the tokens and rows of a block, each `many<SIDE>` of the file that uses this macro.
#define KERNELS_FOR_MANY                                          \
    KERNEL_OF(TILE_THREADS, many_64, Product) { many<64>(a); }    \
    KERNEL_OF(TILE_THREADS, many_128, Product) { many<128>(a); }
