// The program may serve the page faults of its blocks itself (userfaultfd(2)), by a thread that
// allocates. What reads a block waits for it. So ebbmalloc reads no block that is in use.
// expect: exit 0
// check: no it fills the blocks
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, SMALL = 1000, SMALLS = 20000 };

static int served;

static void *serve(void *unused) {
    struct uffd_msg fault;
    static char page[PAGE] __attribute__((aligned(PAGE)));
    memset(page, 1, PAGE);
    while (read(served, &fault, sizeof fault) == sizeof fault) {
        for (size_t bytes = 16; bytes < 1 << 20; bytes *= 3) free(OPAQUE(malloc(bytes)));
        struct uffdio_copy copy = {
            .dst = fault.arg.pagefault.address & -(uint64_t)PAGE,
            .src = (uintptr_t)page,
            .len = PAGE,
        };
        CHECK(ioctl(served, UFFDIO_COPY, &copy) == 0);
    }
    return unused;
}

static void allocate(size_t size) {
    for (size_t bytes = 0; bytes < 20 << 20; bytes += size) {
        char *block = malloc(size);
        CHECK(block != NULL);
        uintptr_t start = ((uintptr_t)block + PAGE - 1) & -(uintptr_t)PAGE;
        uintptr_t end = ((uintptr_t)block + size) & -(uintptr_t)PAGE;
        struct uffdio_register registered = {
            .range = {.start = start, .len = end - start},
            .mode = UFFDIO_REGISTER_MODE_MISSING,
        };
        CHECK(ioctl(served, UFFDIO_REGISTER, &registered) == 0);
    }
}

int main(void) {
    served = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (served < 0) {
        fprintf(stderr, "no userfaultfd\n");
        return 77;
    }
    struct uffdio_api api = {.api = UFFD_API};
    CHECK(ioctl(served, UFFDIO_API, &api) == 0);
    for (int i = 0; i < SMALLS; i++) CHECK(OPAQUE(malloc(SMALL)) != NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
    static const size_t sizes[] = {12 << 10, 64 << 10, 100 << 10, 600 << 10, 1500 << 10, 7 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) allocate(sizes[i]);
    return 0;
}
