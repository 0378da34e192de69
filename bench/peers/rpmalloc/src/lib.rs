//! rpmalloc under the standard names; the build script exports them.

use rpmalloc_sys as _;
