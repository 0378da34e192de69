// Calls the function of `places.c` while it is opened and closed, and by a variable of threads.
#define _GNU_SOURCE
#include <dlfcn.h>

typedef void (*look_fn)(void);

static void look(void) {
    look_fn *found = dlsym(RTLD_DEFAULT, "ebb_look");
    if (found && *found)
        (*found)();
}

__attribute__((constructor)) static void begin(void) {
    look();
    __asm__ volatile("");
}

__attribute__((destructor)) static void end(void) {
    look();
    __asm__ volatile("");
}
