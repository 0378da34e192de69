// Where the disk is full, the last whole file stays, no part of one is left, and it is told once.
// expect: exit 0
// ways: preload
// env: EBB_PROFILE=1000
// env: EBB_PROFILE_AT=signal:USR2
// env: EBB_PROFILE_TO=/tmp
// says: "cannot write the heap profile to /tmp/ebb."
#define _GNU_SOURCE
#include "files.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "/tmp/ebb-full-XXXXXX";

static long length(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 ? (long)status.st_size : -1;
}

/* No file may grow beyond this: as on a full disk, writes fail. */
static void limit_files(rlim_t bytes) {
    struct rlimit limit = {bytes, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

int main(void) {
    for (int i = 0; i < 1000; i++) free(OPAQUE(malloc(1000)));
    CHECK(mkdtemp(directory) != NULL);
    char path[100], link_path[100];
    snprintf(path, sizeof path, "%s/heap", directory);
    int (*write_profile)(const char *) = dlsym(RTLD_DEFAULT, "ebb_profile_write");
    CHECK(write_profile != NULL);
    CHECK(write_profile(path) == 0);
    long whole = length(path);
    CHECK(whole > 1024 && files_in(directory) == 1);
    limit_files(1024);
    CHECK(write_profile(path) != 0);
    CHECK(length(path) == whole && files_in(directory) == 1);
    for (int i = 0; i < 3; i++) {
        raise(SIGUSR2);
        free(OPAQUE(malloc(1000)));
    }
    limit_files(RLIM_INFINITY);

    /* A link or a pipe stays one. A pipe without a reader keeps no thread waiting. */
    struct stat status;
    snprintf(link_path, sizeof link_path, "%s/link", directory);
    CHECK(symlink("heap", link_path) == 0);
    CHECK(write_profile(link_path) == 0);
    CHECK(lstat(link_path, &status) == 0 && S_ISLNK(status.st_mode) && files_in(directory) == 2);
    CHECK(unlink(link_path) == 0 && mkfifo(link_path, 0600) == 0);
    CHECK(write_profile(link_path) != 0);
    int reader = open(link_path, O_RDONLY | O_NONBLOCK);
    char text[100];
    CHECK(reader >= 0 && write_profile(link_path) == 0 && read(reader, text, sizeof text) > 0);
    CHECK(lstat(link_path, &status) == 0 && S_ISFIFO(status.st_mode));
    CHECK(unlink(link_path) == 0 && unlink(path) == 0 && rmdir(directory) == 0);
    return 0;
}
