// A thousand threads at once allocate, fill, check, resize, hand over and free. A thread is often
// interrupted with blocks in hand, and frees what others allocated.
// expect: exit 0
// ways: preload static
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 1000, MS = 5000, LONG_MS = 60000, LEAST_STEPS = 200, KEPT = 12, SHELF = 3000 };

struct parcel {
    uint32_t size, seed, owner;
    unsigned char bytes[];
};
static struct parcel *shelf[SHELF];
static pthread_barrier_t start;
static long end_ms;
// Parcels that came from another thread.
static _Atomic unsigned long received;

static long now_ms(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void verify(const struct parcel *parcel, uint32_t owner) {
    CHECK(parcel->owner == owner && intact(parcel->bytes, parcel->size, parcel->seed));
}

static void stamp(struct parcel *parcel, uint32_t size, uint32_t owner, uint32_t seed) {
    parcel->size = size, parcel->seed = seed, parcel->owner = owner;
    fill(parcel->bytes, size, seed);
}

static struct parcel *make(uint32_t owner, uint32_t *state) {
    uint32_t size = (uint32_t)random_size(state), zero = random32(state) % 8 == 0;
    struct parcel *parcel = zero ? calloc(1, sizeof *parcel + size) : malloc(sizeof *parcel + size);
    CHECK(parcel != NULL);
    for (uint32_t i = 0; zero && i < size; i++) CHECK(parcel->bytes[i] == 0);
    stamp(parcel, size, owner, random32(state));
    return parcel;
}

static struct parcel *resize(struct parcel *parcel, uint32_t *state) {
    uint32_t size = (uint32_t)random_size(state), seed = parcel->seed, owner = parcel->owner;
    uint32_t kept = size < parcel->size ? size : parcel->size;
    CHECK((parcel = realloc(parcel, sizeof *parcel + size)) != NULL);
    CHECK(intact(parcel->bytes, kept, seed));
    stamp(parcel, size, owner, random32(state));
    return parcel;
}

// Puts a parcel on the shelf, and frees the one that lay there.
static unsigned long hand_over(struct parcel *parcel, uint32_t owner, uint32_t *state) {
    struct parcel **place = &shelf[random32(state) % SHELF];
    struct parcel *other = __atomic_exchange_n(place, parcel, __ATOMIC_ACQ_REL);
    if (other == NULL) return 0;
    unsigned long foreign = other->owner != owner;
    CHECK(other->owner <= THREADS);
    verify(other, other->owner);
    free(other);
    return foreign;
}

static void *thread(void *number) {
    uint32_t owner = (uint32_t)(uintptr_t)number, state = owner * 2654435761u;
    unsigned long foreign = 0;
    struct parcel *kept[KEPT] = {NULL};
    pthread_barrier_wait(&start);
    for (int step = 0; step < LEAST_STEPS || now_ms() < end_ms; step++) {
        struct parcel **one = &kept[random32(&state) % KEPT];
        if (*one != NULL) verify(*one, owner);
        switch (*one == NULL ? 4 : random32(&state) % 4) {
        case 0: free(*one), *one = NULL; break;
        case 1: *one = resize(*one, &state); break;
        case 2:
        case 3: foreign += hand_over(*one, owner, &state), *one = NULL; break;
        default: *one = make(owner, &state);
        }
        // All threads take turns within the time.
        if (step % 16 == 0) sched_yield();
    }
    for (int i = 0; i < KEPT; i++)
        if (kept[i] != NULL) verify(kept[i], owner), free(kept[i]);
    received += foreign;
    return NULL;
}

int main(void) {
    static pthread_t threads[THREADS];
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 128 << 10) == 0);
    CHECK(pthread_barrier_init(&start, NULL, THREADS + 1) == 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], &attributes, thread, (void *)(i + 1)) == 0);
    end_ms = now_ms() + (getenv("LONG") ? LONG_MS : MS);
    pthread_barrier_wait(&start);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < SHELF; i++)
        if (shelf[i] != NULL) verify(shelf[i], shelf[i]->owner), free(shelf[i]);
    fprintf(stderr, "%lu blocks freed by another thread\n", received);
    CHECK(received > THREADS * (LEAST_STEPS / 8));
    return 0;
}
