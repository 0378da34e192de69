//! Sizes and alignments around each place where arithmetic on them could wrap, or be cut off.

/// What the page heap counts in, in bytes.
const UNIT: usize = 64 << 10;
/// How many units there are that can be told apart.
const UNITS: usize = 1 << 32;
/// Blocks of tests lie in the first so many units.
const FIRST: usize = 64;

/// Sizes around each power of two, by bytes, lines, pages and units.
pub fn powers() -> impl Iterator<Item = usize> {
    let steps = [0, 1, 24, 4096, UNIT - 1, UNIT, UNIT + 1];
    let around = move |at: usize| {
        let sides = move |by| [at.wrapping_sub(by), at.wrapping_add(by)];
        steps.into_iter().flat_map(sides)
    };
    (0..usize::BITS).flat_map(move |bit| around(1 << bit))
}

/// Sizes with which a block at this address would end around the end of what units count, or of one
/// of the address spaces that there are.
pub fn ends(address: usize) -> impl Iterator<Item = usize> {
    let units = (0..FIRST).flat_map(|first| {
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

/// All of these, for a block at this address.
pub fn sizes(address: usize) -> impl Iterator<Item = usize> {
    powers().chain(ends(address))
}

/// No process can have so many bytes: as many as it has addresses, or more.
pub fn is_absurd(size: usize) -> bool {
    size >= 1 << 47
}

/// One of these that no process can have, for a block at this address: the same for the same
/// `pick`. Cheap.
pub fn absurd(address: usize, pick: usize) -> usize {
    const STEPS: [usize; 8] = [0, 1, 24, 4096, UNIT - 1, UNIT, UNIT + 1, 2 * UNIT];
    let (kind, rest) = (pick % 4, pick / 4);
    let (step, nth) = (STEPS[rest % STEPS.len()], rest / STEPS.len());
    let size = match kind {
        0 => (1usize << (48 + nth % 16)).wrapping_sub(step),
        1 => (1usize << (47 + nth % 17)).wrapping_add(step),
        2 => (UNITS - nth % (2 * FIRST)) * UNIT - step % 2,
        _ => 0usize.wrapping_sub(address).wrapping_sub(step),
    };
    if is_absurd(size) { size } else { usize::MAX - step }
}

/// All alignments that there are.
pub fn alignments() -> impl DoubleEndedIterator<Item = usize> {
    (0..usize::BITS).map(|bit| 1 << bit)
}
