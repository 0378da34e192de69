// Memory that the C library holds at exit is not reported as a leak of the program.
// That is stream buffers, a locale, environment names, exit handlers, values of keys, texts of
// errors, and data of the loader. A copy by strdup belongs to the program, so it is a leak.
// expect: exit 0
// check: only
// build: gcc -pthread
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

static pthread_key_t keys[100];
static char *kept;

static void nothing(void) {}
static void *waits(void *unused) { return pause(), unused; }
static void *keeps(void *unused) { return kept = strdup("a copy that the program keeps"), unused; }

static int child(void) {
    free(OPAQUE(malloc(10))); // Without a call the static library would not be linked.
    setlocale(LC_ALL, "C.UTF-8");
    printf("hello\n");
    getpwnam("root");
    tzset();
    time_t now = time(NULL);
    localtime(&now);
    setenv("A_NAME", "a value", 1);
    for (int i = 0; i < 100; i++) atexit(nothing);
    for (int i = 0; i < 100; i++)
        CHECK(pthread_key_create(keys + i, NULL) == 0 && pthread_setspecific(keys[i], keys) == 0);
    CHECK(strerror(12345) != NULL && strsignal(1000) != NULL);
    CHECK(dlopen("no such library", RTLD_NOW) == NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, keeps, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
    return OPAQUE(kept) == NULL;
}

int main(int count, char **arguments) {
    if (count > 1) return child();
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(pipes[1], STDERR_FILENO);
        freopen("/dev/null", "w", stdout);
        execl("/proc/self/exe", arguments[0], "child", (char *)NULL);
        _exit(99);
    }
    close(pipes[1]);
    static char text[1 << 16];
    size_t length = 0;
    for (ssize_t more; (more = read(pipes[0], text + length, sizeof text - 1 - length)) > 0;)
        length += (size_t)more;
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
          WEXITSTATUS(status) == 0);
    if (write(STDERR_FILENO, text, length) < 0) return 3;
    CHECK(strstr(text, "still held at exit: 30 bytes in 1 blocks (") != NULL);
    return 0;
}
