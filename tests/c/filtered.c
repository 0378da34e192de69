// The library makes only the system calls that allocators need.
// A seccomp filter checks this. It is installed at any time and in any thread: while blocks come
// and go, while threads start and end, and in the scavenger. The library also starts and works
// under systemd's list `SystemCallFilter=@system-service`.
// expect: exit 0
// ways: preload
// check: no it asks for the number of each new thread
// harden: too
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum {
    THREADS = 3,
    BLOCKS = 300,
    ROUNDS = 4,
    MIX = 300000,
    LARGE = 3 << 20,
    PAUSE_MS = 450,
    CALLS_MAX = 400
};
#define KEPT (20 << 20)
#define REFUSED ((size_t)3 << 30)
#define ERRNO(error) (SECCOMP_RET_ERRNO | (error))

/* What allocators need, and what ends a thread or a process. */
static const int own[] = {SYS_mmap,  SYS_munmap, SYS_mremap,     SYS_mprotect, SYS_madvise,
                          SYS_futex, SYS_exit,   SYS_exit_group, SYS_write,    SYS_rt_sigreturn};
/* The C library's calls to start and end a thread. */
static const int threads[] = {SYS_clone, SYS_clone3,         SYS_set_robust_list,
                              SYS_rseq,  SYS_rt_sigprocmask, SYS_rt_sigaction};
/* The calls for a fork; in harden mode the child reads new random numbers. */
static const int forks[] = {SYS_clone, SYS_wait4,          SYS_set_robust_list,
                            SYS_rseq,  SYS_rt_sigprocmask, SYS_getrandom};

/* systemd.exec(5): @system-service and its groups, without calls that have no number here. */
static const int service[] = {
    /* @default */
    SYS_brk, SYS_clock_getres, SYS_clock_gettime, SYS_clock_nanosleep, SYS_execve, SYS_exit,
    SYS_exit_group, SYS_futex, SYS_get_robust_list, SYS_getegid, SYS_geteuid, SYS_getgid,
    SYS_getgroups, SYS_getpgid, SYS_getpid, SYS_getppid, SYS_getrandom, SYS_getresgid,
    SYS_getresuid, SYS_getsid, SYS_gettid, SYS_gettimeofday, SYS_getuid, SYS_membarrier, SYS_mmap,
    SYS_mprotect, SYS_munmap, SYS_nanosleep, SYS_prlimit64, SYS_restart_syscall, SYS_rseq,
    SYS_rt_sigreturn, SYS_sched_getaffinity, SYS_sched_yield, SYS_set_robust_list,
    SYS_set_tid_address,
    /* @aio, @basic-io, @file-system, @io-event */
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_lseek, SYS_close,
    SYS_dup, SYS_dup3, SYS_openat, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_faccessat,
    SYS_faccessat2, SYS_readlinkat, SYS_getdents64, SYS_getcwd, SYS_fcntl, SYS_mkdirat,
    SYS_unlinkat, SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait,
    SYS_eventfd2,
    /* @ipc, @memlock, @network-io, @process, @resources, @setuid, @signal, @sync, @timer */
    SYS_pipe2, SYS_memfd_create, SYS_mlock, SYS_munlock, SYS_mlockall, SYS_munlockall, SYS_socket,
    SYS_connect, SYS_sendto, SYS_recvfrom, SYS_clone, SYS_clone3, SYS_kill, SYS_tgkill, SYS_tkill,
    SYS_wait4, SYS_waitid, SYS_prctl, SYS_getrusage, SYS_setrlimit, SYS_sched_setaffinity,
    SYS_sched_setscheduler, SYS_sched_setparam, SYS_setpriority, SYS_setuid, SYS_setgid,
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_sigaltstack, SYS_rt_sigpending, SYS_rt_sigtimedwait,
    SYS_fsync, SYS_timer_create, SYS_timer_settime, SYS_setitimer,
    /* Calls that @system-service names itself. */
    SYS_capget, SYS_copy_file_range, SYS_fadvise64, SYS_flock, SYS_getcpu, SYS_getpriority,
    SYS_ioctl, SYS_madvise, SYS_mremap, SYS_personality, SYS_readahead, SYS_sched_getparam,
    SYS_sched_getscheduler, SYS_sysinfo, SYS_umask, SYS_uname,
#ifdef __x86_64__
    SYS_arch_prctl, SYS_access, SYS_open, SYS_stat, SYS_poll, SYS_pipe, SYS_vfork, SYS_fork,
    SYS_getrlimit, SYS_time, SYS_dup2, SYS_readlink,
#endif
};

/* Adds calls to a filter. */
static size_t allow(struct sock_filter *filter, size_t length, const int *calls, size_t count) {
    for (size_t i = 0; i < count; i++) {
        filter[length++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    CHECK(length + 1 < CALLS_MAX);
    return length;
}
#define ALLOW(filter, length, calls) allow(filter, length, calls, sizeof(calls) / sizeof *(calls))

enum calls { OWN, AND_THREADS, AND_FORKS, SERVICE };

/* Installs a filter that answers all other calls with `otherwise`, in this thread or in all. */
static void install(enum calls which, unsigned otherwise, int all) {
    struct sock_filter filter[CALLS_MAX] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    size_t length = which == SERVICE ? ALLOW(filter, 1, service) : ALLOW(filter, 1, own);
    if (which == AND_THREADS) length = ALLOW(filter, length, threads);
    if (which == AND_FORKS) length = ALLOW(filter, length, forks);
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
    struct sock_fprog program = {(unsigned short)length, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, all ? SECCOMP_FILTER_FLAG_TSYNC : 0,
                &program) != 0) {
        fprintf(stderr, "no filters of system calls here: %s\n", strerror(errno));
        _exit(77);
    }
}

static void end(int code) { syscall(SYS_exit_group, code); }

static void told(int signal_number, siginfo_t *info, void *context) {
    char text[40];
    (void)signal_number, (void)context;
    int length = snprintf(text, sizeof text, "system call %d\n", info->si_syscall);
    if (write(STDERR_FILENO, text, (size_t)length) >= 0) end(3);
}

/* Sleeps by a call that all filters here allow. */
static void pause_ms(int ms) {
    static atomic_int word;
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &(struct timespec){.tv_nsec = ms * 1000000L},
            NULL, 0);
}

/* Allocates blocks of all sizes, grows vectors, and frees blocks of other threads. */
static void work(unsigned seed) {
    static _Atomic(void *) shared[BLOCKS];
    uint32_t state = seed * 2654435761u + 1;
    char *blocks[BLOCKS];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            size_t size = random32(&state) % (i % 40 ? 3000 : MIX) + 1;
            blocks[i] = i % 7 ? malloc(size) : calloc(1, size);
            CHECK(blocks[i] != NULL);
            blocks[i][0] = blocks[i][size - 1] = 1;
        }
        for (size_t size = 64; size <= LARGE; size *= 2) {
            char *grown = realloc(blocks[0], size);
            CHECK(grown != NULL);
            grown[size - 1] = 1, blocks[0] = grown;
        }
        for (int i = 0; i < BLOCKS; i++) {
            if (i % 5 == 0) free(atomic_exchange(&shared[i], blocks[i]));
            else free(blocks[i]);
        }
        if (round == ROUNDS / 2) malloc_trim(0);
    }
}

static pthread_barrier_t ready, installed;

static void *work_later(void *number) {
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&installed);
    work((unsigned)(uintptr_t)number);
    return NULL;
}

static void *work_now(void *number) {
    work((unsigned)(uintptr_t)number);
    return NULL;
}

static void *work_alone(void *otherwise) {
    work(1);
    install(AND_THREADS, (unsigned)(uintptr_t)otherwise, 0);
    work(2);
    return NULL;
}

enum when { ALONE, BEFORE_THREADS, AFTER_THREADS, AFTER_THREADS_ALL, ONE_THREAD, FORKS, WHENS };

static void run(enum when when, unsigned otherwise) {
    pthread_t started[THREADS];
    char *kept = malloc(KEPT);
    CHECK(kept != NULL);
    memset(kept, 1, KEPT);
    work(99);
    switch (when) {
    case ALONE:
        install(OWN, otherwise, 0);
        work(1);
        break;
    case BEFORE_THREADS:
        install(AND_THREADS, otherwise, 0);
        for (uintptr_t i = 0; i < THREADS; i++)
            CHECK(pthread_create(&started[i], NULL, work_now, (void *)i) == 0);
        break;
    case AFTER_THREADS:
    case AFTER_THREADS_ALL:
        CHECK(pthread_barrier_init(&ready, NULL, THREADS + 1) == 0 &&
              pthread_barrier_init(&installed, NULL, THREADS + 1) == 0);
        for (uintptr_t i = 0; i < THREADS; i++)
            CHECK(pthread_create(&started[i], NULL, work_later, (void *)i) == 0);
        pthread_barrier_wait(&ready);
        install(AND_THREADS, otherwise, when == AFTER_THREADS_ALL);
        pthread_barrier_wait(&installed);
        break;
    case ONE_THREAD:
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_create(&started[i], NULL, i ? work_now : work_alone,
                                 (void *)(uintptr_t)otherwise) == 0);
        break;
    default: {
        install(AND_FORKS, otherwise, 0);
        int status;
        pid_t child = fork();
        work(1);
        if (child == 0) end(0);
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    }
    if (when != ALONE && when != FORKS)
        for (int i = 0; i < THREADS; i++) CHECK(pthread_join(started[i], NULL) == 0);
    /* Waits until the scavenger, or a round within a free, has purged. */
    free(kept);
    pause_ms(PAUSE_MS);
    work(3);
    malloc_trim(0);
    CHECK(mallinfo2().uordblks > 0);
    end(0);
}

/* How the filter answers other calls, and how many of the ways to install it are tried. */
static const struct {
    const char *name;
    unsigned otherwise, whens;
} actions[] = {
    {"trap", SECCOMP_RET_TRAP, WHENS},
    {"kill the process", SECCOMP_RET_KILL_PROCESS, WHENS},
    {"kill the thread", SECCOMP_RET_KILL_THREAD, BEFORE_THREADS},
    {"EPERM", ERRNO(EPERM), AFTER_THREADS},
    {"ENOSYS", ERRNO(ENOSYS), AFTER_THREADS},
};
enum { ACTIONS = sizeof actions / sizeof *actions };

/* A refused request makes no further call, to write a message. */
static void run_refused(void) {
    struct rlimit space = {REFUSED - 1, REFUSED - 1};
    work(1);
    CHECK(setrlimit(RLIMIT_AS, &space) == 0);
    install(OWN, SECCOMP_RET_KILL_PROCESS, 0);
    CHECK(OPAQUE(malloc(REFUSED)) == NULL);
    end(0);
}

/* Runs this program anew in a child, without statistics, which would make further calls. */
static pid_t start_anew(char *self, char *part) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child != 0) return child;
    unsetenv("EBB_STATS");
    unsetenv("EBB_EXPLAIN");
    execl("/proc/self/exe", self, part, (char *)NULL);
    _exit(3);
}

/* Runs this part in a child. */
static pid_t start(enum when when, unsigned otherwise, char *self) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child != 0) return child;
    if (self == NULL) run(when, otherwise);
    /* Statistics would make further calls at exit. */
    unsetenv("EBB_STATS");
    install(SERVICE, otherwise, 0);
    execl("/proc/self/exe", self, "service", (char *)NULL);
    _exit(3);
}

static void wait_for(pid_t child, const char *name, unsigned when) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) _exit(77);
    if (status == 0) return;
    fprintf(stderr, "filter %u, %s: status %x\n", when, name, (unsigned)status);
    _exit(1);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "refused") == 0) run_refused();
    if (argc > 1) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, work_now, NULL) == 0 &&
              pthread_join(thread, NULL) == 0);
        work(1);
        return 0;
    }
    struct sigaction action = {.sa_sigaction = told, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    pid_t children[ACTIONS][WHENS], service_child = start(WHENS, SECCOMP_RET_KILL_PROCESS, argv[0]);
    pid_t refused_child = start_anew(argv[0], "refused");
    for (int i = 0; i < ACTIONS; i++)
        for (unsigned when = 0; when < actions[i].whens; when++)
            children[i][when] = start(when, actions[i].otherwise, NULL);
    wait_for(service_child, "as a service", WHENS);
    wait_for(refused_child, "refused", WHENS);
    for (int i = 0; i < ACTIONS; i++)
        for (unsigned when = 0; when < actions[i].whens; when++)
            wait_for(children[i][when], actions[i].name, when);
    return 0;
}
