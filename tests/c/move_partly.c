// The kernel moves the pages of a part of a large block, and refuses the rest: a program may hand
// pages of a block to userfaultfd. From Linux 6.17 on, one call moves several mappings, in order.
// expect: exit 0
// harden: too
// ways: preload
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096 };

static char *used(size_t mib) {
    char *block = malloc(mib * MIB);
    CHECK(block != NULL);
    fill(block, mib * MIB, 5);
    return block;
}

/* Hands 16 pages of a block to userfaultfd. They are in use, so nobody waits for their faults. */
static int hand_over(char *block, size_t offset) {
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register pages = {
        .range = {((uintptr_t)block + offset) / PAGE * PAGE, 16 * PAGE},
        .mode = UFFDIO_REGISTER_MODE_MISSING,
    };
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0) {
        puts("no userfaultfd here");
        exit(0);
    }
    CHECK(ioctl(fd, UFFDIO_REGISTER, &pages) == 0);
    return fd;
}

static void grow(size_t offset) {
    char *block = used(1), *behind = used(1), *run = used(4), *last = used(1);
    free(run);
    malloc_trim(0);
    /* The block moves, and then grows in place: it lies in two mappings. */
    block = realloc(block, 2 * MIB);
    block = realloc(block, 4 * MIB);
    CHECK(block != NULL && intact(block, 1 * MIB, 5));
    fill(block, 4 * MIB, 7);
    int fd = hand_over(block, offset);
    block = realloc(block, 8 * MIB);
    CHECK(block != NULL && intact(block, 4 * MIB, 7));
    close(fd);
    fill(block, 8 * MIB, 9);
    block = realloc(block, 16 * MIB);
    CHECK(block != NULL && intact(block, 8 * MIB, 9));
    free(block);
    free(behind);
    free(last);
    malloc_trim(0);
}

int main(void) {
    for (size_t offset = PAGE; offset < 4 * MIB - 16 * PAGE; offset += 397 * 1024) grow(offset);
    return 0;
}
