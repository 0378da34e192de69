//! Names functions in the process itself.

use std::hint::black_box;
use std::io::Read;

use ebbmalloc::{EbbMalloc, profile};
use ebbmalloc_pprof::HeapProfile;
use ebbmalloc_pprof::internals::pprof::proto;
use flate2::read::GzDecoder;
use prost::Message;

#[global_allocator]
static GLOBAL: EbbMalloc = EbbMalloc;

#[inline(never)]
fn hoard() -> Vec<u8> {
    black_box(vec![1; 10 << 20])
}

#[test]
fn functions_have_names() {
    assert!(HeapProfile::take().is_none(), "it was not started");
    assert!(profile::start(1000));
    let kept = hoard();
    profile::stop();
    let mut bytes = Vec::new();
    let file = HeapProfile::take_with_symbols().unwrap().heap();
    GzDecoder::new(file.as_slice()).read_to_end(&mut bytes).unwrap();
    drop(kept);
    let message = proto::Profile::decode(bytes.as_slice()).unwrap();
    let largest = message.sample.iter().max_by_key(|sample| sample.value[3]).unwrap();
    assert_eq!(largest.value[2..], [1, 10 << 20]);
    let names = largest.location_id.iter().flat_map(|id| {
        let location = message.location.iter().find(|location| location.id == *id).unwrap();
        location.line.iter().map(|line| {
            let function = message.function.iter().find(|of| of.id == line.function_id).unwrap();
            message.string_table[function.name as usize].as_str()
        })
    });
    let names: Vec<_> = names.collect();
    assert!(names.iter().any(|name| name.contains("hoard")), "{names:?}");
    assert!(names.iter().any(|name| name.contains("functions_have_names")), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("EbbMalloc")), "{names:?}");
}
