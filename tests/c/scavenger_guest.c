// The scavenger changes nothing that a program can do or observe; each part runs in its own child.
// expect: exit 0
// check: no resident memory counts what check mode holds back
// ways: preload static
#define _GNU_SOURCE
#include "company.h"
#include "maps.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOMENT_MS = 2000, STACK = 1 << 20 };

static void *yield(void *unused) {
    sched_yield();
    return unused;
}

/* After a program has joined its threads it has one thread, even with much memory in use. */
static int alone_at_once(void) {
    if (unshare(CLONE_SIGHAND) != 0) return 77;
    for (int round = 0; round < 2; round++) {
        in_company();
        CHECK(!is_alone());
        leave_company();
        /* The kernel takes a moment to remove a joined thread, longer on a busy machine. */
        for (int waited_ms = 0; !is_alone(); waited_ms++) CHECK(waited_ms < MOMENT_MS), sleep_ms(1);
    }
    /* No scavenger starts while the program has no threads that allocate. */
    pid_t all[4];
    work_ms(50);
    CHECK(threads(all, 4) == 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, yield, NULL) == 0 && pthread_join(thread, NULL) == 0);
    work_ms(50);
    WAIT_UNTIL(is_alone());
    CHECK(threads(all, 4) == 1);
    return 0;
}

static pid_t last_thread;

static void at_end(void) {
    sigset_t blocked;
    CHECK(syscall(SYS_gettid) == last_thread);
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 && !sigismember(&blocked, SIGTERM));
    volatile char *stack = __builtin_alloca(STACK);
    for (int i = 0; i < STACK; i += 4096) stack[i] = 1;
    _exit(42);
}

static void *end_last(void *main_thread) {
    pthread_join(*(pthread_t *)main_thread, NULL);
    work_ms(20);
    leave_company();
    last_thread = (pid_t)syscall(SYS_gettid);
    return NULL;
}

static void *exit_early(void *unused) {
    pthread_exit(unused);
}

/* Exit handlers run on the program's last thread as soon as it ends, also without /proc. */
static int ends_with_the_last_thread(void) {
    static pthread_t main_thread, thread;
    main_thread = pthread_self();
    CHECK(atexit(at_end) == 0);
    /* glibc loads a library for this. */
    CHECK(pthread_create(&thread, NULL, exit_early, NULL) == 0 && pthread_join(thread, NULL) == 0);
    in_company();
    char empty[] = "/tmp/ebb-empty-XXXXXX";
    if (mkdtemp(empty) == NULL || chroot(empty) != 0)
        fprintf(stderr, "no other root directory: %s\n", strerror(errno));
    rmdir(empty);
    CHECK(pthread_create(&thread, NULL, end_last, &main_thread) == 0);
    pthread_exit(NULL);
}

extern char __libc_single_threaded __attribute__((weak));

static void *wait_at_barrier(void *unused) {
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

static void burst(int mib) {
    void *large[200];
    for (int i = 0; i < mib; i++) CHECK((large[i] = malloc(1 << 20)) != NULL);
    for (int i = 0; i < mib; i++) free(large[i]);
}

/* A program whose other thread never allocates has a scavenger too, while it allocates and frees
   much. It is not the last thread. */
static int allocate_beside_a_waiting_thread(void) {
    pthread_t thread;
    pid_t all[4];
    if (&__libc_single_threaded == NULL) return 77;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, wait_at_barrier, NULL) == 0);
    pthread_barrier_wait(&barrier);
    work_ms(50);
    CHECK(threads(all, 4) == 2);
    WAIT_UNTIL((burst(200), threads(all, 4)) == 3);
    WAIT_UNTIL(threads(all, 4) == 2);
    WAIT_UNTIL((burst(200), threads(all, 4)) == 3);
    pthread_barrier_wait(&barrier);
    CHECK(pthread_join(thread, NULL) == 0);
    last_thread = (pid_t)syscall(SYS_gettid);
    CHECK(atexit(at_end) == 0);
    pthread_exit(NULL);
}

/* Forked children have none, until other threads of theirs allocate. */
static int serves_the_only_one_that_allocates(void) {
    return execl("/proc/self/exe", "scavenger_guest", "alone", NULL);
}

static volatile pid_t handled_on;

static void handle(int number) {
    (void)number;
    volatile char stack[128 << 10];
    for (size_t i = 0; i < sizeof stack; i += 4096) stack[i] = 1;
    free(OPAQUE(malloc(100000)));
    handled_on = (pid_t)syscall(SYS_gettid);
}

static void *send_each_thread(void *ours) {
    static const int own[] = {SIGSYS, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        handled_on = 0;
        CHECK(syscall(SYS_tgkill, getpid(), *(pid_t *)ours, own[i]) == 0);
        WAIT_UNTIL(handled_on == *(pid_t *)ours);
    }
    return NULL;
}

/* On the scavenger, handlers run only for signals that instructions raise. Some programs send such
   a signal to each thread and wait for it. */
static int hears_its_own_signals(void) {
    static const int all[] = {SIGSYS, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGTERM, SIGUSR1};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CHECK(sigaction(all[i], &(struct sigaction){.sa_handler = handle}, NULL) == 0);
    pid_t ours = in_company();
    send_each_thread(&ours);
    handled_on = 0;
    CHECK(syscall(SYS_tgkill, getpid(), ours, SIGTERM) == 0);
    sleep_ms(20);
    CHECK(handled_on == 0);
    leave_company();
    return 0;
}

/* Its stack takes few addresses, though the program's threads have large ones. */
static int has_a_small_stack(void) {
    enum { LARGE_MIB = 256 };
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, (size_t)LARGE_MIB << 20) == 0);
    if (pthread_setattr_default_np(&attributes) != 0) return 77;
    long before = status_mib("VmSize");
    in_company();
    CHECK(status_mib("VmSize") < before + COMPANY * LARGE_MIB + LARGE_MIB / 2);
    leave_company();
    return 0;
}

/* All threads have the user that the program has changed to. */
static int becomes_another_user(void) {
    if (geteuid() != 0) return 77;
    pid_t all[16];
    in_company();
    CHECK(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    int n = threads(all, 16), found = 0;
    CHECK(n == COMPANY + 2);
    for (int i = 0; i < n; i++) {
        char path[64], line[128];
        snprintf(path, sizeof path, "/proc/self/task/%d/status", all[i]);
        FILE *status = fopen(path, "r");
        CHECK(status != NULL);
        while (fgets(line, sizeof line, status)) {
            int user[4];
            if (sscanf(line, "Uid: %d %d %d %d", &user[0], &user[1], &user[2], &user[3]) != 4)
                continue;
            for (int j = 0; j < 4; j++) CHECK(user[j] == 65534);
            found++;
        }
        fclose(status);
    }
    CHECK(found == n);
    leave_company();
    return 0;
}

static int narrow(cpu_set_t *set) {
    CHECK(sched_getaffinity(0, sizeof *set, set) == 0);
    if (CPU_COUNT(set) < 2) return 0;
    int cpu = 0;
    while (!CPU_ISSET(cpu, set)) cpu++;
    CPU_ZERO(set);
    CPU_SET(cpu, set);
    return 1;
}

static void *work_on_one_cpu(void *ms) {
    cpu_set_t set;
    CHECK(narrow(&set) && sched_setaffinity(0, sizeof set, &set) == 0);
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 7);
    return work_and_wait(ms);
}

/* Returns whether the scavenger has the CPUs and priority of the first thread, or -1 without one.
   */
static int is_like_first(int others) {
    pid_t all[16], last = 0;
    cpu_set_t first, set;
    int n = threads(all, 16);
    if (n != others + 2) return -1;
    for (int i = 0; i < n; i++) last = all[i] > last ? all[i] : last;
    CHECK(sched_getaffinity(getpid(), sizeof first, &first) == 0);
    if (sched_getaffinity(last, sizeof set, &set) != 0) return -1;
    return CPU_EQUAL(&set, &first) &&
           getpriority(PRIO_PROCESS, (id_t)last) == getpriority(PRIO_PROCESS, (id_t)getpid());
}

/* Threads that have a CPU for themselves do not share it with the scavenger.
   One such thread starts no scavenger; with several, the first thread takes over its work. */
static int has_the_cpus_of_the_process(void) {
    cpu_set_t set;
    if (!narrow(&set)) return 77;
    for (int many = 1; many <= COMPANY; many++) {
        CHECK(pthread_barrier_init(&barrier, NULL, (unsigned)many + 1) == 0);
        fill_heap();
        for (int i = 0; i < many; i++)
            CHECK(pthread_create(&company[i], NULL, work_on_one_cpu, (void *)60) == 0);
        sleep_ms(80);
        if (many == 1) CHECK(is_like_first(many) != 0);
        WAIT_UNTIL((work_ms(5), is_like_first(many)) == 1);
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < many; i++) CHECK(pthread_join(company[i], NULL) == 0);
    }
    return 0;
}

/* A filter, installed after the start, that kills for calls that threads and malloc do not need. */
static int makes_no_forbidden_calls(void) {
#define KILL(name) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILL(prctl),
        KILL(sched_setscheduler),
        KILL(sched_setaffinity),
        KILL(setpriority),
        KILL(newfstatat),
        KILL(statx),
        KILL(gettid),
        KILL(tgkill),
        KILL(nanosleep),
        KILL(sched_yield),
        KILL(seccomp),
        KILL(sched_getscheduler),
        KILL(sched_setparam),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 77;
    CHECK(pthread_barrier_init(&barrier, NULL, COMPANY + 1) == 0);
    fill_heap();
    for (int i = 0; i < COMPANY; i++)
        CHECK(pthread_create(&company[i], NULL, work_and_wait, (void *)250) == 0);
    work_ms(50);
    leave_company();
    return 0;
}

/* Where no thread can start, the program continues. */
static int works_without(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    pid_t all[16];
    CHECK(pthread_barrier_init(&barrier, NULL, COMPANY + 1) == 0);
    for (int i = 0; i < COMPANY; i++)
        CHECK(pthread_create(&company[i], NULL, work_and_wait, (void *)50) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        return 77;
    fill_heap();
    errno = 4321;
    work_ms(50);
    CHECK(errno == 4321 && threads(all, 16) == COMPANY + 1);
    leave_company();
    return 0;
}

int main(int arguments, char **argument) {
    if (arguments > 1 && strcmp(argument[1], "alone") == 0)
        return allocate_beside_a_waiting_thread();
    IN_CHILD(alone_at_once, 0);
    IN_CHILD(ends_with_the_last_thread, 42);
    IN_CHILD(serves_the_only_one_that_allocates, 42);
    IN_CHILD(hears_its_own_signals, 0);
    IN_CHILD(has_a_small_stack, 0);
    IN_CHILD(becomes_another_user, 0);
    IN_CHILD(has_the_cpus_of_the_process, 0);
    IN_CHILD(makes_no_forbidden_calls, 0);
    IN_CHILD(works_without, 0);
    return 0;
}
