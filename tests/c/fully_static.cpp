// The containers again, in an executable that is static as a whole, C library included.
// expect: exit 0
// check: no a fully static C++ program aborts at its start in check mode (docs/check.md)
// build: g++ -static
// ways: static
#include "containers.cpp"
