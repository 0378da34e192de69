// Free of a mapping that mmap returned.
// threat: invalid free
// default: abort "ebbmalloc: invalid free: N passed to free"
// check: abort "ebbmalloc: invalid free: N passed to free"
// harden: abort "ebbmalloc: invalid free: N passed to free"
#include "misuse.h"

#include <sys/mman.h>

static void misuse(size_t size) {
    char *mapping =
        mmap(NULL, size + 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) _exit(BAD_ARGUMENT);
    own(mapping, size + 8192);
    free(OPAQUE(mapping + 4096));
    harvest(size);
}
