// A block that is resized stays as sparse as it was, and its addresses go back with malloc_trim.
// expect: exit 0
// harden: too
#include "maps.h"
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

enum { AT_ONCE = 8 };

static char *resized(char *block, size_t size) {
    block = realloc(OPAQUE(block), size);
    CHECK(block != NULL && block[0] == 1);
    block[size - 1] = 1;
    return block;
}

static char *first(size_t size) {
    char *block = malloc(size);
    CHECK(block != NULL);
    block[0] = 1;
    return block;
}

static void grow_and_shrink(void) {
    for (int turn = 0; turn < 2; turn++) {
        char *block = first(MIB);
        size_t size = MIB;
        for (; size < 300u * MIB; size += size / 4) block = resized(block, size);
        for (; size > 2 * MIB; size -= size / 3) block = resized(block, size);
        free(resized(block, 100));
    }
    // From one size to another, more than a doubling apart.
    char *block = first((size_t)1500 * MIB);
    block = resized(block, (size_t)500 * MIB);
    block = resized(block, (size_t)1500 * MIB);
    block = resized(block, (size_t)70 * MIB);
    free(block);
}

// Each is in the way of the one before it.
static void side_by_side(void) {
    for (size_t turn = 0; turn < 2; turn++) {
        char *blocks[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) blocks[i] = first((50 + turn) * MIB);
        for (size_t mib = 60 + turn; mib < 150; mib += 20)
            for (int i = 0; i < AT_ONCE; i++) blocks[i] = resized(blocks[i], mib * MIB);
        for (int i = 0; i < AT_ONCE; i++) free(blocks[i]);
    }
}

static void *thread(void *none) {
    side_by_side();
    return none;
}

static void check_memory(const char *when) {
    malloc_trim(0);
    long size = status_mib("VmSize"), peak = status_mib("VmHWM");
    fprintf(stderr, "%s: %ld MiB of addresses, peak %ld MiB\n", when, size, peak);
    CHECK(peak < 128);
    // The tables of the 2 GiB that were in use take 20 MiB of addresses.
    CHECK(size < 180);
}

int main(void) {
    grow_and_shrink();
    check_memory("grown and shrunk");
    side_by_side();
    check_memory("side by side");
    pthread_t other;
    CHECK(pthread_create(&other, NULL, thread, NULL) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    check_memory("by a thread");
    return 0;
}
