// Near a limit of the process, free memory makes room for a large block that grows in place.
// expect: exit 0
// ways: preload
// check: no a realloc copies there
#include "maps.h"
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 120, MORE = 30, ROOM = 10, FREE = 60 };

static char *allocated(size_t mib) {
    char *block = malloc(mib * MIB);
    CHECK(block != NULL);
    fill_sample(block, mib * MIB, 3);
    return block;
}

static void check_limit(int resource, const char *value) {
    long before = status_mib(value);
    char *other = allocated(FREE);
    void *between = malloc(MIB);
    char *block = allocated(BLOCK);
    struct rlimit limit;
    CHECK(getrlimit(resource, &limit) == 0);
    limit.rlim_cur = (rlim_t)(before + FREE + 1 + BLOCK + ROOM) * MIB;
    CHECK(setrlimit(resource, &limit) == 0);

    free(other);
    size_t old = (size_t)BLOCK * MIB, new = old + (size_t)MORE * MIB;
    block = realloc(block, new);
    CHECK(block != NULL && intact_sample(block, old, old, 3));
    fill_sample(block, new, 3);
    free(between);
    free(block);

    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(resource, &limit) == 0);
}

int main(void) {
    // Each in a new heap, where nothing lies behind the block.
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        check_limit(RLIMIT_AS, "VmSize");
        return 0;
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    check_limit(RLIMIT_DATA, "VmData");
    return 0;
}
