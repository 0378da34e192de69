//! ebbmalloc as a `std.mem.Allocator`, over its C interface (`ebbmalloc.h`).
//!
//! Thread-safe, and any thread may free what another has allocated.

const std = @import("std");
const Alignment = std.mem.Alignment;

pub const allocator: std.mem.Allocator = .{ .ptr = undefined, .vtable = &vtable };

pub const vtable: std.mem.Allocator.VTable = .{
    .alloc = alloc,
    .resize = resize,
    .remap = remap,
    .free = free,
};

/// What every block is aligned to.
const min_align: Alignment = .@"16";

extern fn ebb_malloc(size: usize) ?[*]u8;
extern fn ebb_realloc(block: [*]u8, size: usize) ?[*]u8;
extern fn ebb_aligned_alloc(alignment: usize, size: usize) ?[*]u8;
extern fn ebb_malloc_usable_size(block: [*]u8) usize;
extern fn ebb_free_sized(block: [*]u8, size: usize) void;
extern fn ebb_free_aligned_sized(block: [*]u8, alignment: usize, size: usize) void;

fn alloc(_: *anyopaque, len: usize, alignment: Alignment, _: usize) ?[*]u8 {
    if (alignment.compare(.lte, min_align)) return ebb_malloc(len);
    return ebb_aligned_alloc(alignment.toByteUnits(), len);
}

/// In place. A block that would be left half empty is not kept: whoever asks can move to a smaller one.
fn resize(_: *anyopaque, memory: []u8, _: Alignment, new_len: usize, _: usize) bool {
    const usable = ebb_malloc_usable_size(memory.ptr);
    return new_len <= usable and (new_len >= memory.len or new_len > usable / 2);
}

/// The library moves a block if need be; but only as well aligned as every block is.
fn remap(context: *anyopaque, memory: []u8, alignment: Alignment, new_len: usize, caller: usize) ?[*]u8 {
    if (alignment.compare(.lte, min_align)) return ebb_realloc(memory.ptr, new_len);
    return if (resize(context, memory, alignment, new_len, caller)) memory.ptr else null;
}

fn free(_: *anyopaque, memory: []u8, alignment: Alignment, _: usize) void {
    if (alignment.compare(.lte, min_align)) return ebb_free_sized(memory.ptr, memory.len);
    ebb_free_aligned_sized(memory.ptr, alignment.toByteUnits(), memory.len);
}

test "the standard library's tests of allocators" {
    try std.heap.testAllocator(allocator);
    try std.heap.testAllocatorAligned(allocator);
    try std.heap.testAllocatorLargeAlignment(allocator);
    try std.heap.testAllocatorAlignedShrink(allocator);
}

test "contents survive each way to grow and shrink, at each alignment" {
    inline for (.{ 1, 16, 32, 4096, 128 << 10 }) |alignment| {
        var block = try allocator.alignedAlloc(u8, .fromByteUnits(alignment), 1);
        block[0] = 7;
        for ([_]usize{ 15, 100, 70_000, 1 << 20, 3 << 20, 65_536, 40_000, 17, 1 }) |len| {
            if (allocator.resize(block, len)) block.len = len else block = try allocator.realloc(block, len);
            try std.testing.expect(std.mem.isAligned(@intFromPtr(block.ptr), alignment));
            try std.testing.expectEqual(7, block[0]);
            block[len - 1] = 7;
        }
        allocator.free(block);
    }
}

test "too much is refused" {
    try std.testing.expectError(error.OutOfMemory, allocator.alloc(u8, std.math.maxInt(isize)));
    const block = try allocator.alloc(u8, 10);
    defer allocator.free(block);
    try std.testing.expect(!allocator.resize(block, std.math.maxInt(isize)));
    try std.testing.expectEqual(null, allocator.remap(block, std.math.maxInt(isize)));
}
