// The containers again, in an executable that is static as a whole, C library included.
// expect: exit 0
// build: g++ -static
// ways: static
#include "containers.cpp"
