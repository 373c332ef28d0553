// What is not a product with weights: preparing activations, rotating, caching, attention.

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
    // F32 rows, `stride` apart.
    u64 x;
    // The gate, in rows `stride` apart.
    u64 gate;
    // The norm.
    u64 weight;
    u64 bias;
    // Which rows of `x` to take, or 0 for the same.
    u64 gather;
    u64 out;
    // FORM_F16: the factor of each row. FORM_Q8: a `Block` each 32 elements. FORM_INT8: a `Row` each row.
    u64 steps;
    // Extents of all rows: what FORM_EXTENT writes, and FORM_INT8 reads when `together`.
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
    // Rows that share one scale, or 0.
    int together;
};

struct Extent {
    float low;
    float high;
    // 0, or NaN when a number is not finite.
    float poison;
    float unused;
};

// The sum over all threads of the block, in every thread. `shared` has 32 elements.
__device__ __forceinline__ double block_sum(double value, double* shared) {
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = 0;
    for (int warp = 0; warp < (int)blockDim.x / 32; ++warp) {
        value += shared[warp];
    }
    return value;
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
        double mean = 0;
        if (a.source == SOURCE_LAYER) {
            for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
                mean += x[i];
            }
            mean = block_sum(mean, sums) / a.width;
        }
        double squares = 0;
        for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
            squares += (x[i] - mean) * (x[i] - mean);
        }
        squares = block_sum(squares, sums) / a.width;
        source.mean = (float)mean;
        source.factor = (float)(1.0 / sqrt(squares + (double)a.eps));
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
        // A power of two that brings the largest magnitude to between 1 and 4, so that none overflows.
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
        // Eight lanes a block of 32, four elements each.
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
        // A scale of 0 is that of zeros, which any divisor leaves as they are.
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

// Where a row of the batch stands: its position, and its sequence's first entry in the table of pages.
struct Place {
    int position;
    int pages;
};

// Positions of a page [layers, 2, kv_heads, PAGE, dim]: keys first, then values.
#define PAGE 256

// Norms and rotates the heads of q in place and those of k on their way to the cache, where v goes as it is.
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
    // The least `overflow_of` of what the cache cannot hold, or all ones.
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

// What `batch.rs` reads back: the first layer comes first, in it the first row, of that the largest magnitude.
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

// Consecutive rows of one sequence, whose queries read keys and values together.
struct Queries {
    int first;
    int rows;
    int position;
    int pages;
};

struct Attend {
    u64 qkv;
    u64 out;
    u64 queries;
    u64 pages;
    // Where parts of the positions leave maximum, sum and weighted values, [rows, heads, parts, dim + 2].
    u64 partial;
    int heads;
    int kv_heads;
    int dim;
    int halves;
    int layer;
    // Positions a row attends to, its own included, or 0 for all.
    int window;
    int parts;
    // Query heads of one key head that a block takes at a time.
    int heads_a_block;
    float scale;
    int unused;
};

#define ATTEND_WARPS 4
#define QUERIES_A_WARP 4
#define MOST_QUERIES (ATTEND_WARPS * QUERIES_A_WARP)
#define DIMS_A_LANE (MOST_DIM / 32)

// 32 positions of keys or values of one head, as floats, `dim + 1` apart; zeros outside of `begin..end`.
__device__ __forceinline__ void load_tile(const Attend& a, const u64* pages, int which, int head, int tile, int begin, int end, float* to) {
    for (int item = threadIdx.x; item < 32 * a.dim; item += 32 * ATTEND_WARPS) {
        int slot = item / a.dim, i = item % a.dim, position = tile + slot;
        float value = 0.0f;
        if (position >= begin && position < end) {
            u64 page = pages[position / PAGE];
            u64 at = ((((u64)a.layer * 2 + which) * a.kv_heads + head) * PAGE + position % PAGE) * a.dim + i;
            value = a.halves ? half_to_float(((const u16*)page)[at]) : ((const float*)page)[at];
        }
        to[slot * (a.dim + 1) + i] = value;
    }
}

// A running softmax over tiles of 32 positions: a lane a position for the scores, a lane a few elements for the values.
KERNEL_OF(32 * ATTEND_WARPS, attend, Attend) {
    SHARED_BYTES(shared);
    float* tile = (float*)shared;
    float* q = tile + 32 * (a.dim + 1);
    Queries queries = ((const Queries*)a.queries)[blockIdx.x];
    int group = a.heads / a.kv_heads;
    int groups = (group + a.heads_a_block - 1) / a.heads_a_block;
    int kv_head = blockIdx.y / groups;
    int first_head = blockIdx.y % groups * a.heads_a_block;
    int heads = group - first_head < a.heads_a_block ? group - first_head : a.heads_a_block;
    first_head += kv_head * group;
    int count = heads * queries.rows;
    int total = a.heads + 2 * a.kv_heads;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64* pages = (const u64*)a.pages + queries.pages;
    // Query `n` is head `n % heads` of row `n / heads`.
    for (int item = threadIdx.x; item < count * a.dim; item += 32 * ATTEND_WARPS) {
        int n = item / a.dim, i = item % a.dim;
        u64 row = queries.first + n / heads;
        q[item] = ((const float*)a.qkv)[(row * total + first_head + n % heads) * a.dim + i];
    }
    int end = queries.position + queries.rows;
    int begin = a.window && queries.position + 1 > a.window ? queries.position + 1 - a.window : 0;
    // This block's part of the positions: whole tiles.
    int tiles = (end + 31) / 32 - begin / 32;
    int each = (tiles + a.parts - 1) / a.parts;
    int first_tile = begin / 32 + (int)blockIdx.z * each;
    int last_tile = first_tile + each < (end + 31) / 32 ? first_tile + each : (end + 31) / 32;

    float most[QUERIES_A_WARP], sum[QUERIES_A_WARP], out[QUERIES_A_WARP][DIMS_A_LANE];
#pragma unroll
    for (int n = 0; n < QUERIES_A_WARP; ++n) {
        most[n] = -INFINITE;
        sum[n] = 0.0f;
#pragma unroll
        for (int i = 0; i < DIMS_A_LANE; ++i) {
            out[n][i] = 0.0f;
        }
    }
    for (int t = first_tile; t < last_tile; ++t) {
        __syncthreads();
        load_tile(a, pages, 0, kv_head, 32 * t, begin, end, tile);
        __syncthreads();
        int position = 32 * t + lane;
        float weight[QUERIES_A_WARP];
#pragma unroll
        for (int n = 0; n < QUERIES_A_WARP; ++n) {
            weight[n] = 0.0f;
            int query = warp + ATTEND_WARPS * n;
            if (query < count) {
                float score = 0.0f;
                for (int i = 0; i < a.dim; ++i) {
                    score = fmaf(q[query * a.dim + i], tile[lane * (a.dim + 1) + i], score);
                }
                int own = queries.position + query / heads;
                bool seen = position <= own && (!a.window || position + a.window > own);
                score = seen ? score * a.scale : -INFINITE;
                float highest = score;
                for (int step = 16; step > 0; step /= 2) {
                    highest = fmaxf(highest, __shfl_xor_sync(FULL, highest, step));
                }
                highest = fmaxf(highest, most[n]);
                // A tile may hold no position that this query sees.
                float factor = highest == -INFINITE ? 1.0f : expf(most[n] - highest);
                weight[n] = seen ? expf(score - highest) : 0.0f;
                sum[n] = sum[n] * factor + warp_sum(weight[n]);
                most[n] = highest;
#pragma unroll
                for (int i = 0; i < DIMS_A_LANE; ++i) {
                    out[n][i] *= factor;
                }
            }
        }
        __syncthreads();
        load_tile(a, pages, 1, kv_head, 32 * t, begin, end, tile);
        __syncthreads();
#pragma unroll
        for (int n = 0; n < QUERIES_A_WARP; ++n) {
            if (warp + ATTEND_WARPS * n < count) {
                for (int slot = 0; slot < 32; ++slot) {
                    float of_slot = __shfl_sync(FULL, weight[n], slot);
#pragma unroll
                    for (int i = 0; i < DIMS_A_LANE; ++i) {
                        if (32 * i + lane < a.dim) {
                            out[n][i] = fmaf(of_slot, tile[slot * (a.dim + 1) + 32 * i + lane], out[n][i]);
                        }
                    }
                }
            }
        }
    }
#pragma unroll
    for (int n = 0; n < QUERIES_A_WARP; ++n) {
        int query = warp + ATTEND_WARPS * n;
        if (query < count) {
            u64 row = queries.first + query / heads;
            u64 head = row * a.heads + first_head + query % heads;
            float* to = (float*)a.out + head * a.dim;
            float factor = sum[n] == 0.0f ? 0.0f : 1.0f / sum[n];
            if (a.parts > 1) {
                float* partial = (float*)a.partial + (head * a.parts + blockIdx.z) * (a.dim + 2);
                if (lane == 0) {
                    partial[0] = most[n];
                    partial[1] = sum[n];
                }
                to = partial + 2;
                factor = 1.0f;
            }
#pragma unroll
            for (int i = 0; i < DIMS_A_LANE; ++i) {
                if (32 * i + lane < a.dim) {
                    to[32 * i + lane] = out[n][i] * factor;
                }
            }
        }
    }
}

// Puts the parts of every head together: a block a head of a row.
KERNEL_OF(256, combine, Attend) {
    u64 head = (u64)blockIdx.x * a.heads + blockIdx.y;
    const float* partial = (const float*)a.partial + head * a.parts * (a.dim + 2);
    float most = -INFINITE, sum = 0.0f;
    for (int part = 0; part < a.parts; ++part) {
        most = fmaxf(most, partial[part * (a.dim + 2)]);
    }
    for (int part = 0; part < a.parts; ++part) {
        sum += expf(partial[part * (a.dim + 2)] - most) * partial[part * (a.dim + 2) + 1];
    }
    for (int i = threadIdx.x; i < a.dim; i += blockDim.x) {
        float value = 0.0f;
        for (int part = 0; part < a.parts; ++part) {
            value += expf(partial[part * (a.dim + 2)] - most) * partial[part * (a.dim + 2) + 2 + i];
        }
        ((float*)a.out)[head * a.dim + i] = value / sum;
    }
}

// Lines of 16 bytes from one place to another: what memory can do.
struct Copy {
    u64 from;
    u64 to;
    u64 lines;
};

// Four lines of a thread are on their way together: one alone would measure the time that it takes.
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
