// What a program adds that wants delete to rely on sizes: one file with this line (docs/c.md).
#include <ebbmalloc_new.hpp>
