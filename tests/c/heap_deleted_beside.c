// A thread deletes heaps while another frees blocks. In check mode these push the freed blocks of
// the heaps out of quarantine: no block may return to its heap twice.
// expect: exit 0
// ways: dynamic static
#include "check.h"
#include "ebbmalloc.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 16, BYTES = 300000, ROUNDS = 40 };

static _Atomic int ends;

/* Holds blocks with contents of its own, and replaces them: old ones fill the quarantine. */
static void *replaces(void *number) {
    unsigned char *held[BLOCKS] = {0};
    unsigned char mark = 1 + (size_t)number;
    for (size_t i = 0; !ends; i++) {
        unsigned char **place = &held[i * 7 % BLOCKS];
        for (size_t at = 0; *place && at < BYTES; at += 4096) CHECK((*place)[at] == mark);
        free(*place);
        CHECK((*place = malloc(BYTES)) != NULL);
        for (size_t at = 0; at < BYTES; at += 4096) (*place)[at] = mark;
    }
    for (int i = 0; i < BLOCKS; i++) free(held[i]);
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, replaces, (void *)i) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        ebb_heap *heap = ebb_heap_new(0);
        CHECK(heap != NULL);
        for (int i = 0; i < BLOCKS; i++) {
            void *block = ebb_heap_malloc(heap, BYTES + i);
            CHECK(block != NULL);
            free(OPAQUE(block));
            CHECK(ebb_heap_malloc(heap, 70000) != NULL);
        }
        ebb_heap_delete(heap);
    }
    ends = 1;
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
