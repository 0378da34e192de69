// Pages that are locked, or have advice, may not move: a block that grows is then copied.
// No mode reports an error.
// expect: exit 0
// harden: too
// ways: preload static
#define _GNU_SOURCE
#include "check.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096, ROUNDS = 4 };

static char *page_in(char *block, size_t offset) {
    return (char *)(((uintptr_t)block + offset + PAGE - 1) / PAGE * PAGE);
}

static void lock(char *block, size_t size) {
    CHECK(mlock(page_in(block, 0), size / PAGE * PAGE - PAGE) == 0);
}
static void lock_part(char *block, size_t size) {
    CHECK(mlock(page_in(block, size / 2), 3 * PAGE) == 0);
}
static void keep_from_children(char *block, size_t size) {
    CHECK(madvise(page_in(block, size / 3), 5 * PAGE, MADV_DONTFORK) == 0);
}
static void keep_from_dumps(char *block, size_t size) {
    CHECK(madvise(page_in(block, size / 2), 9 * PAGE, MADV_DONTDUMP) == 0);
}

/* Checks that a block that realloc moved or copied is intact, and can be freed and resized. */
static void grow(void (*prepare)(char *, size_t), int rounds) {
    for (int round = 0; round < rounds; round++) {
        size_t size = 6 * MIB + 123 + (size_t)round * 4001, more = 2 * size + 77;
        char *block = malloc(size), *behind = malloc(3 * MIB + 5);
        CHECK(block != NULL && behind != NULL);
        fill(block, size, 7);
        prepare(block, size);
        block = realloc(block, more);
        CHECK(block != NULL && intact(block, size, 7));
        fill(block, more, 9);
        block = realloc(block, size / 2);
        CHECK(block != NULL && intact(block, size / 2, 9));
        munlock(page_in(block, 0), size / 2 / PAGE * PAGE - PAGE);
        free(block);
        free(behind);
    }
}

int main(void) {
    /* Less than the size of two such blocks. */
    CHECK(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){8 * MIB, 8 * MIB}) == 0);
    if (geteuid() == 0) CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    /* Mappings from a parent do not join the process's own mappings. */
    char *block = malloc(6 * MIB + 123);
    CHECK(block != NULL);
    fill(block, 6 * MIB + 123, 3);
    pid_t child = fork();
    CHECK(child >= 0);
    block = realloc(block, 40 * MIB + 9);
    CHECK(block != NULL && intact(block, 6 * MIB + 123, 3));
    block = realloc(block, 90 * MIB + 9);
    CHECK(block != NULL && intact(block, 6 * MIB + 123, 3));
    free(block);
    int status = 0;
    if (child > 0) CHECK(waitpid(child, &status, 0) == child && status == 0);
    /* Once only: an allocator may keep memory that was locked. */
    grow(lock, 1);
    grow(lock_part, ROUNDS);
    grow(keep_from_children, ROUNDS);
    grow(keep_from_dumps, ROUNDS);
    return 0;
}
