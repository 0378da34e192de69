// Near its control group's limit a process returns free memory to the kernel, and is not killed.
// The free memory lies in pieces smaller than the next requests. In version 2 of control groups the
// limit may be one above which the kernel slows the process down instead. Needs root, and control
// groups with a memory controller.
// expect: exit 0
// check: no what check mode holds back counts as well
// ways: preload
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
    LIMIT_MIB = 64,
    PIECES = 450,
    PIECE = 100 << 10,
    LARGE = 80,
    LARGER = 300 << 10,
    ROUNDS = 10
};

static int first; /* version 1 */
static char group[100];

static void skip(const char *why) {
    fprintf(stderr, "%s: %s\n", why, strerror(errno));
    exit(77);
}

static int write_file(const char *dir, const char *name, const char *text) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int file = open(path, O_WRONLY);
    ssize_t written = file < 0 ? -1 : write(file, text, strlen(text));
    if (file >= 0) close(file);
    return written == (ssize_t)strlen(text);
}

static int limit_to(const char *name, int mib) {
    char bytes[30];
    snprintf(bytes, sizeof bytes, "%d", mib << 20);
    return write_file(group, first ? "memory.limit_in_bytes" : name, bytes);
}

static void *touched(size_t size) {
    char *block = malloc(size);
    CHECK(block != NULL);
    for (size_t at = 0; at < size; at += 4096) block[at] = 1;
    return block;
}

static void work(void) {
    static void *pieces[PIECES], *larger[LARGE];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < PIECES; i++) pieces[i] = touched(PIECE);
        for (int i = 0; i < PIECES; i += 2) free(pieces[i]);
        for (int i = 0; i < LARGE; i++) larger[i] = touched(LARGER);
        for (int i = 1; i < PIECES; i += 2) free(pieces[i]);
        for (int i = 0; i < LARGE; i++) free(larger[i]);
    }
}

/* Returns how often the kernel has throttled the group. */
static int slowed_down(void) {
    char path[300], line[100];
    int times = -1;
    snprintf(path, sizeof path, "%s/memory.events", group);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) sscanf(line, "high %d", &times);
    fclose(file);
    return times;
}

static void test(char *self, const char *which) {
    int slow = !strcmp(which, "slow");
    snprintf(group, sizeof group, "/sys/fs/cgroup/%sebbmalloc-%d", first ? "memory/" : "",
             (int)getpid());
    if (mkdir(group, 0755) != 0) skip(group);
    int limited = limit_to(slow ? "memory.high" : "memory.max", LIMIT_MIB);
    write_file(group, first ? "memory.swappiness" : "memory.swap.max", "0");
    pid_t child = limited ? fork() : -1;
    if (child == 0) {
        CHECK(write_file(group, "cgroup.procs", "0"));
        execl("/proc/self/exe", self, which, group, (char *)NULL);
        _exit(3);
    }
    int status = 0, times = 0;
    CHECK(child < 0 || waitpid(child, &status, 0) == child);
    if (limited && slow) times = slowed_down();
    /* The kernel may take a moment to see that the group is empty. */
    for (int tries = 0; rmdir(group) != 0 && tries < 100; tries++) usleep(10000);
    if (!limited) skip("no limit may be set");
    fprintf(stderr, "%s: status %x, slowed down %d times\n", which, status, times);
    CHECK(!WIFSIGNALED(status) && "killed");
    CHECK(child > 0 && WEXITSTATUS(status) == 0);
    CHECK(times == 0);
}

int main(int argc, char **argv) {
    first = access("/sys/fs/cgroup/memory/memory.limit_in_bytes", F_OK) == 0;
    if (argc > 1) {
        work();
        return 0;
    }
    if (!first && !write_file("/sys/fs/cgroup", "cgroup.subtree_control", "+memory"))
        skip("no group with a limit of memory may be made");
    test(argv[0], "alone");
    if (!first) test(argv[0], "slow");
    return 0;
}
