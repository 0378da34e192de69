//! snmalloc under the standard names; the build script exports them.

use snmalloc_sys as _;
