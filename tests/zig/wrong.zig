//! Misuses the allocator as its argument says; returning from that is a failure.

const std = @import("std");
const gpa = @import("ebbmalloc").allocator;

pub fn main(init: std.process.Init.Minimal) !void {
    var arguments = init.args.iterate();
    _ = arguments.skip();
    const Way = enum { size, twice, foreign, resize, access };
    const way = std.meta.stringToEnum(Way, arguments.next().?).?;
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
        .access => {
            // One of them is a sampled block.
            var blocks: [20_000][]u8 = undefined;
            for (&blocks) |*block| block.* = try gpa.alloc(u8, 200);
            for (blocks) |block| {
                const byte: *volatile u8 = &block[0];
                gpa.free(block);
                _ = byte.*;
            }
        },
    }
    std.process.exit(1);
}

/// Gives the cache capacity for blocks of this size. Without it, every free looks up the block,
/// also one that relies on the size.
fn warm(len: usize) !void {
    gpa.free(try gpa.alloc(u8, len));
}
