// Each system call that gives memory is refused, once or from then on.
// malloc then returns NULL and ENOMEM, and all blocks stay intact.
// expect: exit 0
// ways: preload static
// A seccomp filter traps these calls; its signal handler repeats or refuses them. No root needed.
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

// The filter allows calls from this function.
__asm__(".text\n"
        ".globl again\n"
        "again: mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n"
        "mov %r8, %r10\n mov %r9, %r8\n"
        "mov 8(%rsp), %r9\n syscall\n"
        ".globl again_end\n"
        "again_end: ret\n");
long again(long number, long, long, long, long, long, long);
extern char again_end[];

static long calls, refused, from, to;

static void trapped(int signal, siginfo_t *info, void *context) {
    (void)signal;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    long call = __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    if (call >= from && call < to) {
        __atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
        registers[REG_RAX] = -ENOMEM;
        return;
    }
    registers[REG_RAX] =
        again(info->si_syscall, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
              registers[REG_R10], registers[REG_R8], registers[REG_R9]);
}

// Installs the filter in all threads.
static void set_trap(void) {
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    uint64_t end = (uint64_t)(uintptr_t)again_end;
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF(value, then, otherwise) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, then, otherwise)
    struct sock_filter filter[] = {
        LOAD(nr),
        IF(SYS_mmap, 4, 0),
        IF(SYS_munmap, 3, 0),
        IF(SYS_mprotect, 2, 0),
        IF(SYS_madvise, 1, 0),
        IF(SYS_mremap, 0, 4),
        LOAD(instruction_pointer),
        IF((uint32_t)end, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
        IF((uint32_t)(end >> 32), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
}

enum { KEPT = 48, STEPS = 150, THREADS = 2 };

// Checks that a block is NULL only after a call was refused.
static void *checked(void *block, size_t size) {
    if (block == NULL && size) {
        CHECK(errno == ENOMEM);
        CHECK(__atomic_load_n(&refused, __ATOMIC_RELAXED) > 0);
    }
    return block;
}

static void work(uint32_t state) {
    struct {
        unsigned char *bytes;
        size_t size;
    } kept[KEPT] = {0};
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned slot = random32(&state) % KEPT;
        size_t size = step % 16 == 0 ? 1 + random32(&state) % (3 << 20) : random_size(&state);
        unsigned char *old = kept[slot].bytes, *new = NULL;
        if (old) CHECK(intact_sample(old, kept[slot].size, kept[slot].size, slot));
        errno = 0;
        switch (random32(&state) % 8) {
        case 0:
        case 1:
        case 2:
            new = checked(realloc(old, size), size);
            if (new == NULL) continue;
            if (old)
                CHECK(intact_sample(new, size < kept[slot].size ? size : kept[slot].size,
                                    kept[slot].size, slot));
            break;
        case 3:
            new = checked(calloc(1, size), size);
            for (size_t i = 0; new && i < size; i += 61) CHECK(new[i] == 0);
            free(old);
            break;
        case 4: new = checked(memalign(1 << (4 + step % 16), size), size), free(old); break;
        case 5: new = NULL, free(old); break;
        default: new = checked(malloc(size), size), free(old); break;
        }
        if (step % 100 == 99) malloc_trim(0);
        if (new) fill_sample(new, size, slot);
        kept[slot].bytes = new, kept[slot].size = size;
    }
    for (unsigned slot = 0; slot < KEPT; slot++) {
        if (kept[slot].bytes)
            CHECK(intact_sample(kept[slot].bytes, kept[slot].size, kept[slot].size, slot));
        errno = 4321;
        free(kept[slot].bytes);
        CHECK(errno == 4321);
    }
}

static pthread_barrier_t trap_is_set, done;

static void *thread(void *number) {
    pthread_barrier_wait(&trap_is_set);
    work(7 + (uint32_t)(uintptr_t)number);
    pthread_barrier_wait(&done);
    // The C library ends threads with signals blocked, and a trap needs its signal.
    pause();
    return NULL;
}

static void child(int threaded) {
    alarm(20);
    pthread_t threads[THREADS];
    CHECK(pthread_barrier_init(&trap_is_set, NULL, THREADS + 1) == 0);
    CHECK(pthread_barrier_init(&done, NULL, THREADS + 1) == 0);
    for (uintptr_t i = 0; threaded && i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, thread, (void *)i) == 0);
    set_trap();
    if (threaded) pthread_barrier_wait(&trap_is_set);
    work(5);
    if (threaded) pthread_barrier_wait(&done);
    // Nothing is refused any more: the calls that failed succeed now, and all memory is available.
    to = 0;
    malloc_trim(0);
    refused = 0;
    work(9);
}

// Runs a child in which calls `first` to `end` are refused. Returns how many calls were made and
// refused.
static long run(int threaded, long first, long end, long *hit) {
    static long *shared;
    if (!shared) {
        shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(shared != MAP_FAILED);
    }
    from = first, to = end, shared[0] = shared[1] = 0;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        child(threaded);
        shared[0] = calls;
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "calls %ld to %ld, %s threads: status %#x\n", first, end,
                threaded ? "with" : "without", status);
        exit(1);
    }
    *hit += 1;
    return shared[0];
}

int main(int count, char **arguments) {
    (void)count;
    // The scavenger's calls would be counted too, and when it makes them depends on time.
    if (getenv("EBB_SCAVENGER") == NULL) {
        setenv("EBB_SCAVENGER", "0", 1);
        execv("/proc/self/exe", arguments);
        CHECK(!"executed again");
    }
    free(malloc(1));
    int is_long = getenv("LONG") != NULL;
    long runs = 0;
    for (int threaded = 0; threaded < 2; threaded++) {
        long all = run(threaded, 0, 0, &runs);
        CHECK(all > 10);
        long step = is_long ? 1 : 1 + all / 6;
        for (long first = 0; first < all; first += step) {
            run(threaded, first, first + 1, &runs);
            run(threaded, first, first + 5, &runs);
            if (first / step % 2 == 0) run(threaded, first, 1L << 40, &runs);
        }
        fprintf(stderr, "%ld calls, %s threads\n", all, threaded ? "with" : "without");
    }
    fprintf(stderr, "%ld runs\n", runs);
    return 0;
}
