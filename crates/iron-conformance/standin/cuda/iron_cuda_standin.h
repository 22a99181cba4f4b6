// CUDA C++ for a stock C++ compiler: the words of the language that generated kernels use, and the twins of the
// functions that iron_tile.cuh writes in PTX.
#pragma once
#include "../iron_emulator.h"

extern "C" iron_emulator* iron_rt;

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__
#define IRON_DEVICE inline
#define IRON_UNROLL
#define IRON_KEEP
#define IRON_HARDWARE static inline __attribute__((no_sanitize("thread"), noinline))

struct iron_dim3 {
    unsigned x, y, z;
};
IRON_HARDWARE iron_dim3 iron_thread_index() { return {iron_rt->thread, 0, 0}; }
IRON_HARDWARE iron_dim3 iron_block_index() { return {iron_rt->block[0], iron_rt->block[1], iron_rt->block[2]}; }
#define threadIdx (iron_thread_index())
#define blockIdx (iron_block_index())

// Dynamic shared memory of the one block that runs at a time.
extern "C" {
alignas(1024) unsigned char iron_shared[232448];
}

#define fmaf __builtin_fmaf
#define fabsf __builtin_fabsf
#define expf __builtin_expf
#define logf __builtin_logf
#define sqrtf __builtin_sqrtf
#define tanhf __builtin_tanhf
#define erff __builtin_erff
#define sinf __builtin_sinf
#define cosf __builtin_cosf
#define floorf __builtin_floorf
#define rintf __builtin_rintf
#define fminf __builtin_fminf
#define fmaxf __builtin_fmaxf

extern "C" unsigned short iron_f32_to_bf16(float);

namespace iron {
IRON_HARDWARE float f16_to_f32(unsigned short x) { return float(__builtin_bit_cast(_Float16, x)); }
IRON_HARDWARE unsigned short f32_to_f16(float x) { return __builtin_bit_cast(unsigned short, _Float16(x)); }
IRON_HARDWARE unsigned short f32_to_bf16(float x) { return iron_f32_to_bf16(x); }
IRON_HARDWARE float bits_to_f32(unsigned x) { return __builtin_bit_cast(float, x); }
IRON_HARDWARE unsigned f32_to_bits(float x) { return __builtin_bit_cast(unsigned, x); }
IRON_HARDWARE void barrier() { iron_rt->wait_block(); }

/// What lane `lane` wrote. The emulator swaps the two sets of slots at every wait, so a collective takes `slots` before
/// it waits, and nobody can overwrite it before all have read.
template <class T> IRON_HARDWARE T* slot_of(unsigned char* slots, unsigned lane) { return (T*)(slots + 64 * (lane % 32)); }

IRON_HARDWARE unsigned lane_xor(unsigned x, int mask) {
    unsigned char* slots = iron_rt->slots;
    const unsigned lane = iron_rt->thread % 32;
    *slot_of<unsigned>(slots, lane) = x;
    iron_rt->wait_warp();
    return *slot_of<unsigned>(slots, lane ^ unsigned(mask));
}
/// Matrix `i` of eight rows: lane l gets elements 2 (l % 4) and the next of row l / 4, whose address lane 8 i + l / 4 gave.
template <int N> IRON_HARDWARE void load_matrices(unsigned* r, const void* row) {
    unsigned char* slots = iron_rt->slots;
    const unsigned lane = iron_rt->thread % 32;
    *slot_of<const void*>(slots, lane) = row;
    iron_rt->wait_warp();
    for (unsigned i = 0; i < N; ++i) {
        const unsigned char* from = *slot_of<const unsigned char*>(slots, 8 * i + lane / 4) + lane % 4 * 4;
        iron_rt->touch(from, 4, 0);
        __builtin_memcpy(r + i, from, 4);
    }
}
IRON_HARDWARE void load_matrix_x4(unsigned (&r)[4], const void* row) { load_matrices<4>(r, row); }
IRON_HARDWARE void load_matrix_x2(unsigned (&r)[2], const void* row) { load_matrices<2>(r, row); }

struct matrix_operands {
    unsigned a[4], b[2];
};
/// S names the element type of the operands (`f16` or `bf16`).
template <class S> IRON_HARDWARE void matrix_step(float* d, const unsigned (&a)[4], const unsigned (&b)[2], S) {
    unsigned char* slots = iron_rt->slots;
    const unsigned lane = iron_rt->thread % 32;
    __builtin_memcpy(slot_of<matrix_operands>(slots, lane)->a, a, 16);
    __builtin_memcpy(slot_of<matrix_operands>(slots, lane)->b, b, 8);
    iron_rt->wait_warp();
    for (unsigned i = 0; i < 4; ++i) {
        const unsigned row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
        float sum = d[i];
        for (unsigned k = 0; k < 16; ++k) {
            const unsigned x = slot_of<matrix_operands>(slots, row % 8 * 4 + k % 8 / 2)->a[row / 8 + k / 8 * 2];
            const unsigned y = slot_of<matrix_operands>(slots, col * 4 + k % 8 / 2)->b[k / 8];
            const S u{(unsigned short)(x >> k % 2 * 16)}, v{(unsigned short)(y >> k % 2 * 16)};
            sum += to_f32(u) * to_f32(v);
        }
        d[i] = sum;
    }
}
}  // namespace iron
