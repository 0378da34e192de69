// A secret is read from a new block that reuses the memory of another one.
// threat: secrets
// default: leak for 16 100 1000
// default: leak or silent for 20000 200000 3000000
// check: silent
// harden: silent
#include "misuse.h"

static void misuse(size_t size) {
    take_row(size);
    for (int i = 0; i < ROW; i++) memset(OPAQUE(row[i]), SECRET, size);
    for (int i = 0; i < ROW; i++) drop(row[i]);
    take_row(size);
    for (int i = 0; i < ROW; i++) look_for_secret(row[i], size);
}
