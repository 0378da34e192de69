// A secret is read from a new block, where another one was before.
// default: leak
// check: silent
#include "misuse.h"

static void misuse(size_t size) {
    take_row(size);
    for (int i = 0; i < ROW; i++) memset(OPAQUE(row[i]), SECRET, size);
    for (int i = 0; i < ROW; i++) drop(row[i]);
    take_row(size);
    for (int i = 0; i < ROW; i++) look_for_secret(row[i], size);
}
