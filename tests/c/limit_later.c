// The program sets RLIMIT_AS while it runs, as vsftpd and Python's resource module do.
// The rest stays available to threads and mappings; beyond it, malloc returns NULL and ENOMEM.
// expect: exit 0
// ways: preload
// check: no the memory that check mode takes counts against the limit
#include "maps.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { ROOM = 512 };

static void *work(void *unused) {
    void *block = malloc(10 * MIB);
    CHECK(block != NULL);
    memset(block, 1, 10 * MIB);
    free(block);
    return unused;
}

static void others_have_room(size_t bytes) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0 && pthread_join(thread, NULL) == 0);
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapping != MAP_FAILED && munmap(mapping, bytes) == 0);
}

// Allocates until it fails, then frees all blocks. Returns how many MiB there were.
static long exhaust(size_t size) {
    struct node { struct node *next; } *all = NULL;
    long bytes = 0;
    for (;;) {
        errno = 0;
        struct node *node = malloc(size);
        if (node == NULL) break;
        node->next = all;
        all = node;
        bytes += (long)size;
        CHECK(bytes <= (long)ROOM * MIB);
    }
    CHECK(errno == ENOMEM);
    while (all) {
        struct node *next = all->next;
        free(all);
        all = next;
    }
    return bytes / MIB;
}

int main(void) {
    free(malloc(100));
    rlim_t bytes = (rlim_t)(status_mib("VmSize") + ROOM) * MIB;
    struct rlimit limit = {bytes, bytes};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    others_have_room((size_t)ROOM / 2 * MIB);
    errno = 0;
    CHECK(malloc((size_t)OPAQUE(ROOM) * MIB) == NULL && errno == ENOMEM);
    for (int i = 0; i < 2; i++) {
        const size_t sizes[] = {10 * MIB, MIB, 100 << 10, 5000};
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            long most = exhaust(sizes[k]);
            fprintf(stderr, "%ld MiB in blocks of %zu bytes\n", most, sizes[k]);
            CHECK(most >= ROOM * 2 / 3);
        }
    }
    // Other sizes can use freed memory.
    others_have_room((size_t)ROOM / 2 * MIB);
    return 0;
}
