/* Shared by the contract programs: CHECK, patterns that blocks are filled with, random sizes. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Ends the program with exit code 1 and a line with the file, line and condition, if `condition` is
   false. Allocates nothing, so it can be used in any state of the allocator. */
#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))

__attribute__((noreturn, unused)) static void check_failed(const char *file, int line,
                                                           const char *condition) {
    char message[512];
    int length = snprintf(message, sizeof message, "%s:%d: failed: %s\n", file, line, condition);
    if (write(STDERR_FILENO, message, (size_t)length) < 0) _exit(2);
    _exit(1);
}

/* Hides from the compiler where a value comes from, so that it neither warns nor optimizes. */
#define OPAQUE(value) \
    ({ \
        __typeof__(value) hidden_ = (value); \
        __asm__ volatile("" : "+r"(hidden_)); \
        hidden_; \
    })

/* Writes a pattern that depends on `seed` over a whole block. */
__attribute__((unused)) static void fill(void *block, size_t size, unsigned seed) {
    unsigned char *bytes = (unsigned char *)block;
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(seed + i * 7 + (i >> 8));
}

/* Returns whether the first `size` bytes are still what `fill` wrote. */
__attribute__((unused)) static int intact(const void *block, size_t size, unsigned seed) {
    const unsigned char *bytes = (const unsigned char *)block;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != (unsigned char)(seed + i * 7 + (i >> 8))) return 0;
    return 1;
}

/* Like `fill` and `intact`, but for large blocks: only every 509th byte. */
__attribute__((unused)) static void fill_sample(void *block, size_t size, unsigned seed) {
    for (size_t i = 0; i < size; i += 509) ((unsigned char *)block)[i] = (unsigned char)(seed + i);
    if (size) ((unsigned char *)block)[size - 1] = (unsigned char)(seed ^ 0x5a);
}

__attribute__((unused)) static int intact_sample(const void *block, size_t size, size_t filled,
                                                 unsigned seed) {
    const unsigned char *bytes = (const unsigned char *)block;
    for (size_t i = 0; i < size; i += 509)
        if (i != filled - 1 && bytes[i] != (unsigned char)(seed + i)) return 0;
    return size < filled || !filled || bytes[filled - 1] == (unsigned char)(seed ^ 0x5a);
}

__attribute__((unused)) static int aligned_to(const void *block, size_t alignment) {
    return ((uintptr_t)block & (alignment - 1)) == 0;
}

/* A small generator of random numbers; `*state` must not be zero. */
__attribute__((unused)) static uint32_t random32(uint32_t *state) {
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

/* Returns a size as programs ask for them: most small, some medium, a few large. */
__attribute__((unused)) static size_t random_size(uint32_t *state) {
    uint32_t kind = random32(state) % 100, x = random32(state);
    if (kind < 70) return 1 + x % 256;
    if (kind < 93) return 1 + x % 4096;
    if (kind < 99) return 1 + x % 65536;
    return 1 + x % 600000;
}
