// What stops threads at work on caches is registered with the kernel while the process has one thread: later, the first round that
// drains would wait some 20 ms for it. The kernel refuses commands of a process that has not registered (membarrier(2), EPERM).
// expect: exit 0
#include "check.h"
#include <errno.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <sys/syscall.h>

static long membarrier(int command) {
    return syscall(SYS_membarrier, command, 0, 0);
}

int main(void) {
    free(OPAQUE(malloc(100)));
    long known = membarrier(MEMBARRIER_CMD_QUERY);
    if (known < 0 || !(known & MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
        fprintf(stderr, "this kernel stops no threads\n");
        return 77;
    }
    const char *mode = getenv("EBB_MODE");
    if (mode && strcmp(mode, "slot") == 0) return 0; // Its caches have locks.
    CHECK(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0);
    if (known & MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ) CHECK(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ) == 0);
    return 0;
}
