// Q4_K: d, dmin and the scales and minima of eight blocks; then 128 bytes of nibbles: 32 bytes hold one block in their low and
// the next in their high halves.

struct Format {
    static const int BYTES = 144, BLOCKS = 8, OFFSET = 0, KIND = BASED;

    static __device__ __forceinline__ int block_of(int pair, int which) { return 2 * pair + which; }

    static __device__ __forceinline__ void read_pair(const u8* stored, int pair, u32 (&q)[2][8], Factors (&factors)[2]) {
        const uint4* block = (const uint4*)stored;
        uint4 lines[2] = {load(block + 1 + 2 * pair), load(block + 2 + 2 * pair)};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            u32 both = word(lines[i / 4], i % 4);
            q[0][i] = both & 0x0f0f0f0fu;
            q[1][i] = both >> 4 & 0x0f0f0f0fu;
        }
        small_scales(load(block), pair, factors);
    }

    static __device__ __forceinline__ void read(const u8* block, int b, u32 (&q)[8], Factors& factors) {
        read_one<Format>(block, b / 2, b % 2, q, factors);
    }
};
