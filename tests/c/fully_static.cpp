// containers.cpp in a fully static executable, C library included.
// expect: exit 0
// build: g++ -static
// ways: static
#include "containers.cpp"
