// Rows of blocks times activations in blocks of 32 signed bytes. The file of a dtype defines `Format`:
//
//   BYTES, BLOCKS     bytes of a stored block, and the blocks of 32 elements in it
//   OFFSET            what is to be subtracted from every element
//   KIND              how the factors of 32 elements make numbers of them:
//     SIMPLE            d * q
//     BASED             d * q + m
//     HALVES            d * scale of the half * q
//     HALVES_LESS       d * scale of the half * q - m * minimum of the half; scale * q is a signed byte
//     HALVES_BYTES      like HALVES; -scale * q is a signed byte
//   read(block, b, q, factors)   the elements of block `b` of 32, four a word in order, and their factors
//
// `few<T>` is the one of `staged.cuh` or of `pairs.cuh`.
//
// All products of a half are added exactly, in integers.

__device__ __forceinline__ int small_of(const Factors& f, int index) {
    return (int)(i8)(f.small >> (8 * index));
}

// sum + the result for 32 elements: `low` and `high` are the products of the halves, of elements with their offset.
template <class Format>
__device__ __forceinline__ float add_block(const Factors& f, int low, int high, const Block& x, float sum) {
    int low_x = low_sum(x.sums), high_x = high_sum(x.sums);
    low -= Format::OFFSET * low_x;
    high -= Format::OFFSET * high_x;
    if (Format::KIND == SIMPLE || Format::KIND == BASED) {
        sum = fmaf((float)(low + high), f.d * x.scale, sum);
        return Format::KIND == BASED ? fmaf(f.m, x.scale * (float)(low_x + high_x), sum) : sum;
    }
    sum = fmaf((float)(small_of(f, 0) * low + small_of(f, 1) * high), f.d * x.scale, sum);
    if (Format::KIND == HALVES_LESS) {
        int less = small_of(f, 2) * low_x + small_of(f, 3) * high_x;
        sum = fmaf(-(float)less, f.m * x.scale, sum);
    }
    return sum;
}

// The products of 16 elements.
__device__ __forceinline__ int dot16(const u32* q, const uint4& x) {
    return dot4(q[0], x.x, dot4(q[1], x.y, dot4(q[2], x.z, dot4(q[3], x.w, 0))));
}

// The value of element `q` of half `half`.
template <class Format>
__device__ __forceinline__ float number(const Factors& f, int q, int half) {
    q -= Format::OFFSET;
    if (Format::KIND == SIMPLE) {
        return f.d * (float)q;
    }
    if (Format::KIND == BASED) {
        return f.d * (float)q + f.m;
    }
    float scaled = f.d * (float)(small_of(f, half) * q);
    return Format::KIND == HALVES_LESS ? scaled - f.m * (float)small_of(f, 2 + half) : scaled;
}
