// Check, harden and sample mode also map at most an eighth and 64 MiB more than is resident.
// That holds with few blocks and with many. After a limit is reached and all blocks are freed, as
// many fit again.
// expect: exit 0
// env: EBB_SCAVENGER=0
// ways: preload
#include "maps.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

static long told(const char *name) { return status_kib(name) * 1024; }

static void *last;

static long blocks_until_none_is_left(size_t size) {
    long count = 0;
    for (void **block; (block = malloc(size)) != NULL; count++) {
        memset(block, 1, size);
        *block = last;
        last = block;
    }
    CHECK(errno == ENOMEM);
    while (last) {
        void *next = *(void **)last;
        free(last);
        last = next;
    }
    return count;
}

static int child(void) {
    for (int i = 0; i < 100000; i++) {
        if (i % 50000 == 0) CHECK(told("VmSize") <= told("VmRSS") / 8 * 9 + 64L * MIB);
        memset(OPAQUE(malloc(100)), 1, 100);
    }
    CHECK(told("VmSize") <= told("VmRSS") / 8 * 9 + 64L * MIB);
    const int limits[] = {RLIMIT_DATA, RLIMIT_AS};
    for (int i = 0; i < 2; i++) {
        rlim_t most = (rlim_t)told(i ? "VmSize" : "VmData") + 16 * MIB;
        struct rlimit limit = {most, RLIM_INFINITY};
        CHECK(setrlimit(limits[i], &limit) == 0);
        long first = blocks_until_none_is_left(5000);
        CHECK(first > 1000);
        for (int round = 0; round < 2; round++)
            CHECK(blocks_until_none_is_left(5000) >= first - first / 16);
        limit.rlim_cur = RLIM_INFINITY;
        CHECK(setrlimit(limits[i], &limit) == 0);
    }
    return 0;
}

int main(int count, char **arguments) {
    free(OPAQUE(malloc(10)));
    if (count > 1) return child();
    const char *cares[][2] = {{"EBB_CHECK", "noleaks"}, {"EBB_HARDEN", "1"}, {"EBB_SAMPLE", "10"}};
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            setenv(cares[i][0], cares[i][1], 1);
            execl("/proc/self/exe", arguments[0], "child", (char *)NULL);
            _exit(99);
        }
        int status;
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        if (status) fprintf(stderr, "with %s\n", cares[i][0]);
        CHECK(status == 0);
    }
    return 0;
}
