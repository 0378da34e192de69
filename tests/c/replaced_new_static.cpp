// replaced_new.cpp where the C++ library is part of the program. Then the library cannot catch what
// a replacement throws.
// expect: exit 0
// build: g++ -static
// build: g++ -static-libstdc++
// ways: static
#define NO_LIBRARY
#include "replaced_new.cpp"
