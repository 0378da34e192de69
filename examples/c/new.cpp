// Makes `delete` rely on sizes: a program needs one file with this line (docs/c.md).
#include <ebbmalloc_new.hpp>
