// A module that the program opens with RTLD_DEEPBIND shares blocks with it, as PHP's modules do.
// expect: exit 0
// plugin: load
// ways: preload dynamic
// build: gcc -Wl,--enable-new-dtags,-rpath,$ORIGIN
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef PLUGIN
char *change(char *given) {
    CHECK(intact(given, 3000, 2));
    free(given);
    return strdup("a block of the module's");
}
#else
int main(void) {
    int flags[] = { RTLD_NOW | RTLD_DEEPBIND, RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND, RTLD_NOW };
    for (int i = 0; i < 30; i++) {
        void *module = i % 2 ? dlopen(PLUGIN_PATH, flags[i % 3])
                             : dlmopen(LM_ID_BASE, PLUGIN_PATH, flags[i % 3]);
        CHECK(module != NULL);
        char *(*change)(char *) = (char *(*)(char *))dlsym(module, "change");
        CHECK(change != NULL);
        char *given = malloc(3000);
        CHECK(given != NULL);
        fill(given, 3000, 2);
        char *got = change(given);
        CHECK(got != NULL && strcmp(got, "a block of the module's") == 0);
        free(got);
        CHECK(dlclose(module) == 0);
    }
    // What has no directory is searched for where the caller's file says, which is this one's.
    void *found = dlopen(strrchr(PLUGIN_PATH, '/') + 1, RTLD_NOW | RTLD_DEEPBIND);
    CHECK(found != NULL && dlclose(found) == 0);
    // The other flags, and errors, are as they were.
    CHECK(dlopen(PLUGIN_PATH, RTLD_NOW | RTLD_NOLOAD | RTLD_DEEPBIND) == NULL);
    CHECK(dlopen("/no/such.so", RTLD_NOW | RTLD_DEEPBIND) == NULL);
    const char *error = dlerror();
    CHECK(error != NULL && strstr(error, "/no/such.so") != NULL);
    void *apart = dlmopen(LM_ID_NEWLM, PLUGIN_PATH, RTLD_NOW | RTLD_DEEPBIND);
    CHECK(apart != NULL && dlsym(apart, "change") != NULL && dlclose(apart) == 0);
    void *program = dlopen(NULL, RTLD_NOW);
    CHECK(program != NULL && dlsym(program, "malloc") != NULL);
    return 0;
}
#endif
