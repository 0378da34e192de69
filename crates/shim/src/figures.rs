//! Keeps a copy of the statistics, which programs read number by number.

use core::ffi::{c_char, c_int};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::{ebb_beside_stats, ebb_free, ebb_malloc, ebb_stats, is_beside};

/// The statistics that shims read, by their names in docs/stats.md.
const NAMES: [&str; 14] = [
    "live_bytes",
    "sampled_bytes",
    "cached_bytes",
    "pinned_bytes",
    "hole_bytes",
    "end_bytes",
    "dirty_bytes",
    "large_bytes",
    "large_blocks",
    "table_bytes",
    "slab_bytes",
    "committed_bytes",
    "allocated_bytes",
    "freed_bytes",
];

static VALUES: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// Formats of `ebb_stats`.
const TEXT: c_int = 1;
const JSON: c_int = 2;

/// The value of a statistic at the last [`refresh`].
pub fn value(name: &str) -> u64 {
    let place = NAMES.iter().position(|&known| known == name);
    place.map_or(0, |place| VALUES[place].load(Ordering::Relaxed))
}

/// Copies all statistics. False, and nothing happens, if memory is short.
pub fn refresh() -> bool {
    let write = match is_beside() {
        // Where it can, without a look at each span: programs ask ten times a second.
        true => |buffer, bytes| unsafe { ebb_beside_stats(buffer, bytes) },
        false => |buffer, bytes| unsafe { ebb_stats(JSON, buffer, bytes) },
    };
    with_text(write, |text| {
        for (name, value) in NAMES.iter().zip(&VALUES) {
            if let Some(number) = number_of(text, name) {
                value.store(number, Ordering::Relaxed);
            }
        }
    })
}

/// Reads these statistics now, also of the process; 0 for those that are unknown, and all if memory
/// is short.
pub fn read<const N: usize>(names: [&str; N]) -> [u64; N] {
    let mut values = [0; N];
    print(true, |text| values = names.map(|name| number_of(text, name).unwrap_or(0)));
    values
}

/// Passes the statistics to `read`, as text or JSON, with a zero byte at the end that is not
/// counted. False if memory is short.
pub fn print(json: bool, read: impl FnOnce(&[u8])) -> bool {
    let format = if json { JSON } else { TEXT };
    with_text(|buffer, bytes| unsafe { ebb_stats(format, buffer, bytes) }, read)
}

/// Writes a text as snprintf(3) does into memory that is long enough, and passes it to `read`.
fn with_text(write: impl Fn(*mut c_char, usize) -> usize, read: impl FnOnce(&[u8])) -> bool {
    // Numbers get longer as they grow.
    let room = write(ptr::null_mut(), 0) + 1024;
    // SAFETY: the block has room for the text, its bytes are written before they are read, and it
    // is freed once.
    unsafe {
        let buffer = ebb_malloc(room);
        if buffer.is_null() {
            return false;
        }
        let length = write(buffer.cast(), room).min(room - 1);
        read(core::slice::from_raw_parts(buffer.cast(), length));
        ebb_free(buffer);
    }
    true
}

/// The number that follows the first `"name":` in a JSON text.
fn number_of(text: &[u8], name: &str) -> Option<u64> {
    let rest = text.windows(name.len() + 3).position(|window| {
        window[0] == b'"' && &window[1..=name.len()] == name.as_bytes() && window.ends_with(b"\":")
    })?;
    let digits = text[rest + name.len() + 3..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}
