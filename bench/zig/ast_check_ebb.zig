//! Adds ebbmalloc as one more allocator to `ast-check`; to link with libebbmalloc.a.

pub const main = @import("ast_check.zig").main;
pub const ebb = @import("ebbmalloc").allocator;
