// What is told at exit goes to what was standard error at the start, and never to a file of the
// program that has its number: statistics, also if EBB_STATS_TO cannot be written, and blocks still
// held. A pipe that has no reader does not keep the program from its end.
// expect: exit 0
// ways: preload
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[] = "/tmp/ebb-stderr-XXXXXX";

/* A program that closes its standard error, and whose next file gets that number. */
static int close_and_open(void) {
    close(STDERR_FILENO);
    int file = open(path, O_WRONLY | O_TRUNC);
    if (file != STDERR_FILENO || write(file, "data\n", 5) != 5) _exit(9);
    CHECK(OPAQUE(malloc(100)) != NULL);
    exit(0);
}

/* Runs this program again with this file as standard error; closed if it is -1. */
static void run(const char *program, const char *name, int error, const char *statistics_to) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (error >= 0) dup2(error, STDERR_FILENO);
        else close(STDERR_FILENO);
        CHECK(setenv("EBB_STATS", "1", 1) == 0);
        if (strcmp(name, "leak") == 0) CHECK(setenv("EBB_CHECK", "1", 1) == 0);
        CHECK(setenv("EBB_STATS_TO", statistics_to, 1) == 0);
        execl("/proc/self/exe", program, name, path, NULL);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static long length(int file) {
    struct stat status;
    CHECK(fstat(file, &status) == 0);
    return (long)status.st_size;
}

int main(int count, char **argument) {
    if (count > 1) {
        memcpy(path, argument[2], sizeof path);
        return strcmp(argument[1], "pipe") == 0 ? 0 : close_and_open();
    }
    int data = mkstemp(path), error = memfd_create("error", 0);
    CHECK(data >= 0 && error >= 0);
    run(argument[0], "file", error, "");
    CHECK(length(data) == 5 && length(error) > 500);
    run(argument[0], "file", -1, "");
    CHECK(length(data) == 5);
    run(argument[0], "file", error, "/no/such/directory/file");
    CHECK(length(data) == 5);
    run(argument[0], "file", -1, "/no/such/directory/file");
    CHECK(length(data) == 5);
    CHECK(ftruncate(error, 0) == 0);
    run(argument[0], "leak", error, "/dev/null");
    CHECK(length(data) == 5 && length(error) > 50);
    CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    CHECK(ftruncate(error, 0) == 0);
    run(argument[0], "pipe", error, path);
    CHECK(length(error) > 500);
    CHECK(unlink(path) == 0);
    return 0;
}
