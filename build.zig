//! The Zig package of ebbmalloc: `@import("ebbmalloc").allocator`, and the library that it calls.

const std = @import("std");

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
        // The library maps memory by libc calls, and registers hooks for fork and thread exit
        // there.
        .link_libc = true,
    });
    const object = if (library) |path| b.graph.cwdRelativePath(path) else built(b, target.result);
    module.addObjectFile(object);

    const tests = b.addTest(.{
        .root_module = b.createModule(.{
            .root_source_file = b.path("zig/tests.zig"),
            .target = target,
            .optimize = optimize,
            .imports = &.{.{ .name = "ebbmalloc", .module = module }},
        }),
    });
    const run_tests = b.addRunArtifact(tests);
    b.step("test", "Run the tests of the package").dependOn(&run_tests.step);
}

/// Builds the library for a target by cargo. Cargo's dependency file lists its sources, so that it
/// is built again only if one of them has changed.
fn built(b: *std.Build, target: std.Target) std.Build.LazyPath {
    if (target.os.tag != .linux or !target.abi.isGnu()) return refused(b, target);
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
    run.addArg(b.fmt("{t}-unknown-linux-gnu", .{target.cpu.arch}));
    run.addDirectoryArg2(b.graph.path(.local_cache, "ebbmalloc"), .{ .make_absolute = true });
    const library = run.addOutputFileArg("libebbmalloc.a");
    _ = run.addDepFileOutputArg("libebbmalloc.d");
    return library;
}

fn refused(b: *std.Build, target: std.Target) std.Build.LazyPath {
    const run = b.addSystemCommand(&.{ "sh", "-c", "echo \"$1\" >&2; exit 1", "ebbmalloc" });
    run.setName("ebbmalloc");
    const os = target.os.tag;
    run.addArg(b.fmt("ebbmalloc is for Linux with glibc, not for {t}-{t}", .{ os, target.abi }));
    return run.addOutputFileArg("none");
}
