// Memory that the program does not touch never becomes resident.
// That holds however often large zeroed blocks come and go, and whatever was in their place before.
// expect: exit 0
// check: no what was freed waits there
#include "maps.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { TURNS = 60 };

static long faults(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

static void take(size_t size) {
    char *zeros = calloc(1, size);
    CHECK(zeros != NULL && zeros[size / 2] == 0);
    OPAQUE(zeros)[0] = 1;
    free(zeros);
}

// One size again and again; growing; alternating; random; several at once; beside blocks in use.
static void many(size_t size) {
    uint32_t state = 7;
    for (int turn = 0; turn < TURNS; turn++) take(size);
    for (int turn = 0; turn < TURNS; turn++) take(size / 2 + size / 2 * turn / TURNS);
    for (int turn = 0; turn < TURNS; turn++) take(turn % 2 ? size : size / 3);
    for (int turn = 0; turn < TURNS; turn++) take(size / 2 + random32(&state) % (size / 2));
    for (int turn = 0; turn < TURNS; turn++) {
        char *some[8];
        for (int i = 0; i < 8; i++) CHECK((some[i] = calloc(size / 8, 1)) != NULL);
        for (int i = 0; i < 8; i++) free(some[i]);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        // Not touched either.
        free(OPAQUE(malloc(size)));
        take(size);
    }
}

static void *thread(void *size) {
    many((size_t)size);
    return NULL;
}

int main(void) {
    take(MIB);
    static const size_t sizes[] = {MIB, 8 * MIB, 200 * MIB, (size_t)2048 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        long before = faults(), peak = status_kib("VmHWM");
        many(sizes[i]);
        // Touches one page of a block and reads one more; ebbmalloc looks at eight of long ones.
        // Blocks below 32 MiB are read, which takes a fault a page where a longer one was purged.
        long most = (15 * TURNS + 50) * 10 + (sizes[i] == 200 * MIB ? 2 * 200 * MIB / 4096 : 0);
        CHECK(faults() - before < most);
        CHECK(status_kib("VmHWM") - peak < 4096);
    }

    // A block in use is in the way, once.
    size_t size = 32 * MIB;
    char *used = malloc(size);
    CHECK(used != NULL);
    memset(used, 1, size);
    free(used);
    long before = faults();
    many(size);
    CHECK(status_kib("VmHWM") < 64 * 1024 && status_kib("VmRSS") < 24 * 1024);
    // Shorter ones are read, after each purge of one of 32 MiB.
    CHECK(faults() - before < 15 * TURNS * 10 + 16 * 8192);

    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, thread, (void *)(size_t)(16 * MIB)) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(status_kib("VmHWM") < 64 * 1024);

    // Zeroed blocks that are used as a whole keep their pages meanwhile.
    for (int turn = 0; turn < 600; turn++) {
        // Before, the program was known for not touching them.
        if (turn == 300) before = faults();
        CHECK((used = calloc(1, MIB / 2)) != NULL);
        memset(OPAQUE(used), 1, MIB / 2);
        free(used);
    }
    CHECK(faults() - before < 128 * 10);
    return 0;
}
