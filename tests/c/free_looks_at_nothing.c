// free touches no page of a block: the program may have made it inaccessible, or another's.
// expect: exit 0
// harden: too
// check: no it compares what lies behind a block
#define _GNU_SOURCE
#include "check.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* The whole pages inside a block. */
struct pages {
    char *start;
    size_t bytes;
};

static struct pages pages_of(char *block, size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *start = (char *)(((size_t)block + page - 1) & ~(page - 1));
    return (struct pages){start, (size_t)(block + size - start) & ~(page - 1)};
}

static char *block_of(size_t size, int zeros) {
    char *block = OPAQUE(zeros ? calloc(1, size) : malloc(size));
    CHECK(block != NULL);
    return block;
}

/* Runs `free` in the child of a fork, which must end well. */
static void free_in_child(char *block, void (*before)(struct pages), struct pages pages) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (before != NULL) before(pages);
        free(block);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void make_inaccessible(struct pages pages) {
    CHECK(mprotect(pages.start, pages.bytes, PROT_NONE) == 0);
}

/* A file that has lost its pages: to read there is SIGBUS. */
static void map_an_empty_file(struct pages pages) {
    int file = memfd_create("empty", 0);
    CHECK(file >= 0);
    int both = PROT_READ | PROT_WRITE;
    CHECK(mmap(pages.start, pages.bytes, both, MAP_SHARED | MAP_FIXED, file, 0) == pages.start);
}

static void try_all(size_t size, int zeros) {
    char *block = block_of(size, zeros);
    struct pages pages = pages_of(block, size);
    free_in_child(block, make_inaccessible, pages);
    free_in_child(block, map_an_empty_file, pages);
    /* The child has no memory there, as with RDMA libraries. */
    CHECK(madvise(pages.start, pages.bytes, MADV_DONTFORK) == 0);
    free_in_child(block, NULL, pages);
    CHECK(madvise(pages.start, pages.bytes, MADV_DOFORK) == 0);
    free(block);
}

int main(void) {
    static const size_t sizes[] = {100 << 10, 1 << 20, 20 << 20, 100 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int zeros = 0; zeros < 2; zeros++) try_all(sizes[i], zeros);
    return 0;
}
