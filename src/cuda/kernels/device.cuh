// What the compiler of the GPU gives: names, and the instructions that have no name in C++. The emulator of the tests
// has its own text in place of this one.

#define KERNEL(name, Arguments) extern "C" __global__ void __launch_bounds__(1024) name(const Arguments a)
#define KERNEL_OF(threads, name, Arguments) extern "C" __global__ void __launch_bounds__(threads) name(const Arguments a)
#define SHARED_BYTES(name) extern __shared__ __align__(16) u8 name[]

// What lies in the GPU's memory, and which no thread of the launch writes.
template <class N>
__device__ __forceinline__ N load(const N* from) {
    return __ldg(from);
}

__device__ __forceinline__ float half_to_float(u16 bits) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
    return wide;
}

// The nearest, ties to even.
__device__ __forceinline__ u16 float_to_half(float wide) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(wide));
    return bits;
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

// Products by tensor cores; fragments as PTX ISA, "Matrix Fragments for mma.m16n8k16" and its neighbours, lays them out.
// Callers ask for them from compute capability 7.5 on, and for BF16 from 8.0 on; below there are none.

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
