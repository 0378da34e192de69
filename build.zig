//! The Zig package of ebbmalloc: `@import("ebbmalloc").allocator`, and the library that it calls.

const std = @import("std");
const hasEngine = @import("zig/targets.zig").hasEngine;

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{});
    const optimize = b.standardOptimizeOption(.{});
    const library = b.option(
        []const u8,
        "library",
        "The libebbmalloc.a to link; without it, cargo builds one (Rust 1.95 or newer)",
    );

    const module = b.addModule("ebbmalloc", .{
        .root_source_file = b.path("zig/ebbmalloc.zig"),
        .target = target,
        .optimize = optimize,
    });
    if (hasEngine(target.result)) {
        // Where there is a C library, the engine has its hooks for fork, thread exit and exit.
        if (target.result.abi != .none) module.link_libc = true;
        const given = if (library) |path| b.graph.cwdRelativePath(path) else null;
        module.addObjectFile(given orelse built(b, target.result));
    }

    const test_step = b.step("test", "Run the tests of the package, with threads and without");
    for ([_]bool{ false, true }) |single_threaded| {
        const tests = b.addTest(.{
            .root_module = b.createModule(.{
                .root_source_file = b.path("zig/tests.zig"),
                .target = target,
                .optimize = optimize,
                .single_threaded = single_threaded,
                .imports = &.{.{ .name = "ebbmalloc", .module = module }},
            }),
        });
        test_step.dependOn(&b.addRunArtifact(tests).step);
    }
}

/// Builds the library for a target by cargo. Where there is no C library, that for musl runs with
/// the package's functions in place of musl's (`zig/without_libc.zig`). Cargo's dependency file
/// lists its sources, so that it is built again only if one of them has changed.
fn built(b: *std.Build, target: std.Target) std.Build.LazyPath {
    const script =
        \\set -e
        \\cargo build --release --locked --package ebbmalloc-capi-static \
        \\    --manifest-path "$1" --target "$2" --target-dir "$3"
        \\cp "$3/$2/release/libebbmalloc.a" "$4"
        \\cp "$3/$2/release/libebbmalloc.d" "$5"
    ;
    const run = b.addSystemCommand(&.{ "sh", "-c", script, "cargo build" });
    run.setName("cargo build libebbmalloc.a");
    run.addFileArg2(b.path("Cargo.toml"), .{ .make_absolute = true });
    const libc = if (target.abi == .gnu) "gnu" else "musl";
    run.addArg(b.fmt("{t}-unknown-linux-{s}", .{ target.cpu.arch, libc }));
    run.addDirectoryArg2(b.graph.path(.local_cache, "ebbmalloc"), .{ .make_absolute = true });
    const library = run.addOutputFileArg("libebbmalloc.a");
    _ = run.addDepFileOutputArg("libebbmalloc.d");
    return library;
}
