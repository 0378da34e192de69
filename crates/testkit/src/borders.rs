//! Lists sizes and alignments around each value at which arithmetic could wrap or truncate.

/// Bytes in a unit of the page heap.
const UNIT: usize = 64 << 10;
/// Number of unit indices, which have 32 bits.
const UNITS: usize = 1 << 32;
/// Blocks of tests lie in these first units of the region.
const FIRST_UNITS: usize = 64;

/// Sizes around each power of two: at it, and 1 byte, 24 bytes, a page, or about a unit away.
pub fn powers() -> impl Iterator<Item = usize> {
    let steps = [0, 1, 24, 4096, UNIT - 1, UNIT, UNIT + 1];
    let around = move |at: usize| {
        let sides = move |by| [at.wrapping_sub(by), at.wrapping_add(by)];
        steps.into_iter().flat_map(sides)
    };
    (0..usize::BITS).flat_map(move |bit| around(1 << bit))
}

/// Sizes with which a block at this address would end around a limit. Limits are the last unit
/// index, and the ends of the address spaces of processors.
pub fn ends(address: usize) -> impl Iterator<Item = usize> {
    let units = (0..FIRST_UNITS).flat_map(|first| {
        let size = (UNITS - first) * UNIT;
        [size - 1, size]
    });
    let spaces = [39, 40, 47, 48, 52, 56, 57, 63, 64].into_iter().flat_map(move |bits| {
        let end = (1u128 << bits) as usize;
        let size = end.wrapping_sub(address);
        [0, 1, 4096, UNIT]
            .into_iter()
            .flat_map(move |by| [size.wrapping_sub(by), size.wrapping_add(by)])
    });
    units.chain(spaces)
}

/// [`powers`] and [`ends`], for a block at this address.
pub fn sizes(address: usize) -> impl Iterator<Item = usize> {
    powers().chain(ends(address))
}

/// Whether a size is at least a process's address space, so that no process can have it.
pub fn is_absurd(size: usize) -> bool {
    size >= 1 << 47
}

/// A size that no process can have, for a block at this address. `pick` chooses it. Cheap.
pub fn absurd(address: usize, pick: usize) -> usize {
    const STEPS: [usize; 8] = [0, 1, 24, 4096, UNIT - 1, UNIT, UNIT + 1, 2 * UNIT];
    let (kind, rest) = (pick % 4, pick / 4);
    let (step, nth) = (STEPS[rest % STEPS.len()], rest / STEPS.len());
    let size = match kind {
        0 => (1usize << (48 + nth % 16)).wrapping_sub(step),
        1 => (1usize << (47 + nth % 17)).wrapping_add(step),
        2 => (UNITS - nth % (2 * FIRST_UNITS)) * UNIT - step % 2,
        _ => 0usize.wrapping_sub(address).wrapping_sub(step),
    };
    if is_absurd(size) { size } else { usize::MAX - step }
}

/// All alignments: the powers of two.
pub fn alignments() -> impl DoubleEndedIterator<Item = usize> {
    (0..usize::BITS).map(|bit| 1 << bit)
}
