// Several threads open and close libraries that allocate in constructors and destructors.
// expect: exit 0
// plugin: load
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#ifdef PLUGIN
static char *block;
static __thread char *per_thread;
__attribute__((constructor)) static void load(void) {
    CHECK((block = malloc(3000)) != NULL);
    fill(block, 3000, 2);
}
__attribute__((destructor)) static void unload(void) {
    CHECK(intact(block, 3000, 2));
    free(block);
    free(malloc(100));
}
char *give(size_t size) {
    if (per_thread == NULL) per_thread = block;
    char *given = malloc(size);
    CHECK(given != NULL && intact(per_thread, 3000, 2));
    fill(given, size, 3);
    return given;
}
#else
static void *thread(void *unused) {
    for (int i = 0; i < 150; i++) {
        void *library = dlopen(PLUGIN_PATH, RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL);
        char *(*give)(size_t) = (char *(*)(size_t))dlsym(library, "give");
        CHECK(give != NULL);
        size_t size = 1 + (size_t)i * 331;
        char *given = give(size);
        CHECK(dlclose(library) == 0);
        // The block outlives the library that made it.
        CHECK(intact(given, size, 3));
        free(given);
        CHECK(dlopen("/no/such/library.so", RTLD_NOW) == NULL && dlerror() != NULL);
    }
    return unused;
}

int main(void) {
    thread(NULL);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, thread, NULL) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
#endif
