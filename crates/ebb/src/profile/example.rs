//! Made-up profiles for tests.

use super::data::{About, Counts, Function, Image, Line, Location, Profile, Stack, Values};

const MIB: f64 = 1048576.0;

fn values(live: (f64, f64), allocated: (f64, f64)) -> Values {
    let counts = |(objects, bytes)| Counts { objects, bytes };
    Values { live: counts(live), allocated: counts(allocated) }
}

/// A server with a cache that holds most, a parser that frees, and a library without symbols.
pub fn profile() -> Profile {
    let function = |name: &str, file: &str| Function {
        name: name.into(),
        system_name: name.into(),
        file: file.into(),
    };
    let functions = vec![
        function("main", "/src/server/main.rs"),
        function("server::cache::Cache::insert", "/src/server/cache.rs"),
        function("alloc::vec::Vec<T,A>::push", "/rustc/library/alloc/src/vec/mod.rs"),
        function("server::parse::{closure#0}", "/src/server/parse.rs"),
        function("libzip.so+0x1234", ""),
        function("std::vector<int, std::allocator<int> >::reserve(unsigned long)", "vector.tcc"),
    ];
    let image = |start, path: &str, build_id: &str, has_lines| Image {
        start,
        end: start + 0x10000,
        offset: 0x1000,
        path: path.into(),
        build_id: build_id.into(),
        has_functions: has_lines,
        has_lines,
    };
    let location = |address, image, lines: &[(usize, u32)]| Location {
        address,
        image: Some(image),
        lines: lines.iter().map(|&(function, line)| Line { function, line }).collect(),
    };
    Profile {
        about: About {
            program: "server".into(),
            pid: Some(4242),
            moment: String::new(),
            mean_bytes: 524288,
            time_nanos: 1_700_000_000_000_000_000,
            duration_nanos: 30_000_000_000,
            dropped_stacks: 0,
            dropped_samples: 7,
        },
        images: vec![
            image(0x55d0_c0de_0000, "/usr/bin/server", "0123456789abcdef", true),
            image(0x7f00_0000_0000, "/usr/lib/libzip.so", "fedcba9876543210", false),
        ],
        locations: vec![
            location(0x55d0_c0de_1000, 0, &[(0, 10)]),
            location(0x55d0_c0de_2000, 0, &[(2, 99), (1, 42)]),
            location(0x55d0_c0de_3000, 0, &[(3, 7)]),
            location(0x7f00_0000_1234, 1, &[(4, 0)]),
            location(0x55d0_c0de_4000, 0, &[(5, 70)]),
        ],
        functions,
        stacks: vec![
            Stack {
                locations: vec![1, 0],
                values: values((60000.0, 60.0 * MIB), (61000.0, 61.0 * MIB)),
            },
            Stack { locations: vec![2, 0], values: values((10.0, MIB), (90000.0, 300.0 * MIB)) },
            Stack { locations: vec![3, 2, 0], values: values((4.0, 2.0 * MIB), (4.0, 2.0 * MIB)) },
            Stack { locations: vec![4, 3, 0], values: values((0.0, 0.0), (12.0, MIB)) },
        ],
        drop_frames: String::new(),
        remarks: Vec::new(),
    }
}

/// The same server, earlier: with less in its cache, and more in its parser.
pub fn earlier() -> Profile {
    let mut profile = profile();
    profile.about.time_nanos -= 60_000_000_000;
    profile.stacks[0].values = values((20000.0, 20.0 * MIB), (20000.0, 20.0 * MIB));
    profile.stacks[1].values = values((40.0, 4.0 * MIB), (30000.0, 100.0 * MIB));
    profile.stacks.truncate(3);
    profile
}
