//! ebbmalloc as a `std.mem.Allocator`, over its C interface (`ebbmalloc.h`):
//!
//!     const gpa = @import("ebbmalloc").allocator;
//!
//! Thread-safe, and any thread may free what another has allocated. Every block is aligned to 16 at least.
//!
//! In Debug and ReleaseSafe builds a wrong size or alignment given to `free` stops the program with one line, if it is
//! one of another size class. In other builds both are relied upon, as `std.mem.Allocator` allows. A wrong one is
//! noticed there of blocks above 64 KiB, where a cache is full, and always with `EBB_STATS=1` in the environment.

const std = @import("std");
const Alignment = std.mem.Alignment;

pub const allocator: std.mem.Allocator = .{ .ptr = undefined, .vtable = &vtable };

/// The functions behind `allocator`, which use no context.
pub const vtable: std.mem.Allocator.VTable = .{
    .alloc = alloc,
    .resize = resize,
    .remap = remap,
    .free = free,
};

/// Gives free memory back to the kernel, that in the calling thread's cache included; true if there was any.
/// Needless as a habit: free memory goes back by itself.
pub fn trim() bool {
    return ebb_malloc_trim(0) != 0;
}

/// For programs without threads, when they have nothing else to do; an event loop calls it before it waits.
/// Gives some memory back that nobody has needed of late. True if it is worth calling again after a
/// fifth of a second; false if there is nothing more to give back, or a thread of the library looks after it.
pub fn idle() bool {
    return ebb_idle() != 0;
}

/// How statistics are written.
pub const Format = enum(c_int) { text = 1, json = 2, openmetrics = 3 };

/// Statistics (`docs/stats.md`): as much as fits into the buffer, with a zero byte at the end, and the length of the
/// whole without that byte. Allocates nothing.
pub fn stats(format: Format, buffer: []u8) usize {
    return ebb_stats(@backingInt(format), buffer.ptr, buffer.len);
}

/// What every block is aligned to.
const min_align: Alignment = .@"16";

extern fn ebb_malloc(size: usize) ?[*]u8;
extern fn ebb_aligned_alloc(alignment: usize, size: usize) ?[*]u8;
extern fn ebb_resize(block: [*]u8, alignment: usize, size: usize) bool;
extern fn ebb_remap(block: [*]u8, alignment: usize, size: usize) ?[*]u8;
extern fn free_sized(block: [*]u8, size: usize) void;
extern fn free_aligned_sized(block: [*]u8, alignment: usize, size: usize) void;
extern fn ebb_free_sized(block: [*]u8, size: usize) void;
extern fn ebb_free_aligned_sized(block: [*]u8, alignment: usize, size: usize) void;
extern fn ebb_malloc_trim(keep: usize) c_int;
extern fn ebb_idle() c_int;
extern fn ebb_stats(format: c_int, buffer: [*]u8, bytes: usize) usize;

fn alloc(_: *anyopaque, len: usize, alignment: Alignment, _: usize) ?[*]u8 {
    if (alignment.compare(.lte, min_align)) return ebb_malloc(len);
    return ebb_aligned_alloc(alignment.toByteUnits(), len);
}

fn resize(_: *anyopaque, memory: []u8, alignment: Alignment, new_len: usize, _: usize) bool {
    return ebb_resize(memory.ptr, alignment.toByteUnits(), new_len);
}

/// Null where only copying is left: the caller knows better how much of the block is worth it.
fn remap(_: *anyopaque, memory: []u8, alignment: Alignment, new_len: usize, _: usize) ?[*]u8 {
    return ebb_remap(memory.ptr, alignment.toByteUnits(), new_len);
}

/// C23's functions look the block up and check what they are told; the library's own rely on it. The mode is the
/// program's, which `std` has: a project may have asked for the package in another.
const frees = if (std.debug.runtime_safety) .{
    .sized = free_sized,
    .aligned_sized = free_aligned_sized,
} else .{
    .sized = ebb_free_sized,
    .aligned_sized = ebb_free_aligned_sized,
};

fn free(_: *anyopaque, memory: []u8, alignment: Alignment, _: usize) void {
    if (alignment.compare(.lte, min_align)) return frees.sized(memory.ptr, memory.len);
    frees.aligned_sized(memory.ptr, alignment.toByteUnits(), memory.len);
}
