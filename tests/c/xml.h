/* Reads the output of malloc_info into memory. */
#pragma once

#include "check.h"
#include <malloc.h>
#include <stdlib.h>

/* Returns the whole text, which the caller frees. */
static char *malloc_info_text(void) {
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    CHECK(memory != NULL);
    CHECK(malloc_info(0, memory) == 0);
    CHECK(fclose(memory) == 0);
    CHECK(length > 20 && strncmp(text, "<malloc", 7) == 0);
    CHECK(strstr(text, "</malloc>") != NULL);
    return text;
}
