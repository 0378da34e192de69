//! Uses the allocator wrongly, as its argument says; coming back from that is a failure.

const std = @import("std");
const gpa = @import("ebbmalloc").allocator;

pub fn main(init: std.process.Init.Minimal) !void {
    var arguments = init.args.iterate();
    _ = arguments.skip();
    const way = std.meta.stringToEnum(enum { size, twice, foreign, resize }, arguments.next().?).?;
    var outside: [64]u8 align(64) = undefined;
    switch (way) {
        .size => {
            const block = try gpa.alloc(u8, 64);
            gpa.rawFree(block.ptr[0..1000], .@"1", 0);
        },
        .twice => {
            const block = try gpa.alloc(u8, 100_000);
            gpa.rawFree(block, .@"1", 0);
            gpa.rawFree(block, .@"1", 0);
        },
        .foreign => gpa.rawFree(&outside, .@"1", 0),
        .resize => {
            const block = try gpa.alloc(u8, 100_000);
            gpa.rawFree(block, .@"1", 0);
            _ = gpa.rawResize(block, .@"1", 70_000, 0);
        },
    }
    std.process.exit(1);
}
