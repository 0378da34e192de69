// A preloaded library may replace any function of the C library by one that allocates.
// It finds the real function by dlsym and allocates there too, as glibc's malloc allows. From
// set-up to exit nothing hangs or crashes, whichever of the two libraries comes first. Each
// function in turn is one that allocates, in a process of its own.
// expect: exit 0
// ways: preload
// plugin: load
// harden: too
#define _GNU_SOURCE
// Functions that an allocator probably calls, among them all that the engine calls.
#define LIKELY(F) \
    F(mmap) F(munmap) F(mprotect) F(madvise) F(mremap) F(open) F(read) F(write) F(close) \
    F(fcntl) F(syscall) F(sysconf) F(getauxval) F(getenv) F(getpid) F(prctl) F(getrlimit) \
    F(clock_gettime) F(nanosleep) F(sched_getaffinity) F(abort) F(sigaction) F(pthread_sigmask) \
    F(pthread_self) F(pthread_create) F(pthread_key_create) F(pthread_key_delete) \
    F(pthread_setspecific) F(pthread_attr_init) F(pthread_attr_destroy) \
    F(pthread_attr_setstacksize) F(pthread_attr_getstacksize) F(pthread_attr_setdetachstate) \
    F(pthread_join) F(pthread_setcancelstate) F(__cxa_atexit) F(__register_atfork) \
    F(__errno_location) F(dlopen) F(dlsym) F(dladdr) F(dl_iterate_phdr) F(fwrite)
// Further functions, with LONG in the environment.
#define UNLIKELY(F) \
    F(mincore) F(mlock) F(brk) F(sbrk) F(open64) F(openat) F(pread64) F(writev) F(fcntl64) \
    F(fstat) F(stat) F(statx) F(fstatat) F(access) F(readlink) F(fputs) F(fflush) F(getpagesize) \
    F(secure_getenv) F(gettid) F(getuid) F(uname) F(sysinfo) F(getrlimit64) F(prlimit) \
    F(prlimit64) F(getrusage) F(getrandom) F(kill) F(raise) F(sched_getcpu) F(sched_yield) \
    F(sched_setscheduler) F(get_nprocs) F(get_nprocs_conf) F(sigfillset) F(sigemptyset) \
    F(sigaddset) F(sigdelset) F(sigprocmask) F(sigaltstack) F(__cxa_finalize) F(gettimeofday) \
    F(time) F(clock_nanosleep) F(usleep) F(pthread_getspecific) F(pthread_mutex_lock) \
    F(pthread_mutex_unlock) F(pthread_once) F(pthread_kill)
// Written here again, because the loader needs them to find the real functions.
#define BYTES(F) F(memcpy) F(memmove) F(memset) F(memcmp) F(bcmp) F(bzero) F(strlen)

#ifdef PLUGIN

typedef unsigned long word;
extern void *__libc_stack_end;
void *malloc(word), *realloc(void *, word), *calloc(word, word),
    *dlvsym(void *, const char *, const char *);
void free(void *);
#define BARE __attribute__((optimize("no-tree-loop-distribute-patterns")))

BARE static int same(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

// Reads INTERPOSED from the stack that the kernel made: the C library may not have set `environ`
// yet.
BARE static const char *chosen(void) {
    char **word = (char **)__libc_stack_end + 1;
    while (*word++) {}
    for (; *word; word++) {
        const char *name = "INTERPOSED=", *entry = *word;
        while (*name && *name == *entry) name++, entry++;
        if (!*name) return entry;
    }
    return "";
}

static void churn(const char *name) {
    // Some are called for each stack frame or byte: after the first 500 calls, only at every 16th.
    static unsigned calls;
    static __thread int within;
    if (within || !same(name, chosen())) return;
    unsigned nth = __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    if (nth > 500 && nth % 16) return;
    within = 1;
    char *block = malloc(37);
    block[36] = 1;
    block = realloc(block, 3000);
    block[2999] = 1;
    free(block);
    char *zeros = calloc(1, 200000);
    if (zeros[199999]) __builtin_trap();
    free(zeros);
    within = 0;
}

typedef word any(word, word, word, word, word, word, word, word);

static any *find(const char *name) {
    static void *(*look)(void *, const char *);
    const char *versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (int i = 0; !look; i++)
        look = (void *(*)(void *, const char *))dlvsym((void *)-1, "dlsym", versions[i]);
    return (any *)look((void *)-1, name);
}

// Arguments and results are words; passing more than the function takes is harmless.
#define STAND_IN(NAME) \
    any in_place_of_##NAME __asm__(#NAME); \
    word in_place_of_##NAME(word a, word b, word c, word d, word e, word f, word g, word h) { \
        static any *real; \
        if (!real) real = find(#NAME); \
        churn(#NAME); \
        return real ? real(a, b, c, d, e, f, g, h) : 0; \
    }
LIKELY(STAND_IN)
UNLIKELY(STAND_IN)

BARE void *memmove(void *to, const void *from, word bytes) {
    churn("memmove");
    char *t = to;
    const char *f = from;
    if (t < f) for (word i = 0; i < bytes; i++) t[i] = f[i];
    else while (bytes--) t[bytes] = f[bytes];
    return to;
}
BARE void *memcpy(void *to, const void *from, word bytes) {
    churn("memcpy");
    for (word i = 0; i < bytes; i++) ((char *)to)[i] = ((const char *)from)[i];
    return to;
}
BARE void *memset(void *to, int byte, word bytes) {
    churn("memset");
    for (word i = 0; i < bytes; i++) ((char *)to)[i] = byte;
    return to;
}
BARE void bzero(void *to, word bytes) {
    churn("bzero");
    for (word i = 0; i < bytes; i++) ((char *)to)[i] = 0;
}
BARE static int compare(const unsigned char *a, const unsigned char *b, word bytes) {
    for (word i = 0; i < bytes; i++) if (a[i] != b[i]) return a[i] - b[i];
    return 0;
}
int memcmp(const void *a, const void *b, word bytes) {
    return churn("memcmp"), compare(a, b, bytes);
}
int bcmp(const void *a, const void *b, word bytes) { return churn("bcmp"), compare(a, b, bytes); }
BARE word strlen(const char *text) {
    churn("strlen");
    word length = 0;
    while (text[length]) length++;
    return length;
}

#else

#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME(F) #F,
static const char *const names[] = {LIKELY(NAME) BYTES(NAME) UNLIKELY(NAME)};
enum { ALL = sizeof names / sizeof *names, KEPT = 400 };
#define ONE(F) +1
enum { QUICK = 0 LIKELY(ONE) BYTES(ONE) };

static void *work(void *number) {
    char *kept[KEPT];
    unsigned seed = (long)number;
    // Each call records a call stack in these modes.
    int kept_now = getenv("EBB_CHECK") ? 20 : KEPT;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < kept_now; i++) {
            seed = seed * 1103515245 + 12345;
            size_t bytes = (seed >> 8) % (i % 50 ? 3000 : 300000) + 1;
            CHECK((kept[i] = malloc(bytes)));
            kept[i][0] = kept[i][bytes - 1] = 1;
        }
        for (int i = 0; i < kept_now; i++) {
            if (i % 3 == 0) CHECK((kept[i] = realloc(kept[i], 5000 + i * 300)));
            free(kept[i]);
        }
    }
    return NULL;
}

static int run_interposed(void) {
    // Enough that a scavenger starts.
    char *large = malloc(1), *aligned;
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 1; i < 8; i++) CHECK((large = realloc(large, (size_t)i << 20)));
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK((aligned = aligned_alloc(1 << 16, 1 << 16)));
    free(aligned);
    malloc_trim(0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        work(NULL);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    free(large);
    return 0;
}

// With and without options, and with each of the libraries first.
static pid_t start(char *self, const char *name, const char *preload, int told) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child) return child;
    // A hang ends here.
    alarm(30);
    setenv("INTERPOSED", name, 1);
    setenv("LD_PRELOAD", preload, 1);
    if (told) {
        setenv("EBB_STATS", "1", 1);
        setenv("EBB_EXPLAIN", "1", 1);
        setenv("EBB_SAMPLE", "64", 1);
    } else {
        unsetenv("EBB_STATS");
    }
    if (!freopen("/dev/null", "w", stderr)) _exit(2);
    execl(self, self, "interposed", NULL);
    _exit(77);
}

int main(int count, char **arguments) {
    if (count > 1) return run_interposed();
    const char *library = getenv("LD_PRELOAD");
    if (!library) return fputs("the library is not preloaded by its variable\n", stderr), 77;
    int failures = 0;
    char preload[2][8192];
    snprintf(preload[0], sizeof preload[0], "%s:%s", PLUGIN_PATH, library);
    snprintf(preload[1], sizeof preload[1], "%s:%s", library, PLUGIN_PATH);
    // Two at a time. A quick run tries one of the two orders for each function, options at every
    // second.
    int runs = getenv("LONG") ? 4 * ALL : QUICK;
    for (int i = 0; i < runs; i += 2) {
        pid_t children[2] = {0};
        const char *name[2];
        for (int k = 0; k < 2 && i + k < runs; k++) {
            int order = i / 2 % 2, told = k;
            name[k] = runs == QUICK ? names[i + k] : names[i / 4];
            children[k] = start(arguments[0], name[k], preload[order], told);
        }
        for (int k = 0; k < 2 && children[k]; k++) {
            int status;
            CHECK(waitpid(children[k], &status, 0) == children[k]);
            if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
                return fputs("programs that are run from here do not start\n", stderr), 77;
            }
            if (status) {
                fprintf(stderr, "%s allocates%s: %#x\n", name[k], k ? ", and options are set" : "",
                        status);
                failures++;
            }
        }
    }
    CHECK(failures == 0);
    return 0;
}
#endif
