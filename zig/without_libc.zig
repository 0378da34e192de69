//! The functions of a C library that the engine calls, for programs without one.
//!
//! Threads end unseen there, so the engine runs in slot mode and without a scavenger, and takes no
//! locks for a fork. The symbols are weak and hidden: others may define them, and none see these.

const std = @import("std");
const builtin = @import("builtin");
const linux = std.os.linux;
const elf = std.elf;

comptime {
    // By this symbol the engine knows.
    define(&begin, "ebb_begin_without_c_library");
    define(&environ, "environ");
    define(&errnoLocation, "__errno_location");
    define(&atexit, "atexit");
    define(&bzero, "bzero");
    define(&sigaction, "sigaction");
    for (.{ "dlopen", "dlsym", "fwrite", "pthread_self" }) |name| define(&zero, name);
    for (.{
        "pthread_atfork",
        "pthread_attr_destroy",
        "pthread_attr_getstacksize",
        "pthread_attr_init",
        "pthread_attr_setstacksize",
        "pthread_create",
        "pthread_join",
        "pthread_key_create",
        "pthread_key_delete",
        "pthread_setcancelstate",
        "pthread_setspecific",
    }) |name| define(&refused, name);
    // Zig defines the symbol where this is used. It defines `memmove` and `strlen` in any program.
    _ = &linux.getauxval;
}

fn define(comptime item: anytype, comptime name: []const u8) void {
    @export(item, .{ .name = name, .linkage = .weak, .visibility = .hidden });
}

fn zero() callconv(.c) usize {
    return 0;
}

fn refused() callconv(.c) c_int {
    return @backingInt(linux.E.NOSYS);
}

/// Before `main`, and before the engine starts: finds the environment, and makes room for the
/// variables of the thread.
fn begin() callconv(.c) void {
    const auxiliary: [*]elf.Auxv = linux.elf_aux_maybe orelse return;
    // This list lies behind the environment, which ends in null, as the list before it.
    environ = @as([*]const ?[*:0]const u8, @ptrCast(auxiliary)) - 1;
    while ((environ - 1)[0] != null) environ -= 1;
    // Zig itself only does this where there may be more threads.
    if (builtin.single_threaded) {
        const headers: [*]elf.ElfN.Phdr = @ptrFromInt(linux.getauxval(elf.AT.PHDR));
        linux.tls.initStatic(headers[0..linux.getauxval(elf.AT.PHNUM)]);
    }
}

const no_variables = [_]?[*:0]const u8{null};
var environ: [*]const ?[*:0]const u8 = &no_variables;

threadlocal var errno: c_int = 0;

fn errnoLocation() callconv(.c) *c_int {
    return &errno;
}

const Finish = *const fn () callconv(.c) void;

var at_exit: ?Finish = null;

/// The engine calls this once at most, in its set-up.
fn atexit(call: Finish) callconv(.c) c_int {
    at_exit = call;
    return 0;
}

/// Does what a C library does at exit.
pub fn finish() void {
    if (at_exit) |call| call();
    at_exit = null;
}

fn bzero(start: [*]u8, bytes: usize) callconv(.c) void {
    @memset(start[0..bytes], 0);
}

/// As glibc and musl have it.
const Action = extern struct {
    handler: ?linux.Sigaction.handler_fn,
    mask: [1024 / 64]u64,
    flags: c_int,
    restorer: ?*anyopaque = null,
};

fn sigaction(signal: c_int, new: ?*const Action, old: ?*Action) callconv(.c) c_int {
    var after: linux.Sigaction = undefined;
    if (new) |action| after = .{
        .handler = .{ .handler = action.handler },
        .mask = @bitCast(action.mask[0]),
        .flags = @as(c_uint, @bitCast(action.flags)),
    };
    var before: linux.Sigaction = undefined;
    const number: linux.SIG = @fromBackingInt(@as(u32, @intCast(signal)));
    const result = linux.sigaction(number, if (new != null) &after else null, &before);
    if (linux.errno(result) != .SUCCESS) return -1;
    if (old) |action| action.* = .{
        .handler = before.handler.handler,
        .mask = @splat(0),
        .flags = @truncate(@as(isize, @bitCast(before.flags))),
    };
    if (old) |action| action.mask[0] = @bitCast(before.mask);
    return 0;
}
