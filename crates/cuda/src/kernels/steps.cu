// Everything except products with weights and attention: preparing activations, rotating, caching.

#define SOURCE_PLAIN 0
#define SOURCE_RMS 1
#define SOURCE_LAYER 2
#define SOURCE_SWIGLU 3
#define SOURCE_GELU 4

#define FORM_F32 0
#define FORM_BF16 1
#define FORM_F16 2
#define FORM_Q8 3
#define FORM_INT8 4
#define FORM_EXTENT 5

#define RULE_SYMMETRIC 0
#define RULE_ASYMMETRIC 1
#define RULE_STATIC 2

// Rows of floats, as the source makes them, in the form that a product reads.
struct Prepare {
    // F32 rows, `stride` elements apart.
    u64 x;
    // The gate, in rows `stride` elements apart.
    u64 gate;
    // The norm.
    u64 weight;
    u64 bias;
    // The indices of the rows of `x` to take, or 0 for all in order.
    u64 gather;
    u64 out;
    // The steps. FORM_F16: the factor of each row. FORM_Q8: a `Block` for each 32 elements. FORM_INT8: a `Row` for each row.
    u64 steps;
    // Extents of all rows: FORM_EXTENT writes them, and FORM_INT8 reads them if `together`.
    u64 extents;
    int source;
    int form;
    int width;
    int stride;
    // Elements of a row that a block prepares: all of them where the source or the form looks at the whole row.
    int columns;
    int weight_code;
    int bias_code;
    float eps;
    int rule;
    int zero;
    float scale;
    // The number of rows that share one scale, or 0.
    int together;
};

struct Extent {
    float low;
    float high;
    // 0, or NaN when a number is not finite.
    float poison;
    float unused;
};

// The sum over all threads of the block, in the threads of its first warp. `shared` has 32 elements.
__device__ __forceinline__ double block_sum(double value, double* shared) {
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = value;
    }
    __syncthreads();
    return threadIdx.x < 32 ? warp_sum(threadIdx.x < blockDim.x / 32 ? shared[threadIdx.x] : 0.0) : 0.0;
}

__device__ __forceinline__ void widen_extent(Extent& e, float value) {
    e.low = value < e.low ? value : e.low;
    e.high = value > e.high ? value : e.high;
    e.poison += value * 0.0f;
}

// The extent over all threads of the block, in every thread. `shared` has 32 elements.
__device__ __forceinline__ Extent block_extent(Extent e, Extent* shared) {
    for (int step = 16; step > 0; step /= 2) {
        e.low = fminf(e.low, __shfl_xor_sync(FULL, e.low, step));
        e.high = fmaxf(e.high, __shfl_xor_sync(FULL, e.high, step));
        e.poison += __shfl_xor_sync(FULL, e.poison, step);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = e;
    }
    __syncthreads();
    e = shared[0];
    for (int warp = 1; warp < (int)blockDim.x / 32; ++warp) {
        e.low = fminf(e.low, shared[warp].low);
        e.high = fmaxf(e.high, shared[warp].high);
        e.poison += shared[warp].poison;
    }
    return e;
}

// The nearest integer, ties to even, for magnitudes below 2^22.
__device__ __forceinline__ int nearest(float value) {
    const float room = 12582912.0f;
    return (int)(__float_as_uint(value + room) - __float_as_uint(room));
}

struct Source {
    const Prepare& a;
    const float* x;
    const float* gate;
    float mean;
    float factor;

    __device__ __forceinline__ float at(int i) const {
        float value = x[i];
        switch (a.source) {
        case SOURCE_RMS:
            return value * factor * stored_float(a.weight, a.weight_code, i);
        case SOURCE_LAYER:
            value = (value - mean) * factor * stored_float(a.weight, a.weight_code, i);
            return value + stored_float(a.bias, a.bias_code, i);
        case SOURCE_SWIGLU:
            return gate[i] / (1.0f + expf(-gate[i])) * value;
        case SOURCE_GELU:
            return value / (1.0f + expf(-1.595769f * (value + 0.044715f * value * value * value)));
        default:
            return value;
        }
    }
};

KERNEL(prepare, Prepare) {
    __shared__ double sums[32];
    __shared__ Extent extents[32];
    int row = blockIdx.x;
    int from = a.gather ? ((const int*)a.gather)[row] : row;
    int begin = blockIdx.y * a.columns;
    int end = begin + a.columns < a.width ? begin + a.columns : a.width;
    u64 out = (u64)row * a.width;
    const float* x = (const float*)a.x + (u64)from * a.stride;
    Source source = {a, x, (const float*)a.gate + (u64)from * a.stride, 0.0f, 0.0f};
    if (a.source == SOURCE_RMS || a.source == SOURCE_LAYER) {
        // Most GPUs compute few divisions and roots in double precision at a time: one thread does it.
        __shared__ double mean;
        __shared__ float factor;
        if (threadIdx.x == 0) {
            mean = 0;
        }
        if (a.source == SOURCE_LAYER) {
            double sum = 0;
            for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
                sum += x[i];
            }
            sum = block_sum(sum, sums);
            if (threadIdx.x == 0) {
                mean = sum / a.width;
            }
        }
        __syncthreads();
        double squares = 0;
        for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
            squares += (x[i] - mean) * (x[i] - mean);
        }
        squares = block_sum(squares, sums);
        if (threadIdx.x == 0) {
            factor = (float)(1.0 / sqrt(squares / a.width + (double)a.eps));
        }
        __syncthreads();
        source.mean = (float)mean;
        source.factor = factor;
    }
    Extent extent = {0.0f, 0.0f, 0.0f, 0.0f};
    if (a.together && a.form == FORM_INT8) {
        for (int i = threadIdx.x; i < a.together; i += blockDim.x) {
            Extent other = ((const Extent*)a.extents)[i];
            extent.low = fminf(extent.low, other.low);
            extent.high = fmaxf(extent.high, other.high);
            extent.poison += other.poison;
        }
        extent = block_extent(extent, extents);
    } else if (a.form == FORM_INT8 || a.form == FORM_F16 || a.form == FORM_EXTENT) {
        for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
            widen_extent(extent, source.at(i));
        }
        extent = block_extent(extent, extents);
    }
    switch (a.form) {
    case FORM_EXTENT:
        if (threadIdx.x == 0) {
            ((Extent*)a.extents)[row] = extent;
        }
        break;
    case FORM_F32:
        for (int i = begin + threadIdx.x; i < end; i += blockDim.x) {
            ((float*)a.out)[out + i] = source.at(i);
        }
        break;
    case FORM_BF16:
        for (int i = begin + threadIdx.x; i < end; i += blockDim.x) {
            ((u16*)a.out)[out + i] = float_to_bf16(source.at(i));
        }
        break;
    case FORM_F16: {
        // A power of two that brings the largest magnitude to between 1 and 4, so that no element overflows.
        float largest = fmaxf(extent.high, -extent.low);
        int exponent = (int)(__float_as_uint(largest) >> 23);
        exponent = largest == 0.0f ? 127 : exponent < 1 ? 1 : exponent > 253 ? 253 : exponent;
        float down = __uint_as_float((u32)(254 - exponent) << 23);
        float up = __uint_as_float((u32)exponent << 23) + extent.poison;
        for (int i = begin + threadIdx.x; i < end; i += blockDim.x) {
            ((u16*)a.out)[out + i] = float_to_half(source.at(i) * down);
        }
        if (threadIdx.x == 0) {
            ((float*)a.steps)[row] = up;
        }
        break;
    }
    case FORM_Q8:
        // Eight lanes take a block of 32, four elements each.
        for (int warp = begin + (threadIdx.x / 32) * 128; warp < end; warp += blockDim.x * 4) {
            int i = warp + threadIdx.x % 32 * 4;
            float values[4] = {};
            u32 largest = 0;
            if (i < end) {
                for (int j = 0; j < 4; ++j) {
                    values[j] = source.at(i + j);
                    u32 bits = __float_as_uint(values[j]) & 0x7fffffffu;
                    largest = bits > largest ? bits : largest;
                }
            }
            for (int step = 1; step < 8; step *= 2) {
                u32 other = __shfl_xor_sync(FULL, largest, step);
                largest = other > largest ? other : largest;
            }
            float scale = __uint_as_float(largest) / 127.0f;
            // Where the scale is 0 or NaN any divisor will do: the bytes will be multiplied by that scale.
            float divisor = scale > 0.0f ? scale : 1.0f;
            u32 packed = 0;
            int sum = 0;
            for (int j = 0; j < 4; ++j) {
                int q = nearest(values[j] / divisor);
                q = q < -127 ? -127 : q > 127 ? 127 : q;
                packed |= (u32)(q & 0xff) << (8 * j);
                sum += q;
            }
            sum += __shfl_xor_sync(FULL, sum, 1);
            sum += __shfl_xor_sync(FULL, sum, 2);
            int other = __shfl_xor_sync(FULL, sum, 4);
            if (i < end) {
                *(u32*)((u8*)a.out + out + i) = packed;
                if (threadIdx.x % 8 == 0) {
                    Block block = {scale, (u32)(sum & 0xffff) | (u32)other << 16};
                    ((Block*)a.steps)[(out + i) / 32] = block;
                }
            }
        }
        break;
    case FORM_INT8: {
        float scale;
        int zero = 0;
        if (a.rule == RULE_STATIC) {
            scale = a.scale + extent.poison;
            zero = a.zero;
        } else if (a.rule == RULE_SYMMETRIC) {
            scale = fmaxf(extent.high, -extent.low) / 127.0f + extent.poison;
        } else {
            scale = (extent.high - extent.low) / 255.0f + extent.poison;
            if (scale > 0.0f) {
                zero = (int)rintf(-128.0f - extent.low / scale);
            }
            zero = zero < -128 ? -128 : zero > 127 ? 127 : zero;
        }
        // A scale of 0 means that all are zeros, which any divisor leaves as they are.
        float divisor = scale > 0.0f ? scale : 1.0f;
        for (int i = begin + threadIdx.x; i < end; i += blockDim.x) {
            float quotient = source.at(i) / divisor;
            quotient = quotient < -1024.0f ? -1024.0f : quotient > 1024.0f ? 1024.0f : quotient;
            int q = nearest(quotient) + zero;
            ((i8*)a.out)[out + i] = (i8)(q < -128 ? -128 : q > 127 ? 127 : q);
        }
        if (threadIdx.x == 0) {
            Row step = {scale, zero};
            ((Row*)a.steps)[row] = step;
        }
        break;
    }
    }
}

// The place of a row of the batch: its position, and its sequence's first entry in the table of pages.
struct Place {
    int position;
    int pages;
};

// Norms and rotates the heads of q in place and the heads of k on their way to the cache, where v is stored unchanged.
struct Rotate {
    u64 qkv;
    u64 cos;
    u64 sin;
    u64 q_norm;
    u64 q_bias;
    u64 k_norm;
    u64 k_bias;
    u64 places;
    u64 pages;
    // The least `overflow_of` of the values that the cache cannot hold, or all ones.
    u64 overflow;
    int heads;
    int kv_heads;
    int dim;
    int pairs;
    int interleaved;
    // Whether keys and values are F16.
    int halves;
    int layer;
    int layer_norm;
    int q_norm_code;
    int q_bias_code;
    int k_norm_code;
    int k_bias_code;
    float eps;
    int unused;
};

#define MOST_DIM 256
#define ROTATE_WARPS 4

// The word that `batch.rs` reads back: the least is of the first layer, in it of the first row, and there of the largest magnitude.
__device__ __forceinline__ u64 overflow_of(int layer, int row, float value) {
    u32 bits = __float_as_uint(value);
    return (u64)layer << 48 | (u64)row << 32 | (u32)~(bits << 1 | bits >> 31);
}

KERNEL_OF(32 * ROTATE_WARPS, rotate, Rotate) {
    __shared__ float all[ROTATE_WARPS][MOST_DIM];
    int row = blockIdx.x, lane = threadIdx.x % 32;
    int head = blockIdx.y * ROTATE_WARPS + threadIdx.x / 32;
    int total = a.heads + 2 * a.kv_heads;
    if (head >= total) {
        return;
    }
    float* own = all[threadIdx.x / 32];
    float* from = (float*)a.qkv + ((u64)row * total + head) * a.dim;
    bool query = head < a.heads, value = head >= a.heads + a.kv_heads;
    for (int i = lane; i < a.dim; i += 32) {
        own[i] = from[i];
    }
    __syncwarp();
    u64 norm = query ? a.q_norm : a.k_norm;
    if (!value && norm) {
        u64 bias = query ? a.q_bias : a.k_bias;
        int code = query ? a.q_norm_code : a.k_norm_code, bias_code = query ? a.q_bias_code : a.k_bias_code;
        double mean = 0, squares = 0;
        if (a.layer_norm) {
            for (int i = lane; i < a.dim; i += 32) {
                mean += own[i];
            }
            mean = warp_sum(mean) / a.dim;
        }
        for (int i = lane; i < a.dim; i += 32) {
            squares += (own[i] - mean) * (own[i] - mean);
        }
        float factor = (float)(1.0 / sqrt(warp_sum(squares) / a.dim + (double)a.eps));
        for (int i = lane; i < a.dim; i += 32) {
            float scaled = (own[i] - (float)mean) * factor * stored_float(norm, code, i);
            own[i] = a.layer_norm ? scaled + stored_float(bias, bias_code, i) : scaled;
        }
        __syncwarp();
    }
    if (!value) {
        const float* cos = (const float*)a.cos + (u64)row * a.pairs;
        const float* sin = (const float*)a.sin + (u64)row * a.pairs;
        for (int pair = lane; pair < a.pairs; pair += 32) {
            int i = a.interleaved ? 2 * pair : pair, j = a.interleaved ? i + 1 : pair + a.pairs;
            float first = own[i], second = own[j];
            own[i] = first * cos[pair] - second * sin[pair];
            own[j] = second * cos[pair] + first * sin[pair];
        }
        __syncwarp();
    }
    if (query) {
        for (int i = lane; i < a.dim; i += 32) {
            from[i] = own[i];
        }
        return;
    }
    Place place = ((const Place*)a.places)[row];
    u64 page = ((const u64*)a.pages)[place.pages + place.position / PAGE];
    u64 at = (((u64)a.layer * 2 * a.kv_heads + head - a.heads) * PAGE + place.position % PAGE) * a.dim;
    for (int i = lane; i < a.dim; i += 32) {
        bool infinite;
        if (a.halves) {
            u16 half = float_to_half(own[i]);
            ((u16*)page)[at + i] = half;
            infinite = (half & 0x7fff) == 0x7c00;
        } else {
            ((float*)page)[at + i] = own[i];
            infinite = (__float_as_uint(own[i]) & 0x7fffffffu) == 0x7f800000u;
        }
        if (infinite) {
            atomicMin((u64*)a.overflow, overflow_of(a.layer, row, own[i]));
        }
    }
}

// Copies lines of 16 bytes from one place to another, to measure the memory.
struct Copy {
    u64 from;
    u64 to;
    u64 lines;
};

// Four lines of a thread are in flight together: a single one would measure the latency.
KERNEL_OF(256, copy, Copy) {
    const int ahead = 4;
    u64 apart = (u64)gridDim.x * blockDim.x;
    for (u64 start = (u64)blockIdx.x * blockDim.x + threadIdx.x; start < a.lines; start += ahead * apart) {
        uint4 held[ahead];
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
            held[i] = start + i * apart < a.lines ? ((const uint4*)a.from)[start + i * apart] : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
            if (start + i * apart < a.lines) {
                ((uint4*)a.to)[start + i * apart] = held[i];
            }
        }
    }
}
