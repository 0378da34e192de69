//! Google tcmalloc under the standard names; the build script exports them.

use libtcmalloc_sys as _;
