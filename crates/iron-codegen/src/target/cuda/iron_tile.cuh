// Iron's tile library for CUDA: the primitives that generated kernels call.
//
// `iron_tile.metal` supplies the same set under the same names. Compile with `--fmad=false`: contraction is the
// compiler's decision, written as `iron::fma`.
//
// Order of reductions (nothing below depends on the number of rows in flight):
//  * `dot`: k ascending in steps of 16, each step one `mma.sync.m16n8k16` onto the f32 accumulator, weights always the
//    16-row operand. With f32 operands: k ascending, one fused multiply-add per element.
//  * `block_reduce`: a butterfly over the 32 lanes of a warp (16, 8, 4, 2, 1), then the warps in ascending order.
//  * `reduce_axis`: lane l of L folds elements l, l + L, .. in ascending order, then a butterfly (L/2, .., 1).
#pragma once

#ifdef __CUDACC__
#define IRON_DEVICE __device__ __forceinline__
#define IRON_UNROLL _Pragma("unroll")
#define IRON_KEEP _Pragma("unroll 1")
#else
#include "iron_cuda_standin.h"
#endif

namespace iron {

using i8 = signed char;
using u8 = unsigned char;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;

/// IEEE 754 binary16, storage only.
struct f16 {
    u16 bits;
};
/// The upper half of a binary32, storage only.
struct bf16 {
    u16 bits;
};

// ---- hardware: each function here has a twin in the stand-in header ------------------------------------------------

#ifdef __CUDACC__
IRON_DEVICE float f16_to_f32(u16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
IRON_DEVICE u16 f32_to_f16(float x) {
    u16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
IRON_DEVICE u16 f32_to_bf16(float x) {
    u16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
IRON_DEVICE float bits_to_f32(u32 x) { return __uint_as_float(x); }
IRON_DEVICE u32 f32_to_bits(float x) { return __float_as_uint(x); }
IRON_DEVICE u32 lane_xor(u32 x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
/// Four (or two) 8x8 matrices of 16-bit elements from shared memory; each lane gives the address of one row.
IRON_DEVICE void load_matrix_x4(u32 (&r)[4], const void* row) {
    const u32 address = static_cast<u32>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
IRON_DEVICE void load_matrix_x2(u32 (&r)[2], const void* row) {
    const u32 address = static_cast<u32>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
}
IRON_DEVICE void matrix_step(float* d, const u32 (&a)[4], const u32 (&b)[2], f16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
IRON_DEVICE void matrix_step(float* d, const u32 (&a)[4], const u32 (&b)[2], bf16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/// Every thread of the block arrives before any goes on; shared and global writes become visible to the block.
IRON_DEVICE void barrier() { __syncthreads(); }
#endif

// ---- scalars -------------------------------------------------------------------------------------------------------

IRON_DEVICE float to_f32(float x) { return x; }
IRON_DEVICE float to_f32(f16 x) { return f16_to_f32(x.bits); }
IRON_DEVICE float to_f32(bf16 x) { return bits_to_f32(u32(x.bits) << 16); }
IRON_DEVICE float to_f32(i32 x) { return float(x); }
IRON_DEVICE float to_f32(u32 x) { return float(x); }
IRON_DEVICE float to_f32(bool x) { return x ? 1.0f : 0.0f; }
IRON_DEVICE f16 to_f16(float x) { return f16{f32_to_f16(x)}; }
IRON_DEVICE bf16 to_bf16(float x) { return bf16{f32_to_bf16(x)}; }
/// Towards zero, saturating, NaN to 0.
IRON_DEVICE i32 to_i32(float x) {
    if (!(x == x)) return 0;
    return x >= 2147483648.0f ? 2147483647 : x <= -2147483648.0f ? -2147483647 - 1 : i32(x);
}
IRON_DEVICE i32 to_i32(i32 x) { return x; }
IRON_DEVICE i32 to_i32(u32 x) { return i32(x); }
IRON_DEVICE i32 to_i32(bool x) { return x ? 1 : 0; }
IRON_DEVICE u32 to_u32(float x) { return !(x > 0.0f) ? 0u : x >= 4294967296.0f ? 4294967295u : u32(x); }
IRON_DEVICE u32 to_u32(i32 x) { return u32(x); }
IRON_DEVICE u32 to_u32(u32 x) { return x; }
IRON_DEVICE u32 to_u32(bool x) { return x ? 1u : 0u; }

template <class T> struct Convert;
template <> struct Convert<float> {
    IRON_DEVICE static float from(float x) { return x; }
};
template <> struct Convert<f16> {
    IRON_DEVICE static f16 from(float x) { return to_f16(x); }
};
template <> struct Convert<bf16> {
    IRON_DEVICE static bf16 from(float x) { return to_bf16(x); }
};

template <class To, class From> struct Bits;
template <> struct Bits<float, i32> {
    IRON_DEVICE static float cast(i32 x) { return bits_to_f32(u32(x)); }
};
template <> struct Bits<float, u32> {
    IRON_DEVICE static float cast(u32 x) { return bits_to_f32(x); }
};
template <> struct Bits<i32, float> {
    IRON_DEVICE static i32 cast(float x) { return i32(f32_to_bits(x)); }
};
template <> struct Bits<u32, float> {
    IRON_DEVICE static u32 cast(float x) { return f32_to_bits(x); }
};
template <> struct Bits<i32, u32> {
    IRON_DEVICE static i32 cast(u32 x) { return i32(x); }
};
template <> struct Bits<u32, i32> {
    IRON_DEVICE static u32 cast(i32 x) { return u32(x); }
};
template <class To, class From> IRON_DEVICE To bitcast(From x) { return Bits<To, From>::cast(x); }

/// Reads one stored element in the type it computes in.
IRON_DEVICE float load(const float* p) { return *p; }
IRON_DEVICE float load(const f16* p) { return to_f32(*p); }
IRON_DEVICE float load(const bf16* p) { return to_f32(*p); }
IRON_DEVICE i32 load(const i8* p) { return *p; }
IRON_DEVICE i32 load(const u8* p) { return *p; }
IRON_DEVICE i32 load(const i32* p) { return *p; }
IRON_DEVICE u32 load(const u32* p) { return *p; }

/// Writes one element, rounding floats to nearest even.
IRON_DEVICE void store(float* p, float x) { *p = x; }
IRON_DEVICE void store(f16* p, float x) { *p = to_f16(x); }
IRON_DEVICE void store(bf16* p, float x) { *p = to_bf16(x); }
IRON_DEVICE void store(f16* p, f16 x) { *p = x; }
IRON_DEVICE void store(bf16* p, bf16 x) { *p = x; }
IRON_DEVICE void store(i8* p, i32 x) { *p = i8(x); }
IRON_DEVICE void store(u8* p, i32 x) { *p = u8(x); }
IRON_DEVICE void store(i32* p, i32 x) { *p = x; }
IRON_DEVICE void store(u32* p, u32 x) { *p = x; }

IRON_DEVICE float infinity() { return bits_to_f32(0x7f800000u); }
IRON_DEVICE float nan() { return bits_to_f32(0x7fc00000u); }
IRON_DEVICE float fma(float a, float b, float c) { return fmaf(a, b, c); }
IRON_DEVICE float abs(float x) { return fabsf(x); }
IRON_DEVICE i32 abs(i32 x) { return x < 0 ? -x : x; }
IRON_DEVICE float exp(float x) { return expf(x); }
IRON_DEVICE float ln(float x) { return logf(x); }
IRON_DEVICE float sqrt(float x) { return sqrtf(x); }
IRON_DEVICE float rsqrt(float x) { return 1.0f / sqrtf(x); }
IRON_DEVICE float tanh(float x) { return tanhf(x); }
IRON_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
IRON_DEVICE float erf(float x) { return erff(x); }
IRON_DEVICE float sin(float x) { return sinf(x); }
IRON_DEVICE float cos(float x) { return cosf(x); }
IRON_DEVICE float floor(float x) { return floorf(x); }
IRON_DEVICE float round(float x) { return rintf(x); }
IRON_DEVICE float min(float a, float b) { return fminf(a, b); }
IRON_DEVICE i32 min(i32 a, i32 b) { return a < b ? a : b; }
IRON_DEVICE u32 min(u32 a, u32 b) { return a < b ? a : b; }
IRON_DEVICE i64 min(i64 a, i64 b) { return a < b ? a : b; }
IRON_DEVICE float max(float a, float b) { return fmaxf(a, b); }
IRON_DEVICE i32 max(i32 a, i32 b) { return a > b ? a : b; }
IRON_DEVICE u32 max(u32 a, u32 b) { return a > b ? a : b; }
IRON_DEVICE i64 max(i64 a, i64 b) { return a > b ? a : b; }

/// How many of `len` positions `start + i * stride` lie below `bound`.
IRON_DEVICE int extent(int start, int bound, int stride, int len) {
    return bound <= start ? 0 : min((bound - start + stride - 1) / stride, len);
}

// ---- reductions ----------------------------------------------------------------------------------------------------

template <class T> struct Limits;
template <> struct Limits<float> {
    IRON_DEVICE static float lowest() { return -infinity(); }
    IRON_DEVICE static float highest() { return infinity(); }
};
template <> struct Limits<i32> {
    IRON_DEVICE static i32 lowest() { return -2147483647 - 1; }
    IRON_DEVICE static i32 highest() { return 2147483647; }
};
template <> struct Limits<u32> {
    IRON_DEVICE static u32 lowest() { return 0u; }
    IRON_DEVICE static u32 highest() { return 4294967295u; }
};

struct Sum {
    template <class T> IRON_DEVICE static T identity() { return T(0); }
    template <class T> IRON_DEVICE static T fold(T a, T b) { return a + b; }
};
struct Max {
    template <class T> IRON_DEVICE static T identity() { return Limits<T>::lowest(); }
    template <class T> IRON_DEVICE static T fold(T a, T b) { return iron::max(a, b); }
};
struct Min {
    template <class T> IRON_DEVICE static T identity() { return Limits<T>::highest(); }
    template <class T> IRON_DEVICE static T fold(T a, T b) { return iron::min(a, b); }
};
struct Any {
    template <class T> IRON_DEVICE static T identity() { return T(0); }
    template <class T> IRON_DEVICE static T fold(T a, T b) { return a || b; }
};

IRON_DEVICE float shuffle_xor(float x, int mask) { return bits_to_f32(lane_xor(f32_to_bits(x), mask)); }
IRON_DEVICE i32 shuffle_xor(i32 x, int mask) { return i32(lane_xor(u32(x), mask)); }
IRON_DEVICE u32 shuffle_xor(u32 x, int mask) { return lane_xor(x, mask); }
IRON_DEVICE bool shuffle_xor(bool x, int mask) { return lane_xor(u32(x), mask) != 0u; }

/// Folds groups of LANES neighbouring lanes; every lane of a group gets the same bits.
template <class Op, int LANES, class T> IRON_DEVICE T lanes_reduce(T x) {
    IRON_UNROLL
    for (int mask = LANES / 2; mask > 0; mask /= 2) x = Op::template fold<T>(x, shuffle_xor(x, mask));
    return x;
}

/// Folds one value per thread; every thread gets the same bits. `scratch` holds THREADS / 32 values.
template <class Op, int THREADS, class T> IRON_DEVICE T block_reduce(T x, T* scratch, int tid) {
    x = lanes_reduce<Op, 32>(x);
    if (THREADS > 32) {
        if (tid % 32 == 0) scratch[tid / 32] = x;
        barrier();
        x = scratch[0];
        IRON_UNROLL
        for (int warp = 1; warp < THREADS / 32; ++warp) x = Op::template fold<T>(x, scratch[warp]);
    }
    return x;
}

/// Folds the middle axis of `tile[OUTER][LENGTH][INNER]` into `out[OUTER][INNER]`. A barrier must precede it.
template <class Op, int OUTER, int LENGTH, int INNER, int THREADS, class T>
IRON_DEVICE void reduce_axis(const T* tile, T* out, int tid) {
    constexpr int LANES = LENGTH >= 32 ? 32 : LENGTH > 8 ? 16 : LENGTH > 4 ? 8 : LENGTH > 2 ? 4 : LENGTH > 1 ? 2 : 1;
    constexpr int GROUPS = THREADS / LANES;
    const int lane = tid % LANES;
    IRON_KEEP
    for (int first = 0; first < OUTER * INNER; first += GROUPS) {
        const int result = first + tid / LANES;
        T x = Op::template identity<T>();
        if (result < OUTER * INNER) {
            const int base = result / INNER * LENGTH * INNER + result % INNER;
            for (int i = lane; i < LENGTH; i += LANES) x = Op::template fold<T>(x, tile[base + i * INNER]);
        }
        x = lanes_reduce<Op, LANES>(x);
        if (result < OUTER * INNER && lane == 0) out[result] = x;
    }
}

// ---- quantised weights: GGUF blocks, decoded where they lie ----------------------------------------------------------

IRON_DEVICE float half_at(const u8* p) { return f16_to_f32(u16(p[0] | (p[1] << 8))); }

/// Value `i` of 4 bytes of fifth bits, in the order of the values, and 16 bytes of nibbles.
IRON_DEVICE int five_bits(const u8* b, int i) {
    const int low = (b[4 + i % 16] >> (i / 16 * 4)) & 15;
    return low | ((b[i / 8] >> (i % 8)) & 1) << 4;
}
/// Value `i` of two halves of 32 bytes, whose four runs of 32 values are at bits 0, 2, 4, 6.
IRON_DEVICE int two_bits(const u8* b, int i) { return (b[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3; }
/// Value `i` of nibbles whose 32 bytes hold one sub-block in the low halves and the next in the high.
IRON_DEVICE int nibble_of_pair(const u8* b, int i) { return (b[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4)) & 15; }
/// A code under eight 6-bit scales and minima: two halves, then 12 bytes.
IRON_DEVICE float six_bit_affine(const u8* b, int sub, int q) {
    const u8* s = b + 4;
    int scale, minimum;
    if (sub < 4) {
        scale = s[sub] & 63;
        minimum = s[sub + 4] & 63;
    } else {
        scale = (s[sub + 4] & 15) | (s[sub - 4] >> 6) << 4;
        minimum = (s[sub + 4] >> 4) | (s[sub] >> 6) << 4;
    }
    return half_at(b) * float(scale) * float(q) - half_at(b + 2) * float(minimum);
}

/// 32 signed bytes under one scale.
struct Q8_0 {
    static constexpr int BLOCK = 32, BYTES = 34;
    IRON_DEVICE static float at(const u8* b, int i) { return half_at(b) * float(i8(b[2 + i])); }
};
/// 32 nibbles offset by 8 under one scale.
struct Q4_0 {
    static constexpr int BLOCK = 32, BYTES = 18;
    IRON_DEVICE static float at(const u8* b, int i) {
        const int q = i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4;
        return half_at(b) * float(q - 8);
    }
};
/// 32 nibbles with scale and minimum.
struct Q4_1 {
    static constexpr int BLOCK = 32, BYTES = 20;
    IRON_DEVICE static float at(const u8* b, int i) {
        const int q = i < 16 ? b[4 + i] & 15 : b[4 + i - 16] >> 4;
        return half_at(b) * float(q) + half_at(b + 2);
    }
};
/// 32 five-bit values offset by 16 under one scale; the fifth bits follow it.
struct Q5_0 {
    static constexpr int BLOCK = 32, BYTES = 22;
    IRON_DEVICE static float at(const u8* b, int i) { return half_at(b) * float(five_bits(b + 2, i) - 16); }
};
/// 32 five-bit values with scale and minimum.
struct Q5_1 {
    static constexpr int BLOCK = 32, BYTES = 24;
    IRON_DEVICE static float at(const u8* b, int i) { return half_at(b) * float(five_bits(b + 4, i)) + half_at(b + 2); }
};
/// 256 two-bit values; sixteen 4-bit scales and minima under two halves.
struct Q2_K {
    static constexpr int BLOCK = 256, BYTES = 84;
    IRON_DEVICE static float at(const u8* b, int i) {
        const int both = b[i / 16];
        const float scale = half_at(b + 80) * float(both & 15);
        return scale * float(two_bits(b + 16, i)) - half_at(b + 82) * float(both >> 4);
    }
};
/// 256 three-bit values offset by 4; sixteen signed 6-bit scales under one half.
struct Q3_K {
    static constexpr int BLOCK = 256, BYTES = 110;
    IRON_DEVICE static float at(const u8* b, int i) {
        const int sub = i / 16;
        const u8* s = b + 96;
        const int low = (s[sub % 8] >> (sub / 8 * 4)) & 15;
        const int high = (s[8 + sub % 4] >> (sub / 4 * 2)) & 3;
        const int q = two_bits(b + 32, i) | ((b[i % 32] >> (i / 32)) & 1) << 2;
        return half_at(b + 108) * float((low | high << 4) - 32) * float(q - 4);
    }
};
/// 256 nibbles; eight 6-bit scales and minima under two halves.
struct Q4_K {
    static constexpr int BLOCK = 256, BYTES = 144;
    IRON_DEVICE static float at(const u8* b, int i) { return six_bit_affine(b, i / 32, nibble_of_pair(b + 16, i)); }
};
/// 256 five-bit values; scales and minima as in `Q4_K`.
struct Q5_K {
    static constexpr int BLOCK = 256, BYTES = 176;
    IRON_DEVICE static float at(const u8* b, int i) {
        const int fifth = (b[16 + i % 32] >> (i / 32)) & 1;
        return six_bit_affine(b, i / 32, nibble_of_pair(b + 48, i) | fifth << 4);
    }
};
/// 256 six-bit values offset by 32; sixteen i8 scales under one half.
struct Q6_K {
    static constexpr int BLOCK = 256, BYTES = 210;
    IRON_DEVICE static float at(const u8* b, int i) {
        const int upper = i / 128, quarter = i % 128 / 32, l = i % 32;
        const u8 low = b[upper * 64 + quarter % 2 * 32 + l];
        const u8 high = b[128 + upper * 32 + l];
        const int q = (quarter < 2 ? low & 15 : low >> 4) | ((high >> (2 * quarter)) & 3) << 4;
        const int scale = i8(b[192 + i / 16]);
        return half_at(b + 208) * float(scale) * float(q - 32);
    }
};

/// Element `k` of a packed row.
template <class Format> IRON_DEVICE float decode(const u8* row, int k) {
    return Format::at(row + i64(k / Format::BLOCK) * Format::BYTES, k % Format::BLOCK);
}

// ---- operand staging: a [ROWS][COLS] operand in shared memory, rows LD apart, zero outside `rows` x `cols` -------------
// ROWS and COLS are padded to whole matrix steps.

/// From strided memory whose columns are (nearly) contiguous.
template <class S, int ROWS, int COLS, int LD, int THREADS, class T>
IRON_DEVICE void stage(S* to, const T* from, i64 row_stride, i64 col_stride, int rows, int cols, int tid) {
    IRON_KEEP
    for (int e = tid; e < ROWS * COLS; e += THREADS) {
        const int r = e / COLS, c = e % COLS;
        const float x = r < rows && c < cols ? to_f32(load(from + r * row_stride + c * col_stride)) : 0.0f;
        to[r * LD + c] = Convert<S>::from(x);
    }
}

/// Sixteen bytes.
struct alignas(16) Chunk {
    u32 words[4];
};

/// As `stage` without conversion: 16 bytes at a time where the address allows.
/// (The place for `cp.async`: the copy below becomes asynchronous and `dot` waits for its stage.)
template <class S, int ROWS, int COLS, int LD, int THREADS>
IRON_DEVICE void stage_same(S* to, const S* from, i64 row_stride, i64 col_stride, int rows, int cols, int tid) {
    constexpr int WIDE = 16 / int(sizeof(S));
    const bool wide = col_stride == 1 && row_stride % WIDE == 0 && reinterpret_cast<unsigned long long>(from) % 16 == 0;
    if (!wide) {
        stage<S, ROWS, COLS, LD, THREADS, S>(to, from, row_stride, col_stride, rows, cols, tid);
        return;
    }
    IRON_UNROLL
    for (int e = tid; e < ROWS * COLS / WIDE; e += THREADS) {
        const int r = e / (COLS / WIDE), c = e % (COLS / WIDE) * WIDE;
        if (r < rows && c + WIDE <= cols) {
            *reinterpret_cast<Chunk*>(to + r * LD + c) = *reinterpret_cast<const Chunk*>(from + r * row_stride + c);
        } else {
            for (int i = 0; i < WIDE; ++i) {
                const bool inside = r < rows && c + i < cols;
                to[r * LD + c + i] = inside ? from[r * row_stride + c + i] : Convert<S>::from(0.0f);
            }
        }
    }
}

/// From memory whose rows are contiguous: consecutive threads walk down a column.
template <class S, int ROWS, int COLS, int LD, int THREADS, class T>
IRON_DEVICE void stage_transposed(S* to, const T* from, i64 row_stride, i64 col_stride, int rows, int cols, int tid) {
    IRON_KEEP
    for (int e = tid; e < ROWS * COLS; e += THREADS) {
        const int r = e % ROWS, c = e / ROWS;
        const float x = r < rows && c < cols ? to_f32(load(from + r * row_stride + c * col_stride)) : 0.0f;
        to[r * LD + c] = Convert<S>::from(x);
    }
}

/// Rows listed by `index`; those that are negative or not below `bound` are zero.
template <class S, int ROWS, int COLS, int LD, int THREADS, class T>
IRON_DEVICE void stage_gathered_rows(S* to, const T* from, const i32* index, int bound, i64 row_stride, i64 col_stride,
                                     int rows, int cols, int tid) {
    IRON_KEEP
    for (int e = tid; e < ROWS * COLS; e += THREADS) {
        const int r = e / COLS, c = e % COLS;
        float x = 0.0f;
        if (r < rows && c < cols) {
            const int at = index[r];
            if (at >= 0 && at < bound) x = to_f32(load(from + at * row_stride + c * col_stride));
        }
        to[r * LD + c] = Convert<S>::from(x);
    }
}

/// Columns listed by `index`; those that are negative or not below `bound` are zero.
template <class S, int ROWS, int COLS, int LD, int THREADS, class T>
IRON_DEVICE void stage_gathered_cols(S* to, const T* from, const i32* index, int bound, i64 row_stride, i64 col_stride,
                                     int rows, int cols, int tid) {
    IRON_KEEP
    for (int e = tid; e < ROWS * COLS; e += THREADS) {
        const int r = e % ROWS, c = e / ROWS;
        float x = 0.0f;
        if (r < rows && c < cols) {
            const int at = index[c];
            if (at >= 0 && at < bound) x = to_f32(load(from + r * row_stride + at * col_stride));
        }
        to[r * LD + c] = Convert<S>::from(x);
    }
}

/// Packed weights: row `r` of the operand is `row_bytes` after the last, its columns start at element `k`.
template <class Format, class S, int ROWS, int COLS, int LD, int THREADS>
IRON_DEVICE void stage_packed(S* to, const u8* from, i64 row_bytes, int k, int rows, int cols, int tid) {
    IRON_KEEP
    for (int e = tid; e < ROWS * COLS; e += THREADS) {
        const int r = e / COLS, c = e % COLS;
        const float x = r < rows && c < cols ? decode<Format>(from + r * row_bytes, k + c) : 0.0f;
        to[r * LD + c] = Convert<S>::from(x);
    }
}

/// From a tile in shared memory, `HEIGHT` x `WIDTH`.
template <class S, int ROWS, int COLS, int LD, int THREADS, int HEIGHT, int WIDTH, class T>
IRON_DEVICE void stage_shared(S* to, const T* tile, int tid) {
    IRON_KEEP
    for (int e = tid; e < ROWS * COLS; e += THREADS) {
        const int r = e / COLS, c = e % COLS;
        to[r * LD + c] = Convert<S>::from(r < HEIGHT && c < WIDTH ? to_f32(tile[r * WIDTH + c]) : 0.0f);
    }
}

/// Zeroes what a `HEIGHT` x `WIDTH` tile leaves of the padded operand.
template <class S, int ROWS, int COLS, int LD, int THREADS, int HEIGHT, int WIDTH>
IRON_DEVICE void stage_padding(S* to, int tid) {
    constexpr int END = HEIGHT == ROWS && WIDTH == COLS ? 0 : ROWS * COLS;
    IRON_KEEP
    for (int e = tid; e < END; e += THREADS) {
        const int r = e / COLS, c = e % COLS;
        if (r >= HEIGHT || c >= WIDTH) to[r * LD + c] = Convert<S>::from(0.0f);
    }
}

/// From a tile spread over the threads in linear order.
template <class S, int ROWS, int COLS, int LD, int THREADS, int HEIGHT, int WIDTH, class T>
IRON_DEVICE void stage_blocked(S* to, const T* tile, int tid) {
    IRON_UNROLL
    for (int slot = 0; slot < (HEIGHT * WIDTH + THREADS - 1) / THREADS; ++slot) {
        const int e = slot * THREADS + tid;
        if (e < HEIGHT * WIDTH) to[e / WIDTH * LD + e % WIDTH] = Convert<S>::from(to_f32(tile[slot]));
    }
    stage_padding<S, ROWS, COLS, LD, THREADS, HEIGHT, WIDTH>(to, tid);
}

// ---- the matrix unit -------------------------------------------------------------------------------------------------

/// How the warps of a block divide the 16 x 8 steps of an [M, N] result: `WN` warps along n, the others along m, such
/// that each has the fewest steps, then the fewest operand rows to read.
template <int M, int N, int THREADS> struct FragmentShape {
    static constexpr int WARPS = THREADS / 32, STEPS_M = (M + 7) / 8, STEPS_N = (N + 15) / 16;
    static constexpr int up(int a, int b) { return (a + b - 1) / b; }
    static constexpr int cost(int wn) {
        const int tn = up(STEPS_N, wn), tm = up(STEPS_M, WARPS / wn);
        return tn * tm * 4096 + tn * 16 + tm * 8;
    }
    static constexpr int best() {
        int chosen = 1;
        for (int wn = 2; wn <= WARPS; ++wn)
            if (WARPS % wn == 0 && cost(wn) < cost(chosen)) chosen = wn;
        return chosen;
    }
    static constexpr int WN = best(), WM = WARPS / WN, TN = up(STEPS_N, WN), TM = up(STEPS_M, WM);
};

/// An [M, N] f32 accumulator spread over the block in the layout of the matrix unit.
template <int M, int N, int THREADS> struct Fragment {
    using Shape = FragmentShape<M, N, THREADS>;
    static constexpr int COUNT = Shape::TN * Shape::TM * 4;
    /// Whether there is no padding: every element of every thread is one of the tile.
    static constexpr bool EXACT = Shape::WM * Shape::TM * 8 == M && Shape::WN * Shape::TN * 16 == N;
    float v[COUNT];
    /// Row (along M) of element `f` of thread `tid`; M or more for padding.
    IRON_DEVICE static int row(int f, int tid) {
        return ((tid / 32 / Shape::WN) * Shape::TM + f / 4 % Shape::TM) * 8 + tid % 4 * 2 + (f & 1);
    }
    /// Column (along N) of element `f` of thread `tid`; N or more for padding.
    IRON_DEVICE static int col(int f, int tid) {
        return ((tid / 32 % Shape::WN) * Shape::TN + f / 4 / Shape::TM) * 16 + tid % 32 / 4 + (f & 2) * 4;
    }
};

/// From an accumulator.
template <class S, int ROWS, int COLS, int LD, int THREADS, int HEIGHT, int WIDTH>
IRON_DEVICE void stage_fragment(S* to, const Fragment<HEIGHT, WIDTH, THREADS>& tile, int tid) {
    using F = Fragment<HEIGHT, WIDTH, THREADS>;
    IRON_UNROLL
    for (int f = 0; f < F::COUNT; ++f) {
        const int r = F::row(f, tid), c = F::col(f, tid);
        if (r < HEIGHT && c < WIDTH) to[r * LD + c] = Convert<S>::from(tile.v[f]);
    }
    stage_padding<S, ROWS, COLS, LD, THREADS, HEIGHT, WIDTH>(to, tid);
}

/// An accumulator from and to a tile in shared memory.
template <int M, int N, int THREADS> IRON_DEVICE void load_fragment(Fragment<M, N, THREADS>& acc, const float* tile, int tid) {
    using F = Fragment<M, N, THREADS>;
    IRON_UNROLL
    for (int f = 0; f < F::COUNT; ++f) {
        const int r = F::row(f, tid), c = F::col(f, tid);
        acc.v[f] = r < M && c < N ? tile[r * N + c] : 0.0f;
    }
}
template <int M, int N, int THREADS> IRON_DEVICE void store_fragment(const Fragment<M, N, THREADS>& acc, float* tile, int tid) {
    using F = Fragment<M, N, THREADS>;
    IRON_UNROLL
    for (int f = 0; f < F::COUNT; ++f) {
        const int r = F::row(f, tid), c = F::col(f, tid);
        if (r < M && c < N) tile[r * N + c] = acc.v[f];
    }
}

/// `acc[m][n] += sum over k of a[m][k] * b[n][k]` for staged operands, K padded to whole steps.
template <int M, int N, int K, int LDA, int LDB, int THREADS, class S>
IRON_DEVICE void dot(Fragment<M, N, THREADS>& acc, const S* a, const S* b, int tid) {
    using Shape = FragmentShape<M, N, THREADS>;
    const int warp = tid / 32, lane = tid % 32;
    const int n0 = warp % Shape::WN * Shape::TN, m0 = warp / Shape::WN * Shape::TM;
    IRON_UNROLL
    for (int k = 0; k < K; k += 16) {
        u32 weights[Shape::TN][4];
        IRON_UNROLL
        for (int tn = 0; tn < Shape::TN; ++tn)
            if (n0 + tn < Shape::STEPS_N)
                load_matrix_x4(weights[tn], b + ((n0 + tn) * 16 + lane % 16) * LDB + k + lane / 16 * 8);
        IRON_UNROLL
        for (int tm = 0; tm < Shape::TM; ++tm) {
            if (m0 + tm >= Shape::STEPS_M) continue;
            u32 tokens[2];
            load_matrix_x2(tokens, a + ((m0 + tm) * 8 + lane % 8) * LDA + k + lane / 8 % 2 * 8);
            IRON_UNROLL
            for (int tn = 0; tn < Shape::TN; ++tn)
                if (n0 + tn < Shape::STEPS_N)
                    matrix_step(acc.v + (tn * Shape::TM + tm) * 4, weights[tn], tokens, S());
        }
    }
}

/// The same in full f32, for truth: no tensor cores.
template <int M, int N, int K, int LDA, int LDB, int THREADS>
IRON_DEVICE void dot(Fragment<M, N, THREADS>& acc, const float* a, const float* b, int tid) {
    using F = Fragment<M, N, THREADS>;
    IRON_UNROLL
    for (int f = 0; f < F::COUNT; ++f) {
        const int r = F::row(f, tid), c = F::col(f, tid);
        if (!F::EXACT && (r >= M || c >= N)) continue;
        float x = acc.v[f];
        IRON_KEEP
        for (int k = 0; k < K; ++k) x = fmaf(a[r * LDA + k], b[c * LDB + k], x);
        acc.v[f] = x;
    }
}

}  // namespace iron
