// `delete` of an address within an array.
// expect: abort "ebbmalloc: interior pointer: 0x"
// build: g++
// build: clang++ -stdlib=libc++
#include "check.h"

int main() {
    int *array = new int[100];
    delete OPAQUE(array + 8);
    return 1;
}
