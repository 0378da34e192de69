// A heap of 20 GiB: blocks of many sizes keep their contents while others are freed in random
// order, and all memory goes back. Of most blocks a page is touched; with LONG, 16 GiB are.
// expect: exit 0
// check: no its quarantine keeps what was freed
// ways: preload
#include "maps.h"
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

// Each kind has as many bytes of addresses as the others, in blocks twice as large. Beside them
// are some blocks of usual sizes, which are touched as a whole.
enum { KINDS = 10, SMALLEST = 64 << 10, USUAL = 400, MOST = 65536, PAGE = 4096, HUGE_MIB = 64 };
static const size_t BYTES = (size_t)20 << 30, LONG_BYTES = (size_t)16 << 30;

static struct block {
    unsigned char *bytes;
    size_t size, from, filled;
    unsigned seed;
} blocks[MOST];
static int count;
static size_t touched;
static uint32_t state = 20;

static long memory_available_mib(void) {
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) sscanf(line, "MemAvailable: %ld", &kib);
    fclose(file);
    return kib / 1024;
}

static int overcommits(void) {
    int policy = 0;
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "r");
    if (file != NULL && fscanf(file, "%d", &policy) != 1) policy = 0;
    if (file != NULL) fclose(file);
    return policy != 2;
}

// Allocates a block, and fills all of it, or one page at a random place.
static size_t make(struct block *block, size_t size, int all) {
    int zero = random32(&state) % 4 == 0;
    unsigned char *bytes = zero ? calloc(1, size) : malloc(size);
    CHECK(bytes != NULL);
    *block = (struct block){bytes, size, 0, size, random32(&state)};
    if (!all) {
        block->from = random32(&state) % (size / PAGE - 1) * PAGE + -(uintptr_t)bytes % PAGE;
        block->filled = PAGE;
    }
    if (zero)
        for (size_t i = 0; i < block->filled; i += 97) CHECK(bytes[block->from + i] == 0);
    fill_sample(bytes + block->from, block->filled, block->seed);
    touched += block->filled;
    return size;
}

static void verify(const struct block *block) {
    CHECK(intact_sample(block->bytes + block->from, block->filled, block->filled, block->seed));
}

static void verify_and_free(const struct block *block) {
    verify(block);
    free(block->bytes);
}

static void shuffle(void) {
    for (int i = count - 1; i > 0; i--) {
        int other = (int)(random32(&state) % (unsigned)(i + 1));
        struct block block = blocks[i];
        blocks[i] = blocks[other], blocks[other] = block;
    }
}

int main(void) {
    if (!overcommits()) {
        fprintf(stderr, "the kernel promises no more memory than it has\n");
        return 77;
    }
    if (sysconf(_SC_PAGESIZE) != PAGE) {
        fprintf(stderr, "pages of the system are not those of the test: %d bytes\n", PAGE);
        return 77;
    }
    int is_long = getenv("LONG") != NULL;
    long available = memory_available_mib(), needed = (long)(LONG_BYTES >> 20) + 3 * 1024;
    if (is_long && available < needed)
        fprintf(stderr, "only a page of each block: of %ld MiB, %ld are available\n", needed,
                available);
    int all = is_long && available >= needed;

    memset(blocks, 1, sizeof blocks);
    long before = status_mib("VmRSS");
    for (size_t bytes = 0; bytes < BYTES;) {
        for (int i = 0; i < USUAL; i++) bytes += make(&blocks[count++], random_size(&state), 1);
        for (int kind = 0; kind < KINDS; kind++)
            for (int i = 0; i < 1 << (KINDS - 1 - kind); i++) {
                size_t least = (size_t)SMALLEST << kind;
                size_t size = least + random32(&state) % least;
                CHECK(count < MOST - USUAL);
                bytes += make(&blocks[count++], size, all && touched < LONG_BYTES);
            }
    }
    long touched_mib = (long)(touched >> 20), held = status_mib("VmRSS") - before;
    fprintf(stderr, "%d blocks, %ld MiB touched, %ld resident\n", count, touched_mib, held);
    CHECK(held < touched_mib + touched_mib / 10 + HUGE_MIB);

    // Half goes; some blocks of other sizes come in its place.
    shuffle();
    for (int i = 0; i < count / 2; i++) verify_and_free(&blocks[i]);
    for (int i = count / 2; i < count; i++) verify(&blocks[i]);
    for (int i = 0; i < count / 4; i++)
        make(&blocks[i], random32(&state) % (1 << 20) + 2 * PAGE, i % 8 == 0);
    memmove(&blocks[count / 4], &blocks[count / 2], (size_t)(count - count / 2) * sizeof *blocks);
    count -= count / 2 - count / 4;

    shuffle();
    for (int i = 0; i < count; i++) verify_and_free(&blocks[i]);
    malloc_trim(0);
    long rest = status_mib("VmRSS") - before;
    fprintf(stderr, "%ld MiB resident after all\n", rest);
    // The library's own notes on 20 GiB of addresses stay.
    CHECK(rest < 12 + touched_mib / 100);
    return all == is_long ? 0 : 77;
}
