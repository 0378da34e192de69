// Opens the libraries of its arguments, and allocates in each from older and from younger threads.
// Older and younger means: started before or after the libraries were opened.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 1000, THREADS = 3, LIBRARIES = 100 };

static size_t (*works[LIBRARIES])(size_t);
static int opened;
static pthread_barrier_t all_opened;

static void use(void) {
    size_t first = works[0](ROUNDS);
    for (int i = 0; i < opened; i++) {
        if (works[i](ROUNDS) != first) {
            fprintf(stderr, "library %d counts otherwise\n", i);
            exit(1);
        }
    }
}

static void *older(void *unused) {
    (void)unused;
    pthread_barrier_wait(&all_opened);
    use();
    return NULL;
}

static void *younger(void *unused) {
    (void)unused;
    use();
    return NULL;
}

int main(int count, char **paths) {
    pthread_t threads[2 * THREADS];
    pthread_barrier_init(&all_opened, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, older, NULL);
    for (int i = 1; i < count && opened < LIBRARIES; i++) {
        void *library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            fprintf(stderr, "%d opened, and then: %s\n", opened, dlerror());
            return 1;
        }
        works[opened] = (size_t (*)(size_t))dlsym(library, "work");
        works[opened++](ROUNDS);
    }
    pthread_barrier_wait(&all_opened);
    for (int i = THREADS; i < 2 * THREADS; i++) pthread_create(&threads[i], NULL, younger, NULL);
    for (int i = 0; i < 2 * THREADS; i++) pthread_join(threads[i], NULL);
    printf("%d opened\n", opened);
    return 0;
}
