/* Programs that include this need nothing of it: ebbmalloc replaces malloc and operator new
 * already. */
#include "mimalloc.h"
