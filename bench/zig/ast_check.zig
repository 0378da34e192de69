//! Parses and lowers source files, as `zig ast-check` does, on an allocator:
//!
//!     ast-check smp|c|ebb THREADS ROUNDS drop|keep SUM DIRECTORY
//!
//! `drop` frees the result of a file before the next; `keep` holds every file's ZIR until the round
//! ends, as the compiler does. SUM is the number of AST nodes and ZIR instructions of one round.
//! Prints seconds, and the resident memory at its peak and at the end without the sources, as JSON.

const std = @import("std");
const root = @import("root");
const Allocator = std.mem.Allocator;
const Io = std.Io;
const Zir = std.zig.Zir;
const fatal = std.process.fatal;

/// For everything but the measured work.
const own = std.heap.page_allocator;

const Choice = enum {
    smp,
    c,
    ebb,

    fn allocator(choice: Choice) Allocator {
        return switch (choice) {
            .smp => std.heap.smp_allocator,
            .c => std.heap.c_allocator,
            .ebb => if (@hasDecl(root, "ebb"))
                root.ebb
            else
                fatal("ebb: only in ast-check-ebb", .{}),
        };
    }
};

pub fn main(init: std.process.Init.Minimal) !void {
    var threaded: Io.Threaded = .init_single_threaded;
    const io = threaded.io();
    var arguments: Arguments = .init(init.args);
    const gpa = arguments.choice(Choice).allocator();
    const threads = arguments.number();
    const rounds = arguments.number();
    const keep = arguments.choice(enum { drop, keep }) == .keep;
    const expected = arguments.number();

    var arena: std.heap.ArenaAllocator = .init(own);
    const sources = try load(io, arena.allocator(), arguments.next());
    const kept: ?[]Zir = if (keep) try own.alloc(Zir, sources.len) else null;
    var held: u64 = 0;
    const page = std.heap.pageSize();
    for (sources) |source| held += std.mem.alignForward(u64, source.len + 1, page) / 1024;

    const start: Io.Timestamp = .now(io, .awake);
    for (0..rounds) |_| {
        var round: Round = .{ .gpa = gpa, .sources = sources, .kept = kept };
        const sum = try round.run(threads);
        if (sum != expected) fatal("{d} nodes and instructions instead of {d}", .{ sum, expected });
    }
    const nanoseconds = start.untilNow(io, .awake).nanoseconds;

    var buffer: [200]u8 = undefined;
    const seconds = @as(f64, @floatFromInt(nanoseconds)) / std.time.ns_per_s;
    const line = try std.fmt.bufPrint(
        &buffer,
        "{{\"time_s\": {d:.6}, \"peak_kib\": {d}, \"end_kib\": {d}}}\n",
        .{ seconds, try resident(io, "VmHWM:") - held, try resident(io, "VmRSS:") - held },
    );
    try Io.File.stdout().writeStreamingAll(io, line);
}

const Arguments = struct {
    rest: std.process.Args.Iterator,

    fn init(args: std.process.Args) Arguments {
        var rest = args.iterate();
        _ = rest.skip();
        return .{ .rest = rest };
    }

    fn next(arguments: *Arguments) [:0]const u8 {
        return arguments.rest.next() orelse misused("too few");
    }

    fn number(arguments: *Arguments) u64 {
        const text = arguments.next();
        return std.fmt.parseInt(u64, text, 10) catch misused(text);
    }

    fn choice(arguments: *Arguments, comptime Enum: type) Enum {
        const text = arguments.next();
        return std.meta.stringToEnum(Enum, text) orelse misused(text);
    }

    fn misused(what: []const u8) noreturn {
        fatal("arguments: {s}; they are smp|c|ebb THREADS ROUNDS drop|keep SUM DIRECTORY", .{what});
    }
};

/// One pass over all files, by several threads that take the next file each.
const Round = struct {
    gpa: Allocator,
    sources: []const [:0]const u8,
    kept: ?[]Zir,
    next: std.atomic.Value(usize) = .init(0),
    sum: std.atomic.Value(u64) = .init(0),

    fn run(round: *Round, threads: usize) !u64 {
        if (threads == 1) {
            round.work();
        } else {
            const workers = try own.alloc(std.Thread, threads);
            defer own.free(workers);
            for (workers) |*worker| worker.* = try .spawn(.{}, work, .{round});
            for (workers) |worker| worker.join();
        }
        if (round.kept) |kept| for (kept) |*zir| zir.deinit(round.gpa);
        return round.sum.load(.monotonic);
    }

    fn work(round: *Round) void {
        var sum: u64 = 0;
        while (true) {
            const index = round.next.fetchAdd(1, .monotonic);
            if (index >= round.sources.len) break;
            sum += round.lower(index) catch |err| fatal("file {d}: {t}", .{ index, err });
        }
        _ = round.sum.fetchAdd(sum, .monotonic);
    }

    fn lower(round: *Round, index: usize) !u64 {
        var tree = try std.zig.Ast.parse(round.gpa, round.sources[index], .{ .mode = .zig });
        defer tree.deinit(round.gpa);
        var zir = try std.zig.AstGen.generate(round.gpa, tree);
        if (zir.hasCompileErrors()) return error.BadSource;
        const sum = tree.nodes.len + zir.instructions.len;
        if (round.kept) |kept| kept[index] = zir else zir.deinit(round.gpa);
        return sum;
    }
};

/// Loads all Zig files under a directory, in the order of their paths, each in pages of its own.
fn load(io: Io, arena: Allocator, path: []const u8) ![]const [:0]const u8 {
    var directory = Io.Dir.cwd().openDir(io, path, .{ .iterate = true }) catch |err|
        fatal("{s}: {t}", .{ path, err });
    defer directory.close(io);
    var paths: std.ArrayList([]const u8) = .empty;
    var walker = try directory.walk(arena);
    while (try walker.next(io)) |entry| {
        if (entry.kind == .file and std.mem.endsWith(u8, entry.path, ".zig"))
            try paths.append(arena, try arena.dupe(u8, entry.path));
    }
    std.mem.sort([]const u8, paths.items, {}, lessThan);
    const sources = try arena.alloc([:0]const u8, paths.items.len);
    for (sources, paths.items) |*source, name|
        source.* = try directory.readFileAllocOptions(io, name, own, .unlimited, .of(u8), 0);
    return sources;
}

fn lessThan(_: void, a: []const u8, b: []const u8) bool {
    return std.mem.lessThan(u8, a, b);
}

/// Returns a line of the kernel's about this process's memory, in KiB.
fn resident(io: Io, name: []const u8) !u64 {
    var buffer: [4096]u8 = undefined;
    const status = try Io.Dir.cwd().readFile(io, "/proc/self/status", &buffer);
    var lines = std.mem.splitScalar(u8, status, '\n');
    while (lines.next()) |line| {
        const value = std.mem.cutPrefix(u8, line, name) orelse continue;
        return std.fmt.parseInt(u64, std.mem.trim(u8, std.mem.trimEnd(u8, value, "kB"), " \t"), 10);
    }
    return error.NoSuchLine;
}
