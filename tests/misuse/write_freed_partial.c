// The lowest byte of freed blocks is changed, as an attacker would who knows no address.
#include "misuse.h"

static void misuse(size_t size) {
    take_row(size);
    for (int i = 0; i < 8; i++) drop(row[4 * i]);
    for (int i = 0; i < 8; i++) *OPAQUE(row[4 * i]) ^= 0x10;
    harvest(size);
}
