// Allocation before main, in the earliest constructors of the program and of a linked library.
// A block that the constructor allocated is intact in main and in the last destructor.
// expect: exit 0
// plugin: link
#include "check.h"
#include <stdlib.h>

#ifdef PLUGIN
static char *from_plugin;
__attribute__((constructor)) static void begin_plugin(void) {
    CHECK((from_plugin = malloc(70000)) != NULL);
    fill(from_plugin, 70000, 4);
    for (size_t size = 1; size < 3000; size += 7) free(realloc(malloc(size), 2 * size));
}
__attribute__((destructor)) static void end_plugin(void) {
    CHECK(intact(from_plugin, 70000, 4));
    free(from_plugin);
    free(calloc(10, 100));
}
char *plugin_block(void) { return from_plugin; }
#else
char *plugin_block(void);
static char *early[3];

static void make(int index, size_t size) {
    CHECK((early[index] = malloc(size)) != NULL);
    fill(early[index], size, (unsigned)index);
    for (size_t other = 1; other < 100000; other = other * 3 / 2 + 1) free(calloc(1, other));
}

static void before_all(void) { make(0, 100); }
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(void) = before_all;
__attribute__((constructor(101))) static void first(void) { make(1, 50000); }
__attribute__((constructor(65535))) static void last(void) { make(2, 3); }

__attribute__((destructor(101))) static void very_last(void) {
    CHECK(intact(early[1], 50000, 1));
    free(early[1]);
    void *block = malloc(123);
    CHECK(block != NULL);
    free(block);
}

int main(void) {
    CHECK(early[0] && early[1] && early[2]);
    CHECK(intact(early[0], 100, 0) && intact(early[1], 50000, 1) && intact(early[2], 3, 2));
    CHECK(intact(plugin_block(), 70000, 4));
    CHECK((early[0] = realloc(early[0], 5000)) != NULL && intact(early[0], 100, 0));
    free(early[0]);
    free(early[2]);
    return 0;
}
#endif
