// A double free in a fully static executable is reported with all stacks.
// There the unwinder is not ready before constructors run, and allocates when it is first called.
// expect: report "ebbmalloc: double free: 0x"
// says: "100 bytes, of size class 128, allocated by thread"
// says: "first freed by thread"
// says: "#3 0x"
// build: g++ -static
// ways: static
// check: only
#include "misuse.h"
#include <string>

// Allocated by a constructor.
static std::string *early = new std::string(1000, 'x');

int main() {
    delete early;
    char *block = OPAQUE(new char[100]);
    delete[] block;
    MUST_STOP((delete[] OPAQUE(block), 0));
}
