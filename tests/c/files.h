/* What lies in a directory. */
#pragma once

#include "check.h"
#include <dirent.h>

/* The number of files whose names do not begin with a dot. */
static int files_in(const char *directory) {
    int count = 0;
    DIR *opened = opendir(directory);
    CHECK(opened != NULL);
    for (struct dirent *entry; (entry = readdir(opened)) != NULL;) count += entry->d_name[0] != '.';
    closedir(opened);
    return count;
}
