// SIGSEGV works as before, except for the report: sent signals, null pointers, other handlers.
// expect: exit 0
// env: EBB_SAMPLE=1
#include "sample.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

static sigjmp_buf back;
static void handler(int signal) { siglongjmp(back, signal); }

static void dies(void (*how)(void)) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        how();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void raises(void) { raise(SIGSEGV); }
static void is_sent(void) { kill(getpid(), SIGSEGV); }
static void dereferences(void) { reads(NULL); }
static void overflows(void) {
    volatile char room[1 << 16];
    room[0] = 0;
    OPAQUE(&room);
    overflows();
    room[1] = 0;
}
static void reads_freed(void) {
    char *block = sampled(1);
    frees(block);
    reads(block);
}

int main(void) {
    dies(raises);
    dies(is_sent);
    dies(dereferences);
    dies(overflows);
    dies(reads_freed);
    signal(SIGSEGV, handler);
    if (sigsetjmp(back, 1) == 0) {
        reads_freed();
        return 2;
    }
    return 0;
}
