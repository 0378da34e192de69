// A program sets options by its symbol `ebb_options`, and changes them while it runs.
// expect: exit 0
// ways: dynamic static
// check: no it limits memory closely
#include "check.h"
#include "ebbmalloc.h"
#include "statistic.h"
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/wait.h>

const char *ebb_options = "limit=64MiB, explain";

#define MIB (1 << 20)
#define NUMBER(name) statistic("\"" #name "\":")

static int refused(size_t bytes) {
    void *block = OPAQUE(malloc(bytes));
    free(block);
    return block == NULL;
}

static int error_of(const char *name, const char *value) {
    errno = 0;
    int result = ebb_ctl(name, value);
    CHECK((result == 0) == (errno == 0) && (result == 0 || result == -1));
    return errno;
}

// The compiler knows that malloc calls no function of the program.
static volatile int refusals, pressures;

static void on_refusal(size_t bytes) {
    CHECK(bytes == 80 * MIB && refused(80 * MIB));
    free(OPAQUE(malloc(100)));
    refusals++;
}

static void on_pressure(size_t held, size_t limit) {
    CHECK(held >= 32 * MIB && limit <= 64 * MIB && held < limit);
    free(OPAQUE(malloc(1 * MIB)));
    pressures++;
}

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 1) return refused(80 * MIB);
    CHECK(refused(80 * MIB) && !refused(40 * MIB));
    CHECK(NUMBER(limit_bytes) > 63 * MIB && NUMBER(limit_bytes) <= 64 * MIB);
    CHECK(NUMBER(refusals) == 1);

    CHECK(error_of("limit", "100M") == 0 && !refused(80 * MIB));
    CHECK(error_of("limit", "32M") == 0 && refused(40 * MIB));
    CHECK(error_of("limit", "off") == 0 && !refused(200 * MIB));
    CHECK(error_of("purge_delay", "0ms") == 0);
    free(OPAQUE(malloc(40 * MIB)));
    CHECK(NUMBER(dirty_bytes) < 2 * MIB);
    CHECK(error_of("purge_delay", "auto") == 0 && error_of("huge", "never") == 0);
    CHECK(error_of("scavenger", "off") == 0 && error_of("scavenger", "auto") == 0);
    CHECK(error_of("profile", "64K") == 0 && NUMBER(profile_mean_bytes) == 64 << 10);
    CHECK(error_of("profile", "off") == 0);

    CHECK(error_of("limit", "much") == EINVAL && error_of(NULL, "1") == EINVAL);
    CHECK(error_of("limits", "1M") == ENOENT && error_of("LIMIT", "1M") == ENOENT);
    CHECK(error_of("harden", "1") == ENOTSUP && error_of("mode", "slot") == ENOTSUP);

    // Functions of the program are called, and may allocate.
    CHECK(error_of("limit", "64M") == 0);
    malloc_trim(0);
    ebb_on_refusal(on_refusal);
    ebb_on_pressure(50, on_pressure);
    CHECK(refused(80 * MIB) && refusals == 1 && pressures == 0);
    for (int i = 1; i < 4; i++) {
        CHECK(!refused(20 * MIB) && pressures == i - 1);
        CHECK(!refused(40 * MIB) && pressures == i);
        malloc_trim(0);
    }
    ebb_on_refusal(NULL);
    ebb_on_pressure(50, NULL);
    CHECK(refused(80 * MIB) && !refused(40 * MIB) && refusals == 1 && pressures == 3);

    // The environment has the last word.
    setenv("EBB_LIMIT", "0", 1);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "options", "child", (char *)NULL);
        _exit(99);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
