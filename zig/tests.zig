//! Tests of the package: `zig build test`.

const std = @import("std");
const builtin = @import("builtin");
const ebbmalloc = @import("ebbmalloc");
const Alignment = std.mem.Alignment;
const testing = std.testing;

const allocator = ebbmalloc.allocator;

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
            if (allocator.resize(block, len)) {
                block.len = len;
            } else {
                block = try allocator.realloc(block, len);
            }
            try testing.expect(std.mem.isAligned(@intFromPtr(block.ptr), alignment));
            try testing.expectEqual(7, block[0]);
            block[len - 1] = 7;
        }
        allocator.free(block);
    }
}

test "in place: within a class, and not beyond it" {
    if (!ebbmalloc.is_active) return error.SkipZigTest;
    const small = try allocator.alloc(u8, 100);
    try testing.expect(allocator.resize(small, 97));
    try testing.expect(allocator.resize(small[0..97], 112));
    try testing.expect(!allocator.resize(small.ptr[0..112], 113));
    // In place, the block would keep more than it needs.
    try testing.expect(!allocator.resize(small.ptr[0..112], 96));
    try testing.expectEqual(null, allocator.remap(small.ptr[0..112], 10));
    allocator.free(small.ptr[0..112]);

    // A block of 4,096 bytes, because of its alignment.
    const aligned = try allocator.alignedAlloc(u8, .fromByteUnits(4096), 10);
    try testing.expect(allocator.resize(aligned, 4096));
    allocator.free(@as([]align(4096) u8, aligned.ptr[0..4096]));
}

test "large blocks shrink in place, and grow or move without copying" {
    if (!ebbmalloc.is_active) return error.SkipZigTest;
    var block = try allocator.alloc(u8, 2 << 20);
    @memset(block, 5);
    try testing.expect(allocator.resize(block, 1 << 20));
    block = block[0 .. 1 << 20];
    const start = block.ptr;
    // At some length another block is in the way.
    var others: [64][]u8 = undefined;
    for (&others) |*other| other.* = try allocator.alloc(u8, 100_000);
    while (block.ptr == start and block.len < 1 << 30)
        block = allocator.remap(block, block.len * 2) orelse break;
    try testing.expect(std.mem.allEqual(u8, block[0 .. 1 << 20], 5));
    for (others) |other| allocator.free(other);
    allocator.free(block);
}

test "too much is refused" {
    if (!ebbmalloc.is_active) return error.SkipZigTest;
    try testing.expectError(error.OutOfMemory, allocator.alloc(u8, std.math.maxInt(isize)));
    inline for (.{ 10, 100_000 }) |len| {
        const block = try allocator.alloc(u8, len);
        defer allocator.free(block);
        try testing.expect(!allocator.resize(block, std.math.maxInt(isize)));
        try testing.expectEqual(null, allocator.remap(block, std.math.maxInt(isize)));
    }
}

// Sizes and alignments that no process can have, around each power of two from 2^47 on, and around
// each value where the sum of a size and an address would wrap.
test "what no process can have is refused, and blocks stay as they were" {
    if (!ebbmalloc.is_active) return error.SkipZigTest;
    const unit = 64 << 10;
    for ([_]u6{ 0, 4, 12, 17 }) |log2| {
        const alignment: Alignment = @fromBackingInt(log2);
        for ([_]usize{ 1, 100, 40_000, unit, unit + 1, 1 << 20 }) |len| {
            const start = allocator.rawAlloc(len, alignment, 0) orelse return error.OutOfMemory;
            const behind = try allocator.alloc(u8, 300_000);
            const block: Block = .{ .memory = start[0..len], .alignment = alignment };
            block.fill();
            for ([_]usize{ 0, 1, 24, 4096, unit - 1, unit, unit + 1 }) |step| {
                for (47..64) |bit| {
                    const power = @as(usize, 1) << @intCast(bit);
                    try refused(block, power +% step);
                    if (bit > 47) try refused(block, power - step);
                }
                try refused(block, 0 -% @intFromPtr(start) -% step);
                try refused(block, (1 << 63) - @intFromPtr(start) + step);
            }
            for (0..90) |first| try refused(block, (1 << 48) - first * unit);
            try refused(block, std.math.maxInt(usize));
            try block.check();
            allocator.free(behind);
            allocator.rawFree(block.memory, alignment, 0);
        }
    }
    for (47..64) |log2| {
        const alignment: Alignment = @fromBackingInt(@as(u6, @intCast(log2)));
        for ([_]usize{ 1, 100, 100_000, std.math.maxInt(usize) }) |len|
            try testing.expectEqual(null, allocator.rawAlloc(len, alignment, 0));
    }
}

fn refused(block: Block, len: usize) !void {
    try testing.expectEqual(null, allocator.rawAlloc(len, block.alignment, 0));
    try testing.expect(!allocator.rawResize(block.memory, block.alignment, len, 0));
    try testing.expectEqual(null, allocator.rawRemap(block.memory, block.alignment, len, 0));
}

/// A block with the slice that the allocator knows, filled with a byte of its own.
const Block = struct {
    memory: []u8,
    alignment: Alignment,

    fn fill(block: Block) void {
        @memset(block.memory, block.tag());
    }

    fn tag(block: Block) u8 {
        return @truncate(@intFromPtr(block.memory.ptr) >> 4);
    }

    fn check(block: Block) !void {
        try testing.expect(block.alignment.check(@intFromPtr(block.memory.ptr)));
        try testing.expect(filled(block.memory, block.tag()));
    }
};

/// Whether all bytes have this value: `std.mem.allEqual` by words, as that is slow in Debug builds.
fn filled(memory: []const u8, byte: u8) bool {
    const word: u64 = @bitCast(@as([8]u8, @splat(byte)));
    const words = @as([*]align(1) const u64, @ptrCast(memory.ptr))[0 .. memory.len / 8];
    for (words) |found| if (found != word) return false;
    return std.mem.allEqual(u8, memory[words.len * 8 ..], byte);
}

/// Calls all four functions at random, and passes blocks between threads.
fn work(seed: u64, shared: *[64]std.atomic.Value(?*Block), failed: *std.atomic.Value(bool)) void {
    tryWork(seed, shared) catch failed.store(true, .monotonic);
}

fn tryWork(seed: u64, shared: *[64]std.atomic.Value(?*Block)) !void {
    var prng: std.Random.DefaultPrng = .init(seed);
    const random = prng.random();
    for (0..20_000) |_| {
        const slot = &shared[random.uintLessThan(usize, shared.len)];
        const block = slot.swap(null, .acquire) orelse made: {
            const block = try allocator.create(Block);
            // Up to 128 KiB.
            const log2 = random.uintLessThan(u5, if (random.boolean()) 5 else 18);
            const alignment: Alignment = .fromByteUnits(@as(usize, 1) << log2);
            const len = size(random);
            const start = allocator.rawAlloc(len, alignment, 0) orelse return error.OutOfMemory;
            block.* = .{ .memory = start[0..len], .alignment = alignment };
            block.fill();
            break :made block;
        };
        if (random.uintLessThan(u8, 4) == 0) {
            allocator.rawFree(block.memory, block.alignment, 0);
            allocator.destroy(block);
            continue;
        }
        try block.check();
        const len = size(random);
        const kept = @min(len, block.memory.len);
        const tag = block.tag();
        if (random.boolean()) {
            if (allocator.rawResize(block.memory, block.alignment, len, 0)) block.memory.len = len;
        } else if (allocator.rawRemap(block.memory, block.alignment, len, 0)) |start| {
            block.memory = start[0..len];
            try testing.expect(filled(block.memory[0..kept], tag));
        }
        block.fill();
        try block.check();
        if (slot.swap(block, .release)) |other| {
            try other.check();
            allocator.rawFree(other.memory, other.alignment, 0);
            allocator.destroy(other);
        }
    }
}

fn size(random: std.Random) usize {
    return 1 + switch (random.uintLessThan(u8, 32)) {
        0...15 => random.uintLessThan(usize, 256),
        16...27 => random.uintLessThan(usize, 4096),
        28...30 => random.uintLessThan(usize, 80_000),
        else => random.uintLessThan(usize, 1 << 20),
    };
}

test "threads free and resize what others have allocated" {
    var shared: [64]std.atomic.Value(?*Block) = @splat(.init(null));
    var failed: std.atomic.Value(bool) = .init(false);
    if (builtin.single_threaded) {
        for (1..5) |seed| work(seed, &shared, &failed);
    } else {
        var threads: [4]std.Thread = undefined;
        for (&threads, 1..) |*thread, seed| {
            thread.* = try .spawn(.{}, work, .{ seed, &shared, &failed });
        }
        for (threads) |thread| thread.join();
    }
    try testing.expect(!failed.load(.monotonic));
    for (&shared) |*slot| if (slot.load(.monotonic)) |block| {
        try block.check();
        allocator.rawFree(block.memory, block.alignment, 0);
        allocator.destroy(block);
    };
}

test "statistics, and memory that goes back" {
    const block = try allocator.alloc(u8, 10 << 20);
    var buffer: [1 << 16]u8 = undefined;
    const length = ebbmalloc.stats(.json, &buffer);
    const wanted = if (ebbmalloc.is_active) "\"live_bytes\"" else "\"mode\":\"system\"";
    try testing.expect(std.mem.find(u8, buffer[0..length], wanted) != null);
    try testing.expectEqual(length, ebbmalloc.stats(.json, buffer[0..10]));
    try testing.expectEqual(0, buffer[9]);
    allocator.free(block);
    _ = ebbmalloc.trim();
    try testing.expect(!ebbmalloc.trim());
    _ = ebbmalloc.idle();
    try testing.expectEqual(ebbmalloc.is_active, ebbmalloc.set("limit", "off"));
}

test "a heap profile is written" {
    if (!ebbmalloc.is_active) {
        try testing.expectError(error.OutOfMemory, ebbmalloc.profile.start(1000));
        return testing.expectError(error.NotWritten, ebbmalloc.profile.write("/tmp/none"));
    }
    const linux = std.os.linux;
    var buffer: [40]u8 = undefined;
    const path = try std.fmt.bufPrintSentinel(&buffer, "/tmp/ebb-{d}.heap", .{linux.getpid()}, 0);
    const opened = linux.open(path, .{ .ACCMODE = .RDONLY, .CREAT = true, .EXCL = true }, 0o600);
    try testing.expectEqual(.SUCCESS, linux.errno(opened));
    defer _ = linux.unlink(path);
    try testing.expectError(error.NotWritten, ebbmalloc.profile.write(path));
    try ebbmalloc.profile.start(1000);
    const block = try allocator.alloc(u8, 1 << 20);
    try ebbmalloc.profile.write(path);
    ebbmalloc.profile.stop();
    allocator.free(block);
    try testing.expectError(error.NotWritten, ebbmalloc.profile.write("/no/such/folder/file"));
    // One live block, of 1 MiB.
    const first = "heap profile: 1: 1048576 [1: 1048576] @ heap_v2/1000\n";
    var text: [first.len]u8 = undefined;
    try testing.expectEqual(first.len, linux.read(@intCast(opened), &text, text.len));
    try testing.expectEqualStrings(first, &text);
}
