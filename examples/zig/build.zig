//! Builds a project that uses ebbmalloc: two lines add it.

const std = @import("std");

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{});
    const optimize = b.standardOptimizeOption(.{});
    const ebbmalloc = b.dependency("ebbmalloc", .{ .target = target, .optimize = optimize });

    const exe = b.addExecutable(.{
        .name = "example",
        .root_module = b.createModule(.{
            .root_source_file = b.path("main.zig"),
            .target = target,
            .optimize = optimize,
        }),
    });
    exe.root_module.addImport("ebbmalloc", ebbmalloc.module("ebbmalloc"));
    b.installArtifact(exe);
    b.step("run", "Run the example").dependOn(&b.addRunArtifact(exe).step);
}
