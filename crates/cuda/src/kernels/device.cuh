// What the GPU's compiler provides: names, and the instructions that have no name in C++.

#define KERNEL(name, Arguments) extern "C" __global__ void __launch_bounds__(1024) name(const Arguments a)
#define KERNEL_OF(threads, name, Arguments) extern "C" __global__ void __launch_bounds__(threads) name(const Arguments a)
#define SHARED_BYTES(name) extern __shared__ __align__(16) u8 name[]

// Reads GPU memory that no thread of the launch writes.
template <class N>
__device__ __forceinline__ N load(const N* from) {
    return __ldg(from);
}

__device__ __forceinline__ float half_to_float(u16 bits) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
    return wide;
}

// The nearest half, ties to even.
__device__ __forceinline__ u16 float_to_half(float wide) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(wide));
    return bits;
}

// 2^x, by the unit that every `expf` uses: off by 2 units in the last place at most; below 2^-126 it is 0.
__device__ __forceinline__ float exp2_fast(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

// c + the products of four signed bytes.
__device__ __forceinline__ int dot4(u32 a, u32 b, int c) {
#if __CUDA_ARCH__ >= 610
    return __dp4a((int)a, (int)b, c);
#else
    for (int i = 0; i < 32; i += 8) {
        c += (int)(i8)(a >> i) * (int)(i8)(b >> i);
    }
    return c;
#endif
}

// The address of a byte of shared memory, for the instructions below.
__device__ __forceinline__ u32 shared_address(const void* at) {
    return (u32)__cvta_generic_to_shared(at);
}

// Four matrices of 8 rows of 16 bytes, of which lane `8 * i + r` gives the address of row `r` of matrix `i`: lane `l` gets of each the
// word `l % 4` of row `l / 4`. From 7.5 on.
__device__ __forceinline__ void load_matrices(u32 address, u32& a, u32& b, u32& c, u32& d) {
#if __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(address));
#endif
}

// Like `load_matrices`, transposed: lane `l` gets of each, from the rows `2 * (l % 4)` and the next, the halves of column `l / 4`.
__device__ __forceinline__ void load_transposed(u32 address, u32& a, u32& b, u32& c, u32& d) {
#if __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(address));
#endif
}

// Tiles of a product that are in use or on their way to shared memory at once.
#if __CUDA_ARCH__ >= 800
#define STAGES 3
#else
#define STAGES 2
#endif

// `N` lines of 16 bytes on their way to shared memory. From 8.0 on they pass no register, and are there after `wait_for_lines`;
// below they are in registers until `end`.
template <int N>
struct LinesToShared {
#if __CUDA_ARCH__ >= 800
    // Loads zeros where `is` is false; two lines are `apart` bytes apart in shared memory.
    __device__ __forceinline__ void begin(u32 to, int apart, const u8* const (&from)[N], int offset, bool is) {
        int bytes = is ? 16 : 0;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                         :: "r"(to + i * apart), "l"(from[i] + offset), "r"(bytes) : "memory");
        }
    }

    __device__ __forceinline__ void end(u32, int) const {}
#else
    uint4 held[N];

    __device__ __forceinline__ void begin(u32, int, const u8* const (&from)[N], int offset, bool is) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            held[i] = is ? load((const uint4*)(from[i] + offset)) : make_uint4(0, 0, 0, 0);
        }
    }

    __device__ __forceinline__ void end(u32 to, int apart) const {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};"
                         :: "r"(to + i * apart), "r"(held[i].x), "r"(held[i].y), "r"(held[i].z), "r"(held[i].w) : "memory");
        }
    }
#endif
};

// Makes one group of the lines that were begun since the last call.
__device__ __forceinline__ void commit_lines() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all of this thread's lines but those of the last `LEFT` calls of `commit_lines`.
template <int LEFT>
__device__ __forceinline__ void wait_for_lines() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory");
#endif
}

// Products by tensor cores; fragments as in PTX ISA, "Matrix Fragments for mma.m16n8k16" and its neighbors.
// Callers use them from compute capability 7.5 on, and for BF16 from 8.0 on; below there are none.

__device__ __forceinline__ void mma_f16(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif __CUDA_ARCH__ >= 750
    for (int half = 0; half < 2; ++half) {
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
    }
#endif
}

__device__ __forceinline__ void mma_bf16(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// 16 inputs of signed bytes.
__device__ __forceinline__ void mma_i8_16(int (&c)[4], u32 a0, u32 a1, u32 b) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(b));
#elif __CUDA_ARCH__ >= 750
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+r"(c[0]), "+r"(c[1])
                 : "r"(a0), "r"(b));
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+r"(c[2]), "+r"(c[3])
                 : "r"(a1), "r"(b));
#endif
}

// 32 inputs of signed bytes.
__device__ __forceinline__ void mma_i8_32(int (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    mma_i8_16(c, a[0], a[1], b[0]);
    mma_i8_16(c, a[2], a[3], b[1]);
#endif
}
