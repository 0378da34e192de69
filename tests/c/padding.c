// The addresses before a block of a large alignment do not stay mapped.
// What is mapped counts against a limit of address space, which the program needs for other things.
// expect: exit 0
// check: no what was freed waits there
// harden: too
// limit: 3072
#include "maps.h"
#include <stdlib.h>
#include <sys/mman.h>

enum { KIB = 1024 };

int main(void) {
    long before = status_kib("VmSize");
    for (size_t align = 16 * MIB; align <= 512 * MIB; align *= 2) {
        void *block = NULL;
        CHECK(posix_memalign(&block, align, 4096) == 0 && (uintptr_t)block % align == 0);
        CHECK(status_kib("VmSize") - before < 64 * KIB);
        memset(block, 1, 4096);
        free(block);
        CHECK(status_kib("VmSize") - before < 64 * KIB);
    }
    size_t rest = (size_t)2300 * MIB;
    void *mapped = mmap(NULL, rest, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED && munmap(mapped, rest) == 0);

    // Blocks fit where addresses are mapped no more.
    for (int i = 0; i < 100; i++) {
        char *block = malloc(3 * MIB);
        CHECK(block != NULL);
        OPAQUE(block)[0] = 1;
    }
    return 0;
}
