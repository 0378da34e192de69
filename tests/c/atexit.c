// Exit handlers allocate, free and register further handlers, and their memory is intact.
// expect: exit 0
#include "check.h"
#include <pthread.h>
#include <stdlib.h>

static char *kept;
static int handlers_run;

static void use(void) {
    char *block = malloc(1000 + 700 * (size_t)handlers_run);
    CHECK(block != NULL && intact(kept, 200, 1));
    CHECK((block = realloc(block, 90000)) != NULL);
    free(block);
    handlers_run++;
}

static void register_more(void) {
    use();
    for (int i = 0; i < 40; i++) CHECK(atexit(use) == 0);
}

static void *idle(void *unused) {
    for (;;) free(malloc(500));
    return unused;
}

__attribute__((destructor)) static void at_the_end(void) {
    CHECK(handlers_run == 101);
    free(kept);
    CHECK((kept = malloc(10)) != NULL);
}

int main(void) {
    CHECK((kept = malloc(200)) != NULL);
    fill(kept, 200, 1);
    for (int i = 0; i < 60; i++) CHECK(atexit(use) == 0);
    CHECK(atexit(register_more) == 0);
    // Another thread goes on allocating while the process ends.
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, idle, NULL) == 0);
    return 0;
}
