// Calls a function in frames of many kinds, and at places where programs allocate.
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

typedef void (*look_fn)(void);
// The constructor of the other library finds it by this name.
look_fn ebb_look;

#define APART __attribute__((noinline, noclone))
// Prevents a tail call.
#define END __asm__ volatile("" ::: "memory")

APART static void plain(void) {
    ebb_look();
    END;
}

APART static void large(void) {
    volatile char bytes[100000];
    bytes[0] = 1;
    plain();
    bytes[99999] = 2;
}

APART static void grows(size_t bytes) {
    char *block = alloca(bytes);
    memset(block, 1, bytes);
    plain();
    END;
}

APART static int variable(int n) {
    volatile int items[n];
    items[n - 1] = 3;
    plain();
    return items[n - 1];
}

// The frame is aligned, so its end is kept in memory.
APART static int aligned(size_t bytes, int a, int b, int c, int d, int e, int f, int g, int h) {
    volatile char block[64] __attribute__((aligned(64)));
    volatile char *more = alloca(bytes);
    block[0] = more[0] = (char)(a + b + c + d + e + f + g + h);
    plain();
    return block[0] + (int)((uintptr_t)block % 64);
}

// All registers are in use.
APART static long busy(long a, long b, long c, long d, long e, long f) {
    long g = a * b + 1, h = c * d + 2, i = e * f + 3, j = a * f + 4, k = b * e + 5;
    plain();
    long l = g ^ h, m = i ^ j;
    plain();
    return a + b + c + d + e + f + g * h * i * j * k + l * m;
}

APART static void deep(int depth) {
    volatile int filler[5] = {depth};
    if (depth > 0)
        deep(depth - 1);
    else
        plain();
    filler[1] = filler[0];
}

static int order(const void *a, const void *b) {
    plain();
    return *(const int *)a - *(const int *)b;
}

static void *in_thread(void *unused) {
    plain();
    return unused;
}

static void at_end(void *unused) {
    (void)unused;
    plain();
}

static void *with_key(void *unused) {
    pthread_key_t key;
    pthread_key_create(&key, at_end);
    pthread_setspecific(key, &key);
    pthread_exit(unused);
}

static void at_signal(int signal) {
    (void)signal;
    plain();
}

#ifdef __GLIBC__
static ucontext_t outside, inside;

static void in_context(void) {
    plain();
}

static void own_stack(void) {
    static char stack[256 << 10];
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = sizeof stack;
    inside.uc_link = &outside;
    makecontext(&inside, in_context, 0);
    swapcontext(&outside, &inside);
}

#endif

#if defined __GLIBC__ && defined __x86_64__
// Called through a stub, whose target the loader asks `choose` for at the first call. On AArch64
// the unwinder of GCC 12 faults there.
static void chosen_one(void) {
    plain();
}

static void (*choose(void))(void) {
    if (ebb_look)
        plain();
    return chosen_one;
}

void chosen(void) __attribute__((ifunc("choose")));
#endif

APART static void shares_stack(void) {
    pid_t child = vfork();
    if (child == 0) {
        plain();
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "the child of vfork ended with %x\n", status);
        abort();
    }
}

void each_place(look_fn look) {
    ebb_look = look;
    plain();
    large();
    grows(10);
    grows(70000);
    variable(1000);
    aligned(100, 1, 2, 3, 4, 5, 6, 7, 8);
    busy(1, 2, 3, 4, 5, 6);
    deep(30);
    int items[] = {2, 1, 3};
    qsort(items, 3, sizeof items[0], order);
    bsearch(&items[1], items, 3, sizeof items[0], order);
    pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, plain);
    pthread_t thread;
    pthread_create(&thread, NULL, in_thread, NULL);
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, with_key, NULL);
    pthread_join(thread, NULL);
    // Without code of the kernel's, as under qemu, handlers return by code that cannot be read.
    if (getauxval(AT_SYSINFO_EHDR)) {
        struct sigaction action = {.sa_handler = at_signal}, old;
        sigaction(SIGUSR2, &action, &old);
        raise(SIGUSR2);
        sigaction(SIGUSR2, &old, NULL);
    }
#ifdef __GLIBC__
    own_stack();
#endif
#if defined __GLIBC__ && defined __x86_64__
    chosen();
#endif
    shares_stack();
    END;
}
