// A correct program to build with a sanitizer: its threads allocate and pass blocks on.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 2000, HELD = 50 };

static void *work(void *first) {
    char *held[HELD] = {first};
    for (int i = 0; i < ROUNDS; i++) {
        size_t bytes = 1 + i * 37 % 5000;
        char **place = &held[i % HELD];
        free(*place);
        *place = malloc(bytes);
        memset(*place, i, bytes);
        if (i % 500 == 0) *place = realloc(*place, 200000 + i);
    }
    for (int i = 1; i < HELD; i++) free(held[i]);
    return held[0];
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, calloc(1, 100)) != 0) return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        void *last;
        pthread_join(threads[i], &last);
        free(last);
    }
    puts("done");
    return 0;
}
