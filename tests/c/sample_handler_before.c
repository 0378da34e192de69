// A signal handler from before the library's is called after the report, and works as before.
// expect: exit 0
// says: "ebbmalloc: use after free: 0x"
// env: EBB_SAMPLE=1
// ways: load
#include "sample.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>

static sigjmp_buf back;
static char *volatile used;
static void handler(int signal, siginfo_t *info, void *context) {
    CHECK(info->si_addr == used && context != NULL);
    siglongjmp(back, signal);
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    void *library = dlopen(getenv("LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    void *(*allocate)(size_t) = (void *(*)(size_t))dlsym(library, "ebb_malloc");
    void (*release)(void *) = (void (*)(void *))dlsym(library, "ebb_free");
    for (int i = 0; i < 2; i++) {
        used = allocate(100);
        release(used);
        if (sigsetjmp(back, 1) == 0) {
            reads(used);
            return 2;
        }
    }
    return 0;
}
