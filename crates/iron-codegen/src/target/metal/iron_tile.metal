// Iron's tile library for Metal: the primitives that generated kernels call.
//
// `iron_tile.cuh` supplies the same set under the same names. Compile with fast math off (`mathMode = safe`): contraction
// is the compiler's decision, written as `iron::fma`. SIMD groups have 32 threads, numbered in thread order.
//
// Order of reductions (nothing below depends on the number of rows in flight):
//  * `dot`: k ascending in steps of 8, each step one `simdgroup_multiply_accumulate` onto the f32 accumulator, whatever the
//    operand type.
//  * `block_reduce`: a butterfly over the 32 lanes of a SIMD group (16, 8, 4, 2, 1), then the groups in ascending order.
//  * `reduce_axis`: lane l of L folds elements l, l + L, .. in ascending order, then a butterfly (L/2, .., 1).
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
#pragma METAL fp contract(off)
using namespace metal;

#define IRON_DEVICE inline
#define IRON_CONST static constant constexpr const
#define IRON_UNROLL _Pragma("clang loop unroll(full)")
#define IRON_KEEP _Pragma("clang loop unroll(disable)")

namespace iron {

typedef char i8;
typedef uchar u8;
typedef ushort u16;
typedef int i32;
typedef uint u32;
typedef long i64;
typedef half f16;
typedef bfloat bf16;

IRON_DEVICE float bits_to_f32(u32 x) { return as_type<float>(x); }
IRON_DEVICE u32 f32_to_bits(float x) { return as_type<u32>(x); }
/// Every thread of the block arrives before any goes on; shared and global writes become visible to the block.
IRON_DEVICE void barrier() { metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup | metal::mem_flags::mem_device); }

// ---- scalars -------------------------------------------------------------------------------------------------------

IRON_DEVICE float to_f32(float x) { return x; }
IRON_DEVICE float to_f32(f16 x) { return float(x); }
IRON_DEVICE float to_f32(bf16 x) { return float(x); }
IRON_DEVICE float to_f32(i32 x) { return float(x); }
IRON_DEVICE float to_f32(u32 x) { return float(x); }
IRON_DEVICE float to_f32(bool x) { return x ? 1.0f : 0.0f; }
IRON_DEVICE f16 to_f16(float x) { return f16(x); }
IRON_DEVICE bf16 to_bf16(float x) { return bf16(x); }
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
IRON_DEVICE float load(device const float* p) { return *p; }
IRON_DEVICE float load(device const f16* p) { return to_f32(*p); }
IRON_DEVICE float load(device const bf16* p) { return to_f32(*p); }
IRON_DEVICE i32 load(device const i8* p) { return *p; }
IRON_DEVICE i32 load(device const u8* p) { return *p; }
IRON_DEVICE i32 load(device const i32* p) { return *p; }
IRON_DEVICE u32 load(device const u32* p) { return *p; }

/// Writes one element, rounding floats to nearest even.
IRON_DEVICE void store(device float* p, float x) { *p = x; }
IRON_DEVICE void store(device f16* p, float x) { *p = to_f16(x); }
IRON_DEVICE void store(device bf16* p, float x) { *p = to_bf16(x); }
IRON_DEVICE void store(device f16* p, f16 x) { *p = x; }
IRON_DEVICE void store(device bf16* p, bf16 x) { *p = x; }
IRON_DEVICE void store(device i8* p, i32 x) { *p = i8(x); }
IRON_DEVICE void store(device u8* p, i32 x) { *p = u8(x); }
IRON_DEVICE void store(device i32* p, i32 x) { *p = x; }
IRON_DEVICE void store(device u32* p, u32 x) { *p = x; }

IRON_DEVICE float infinity() { return bits_to_f32(0x7f800000u); }
IRON_DEVICE float nan() { return bits_to_f32(0x7fc00000u); }
IRON_DEVICE float fma(float a, float b, float c) { return metal::fma(a, b, c); }
IRON_DEVICE float abs(float x) { return metal::fabs(x); }
IRON_DEVICE i32 abs(i32 x) { return x < 0 ? -x : x; }
IRON_DEVICE float exp(float x) { return metal::precise::exp(x); }
IRON_DEVICE float ln(float x) { return metal::precise::log(x); }
IRON_DEVICE float sqrt(float x) { return metal::precise::sqrt(x); }
IRON_DEVICE float rsqrt(float x) { return 1.0f / metal::precise::sqrt(x); }
IRON_DEVICE float tanh(float x) { return metal::precise::tanh(x); }
IRON_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + metal::precise::exp(-x)); }
/// Error function after N. Juffa's polynomials; the tests measure its error.
IRON_DEVICE float erf(float a) {
    const float t = metal::fabs(a), s = a * a;
    if (t > 0.927734375f) {
        float r = metal::fma(-1.72853470e-5f, t, 3.83197126e-4f);
        const float u = metal::fma(-3.88396438e-3f, t, 2.42546219e-2f);
        r = metal::fma(r, s, u);
        r = metal::fma(r, t, -1.06777877e-1f);
        r = metal::fma(r, t, -6.34846687e-1f);
        r = metal::fma(r, t, -1.28717512e-1f);
        r = metal::fma(r, t, -t);
        return metal::copysign(1.0f - metal::precise::exp(r), a);
    }
    float r = -5.96761703e-4f;
    r = metal::fma(r, s, 4.99119423e-3f);
    r = metal::fma(r, s, -2.67681349e-2f);
    r = metal::fma(r, s, 1.12819925e-1f);
    r = metal::fma(r, s, -3.76125336e-1f);
    r = metal::fma(r, s, 1.28379166e-1f);
    return metal::fma(r, a, a);
}
IRON_DEVICE float sin(float x) { return metal::precise::sin(x); }
IRON_DEVICE float cos(float x) { return metal::precise::cos(x); }
IRON_DEVICE float floor(float x) { return metal::floor(x); }
IRON_DEVICE float round(float x) { return metal::rint(x); }
IRON_DEVICE float min(float a, float b) { return metal::fmin(a, b); }
IRON_DEVICE i32 min(i32 a, i32 b) { return a < b ? a : b; }
IRON_DEVICE u32 min(u32 a, u32 b) { return a < b ? a : b; }
IRON_DEVICE i64 min(i64 a, i64 b) { return a < b ? a : b; }
IRON_DEVICE float max(float a, float b) { return metal::fmax(a, b); }
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

IRON_DEVICE float shuffle_xor(float x, int mask) { return metal::simd_shuffle_xor(x, u16(mask)); }
IRON_DEVICE i32 shuffle_xor(i32 x, int mask) { return metal::simd_shuffle_xor(x, u16(mask)); }
IRON_DEVICE u32 shuffle_xor(u32 x, int mask) { return metal::simd_shuffle_xor(x, u16(mask)); }
IRON_DEVICE bool shuffle_xor(bool x, int mask) { return metal::simd_shuffle_xor(u32(x), u16(mask)) != 0u; }

/// Folds groups of LANES neighbouring lanes; every lane of a group gets the same bits.
template <class Op, int LANES, class T> IRON_DEVICE T lanes_reduce(T x) {
    IRON_UNROLL
    for (int mask = LANES / 2; mask > 0; mask /= 2) x = Op::template fold<T>(x, shuffle_xor(x, mask));
    return x;
}

/// Folds one value per thread; every thread gets the same bits. `scratch` holds THREADS / 32 values.
template <class Op, int THREADS, class T> IRON_DEVICE T block_reduce(T x, threadgroup T* scratch, int tid) {
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
IRON_DEVICE void reduce_axis(threadgroup const T* tile, threadgroup T* out, int tid) {
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

IRON_DEVICE float half_at(device const u8* p) { return float(as_type<half>(u16(p[0] | (p[1] << 8)))); }

/// Value `i` of 4 bytes of fifth bits, in the order of the values, and 16 bytes of nibbles.
IRON_DEVICE int five_bits(device const u8* b, int i) {
    const int low = (b[4 + i % 16] >> (i / 16 * 4)) & 15;
    return low | ((b[i / 8] >> (i % 8)) & 1) << 4;
}
/// Value `i` of two halves of 32 bytes, whose four runs of 32 values are at bits 0, 2, 4, 6.
IRON_DEVICE int two_bits(device const u8* b, int i) { return (b[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3; }
/// Value `i` of nibbles whose 32 bytes hold one sub-block in the low halves and the next in the high.
IRON_DEVICE int nibble_of_pair(device const u8* b, int i) { return (b[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4)) & 15; }
/// A code under eight 6-bit scales and minima: two halves, then 12 bytes.
IRON_DEVICE float six_bit_affine(device const u8* b, int sub, int q) {
    device const u8* s = b + 4;
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
    IRON_CONST int BLOCK = 32, BYTES = 34;
    IRON_DEVICE static float at(device const u8* b, int i) { return half_at(b) * float(i8(b[2 + i])); }
};
/// 32 nibbles offset by 8 under one scale.
struct Q4_0 {
    IRON_CONST int BLOCK = 32, BYTES = 18;
    IRON_DEVICE static float at(device const u8* b, int i) {
        const int q = i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4;
        return half_at(b) * float(q - 8);
    }
};
/// 32 nibbles with scale and minimum.
struct Q4_1 {
    IRON_CONST int BLOCK = 32, BYTES = 20;
    IRON_DEVICE static float at(device const u8* b, int i) {
        const int q = i < 16 ? b[4 + i] & 15 : b[4 + i - 16] >> 4;
        return half_at(b) * float(q) + half_at(b + 2);
    }
};
/// 32 five-bit values offset by 16 under one scale; the fifth bits follow it.
struct Q5_0 {
    IRON_CONST int BLOCK = 32, BYTES = 22;
    IRON_DEVICE static float at(device const u8* b, int i) { return half_at(b) * float(five_bits(b + 2, i) - 16); }
};
/// 32 five-bit values with scale and minimum.
struct Q5_1 {
    IRON_CONST int BLOCK = 32, BYTES = 24;
    IRON_DEVICE static float at(device const u8* b, int i) { return half_at(b) * float(five_bits(b + 4, i)) + half_at(b + 2); }
};
/// 256 two-bit values; sixteen 4-bit scales and minima under two halves.
struct Q2_K {
    IRON_CONST int BLOCK = 256, BYTES = 84;
    IRON_DEVICE static float at(device const u8* b, int i) {
        const int both = b[i / 16];
        const float scale = half_at(b + 80) * float(both & 15);
        return scale * float(two_bits(b + 16, i)) - half_at(b + 82) * float(both >> 4);
    }
};
/// 256 three-bit values offset by 4; sixteen signed 6-bit scales under one half.
struct Q3_K {
    IRON_CONST int BLOCK = 256, BYTES = 110;
    IRON_DEVICE static float at(device const u8* b, int i) {
        const int sub = i / 16;
        device const u8* s = b + 96;
        const int low = (s[sub % 8] >> (sub / 8 * 4)) & 15;
        const int high = (s[8 + sub % 4] >> (sub / 4 * 2)) & 3;
        const int q = two_bits(b + 32, i) | ((b[i % 32] >> (i / 32)) & 1) << 2;
        return half_at(b + 108) * float((low | high << 4) - 32) * float(q - 4);
    }
};
/// 256 nibbles; eight 6-bit scales and minima under two halves.
struct Q4_K {
    IRON_CONST int BLOCK = 256, BYTES = 144;
    IRON_DEVICE static float at(device const u8* b, int i) { return six_bit_affine(b, i / 32, nibble_of_pair(b + 16, i)); }
};
/// 256 five-bit values; scales and minima as in `Q4_K`.
struct Q5_K {
    IRON_CONST int BLOCK = 256, BYTES = 176;
    IRON_DEVICE static float at(device const u8* b, int i) {
        const int fifth = (b[16 + i % 32] >> (i / 32)) & 1;
        return six_bit_affine(b, i / 32, nibble_of_pair(b + 48, i) | fifth << 4);
    }
};
/// 256 six-bit values offset by 32; sixteen i8 scales under one half.
struct Q6_K {
    IRON_CONST int BLOCK = 256, BYTES = 210;
    IRON_DEVICE static float at(device const u8* b, int i) {
        const int upper = i / 128, quarter = i % 128 / 32, l = i % 32;
        const u8 low = b[upper * 64 + quarter % 2 * 32 + l];
        const u8 high = b[128 + upper * 32 + l];
        const int q = (quarter < 2 ? low & 15 : low >> 4) | ((high >> (2 * quarter)) & 3) << 4;
        const int scale = i8(b[192 + i / 16]);
        return half_at(b + 208) * float(scale) * float(q - 32);
    }
};

/// Element `k` of a packed row.
template <class Format> IRON_DEVICE float decode(device const u8* row, int k) {
    return Format::at(row + i64(k / Format::BLOCK) * Format::BYTES, k % Format::BLOCK);
}

// ---- operand staging: a [ROWS][COLS] operand in shared memory, rows LD apart, zero outside `rows` x `cols` -------------
// ROWS and COLS are padded to whole matrix steps.

/// From strided memory whose columns are (nearly) contiguous.
template <class S, int ROWS, int COLS, int LD, int THREADS, class T>
IRON_DEVICE void stage(threadgroup S* to, device const T* from, i64 row_stride, i64 col_stride, int rows, int cols, int tid) {
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
IRON_DEVICE void stage_same(threadgroup S* to, device const S* from, i64 row_stride, i64 col_stride, int rows, int cols, int tid) {
    constexpr int WIDE = 16 / int(sizeof(S));
    const bool wide = col_stride == 1 && row_stride % WIDE == 0 && reinterpret_cast<size_t>(from) % 16 == 0;
    if (!wide) {
        stage<S, ROWS, COLS, LD, THREADS, S>(to, from, row_stride, col_stride, rows, cols, tid);
        return;
    }
    IRON_UNROLL
    for (int e = tid; e < ROWS * COLS / WIDE; e += THREADS) {
        const int r = e / (COLS / WIDE), c = e % (COLS / WIDE) * WIDE;
        if (r < rows && c + WIDE <= cols) {
            *reinterpret_cast<threadgroup Chunk*>(to + r * LD + c) = *reinterpret_cast<device const Chunk*>(from + r * row_stride + c);
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
IRON_DEVICE void stage_transposed(threadgroup S* to, device const T* from, i64 row_stride, i64 col_stride, int rows, int cols, int tid) {
    IRON_KEEP
    for (int e = tid; e < ROWS * COLS; e += THREADS) {
        const int r = e % ROWS, c = e / ROWS;
        const float x = r < rows && c < cols ? to_f32(load(from + r * row_stride + c * col_stride)) : 0.0f;
        to[r * LD + c] = Convert<S>::from(x);
    }
}

/// Rows listed by `index`; those that are negative or not below `bound` are zero.
template <class S, int ROWS, int COLS, int LD, int THREADS, class T>
IRON_DEVICE void stage_gathered_rows(threadgroup S* to, device const T* from, threadgroup const i32* index, int bound, i64 row_stride, i64 col_stride,
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
IRON_DEVICE void stage_gathered_cols(threadgroup S* to, device const T* from, threadgroup const i32* index, int bound, i64 row_stride, i64 col_stride,
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
IRON_DEVICE void stage_packed(threadgroup S* to, device const u8* from, i64 row_bytes, int k, int rows, int cols, int tid) {
    IRON_KEEP
    for (int e = tid; e < ROWS * COLS; e += THREADS) {
        const int r = e / COLS, c = e % COLS;
        const float x = r < rows && c < cols ? decode<Format>(from + r * row_bytes, k + c) : 0.0f;
        to[r * LD + c] = Convert<S>::from(x);
    }
}

/// From a tile in shared memory, `HEIGHT` x `WIDTH`.
template <class S, int ROWS, int COLS, int LD, int THREADS, int HEIGHT, int WIDTH, class T>
IRON_DEVICE void stage_shared(threadgroup S* to, threadgroup const T* tile, int tid) {
    IRON_KEEP
    for (int e = tid; e < ROWS * COLS; e += THREADS) {
        const int r = e / COLS, c = e % COLS;
        to[r * LD + c] = Convert<S>::from(r < HEIGHT && c < WIDTH ? to_f32(tile[r * WIDTH + c]) : 0.0f);
    }
}

/// Zeroes what a `HEIGHT` x `WIDTH` tile leaves of the padded operand.
template <class S, int ROWS, int COLS, int LD, int THREADS, int HEIGHT, int WIDTH>
IRON_DEVICE void stage_padding(threadgroup S* to, int tid) {
    constexpr int END = HEIGHT == ROWS && WIDTH == COLS ? 0 : ROWS * COLS;
    IRON_KEEP
    for (int e = tid; e < END; e += THREADS) {
        const int r = e / COLS, c = e % COLS;
        if (r >= HEIGHT || c >= WIDTH) to[r * LD + c] = Convert<S>::from(0.0f);
    }
}

/// From a tile spread over the threads in linear order.
template <class S, int ROWS, int COLS, int LD, int THREADS, int HEIGHT, int WIDTH, class T>
IRON_DEVICE void stage_blocked(threadgroup S* to, thread const T* tile, int tid) {
    IRON_UNROLL
    for (int slot = 0; slot < (HEIGHT * WIDTH + THREADS - 1) / THREADS; ++slot) {
        const int e = slot * THREADS + tid;
        if (e < HEIGHT * WIDTH) to[e / WIDTH * LD + e % WIDTH] = Convert<S>::from(to_f32(tile[slot]));
    }
    stage_padding<S, ROWS, COLS, LD, THREADS, HEIGHT, WIDTH>(to, tid);
}

// ---- the matrix unit -------------------------------------------------------------------------------------------------

/// How the SIMD groups of a block divide the 8 x 8 steps of an [M, N] result: `WN` groups along n, the others along m,
/// such that each has the fewest steps, then the fewest operand rows to read.
template <int M, int N, int THREADS> struct FragmentShape {
    IRON_CONST int WARPS = THREADS / 32;
    IRON_CONST int STEPS_M = (M + 7) / 8;
    IRON_CONST int STEPS_N = (N + 7) / 8;
    static constexpr int up(int a, int b) { return (a + b - 1) / b; }
    static constexpr int cost(int wn) {
        return up(STEPS_N, wn) * up(STEPS_M, WARPS / wn) * 4096 + up(STEPS_N, wn) + up(STEPS_M, WARPS / wn);
    }
    static constexpr int best() {
        int chosen = 1;
        for (int wn = 2; wn <= WARPS; ++wn)
            if (WARPS % wn == 0 && cost(wn) < cost(chosen)) chosen = wn;
        return chosen;
    }
};

/// An [M, N] f32 accumulator spread over the block in the layout of the matrix unit.
template <int M, int N, int THREADS> struct Fragment {
    using Shape = FragmentShape<M, N, THREADS>;
    IRON_CONST int WN = Shape::best();
    IRON_CONST int WM = Shape::WARPS / WN;
    IRON_CONST int TN = Shape::up(Shape::STEPS_N, WN);
    IRON_CONST int TM = Shape::up(Shape::STEPS_M, WM);
    IRON_CONST int COUNT = TN * TM * 2;
    /// Whether there is no padding: every element of every thread is one of the tile.
    IRON_CONST bool EXACT = WM * TM * 8 == M && WN * TN * 8 == N;
    float v[COUNT];
    /// Row (along M) of element `f` of thread `tid`; M or more for padding.
    static int row(int f, int tid) {
        const int lane = tid % 32;
        return ((tid / 32 / WN) * TM + f / 2 % TM) * 8 + (lane / 4 & 4) + lane / 2 % 4;
    }
    /// Column (along N) of element `f` of thread `tid`; N or more for padding.
    static int col(int f, int tid) {
        const int lane = tid % 32;
        return ((tid / 32 % WN) * TN + f / 2 / TM) * 8 + (lane / 4 & 2) * 2 + lane % 2 * 2 + (f & 1);
    }
};

/// From an accumulator.
template <class S, int ROWS, int COLS, int LD, int THREADS, int HEIGHT, int WIDTH>
IRON_DEVICE void stage_fragment(threadgroup S* to, thread const Fragment<HEIGHT, WIDTH, THREADS>& tile, int tid) {
    using F = Fragment<HEIGHT, WIDTH, THREADS>;
    IRON_UNROLL
    for (int f = 0; f < F::COUNT; ++f) {
        const int r = F::row(f, tid), c = F::col(f, tid);
        if (r < HEIGHT && c < WIDTH) to[r * LD + c] = Convert<S>::from(tile.v[f]);
    }
    stage_padding<S, ROWS, COLS, LD, THREADS, HEIGHT, WIDTH>(to, tid);
}

/// An accumulator from and to a tile in shared memory.
template <int M, int N, int THREADS>
IRON_DEVICE void load_fragment(thread Fragment<M, N, THREADS>& acc, threadgroup const float* tile, int tid) {
    using F = Fragment<M, N, THREADS>;
    IRON_UNROLL
    for (int f = 0; f < F::COUNT; ++f) {
        const int r = F::row(f, tid), c = F::col(f, tid);
        acc.v[f] = r < M && c < N ? tile[r * N + c] : 0.0f;
    }
}
template <int M, int N, int THREADS>
IRON_DEVICE void store_fragment(thread const Fragment<M, N, THREADS>& acc, threadgroup float* tile, int tid) {
    using F = Fragment<M, N, THREADS>;
    IRON_UNROLL
    for (int f = 0; f < F::COUNT; ++f) {
        const int r = F::row(f, tid), c = F::col(f, tid);
        if (r < M && c < N) tile[r * N + c] = acc.v[f];
    }
}

/// `acc[m][n] += sum over k of a[m][k] * b[n][k]` for staged operands, K padded to whole steps.
template <int M, int N, int K, int LDA, int LDB, int THREADS, class S>
IRON_DEVICE void dot(thread Fragment<M, N, THREADS>& acc, threadgroup const S* a, threadgroup const S* b, int tid) {
    using F = Fragment<M, N, THREADS>;
    using Shape = FragmentShape<M, N, THREADS>;
    const int warp = tid / 32, lane = tid % 32;
    const int n0 = warp % F::WN * F::TN, m0 = warp / F::WN * F::TM;
    // This lane's row and first column of an 8 x 8 matrix.
    const int row = (lane / 4 & 4) + lane / 2 % 4, col = (lane / 4 & 2) * 2 + lane % 2 * 2;
    IRON_UNROLL
    for (int k = 0; k < K; k += 8) {
        metal::simdgroup_matrix<S, 8, 8> weights[F::TN];
        IRON_UNROLL
        for (int tn = 0; tn < F::TN; ++tn) {
            if (n0 + tn < Shape::STEPS_N) {
                threadgroup const S* from = b + ((n0 + tn) * 8 + col) * LDB + k + row;
                weights[tn].thread_elements()[0] = from[0];
                weights[tn].thread_elements()[1] = from[LDB];
            }
        }
        IRON_UNROLL
        for (int tm = 0; tm < F::TM; ++tm) {
            if (m0 + tm >= Shape::STEPS_M) continue;
            metal::simdgroup_matrix<S, 8, 8> tokens;
            threadgroup const S* from = a + ((m0 + tm) * 8 + row) * LDA + k + col;
            tokens.thread_elements()[0] = from[0];
            tokens.thread_elements()[1] = from[1];
            IRON_UNROLL
            for (int tn = 0; tn < F::TN; ++tn) {
                if (n0 + tn >= Shape::STEPS_N) continue;
                metal::simdgroup_matrix<float, 8, 8> sum;
                thread float* at = acc.v + (tn * F::TM + tm) * 2;
                sum.thread_elements()[0] = at[0];
                sum.thread_elements()[1] = at[1];
                metal::simdgroup_multiply_accumulate(sum, tokens, weights[tn], sum);
                at[0] = sum.thread_elements()[0];
                at[1] = sum.thread_elements()[1];
            }
        }
    }
}

}  // namespace iron
