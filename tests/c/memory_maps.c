// A process at the limit of memory maps goes on allocating, freeing and returning memory.
// expect: exit 0
// ways: preload static
// check: no every realloc copies there, which takes too long
#include "maps.h"
#include <malloc.h>
#include <stdlib.h>

enum { KEPT = 1000, STEPS = 30000 };

int main(void) {
    static struct {
        unsigned char *bytes;
        size_t size;
    } kept[KEPT];
    free(malloc(100));
    use_up_maps();
    uint32_t state = 11;
    for (int step = 0; step < STEPS; step++) {
        unsigned slot = random32(&state) % KEPT;
        size_t size = step % 32 == 0 ? 1 + random32(&state) % (4 << 20) : random_size(&state);
        if (kept[slot].bytes)
            CHECK(intact_sample(kept[slot].bytes, kept[slot].size, kept[slot].size, slot));
        if (step % 3 == 0) {
            size_t old = kept[slot].size;
            CHECK((kept[slot].bytes = realloc(kept[slot].bytes, size)) != NULL);
            if (old) CHECK(intact_sample(kept[slot].bytes, size < old ? size : old, old, slot));
        } else {
            free(kept[slot].bytes);
            CHECK((kept[slot].bytes = malloc(size)) != NULL);
        }
        fill_sample(kept[slot].bytes, size, slot);
        kept[slot].size = size;
        if (step % 1000 == 0) malloc_trim(0);
    }
    for (unsigned slot = 0; slot < KEPT; slot++) {
        if (kept[slot].bytes)
            CHECK(intact_sample(kept[slot].bytes, kept[slot].size, kept[slot].size, slot));
        free(kept[slot].bytes);
    }
    malloc_trim(0);
    return 0;
}
