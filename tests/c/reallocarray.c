// If the product overflows, reallocarray returns ENOMEM and leaves the block; else it is realloc.
// expect: exit 0
// harden: too
#include "check.h"
#include <errno.h>
#include <stdlib.h>

int main(void) {
    char *block = reallocarray(NULL, 10, 100);
    CHECK(block != NULL);
    fill(block, 1000, 1);
    errno = 0;
    CHECK(reallocarray(block, OPAQUE((size_t)1 << 33), (size_t)1 << 33) == NULL);
    CHECK(errno == ENOMEM);
    errno = 0;
    CHECK(reallocarray(block, OPAQUE(SIZE_MAX / 2), 3) == NULL);
    CHECK(errno == ENOMEM);
    CHECK(intact(block, 1000, 1));
    CHECK((block = reallocarray(block, 50, 100)) != NULL);
    CHECK(intact(block, 1000, 1));
    CHECK((block = reallocarray(block, 1, 10)) != NULL);
    CHECK(intact(block, 10, 1));
    free(block);
    return 0;
}
