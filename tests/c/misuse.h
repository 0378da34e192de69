/* For programs whose last call must stop them: returning from it is a failure. */
#pragma once

#include "check.h"
#include <malloc.h>
#include <stdlib.h>

#define MUST_STOP(call) \
    ((void)(call), check_failed(__FILE__, __LINE__, "the fault was seen: " #call))
