//! A program on ebbmalloc. Zig passes allocators as arguments; this one needs no other allocator.

const std = @import("std");
const ebbmalloc = @import("ebbmalloc");

pub fn main(init: std.process.Init.Minimal) !void {
    _ = init;
    const gpa = ebbmalloc.allocator;
    var words: std.ArrayList([]u8) = .empty;
    defer {
        for (words.items) |word| gpa.free(word);
        words.deinit(gpa);
    }
    for (0..1000) |n| try words.append(gpa, try std.fmt.allocPrint(gpa, "word {d}", .{n}));

    var threaded: std.Io.Threaded = .init_single_threaded;
    var page: [1 << 14]u8 = undefined;
    const length = ebbmalloc.stats(.text, &page);
    const first = std.mem.sliceTo(page[0..@min(length, page.len)], '\n');
    var line: [300]u8 = undefined;
    const text = try std.fmt.bufPrint(&line, "served by ebbmalloc {s}\n", .{first});
    try std.Io.File.stdout().writeStreamingAll(threaded.io(), text);
}
