//! Stands for the engine on targets where it does not run: the allocator that Zig gives `main`
//! there in a release build serves instead.

const std = @import("std");
const builtin = @import("builtin");
const Format = @import("ebbmalloc.zig").Format;

/// Zig's `std.process.Init.gpa`.
pub const system: std.mem.Allocator = if (builtin.link_libc)
    std.heap.c_allocator
else if (builtin.cpu.arch.isWasm())
    std.heap.wasm_allocator
else if (!builtin.single_threaded)
    std.heap.smp_allocator
else
    .{ .ptr = &safe, .vtable = vtable: {
        var some: std.heap.SafeAllocator = undefined;
        break :vtable some.allocator().vtable;
    } };

var safe: std.heap.SafeAllocator = .init(std.heap.page_allocator, .{});

const why = "Zig's allocator serves: the engine runs on Linux on x86-64 and AArch64";

/// Says only that the engine is not there.
pub fn stats(format: Format, buffer: []u8) usize {
    const fields = "{mode=\"system\",why=\"" ++ why ++ "\"} 1\n";
    const text: []const u8 = switch (format) {
        .text => "mode system (" ++ why ++ ")\n",
        .json => "{\"mode\":\"system\",\"why\":\"" ++ why ++ "\"}\n",
        .openmetrics => "# TYPE ebbmalloc info\nebbmalloc_info" ++ fields ++ "# EOF\n",
        .prometheus => "# TYPE ebbmalloc_info gauge\nebbmalloc_info" ++ fields,
    };
    if (buffer.len > 0) {
        const written = @min(text.len, buffer.len - 1);
        @memcpy(buffer[0..written], text[0..written]);
        buffer[written] = 0;
    }
    return text.len;
}
