//! Says on which targets the engine runs, to `build.zig` and to programs.

const std = @import("std");

/// Whether ebbmalloc's engine serves programs for this target: Linux on x86-64 and AArch64, with
/// glibc, with musl, or with no C library (`-linux-none`).
pub fn hasEngine(target: std.Target) bool {
    if (target.os.tag != .linux) return false;
    return switch (target.cpu.arch) {
        .x86_64, .aarch64 => switch (target.abi) {
            .gnu, .musl, .none => true,
            else => false,
        },
        else => false,
    };
}
