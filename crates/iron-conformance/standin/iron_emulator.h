// What both stand-ins share with the emulator (src/fiber.rs): one structure, filled in by Rust.
#pragma once

/// The emulated block. `thread` changes whenever a fiber is resumed, so it is read anew after every wait.
struct iron_emulator {
    unsigned thread;
    unsigned threads;
    unsigned block[3];
    unsigned grid[3];
    /// 32 slots of 64 bytes: what the lanes of the running warp exchange; alternates between two sets.
    unsigned char* slots;
    /// The stack of the running fiber: accesses to it are private.
    const unsigned char* stack_low;
    const unsigned char* stack_high;
    void (*wait_block)(void);
    void (*wait_warp)(void);
    void (*touch)(const void* address, unsigned size, unsigned write);
};
