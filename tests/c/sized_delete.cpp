// A sized `delete` wrong by one byte is stopped where sizes are known, and passes elsewhere.
// expect: exit 0
// harden: too
// build: g++
// build: clang++ -stdlib=libc++
#include "check.h"
#include <csignal>
#include <cstdlib>
#include <initializer_list>
#include <new>
#include <sys/wait.h>

static const auto ALIGN = std::align_val_t(64);

// Allocates and frees in one of the forms, with a size that is wrong by `off` bytes.
static void run(int form, std::size_t size, int off) {
    std::size_t told = OPAQUE(size + off);
    switch (form) {
    case 0: return ::operator delete(::operator new(size), told);
    case 1: return ::operator delete[](::operator new[](size), told);
    case 2: return ::operator delete(::operator new(size, ALIGN), told, ALIGN);
    case 3: return ::operator delete[](::operator new[](size, ALIGN), told, ALIGN);
    }
}

// Returns the signal that ends a child that does this, or 0.
static int signal_of(int form, std::size_t size, int off) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        run(form, size, off);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

int main() {
    void *nothing = OPAQUE(static_cast<void *>(nullptr));
    ::operator delete(nothing, 100), ::operator delete[](nothing, 100);
    ::operator delete(nothing, 100, ALIGN), ::operator delete[](nothing, 100, ALIGN);
    int seen = getenv("EBB_CHECK") || getenv("EBB_HARDEN") ? SIGABRT : 0;
    for (int form = 0; form < 4; form++)
        for (std::size_t size : {99, 1000, 20001, 200001}) {
            CHECK(signal_of(form, size, 0) == 0);
            CHECK(signal_of(form, size, -1) == seen);
            CHECK(signal_of(form, size, 1) == seen);
        }
    return 0;
}
