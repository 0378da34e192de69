// The scavenger thread purges free memory while a program with threads is idle.
// It takes no signals, and exists only as long as there is memory to purge.
// expect: exit 0
// check: no resident memory counts what check mode holds back
// ways: preload
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum { BLOCKS = 64 << 10, BLOCK = 1000, STEP_MS = 20, PATIENCE_MS = 30000 };

/* Bytes that may remain: tables, and a huge page of 2 MiB for a thread's stack if THP is
   `always`. */
enum { REST_KIB = 5 << 10 };

static int block_pipe[2];
static void *blocks[BLOCKS];
static long before;

static void read_file(const char *path, char *text, size_t size) {
    int file = open(path, O_RDONLY);
    ssize_t n = file < 0 ? 0 : read(file, text, size - 1);
    text[n < 0 ? 0 : n] = 0;
    if (file >= 0) close(file);
}

static long page_kib(void) { return sysconf(_SC_PAGESIZE) / 1024; }

/* Without file pages: some kernels map a library page by page, as it is used. */
static long resident_kib(void) {
    char text[128];
    long total = 0, resident = 0, files = 0;
    read_file("/proc/self/statm", text, sizeof text);
    CHECK(sscanf(text, "%ld %ld %ld", &total, &resident, &files) == 3);
    return (resident - files) * page_kib();
}

struct task { uint64_t inode, offset; uint16_t length; uint8_t type; char name[]; };

/* Counts all threads, the scavenger included. Allocates nothing, because that would count as
   work. */
static int threads(void) {
    static char tasks[4096] __attribute__((aligned(8)));
    int found = 0, file = open("/proc/self/task", O_RDONLY | O_DIRECTORY);
    for (long n; (n = syscall(SYS_getdents64, file, tasks, sizeof tasks)) > 0;)
        for (long at = 0; at < n;) {
            struct task *task = (struct task *)(tasks + at);
            at += task->length;
            found += task->name[0] != '.';
        }
    close(file);
    return found;
}

#define WAIT_UNTIL(condition)                                                 \
    for (int waited = 0; !(condition); waited += STEP_MS) {                   \
        CHECK(waited < PATIENCE_MS && #condition);                            \
        nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);   \
    }

static void *allocate(void *unused) {
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BLOCK);
        CHECK(blocks[i] != NULL);
        fill(blocks[i], BLOCK, (unsigned)i);
    }
    return unused;
}

/* A thread that is not the first starts the scavenger only after some ticks of the clock. Fast
   machines fill all blocks in less. */
static void *allocate_for_a_while(void *unused) {
    allocate(unused);
    for (int i = 0; i < 40; i++) {
        free(OPAQUE(malloc(1 << 20)));
        nanosleep(&(struct timespec){.tv_nsec = 5 * 1000000L}, NULL);
    }
    return unused;
}

/* In the child of a fork, only a thread that allocates tells the library that there are threads. */
static void allocate_in_thread(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, allocate_for_a_while, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void release(int step) {
    for (int i = 0; i < BLOCKS; i++)
        if (i % step) free(blocks[i]), blocks[i] = NULL;
}

static void release_rest(void) {
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(blocks[i] == NULL || intact(blocks[i], BLOCK, (unsigned)i));
        free(blocks[i]), blocks[i] = NULL;
    }
}

/* Only threads that allocate count; without any, the library starts no scavenger. */
static void *wait_for_end(void *unused) {
    char byte;
    free(OPAQUE(malloc(1 << 20)));
    return read(block_pipe[0], &byte, 1) < 0 ? NULL : unused;
}

static void wanted_on(int signal_number) {
    (void)signal_number, check_failed(__FILE__, __LINE__, "no thread takes the signal");
}

static void in_threads(int scavenged, int patiently) {
    pthread_t thread;
    CHECK(pipe(block_pipe) == 0 && pthread_create(&thread, NULL, wait_for_end, NULL) == 0);
    allocate_in_thread();
    CHECK(resident_kib() > before + BLOCKS / 1024 * BLOCK * 9 / 10);
    if (scavenged) {
        WAIT_UNTIL(threads() == 3);
        /* All other threads block this signal, so it stays pending. */
        CHECK(kill(getpid(), SIGUSR1) == 0);
        sigset_t pending;
        nanosleep(&(struct timespec){.tv_nsec = 300 * 1000000L}, NULL);
        CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
        /* Keeps only every 100th block, each in a page of its own. */
        release(100);
        WAIT_UNTIL(resident_kib() < before + BLOCKS / 100 * page_kib() + 4096);
        release_rest();
        WAIT_UNTIL(resident_kib() < before + REST_KIB);
        WAIT_UNTIL(threads() == 2);
        /* A second time, when it is needed again. */
        allocate_in_thread();
        WAIT_UNTIL(threads() == 3);
        /* It stays while much could be freed, long after the last free: a free starts no thread. */
        if (patiently) nanosleep(&(struct timespec){.tv_sec = 4}, NULL);
        release_rest();
        WAIT_UNTIL(resident_kib() < before + REST_KIB);
    } else {
        nanosleep(&(struct timespec){.tv_nsec = 500 * 1000000L}, NULL);
        allocate_in_thread();
        /* /proc may list a joined thread for a moment longer. */
        WAIT_UNTIL(threads() == 2);
        release_rest();
    }
    CHECK(write(block_pipe[1], "", 1) == 1 && pthread_join(thread, NULL) == 0);
    close(block_pipe[0]), close(block_pipe[1]);
    /* /proc may list a joined thread for a moment longer. */
    WAIT_UNTIL(threads() == 1);
}

int main(int argc, char **argv) {
    int status;
    before = resident_kib();
    if (argc > 1) {
        in_threads(0, 0);
        return 0;
    }
    sigset_t blocked;
    sigemptyset(&blocked), sigaddset(&blocked, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0 && signal(SIGUSR1, wanted_on) != SIG_ERR);
    /* While a program has no threads, the library starts none. */
    allocate(NULL);
    release_rest();
    CHECK(threads() == 1);
    in_threads(1, 1);
    /* Allocates in a child, which has no scavenger from its parent. */
    allocate(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(threads() == 1);
        release_rest();
        in_threads(1, 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    release_rest();
    /* Switched off. */
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        setenv("EBB_SCAVENGER", "0", 1);
        execl("/proc/self/exe", argv[0], "off", (char *)NULL);
        _exit(3);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}
