// The kernels as C++: what a GPU gives them, on one processor. Stands in place of `device.cuh`.
//
// A block runs at a time; its threads are fibers that take turns at barriers and exchanges, so that what a kernel leaves
// to chance between threads stays so, and what it forgets to wait for shows. x86-64 alone.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct uint4 {
    u32 x, y, z, w;
} __attribute__((aligned(16)));

struct uint2 {
    u32 x, y;
} __attribute__((aligned(8)));

struct float4 {
    float x, y, z, w;
} __attribute__((aligned(16)));

static inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) {
    uint4 all = {x, y, z, w};
    return all;
}

struct Dim {
    u32 x, y, z;
};

struct Shape {
    u32 grid[3];
    u32 threads;
    u32 shared;
};

static Dim threadIdx, blockIdx, blockDim, gridDim;

// --- fibers ---

#define MOST_THREADS 1024
#define STACK (64 << 10)

struct Warp {
    u32 turn, arrived, alive;
    u64 slots[2][32];
    u32 operands[2][32][6];
};

static u8* stacks;
static void* saved[MOST_THREADS + 1];
static u32 next_of[MOST_THREADS], before[MOST_THREADS];
static Warp warps[MOST_THREADS / 32];
static u32 turn, arrived, alive, stalled;
static void (*body)(const void*);
static const void* arguments;

extern "C" void switch_fiber(void** save, void* load);
asm(R"(
    .text
    .globl switch_fiber
    .hidden switch_fiber
switch_fiber:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
)");

static void give_way() {
    u32 own = threadIdx.x, next = next_of[own];
    if (++stalled > 64 * MOST_THREADS) {
        fprintf(stderr, "block %u %u %u waits for ever: %u threads of %u are there\n", blockIdx.x, blockIdx.y, blockIdx.z, arrived, alive);
        abort();
    }
    if (next != own) {
        threadIdx.x = next;
        switch_fiber(&saved[own], saved[next]);
    }
}

static void pass(u32& turn, u32& arrived, u32 alive) {
    if (arrived == alive) {
        arrived = 0;
        turn += 1;
        stalled = 0;
    }
}

static void wait_for_all(u32& turn, u32& arrived, u32& alive) {
    u32 now = turn;
    arrived += 1;
    pass(turn, arrived, alive);
    while (turn == now) {
        give_way();
    }
}

static void fiber() {
    body(arguments);
    u32 own = threadIdx.x, next = next_of[own];
    Warp& warp = warps[own / 32];
    warp.alive -= 1;
    alive -= 1;
    stalled = 0;
    if (warp.alive && warp.arrived) {
        pass(warp.turn, warp.arrived, warp.alive);
    }
    if (alive && arrived) {
        pass(turn, arrived, alive);
    }
    if (next == own) {
        switch_fiber(&saved[own], saved[MOST_THREADS]);
    }
    next_of[before[own]] = next;
    before[next] = before[own];
    threadIdx.x = next;
    switch_fiber(&saved[own], saved[next]);
}

static u8* dynamic_shared;

static void run_block(u32 threads) {
    alive = threads;
    turn = arrived = stalled = 0;
    memset(warps, 0, sizeof warps);
    for (u32 i = 0; i < threads; ++i) {
        warps[i / 32].alive += 1;
        next_of[i] = (i + 1) % threads;
        before[i] = (i + threads - 1) % threads;
        u64* top = (u64*)(stacks + (u64)(i + 1) * STACK);
        // Six registers, where to go, and a place that keeps the stack's alignment that of a call.
        top -= 8;
        memset(top, 0, 64);
        top[6] = (u64)&fiber;
        saved[i] = top;
    }
    threadIdx.x = 0;
    switch_fiber(&saved[MOST_THREADS], saved[0]);
}

static int launch(const Shape& shape, void (*kernel)(const void*), const void* given) {
    if (!stacks) {
        stacks = (u8*)aligned_alloc(4096, (size_t)MOST_THREADS * STACK);
    }
    if (shape.threads == 0 || shape.threads > MOST_THREADS || shape.threads % 32) {
        return -1;
    }
    // What lies behind the shared memory that was asked for must not change.
    const u32 guard = 4096;
    dynamic_shared = (u8*)aligned_alloc(16, (shape.shared + guard + 15) / 16 * 16);
    memset(dynamic_shared, 0xff, shape.shared + guard);
    body = kernel;
    arguments = given;
    blockDim = {shape.threads, 1, 1};
    gridDim = {shape.grid[0], shape.grid[1], shape.grid[2]};
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z) {
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y) {
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
                run_block(shape.threads);
            }
        }
    }
    int beyond = 0;
    for (u32 i = 0; i < guard; ++i) {
        beyond |= dynamic_shared[shape.shared + i] != 0xff;
    }
    free(dynamic_shared);
    return beyond ? -2 : 0;
}

// All else is hidden: shared memory of one module must not be that of another, which has a variable of the same name.
#define VISIBLE __attribute__((visibility("default")))

// Returns 0, the size of the arguments where that is another than given, -1 for a shape that no GPU takes, or -2 when
// shared memory was written beyond its end.
#define KERNEL_OF(most, name, Arguments)                                                                          \
    static void name(const Arguments a);                                                                          \
    extern "C" VISIBLE int emulate_##name(const Shape* shape, const void* given, int size) {                      \
        if (size != (int)sizeof(Arguments)) {                                                                     \
            return (int)sizeof(Arguments);                                                                        \
        }                                                                                                         \
        if (shape->threads > (most)) {                                                                            \
            return -1;                                                                                            \
        }                                                                                                         \
        return launch(*shape, [](const void* all) { name(*(const Arguments*)all); }, given);                      \
    }                                                                                                             \
    static void name(const Arguments a)
#define KERNEL(name, Arguments) KERNEL_OF(1024, name, Arguments)
#define SHARED_BYTES(name) u8* name = dynamic_shared

// --- barriers and exchanges ---

static inline void __syncthreads() { wait_for_all(turn, arrived, alive); }

static inline void __syncwarp() {
    Warp& warp = warps[threadIdx.x / 32];
    wait_for_all(warp.turn, warp.arrived, warp.alive);
}

template <class N>
static N exchange(N value, u32 lane) {
    Warp& warp = warps[threadIdx.x / 32];
    if (warp.alive != 32) {
        fprintf(stderr, "a warp of %u lanes exchanges\n", warp.alive);
        abort();
    }
    // Two sets of slots: nobody writes a set again before all have read it.
    u64(&slots)[32] = warp.slots[warp.turn % 2];
    memcpy(&slots[threadIdx.x % 32], &value, sizeof value);
    __syncwarp();
    memcpy(&value, &slots[lane], sizeof value);
    return value;
}

template <class N>
static N __shfl_xor_sync(u32, N value, int other) {
    return exchange(value, threadIdx.x % 32 ^ other);
}

template <class N>
static N __shfl_sync(u32, N value, int lane) {
    return exchange(value, lane);
}

template <class N>
static inline N load(const N* from) {
    return *from;
}

// --- arithmetic ---

static inline float __uint_as_float(u32 bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline u32 __float_as_uint(float value) {
    u32 bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline u32 __funnelshift_r(u32 low, u32 high, int shift) {
    return (u32)(((u64)high << 32 | low) >> (shift & 31));
}

static inline float half_to_float(u16 bits) {
    u32 exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value = exponent == 31 ? (fraction ? NAN : INFINITY)
                  : exponent     ? ldexpf((float)(1024 + fraction), (int)exponent - 25)
                                 : ldexpf((float)fraction, -24);
    return bits >> 15 ? -value : value;
}

// The nearest, ties to even: by the rounding of the processor, on a grid as wide as the result's last place.
static inline u16 float_to_half(float value) {
    u16 sign = (u16)(__float_as_uint(value) >> 31 << 15);
    float size = fabsf(value);
    if (size != size) {
        return sign | 0x7fff;
    }
    int exponent;
    frexpf(size, &exponent);
    int place = exponent - 11 < -24 ? -24 : exponent - 11;
    float rounded = size == INFINITY ? size : ldexpf(rintf(ldexpf(size, -place)), place);
    if (rounded > 65504.0f) {
        return sign | 0x7c00;
    }
    if (rounded < ldexpf(1.0f, -14)) {
        return sign | (u16)ldexpf(rounded, 24);
    }
    frexpf(rounded, &exponent);
    return sign | (u16)((exponent + 14) << 10) | ((u16)ldexpf(rounded, 11 - exponent) & 1023);
}

static inline int dot4(u32 a, u32 b, int c) {
    for (int i = 0; i < 32; i += 8) {
        c += (int)(i8)(a >> i) * (int)(i8)(b >> i);
    }
    return c;
}

static inline u64 atomicMin(u64* at, u64 value) {
    u64 before = *at;
    *at = value < before ? value : before;
    return before;
}

// --- tensor cores ---

// Lays a lane's operands out for all lanes to read.
static u32 (*share(const u32* a, int count_a, const u32* b, int count_b))[6] {
    Warp& warp = warps[threadIdx.x / 32];
    u32(*all)[6] = warp.operands[warp.turn % 2];
    memcpy(all[threadIdx.x % 32], a, 4 * count_a);
    memcpy(all[threadIdx.x % 32] + 4, b, 4 * count_b);
    __syncwarp();
    return all;
}

// c[16 x 8] += a[16 x 16] b[16 x 8] in halves, as PTX lays out m16n8k16: `a` has row `lane / 4` (+ 8 in the odd registers)
// and inputs `2 * (lane % 4)` (+ 8 in the last two); `b` the same inputs of column `lane / 4`.
template <float widen(u16)>
static void mma_16(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    u32(*all)[6] = share(a, 4, b, 2);
    int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; ++i) {
        int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
        float sum = c[i];
        for (int k = 0; k < 16; ++k) {
            int holder = k % 8 / 2, high = k / 8, shift = 16 * (k % 2);
            u32 of_a = all[row % 8 * 4 + holder][row / 8 + 2 * high];
            u32 of_b = all[column * 4 + holder][4 + high];
            sum += widen((u16)(of_a >> shift)) * widen((u16)(of_b >> shift));
        }
        c[i] = sum;
    }
}

static inline float widen_bf16(u16 bits) { return __uint_as_float((u32)bits << 16); }

static inline void mma_f16(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) { mma_16<half_to_float>(c, a, b); }

static inline void mma_bf16(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) { mma_16<widen_bf16>(c, a, b); }

// The same in signed bytes, four inputs a register, for the given halves of 32 inputs.
static void mma_i8(int (&c)[4], const u32 (&a)[4], const u32 (&b)[2], int halves) {
    u32(*all)[6] = share(a, 4, b, 2);
    int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; ++i) {
        int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
        for (int k = 0; k < 16 * halves; ++k) {
            int holder = k % 16 / 4, high = k / 16, shift = 8 * (k % 4);
            u32 of_a = all[row % 8 * 4 + holder][row / 8 + 2 * high];
            u32 of_b = all[column * 4 + holder][4 + high];
            c[i] += (int)(i8)(of_a >> shift) * (int)(i8)(of_b >> shift);
        }
    }
}

static inline void mma_i8_32(int (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) { mma_i8(c, a, b, 2); }

static inline void mma_i8_16(int (&c)[4], u32 a0, u32 a1, u32 b) {
    u32 of_a[4] = {a0, a1, 0, 0}, of_b[2] = {b, 0};
    mma_i8(c, of_a, of_b, 1);
}
