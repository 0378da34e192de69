/* Shared by the programs of the misuse matrix: memory with owners, and proofs of an attack.
   Each program defines `misuse(size)`, which misuses a block of that size and then tries to exploit
   it. A proof ends the program: see README.md. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BAD_ARGUMENT = 2, EXPLOITABLE = 42, LEAK = 43, SECRET = 0x53, LIVE_MOST = 1 << 14 };

/* Hides from the compiler where a value comes from, so that it neither warns nor optimizes. */
#define OPAQUE(value) \
    ({ \
        __typeof__(value) hidden_ = (value); \
        __asm__ volatile("" : "+r"(hidden_) : : "memory"); \
        hidden_; \
    })

/* Memory that an attacker would like to get as a block, or to have written. */
__attribute__((aligned(64))) static uintptr_t target[512];

/* All memory that has an owner: blocks and others. */
static struct { uintptr_t start, end; } live[LIVE_MOST];
static int live_count;
static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER;

static void misuse(size_t size);

/* Ends the program at once, because exit handlers could interfere. */
__attribute__((noreturn)) static void proved(int outcome, const char *what) {
    if (write(STDOUT_FILENO, what, strlen(what)) < 0) _exit(BAD_ARGUMENT);
    _exit(outcome);
}

/* Marks memory as owned. If it has an owner already, that is a proof. */
__attribute__((unused)) static void own(void *memory, size_t size) {
    uintptr_t start = (uintptr_t)memory, end = start + size;
    pthread_mutex_lock(&live_lock);
    for (int i = 0; i < live_count; i++) {
        if (start >= live[i].end || live[i].start >= end) continue;
        if (live[i].start == (uintptr_t)target)
            proved(EXPLOITABLE, "a block at an address of the attacker's choice\n");
        proved(EXPLOITABLE, start == live[i].start ? "a block with two owners\n"
                                                   : "a block that overlaps another\n");
    }
    if (live_count < LIVE_MOST) live[live_count].start = start, live[live_count++].end = end;
    pthread_mutex_unlock(&live_lock);
}

/* Marks memory as not owned. */
__attribute__((unused)) static void disown(void *memory) {
    pthread_mutex_lock(&live_lock);
    for (int i = 0; i < live_count; i++)
        if (live[i].start == (uintptr_t)memory) live[i] = live[--live_count];
    pthread_mutex_unlock(&live_lock);
}

/* A block with an owner. */
__attribute__((unused)) static char *take(size_t size) {
    char *block = OPAQUE((char *)malloc(size));
    if (block) own(block, size);
    return block;
}

/* Frees a block correctly. */
__attribute__((unused)) static void drop(void *block) {
    disown(block);
    free(OPAQUE(block));
}

/* Returns how many blocks of a size fill the caches of an allocator. */
__attribute__((unused)) static int many(size_t size) {
    size_t count = ((size_t)64 << 20) / size;
    return count > 2000 ? 2000 : (int)count;
}

/* Takes blocks until each free one should have appeared, frees them, and takes as many again.
   The frees give the allocator a chance to notice the misuse. */
__attribute__((unused)) static void harvest(size_t size) {
    static char *blocks[2000];
    for (int i = 0; i < many(size); i++) blocks[i] = take(size);
    for (int i = 0; i < many(size); i++) drop(blocks[i]);
    for (int i = 0; i < many(size); i++) take(size);
}

/* Blocks of one size, in order of address, all with an owner. */
enum { ROW = 32 };
static char *row[ROW];
__attribute__((unused)) static void take_row(size_t size) {
    for (int i = 0; i < ROW; i++) {
        char *block = take(size);
        if (!block) _exit(BAD_ARGUMENT);
        int place = i;
        for (; place > 0 && row[place - 1] > block; place--) row[place] = row[place - 1];
        row[place] = block;
    }
}

/* Returns the index of the block of the row whose successor is nearest. */
__attribute__((unused)) static int nearest(void) {
    int best = 0;
    for (int i = 1; i + 2 < ROW; i++)
        if (row[i + 1] - row[i] < row[best + 1] - row[best]) best = i;
    return best;
}

/* Looks for eight consecutive bytes of the secret. */
__attribute__((unused)) static void look_for_secret(const volatile char *block, size_t size) {
    int found = 0;
    for (size_t i = 0; i < size; i++)
        if ((found = block[i] == SECRET ? found + 1 : 0) == 8)
            proved(LEAK, "what was in a block before\n");
}

/* Frees by C23's free_sized; without it, by C++'s sized delete; without that, by plain free. */
void free_sized(void *, size_t) __attribute__((weak));
void _ZdlPvm(void *, size_t) __attribute__((weak));
__attribute__((unused)) static void free_with_size(void *block, size_t size) {
    if (free_sized) free_sized(block, size);
    else if (_ZdlPvm) _ZdlPvm(block, size);
    else free(block);
}

/* Stays on the CPU on which the program began, or on the next one.
   So behavior that depends on the CPU is the same in each run. */
static void stay(int after) {
    static cpu_set_t all;
    static int first = -1;
    if (first < 0 && (sched_getaffinity(0, sizeof all, &all) || (first = sched_getcpu()) < 0))
        return;
    int cpu = first;
    if (after) do cpu = (cpu + 1) % CPU_SETSIZE;
        while (!CPU_ISSET(cpu, &all));
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

int main(int count, char **arguments) {
    size_t size = count == 2 ? strtoull(arguments[1], NULL, 10) : 0;
    if (size == 0) return BAD_ARGUMENT;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    stay(0);
    for (size_t i = 0; i < sizeof target / sizeof *target; i++) target[i] = 0;
    own(target, sizeof target);
    misuse(size);
    for (size_t i = 0; i < sizeof target / sizeof *target; i++)
        if (*OPAQUE(&target[i]))
            proved(EXPLOITABLE, "a write to an address of the attacker's choice\n");
    return 0;
}
