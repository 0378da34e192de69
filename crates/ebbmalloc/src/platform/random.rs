//! Generates random numbers fast, from a seed of the kernel's. The generator is not cryptographic.

/// The generator "wyrand" by Wang Yi: it multiplies a counter by itself, 64 x 64 to 128 bits, and
/// folds the product.
pub(crate) struct Random(u64);

/// Exclusive-or of the halves of the 128-bit product.
#[inline]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        fold(self.0, self.0 ^ 0xe703_7ed1_a0b4_28db)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_is_set_half_of_the_time() {
        let mut random = Random::new(7);
        let mut set = [0u32; 64];
        for _ in 0..10_000 {
            let bits = random.next();
            set.iter_mut().enumerate().for_each(|(bit, set)| *set += (bits >> bit) as u32 & 1);
        }
        assert!(set.iter().all(|set| (4_700..5_300).contains(set)), "{set:?}");
    }
}
