//! ebbmalloc as a `std.mem.Allocator`, over its C interface (`ebbmalloc.h`):
//!
//!     const gpa = @import("ebbmalloc").allocator;
//!
//! Thread-safe: any thread may free blocks of another one. Blocks are aligned to at least 16 bytes.
//!
//! In Debug and ReleaseSafe builds, a `free` with a wrong size or alignment stops the program with
//! one line, if the size belongs to another size class. Other builds rely on both, as
//! `std.mem.Allocator` allows. They notice a wrong one only for blocks above 64 KiB, where a cache
//! is full, and always with `EBB_STATS=1` in the environment.
//!
//! On targets where the engine does not run (`is_active`), Zig's own allocator serves.
//!
//! The root file of a program may set options of ebbmalloc (`docs/options.md`), by the names of
//! their variables in lower case without `EBB_`:
//!
//!     pub const ebbmalloc_options = .{ .limit = "75%", .harden = true };
//!
//! The environment has the last word, unless `.fixed = true`.

const std = @import("std");
const builtin = @import("builtin");
const root = @import("root");
const forward = @import("forward.zig");
const Alignment = std.mem.Alignment;

/// Whether ebbmalloc serves. Otherwise `allocator` is Zig's own for `main` in release builds,
/// options have no effect, and all other functions return that there is nothing.
pub const is_active = @import("targets.zig").hasEngine(builtin.target);

const has_libc = builtin.link_libc;
const without_libc = @import("without_libc.zig");

pub const allocator: std.mem.Allocator = if (is_active)
    .{ .ptr = undefined, .vtable = &vtable }
else
    forward.system;

/// The functions of `allocator` where ebbmalloc serves. They use no context.
pub const vtable: std.mem.Allocator.VTable = .{
    .alloc = alloc,
    .resize = resize,
    .remap = remap,
    .free = free,
};

/// Returns free memory to the kernel, also that in the calling thread's cache; true if there was
/// any.
/// Seldom needed: the library returns free memory by itself.
pub fn trim() bool {
    return is_active and ebb_malloc_trim(0) != 0;
}

/// For programs without threads: an event loop calls it before it waits. Returns some memory that
/// was not needed recently. True if another call is worthwhile after the purge delay
/// (`EBB_PURGE_DELAY`, 200 ms); false if there is nothing more to return, or the scavenger does it.
pub fn idle() bool {
    return is_active and ebb_idle() != 0;
}

/// Changes an option from now on, by name and value as in `ebbmalloc_options`: limit, purge_delay,
/// huge, scavenger, profile, or stats (what is printed at exit). False if it stays as it was.
pub fn set(name: [:0]const u8, value: [:0]const u8) bool {
    return is_active and ebb_ctl(name.ptr, value.ptr) == 0;
}

/// Prints and writes what ebbmalloc does at exit: statistics, leaks, a heap profile. For the end of
/// `main` in programs without a C library; with one it does nothing, as the exit does it.
pub fn finish() void {
    if (is_active and !has_libc) without_libc.finish();
}

comptime {
    if (is_active) {
        if (@hasDecl(root, "ebbmalloc_options")) @export(&options, .{ .name = "ebb_options" });
        if (!has_libc) _ = without_libc;
    }
}

/// The options as the library reads them: "limit=75%,harden=1".
const options: [*:0]const u8 = text: {
    var text: [:0]const u8 = "";
    const given = root.ebbmalloc_options;
    for (std.meta.fieldNames(@TypeOf(given))) |name| {
        const value = @field(given, name);
        const word = switch (@TypeOf(value)) {
            bool => if (value) "1" else "0",
            comptime_int => std.fmt.comptimePrint("{d}", .{value}),
            else => value,
        };
        const is_fixed = std.mem.eql(u8, name, "fixed");
        if (is_fixed and !value) continue;
        text = text ++ "," ++ if (is_fixed) name else name ++ "=" ++ word;
    }
    break :text text;
};

/// The formats of statistics.
pub const Format = enum(c_int) { text = 1, json = 2, openmetrics = 3, prometheus = 4 };

/// Writes statistics (`docs/stats.md`), cut to the buffer, with a zero byte at the end. Returns the
/// full length without that byte. Allocates nothing.
pub fn stats(format: Format, buffer: []u8) usize {
    if (!is_active) return forward.stats(format, buffer);
    return ebb_stats(@backingInt(format), buffer.ptr, buffer.len);
}

/// Heap profiles: which stacks of calls allocated the memory in use. `ebb profile PID` does the
/// same from outside, and shows functions and lines.
pub const profile = struct {
    /// The mean number of bytes between samples that suits production.
    pub const mean_bytes = 512 << 10;

    /// Begins a profile: a block is sampled each `mean` bytes, on average. One that is on with this
    /// mean goes on.
    pub fn start(mean: usize) std.mem.Allocator.Error!void {
        if (!is_active or ebb_profile_start(mean) != 0) return error.OutOfMemory;
    }

    /// Ends the profile. It can still be written: blocks that are freed later are subtracted.
    pub fn stop() void {
        if (is_active) ebb_profile_stop();
    }

    /// Writes the profile to a file, which `ebb profile FILE` and `go tool pprof` read. Fails if
    /// none was started, or not all of it could be written.
    pub fn write(path: [:0]const u8) error{NotWritten}!void {
        if (!is_active or ebb_profile_write(path.ptr) != 0) return error.NotWritten;
    }
};

/// The alignment of every block.
const min_align: Alignment = .@"16";

extern fn ebb_malloc(size: usize) ?[*]u8;
extern fn ebb_aligned_alloc(alignment: usize, size: usize) ?[*]u8;
extern fn ebb_resize(block: [*]u8, alignment: usize, size: usize) bool;
extern fn ebb_remap(block: [*]u8, alignment: usize, size: usize) ?[*]u8;
extern fn free_sized(block: [*]u8, size: usize) void;
extern fn free_aligned_sized(block: [*]u8, alignment: usize, size: usize) void;
extern fn ebb_free_sized(block: [*]u8, size: usize) void;
extern fn ebb_free_aligned_sized(block: [*]u8, alignment: usize, size: usize) void;
extern fn ebb_ctl(name: [*:0]const u8, value: [*:0]const u8) c_int;
extern fn ebb_malloc_trim(keep: usize) c_int;
extern fn ebb_idle() c_int;
extern fn ebb_profile_start(mean_bytes: usize) c_int;
extern fn ebb_profile_stop() void;
extern fn ebb_profile_write(path: [*:0]const u8) c_int;
extern fn ebb_stats(format: c_int, buffer: [*]u8, bytes: usize) usize;

fn alloc(_: *anyopaque, len: usize, alignment: Alignment, _: usize) ?[*]u8 {
    if (alignment.compare(.lte, min_align)) return ebb_malloc(len);
    return ebb_aligned_alloc(alignment.toByteUnits(), len);
}

fn resize(_: *anyopaque, memory: []u8, alignment: Alignment, new_len: usize, _: usize) bool {
    return ebb_resize(memory.ptr, alignment.toByteUnits(), new_len);
}

/// Null where only a copy would do: the caller knows which part of the block it needs.
fn remap(_: *anyopaque, memory: []u8, alignment: Alignment, new_len: usize, _: usize) ?[*]u8 {
    return ebb_remap(memory.ptr, alignment.toByteUnits(), new_len);
}

/// C23's functions look up the block and check size and alignment; the library's own rely on them.
/// This follows the program's build mode, from `std`: a project may build the package in another
/// mode.
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
