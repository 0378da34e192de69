//! `ast-check` with ebbmalloc as one more allocator; to link with libebbmalloc.a.

pub const main = @import("ast_check.zig").main;
pub const ebb = @import("ebbmalloc").allocator;
