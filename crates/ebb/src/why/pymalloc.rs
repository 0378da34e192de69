//! Tells Python's arenas from other anonymous memory.
//!
//! Python serves requests of up to 512 bytes itself (pymalloc), from arenas that it maps without
//! malloc. They have no name and join with their neighbours. But each is cut into pools, and each
//! pool begins with a header whose fields depend on each other (`struct pool_header` in CPython's
//! `obmalloc.c`, unchanged since 3.8). These fields identify pools without symbols and in any
//! build.

use std::ops::Range;

use super::memory::Process;
use super::smaps::Mapping;

/// Bytes in a pool: since Python 3.10, and before.
const POOLS: [usize; 2] = [16 << 10, 4 << 10];
const HEADER: usize = 48;
/// The largest index of a size class; sizes are its multiples of 16, from 16 on.
const SIZES: usize = 32;
/// Bytes read at a time.
const STEP: usize = 1 << 20;

/// Whether a process may contain pymalloc at all.
pub fn possible(mappings: &[Mapping]) -> bool {
    mappings.iter().any(|mapping| mapping.file_name().is_some_and(|name| name.contains("python")))
}

/// Resident bytes in pools within a range of addresses.
pub fn resident(process: &mut Process, range: &Range<usize>) -> u64 {
    let page = process.page();
    let mut bytes = 0;
    // Both ends are on pages, and each step begins on a pool of either size.
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min((start + STEP) / STEP * STEP);
        let mut pages = vec![false; (end - start) / page];
        process.present(start, &mut pages);
        let mut at = if pages.contains(&true) { start } else { end };
        while at < end {
            let first = (at - start) / page;
            let pool = POOLS.into_iter().find(|&pool| {
                pages[first]
                    && at.is_multiple_of(pool)
                    && at + pool <= end
                    && is_pool(process, at, pool)
            });
            let length = pool.unwrap_or(page);
            if pool.is_some() {
                let there = pages[first..first + length / page].iter().filter(|page| **page);
                bytes += (there.count() * page) as u64;
            }
            at += length;
        }
        start = end;
    }
    bytes
}

fn is_pool(process: &Process, at: usize, pool: usize) -> bool {
    let mut header = [0; HEADER];
    process.read_at(at, &mut header) && is_header(&header, at, pool)
}

/// Whether these bytes, at this address, may begin a pool of `pool` bytes.
fn is_header(header: &[u8; HEADER], at: usize, pool: usize) -> bool {
    let (words, _) = header.as_chunks::<8>();
    let [count, free, next, before, ..] =
        [0, 1, 2, 3].map(|n| u64::from_ne_bytes(words[n]) as usize);
    let (halves, _) = header[32..].as_chunks::<4>();
    let [_arena, class, fresh, last] = [0, 1, 2, 3].map(|n| u32::from_ne_bytes(halves[n]) as usize);
    let size = (class + 1) * 16;
    // Python writes only the lower half of the union with a pointer.
    let count = count & 0xffff_ffff;
    let within = |address: usize| (at + HEADER..at + pool).contains(&address);
    class < SIZES
        && last == pool - size
        && count <= (pool - HEADER) / size
        && (HEADER..=last + size).contains(&fresh)
        && (fresh - HEADER).is_multiple_of(size)
        && (free == 0 || within(free))
        && [next, before].iter().all(|link| link.is_multiple_of(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool of 64-byte blocks, three of them used, as Python makes it.
    fn header(at: usize) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        let words = [3, at + HEADER + 64, 0x7000_0000_4000, 0x5555_0000_0010];
        for (place, word) in header.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_ne_bytes();
        }
        for (place, half) in
            header[32..].as_chunks_mut::<4>().0.iter_mut().zip([7u32, 3, 48 + 4 * 64, 16384 - 64])
        {
            *place = half.to_ne_bytes();
        }
        header
    }

    #[test]
    fn pools_are_known_by_their_headers() {
        let at = 0x7f00_0000_4000;
        assert!(is_header(&header(at), at, 16384));
        assert!(!is_header(&header(at), at, 4096));
        assert!(!is_header(&header(at), at + 16384, 16384), "of another place");
        assert!(!is_header(&[0; HEADER], at, 16384));
        assert!(!is_header(&[0xff; HEADER], at, 16384));
        // The class, the first fresh block, the last one: each must fit the others.
        for place in [36, 40, 44] {
            let mut wrong = header(at);
            wrong[place] += 1;
            assert!(!is_header(&wrong, at, 16384), "byte {place}");
        }
    }
}
