// The banner and each format of the statistics name check, harden and sample mode.
// expect: exit 0
// check: no it sets EBB_CHECK by itself
// ways: preload static
#include "check.h"
#include <stdlib.h>
#include <sys/wait.h>

static char said[1 << 16];

/* Runs this program with these two variables, and reads its standard error into `said`. */
static void run(const char *care, const char *value, const char *form, const char *in_form) {
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], STDERR_FILENO);
        unsetenv("EBB_STATS");
        setenv(care, value, 1);
        setenv(form, in_form, 1);
        execl("/proc/self/exe", "care_is_told", "child", (char *)NULL);
        _exit(99);
    }
    close(pipes[1]);
    size_t length = 0;
    for (ssize_t more; (more = read(pipes[0], said + length, sizeof said - 1 - length)) > 0;)
        length += (size_t)more;
    said[length] = 0;
    close(pipes[0]);
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char **arguments) {
    (void)arguments;
    free(OPAQUE(malloc(10)));
    if (count > 1) return 0;
    const char *cares[][4] = {
        {"EBB_CHECK", "noleaks", "\"care\":\"check\"", "care=\"check\""},
        {"EBB_HARDEN", "1", "\"care\":\"harden\"", "care=\"harden\""},
        {"EBB_SAMPLE", "100", "\"care\":\"sample\"", "care=\"sample\""},
        {"EBB_LIMIT", "0", "\"care\":\"\"", "care=\"\""},
    };
    for (int i = 0; i < 4; i++) {
        char told[32];
        snprintf(told, sizeof told, "(%s)", cares[i][0]);
        run(cares[i][0], cares[i][1], "EBB_EXPLAIN", "1");
        CHECK((strstr(said, told) != NULL) == (i < 3));
        run(cares[i][0], cares[i][1], "EBB_STATS", "1");
        CHECK((strstr(said, told) != NULL) == (i < 3));
        run(cares[i][0], cares[i][1], "EBB_STATS", "json");
        CHECK(strstr(said, cares[i][2]) != NULL);
        run(cares[i][0], cares[i][1], "EBB_STATS", "openmetrics");
        CHECK(strstr(said, cares[i][3]) != NULL);
    }
    return 0;
}
