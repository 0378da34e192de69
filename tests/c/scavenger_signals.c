// The scavenger takes no signal to the process that the threads of the program block, not even one
// that instructions raise. sigtimedwait finds it, sent before the scavenger starts or after.
// expect: exit 0
// ways: preload static
#define _GNU_SOURCE
#include "company.h"
#include <signal.h>
#include <string.h>

static int signal_number, is_early;

static int arrives(void) {
    sigset_t blocked;
    sigemptyset(&blocked), sigaddset(&blocked, signal_number);
    CHECK(pthread_sigmask(SIG_BLOCK, &blocked, NULL) == 0);
    if (is_early) CHECK(kill(getpid(), signal_number) == 0);
    in_company();
    if (!is_early) CHECK(kill(getpid(), signal_number) == 0);
    sleep_ms(20);
    CHECK(sigtimedwait(&blocked, NULL, &(struct timespec){.tv_sec = 5}) == signal_number);
    leave_company();
    return 0;
}

int main(void) {
    static const int own[] = {SIGSYS, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        for (is_early = 0; is_early < 2; is_early++) {
            signal_number = own[i];
            in_child(strsignal(signal_number), arrives, 0);
        }
    return 0;
}
