//! jemalloc under the standard names; the build script exports them.

use tikv_jemalloc_sys as _;
