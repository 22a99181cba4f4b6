// Linked into every emulated kernel, itself not instrumented: the hooks that `-fsanitize=thread` instrumentation
// calls before each access (we use the compiler pass only, with this runtime), and conversions that libgcc lacks.
#include "iron_emulator.h"

struct iron_emulator* iron_rt;

unsigned iron_thread(void) { return iron_rt->thread; }
unsigned char* iron_slots(void) { return iron_rt->slots; }
void iron_wait_block(void) { iron_rt->wait_block(); }
void iron_wait_warp(void) { iron_rt->wait_warp(); }

static inline __attribute__((always_inline)) void touch(const void* p, unsigned size, unsigned write) {
    const unsigned char* a = p;
    if (a >= iron_rt->stack_low && a < iron_rt->stack_high) return;
    iron_rt->touch(p, size, write);
}
#define HOOK(n)                                                  \
    void __tsan_read##n(void* p) { touch(p, n, 0); }             \
    void __tsan_write##n(void* p) { touch(p, n, 1); }            \
    void __tsan_unaligned_read##n(void* p) { touch(p, n, 0); }   \
    void __tsan_unaligned_write##n(void* p) { touch(p, n, 1); }
HOOK(1) HOOK(2) HOOK(4) HOOK(8) HOOK(16)
void __tsan_init(void) {}
void __tsan_func_entry(void* p) { (void)p; }
void __tsan_func_exit(void) {}
void* memcpy(void*, const void*, unsigned long);
void* memset(void*, int, unsigned long);
void* memmove(void*, const void*, unsigned long);
void* __tsan_memcpy(void* d, const void* s, unsigned long n) {
    touch(s, (unsigned)n, 0);
    touch(d, (unsigned)n, 1);
    return memcpy(d, s, n);
}
void* __tsan_memmove(void* d, const void* s, unsigned long n) {
    touch(s, (unsigned)n, 0);
    touch(d, (unsigned)n, 1);
    return memmove(d, s, n);
}
void* __tsan_memset(void* d, int v, unsigned long n) {
    touch(d, (unsigned)n, 1);
    return memset(d, v, n);
}

static unsigned short to_bf16(float f) {
    unsigned u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (unsigned short)(u >> 16 | 0x40);
    return (unsigned short)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
__bf16 __truncsfbf2(float f) {
    unsigned short r = to_bf16(f);
    __bf16 b;
    memcpy(&b, &r, 2);
    return b;
}
unsigned short iron_f32_to_bf16(float f) { return to_bf16(f); }
