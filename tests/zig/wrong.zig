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
            try warm(1000);
            gpa.rawFree(block.ptr[0..1000], .@"1", 0);
        },
        .twice => {
            const block = try gpa.alloc(u8, 100_000);
            gpa.rawFree(block, .@"1", 0);
            gpa.rawFree(block, .@"1", 0);
        },
        .foreign => {
            try warm(outside.len);
            gpa.rawFree(&outside, .@"1", 0);
        },
        .resize => {
            const block = try gpa.alloc(u8, 100_000);
            gpa.rawFree(block, .@"1", 0);
            _ = gpa.rawResize(block, .@"1", 70_000, 0);
        },
    }
    std.process.exit(1);
}

/// Makes room in the cache for blocks of this size. Where there is none yet, every free looks the block up, also one
/// that relies on the size.
fn warm(len: usize) !void {
    gpa.free(try gpa.alloc(u8, len));
}
