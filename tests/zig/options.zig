//! Sets options in code, and changes them while it runs.

const ebbmalloc = @import("ebbmalloc");

pub const ebbmalloc_options = .{ .limit = "64MiB", .huge = "never", .fixed = true };

pub fn main() !void {
    if (ebbmalloc.allocator.rawAlloc(80 << 20, .@"1", 0) != null) return error.NotLimited;
    if (!ebbmalloc.set("limit", "off")) return error.NotSet;
    if (ebbmalloc.allocator.rawAlloc(80 << 20, .@"1", 0) == null) return error.StillLimited;
    if (ebbmalloc.set("limits", "off")) return error.SetAnUnknownOption;
    ebbmalloc.finish();
    ebbmalloc.finish();
}
