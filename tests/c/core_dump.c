// A core dump has the size of memory in use, not of reserved addresses.
// Killing processes while they allocate harms no other process.
// expect: exit 0
// ways: preload static
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { THREADS = 4, KILLS = 30, KEPT = 64, MIB = 1 << 20 };

static void *forever(void *seed) {
    static __thread void *kept[KEPT];
    for (uint32_t state = (uint32_t)(uintptr_t)seed;;) {
        unsigned slot = random32(&state) % KEPT;
        free(kept[slot]);
        CHECK((kept[slot] = malloc(random_size(&state))) != NULL);
    }
}

static void killed_at_work(void) {
    for (int i = 0; i < KILLS; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            pthread_t threads[THREADS];
            for (uintptr_t k = 0; k < THREADS; k++)
                CHECK(pthread_create(&threads[k], NULL, forever, (void *)(k + 1)) == 0);
            pause();
        }
        usleep(1000 * (unsigned)(i % 10));
        int status;
        CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        free(malloc(random_size(&(uint32_t){(uint32_t)i + 1})));
    }
}

// Returns how many bytes of the maps a core dump has: anonymous maps in which anything was stored.
static long dumped(void) {
    FILE *maps = fopen("/proc/self/smaps", "r");
    CHECK(maps != NULL);
    char line[512];
    long size = 0, anonymous = 0, sum = 0;
    while (fgets(line, sizeof line, maps)) {
        sscanf(line, "Size: %ld kB", &size);
        sscanf(line, "Anonymous: %ld kB", &anonymous);
        if (strncmp(line, "VmFlags:", 8) == 0 && anonymous > 0 && strstr(line, " dd") == NULL)
            sum += size * 1024;
    }
    fclose(maps);
    return sum;
}

static void work_and_abort(void) {
    struct rlimit most = {RLIM_INFINITY, RLIM_INFINITY};
    if (getrlimit(RLIMIT_CORE, &most) == 0)
        most.rlim_cur = most.rlim_max, setrlimit(RLIMIT_CORE, &most);
    for (int i = 0; i < 20; i++) {
        char *block = malloc(MIB);
        CHECK(block != NULL);
        memset(block, 1, MIB);
        for (int k = 0; k < 1000; k++) memset(malloc(100), 1, 100);
    }
    long bytes = dumped();
    fprintf(stderr, "%ld MiB of maps would be dumped\n", bytes / MIB);
    CHECK(bytes < 256L * MIB);
    signal(SIGABRT, SIG_DFL);
    abort();
}

// Returns whether cores become files here. Otherwise the test looks only at the maps.
static int cores_are_files(void) {
    char pattern[256] = "";
    int file = open("/proc/sys/kernel/core_pattern", O_RDONLY);
    if (file >= 0 && read(file, pattern, sizeof pattern - 1) < 0) pattern[0] = 0;
    close(file);
    return strcmp(pattern, "core\n") == 0;
}

int main(void) {
    killed_at_work();
    char directory[] = "core-XXXXXX", core[64];
    CHECK(mkdtemp(directory) != NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(chdir(directory) == 0);
        work_and_abort();
    }
    int status, found = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    snprintf(core, sizeof core, "%s/core.%d", directory, (int)pid);
    for (int i = 0; i < 2; i++) {
        struct stat file;
        if (stat(core, &file) == 0) {
            found = 1;
            fprintf(stderr, "a core of %ld MiB, %ld MiB of them on disk\n",
                    (long)file.st_size / MIB, (long)file.st_blocks * 512 / MIB);
            CHECK(file.st_size > 20L * MIB && file.st_size < 256L * MIB);
            CHECK(unlink(core) == 0);
        }
        snprintf(core, sizeof core, "%s/core", directory);
    }
    if (WCOREDUMP(status) && cores_are_files()) CHECK(found);
    if (!found) fprintf(stderr, "no core file here, so only the maps were looked at\n");
    CHECK(rmdir(directory) == 0);
    return 0;
}
