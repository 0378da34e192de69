//! Orders the allocators in each round of a comparison.

/// Returns the order of `of` allocators in a round.
///
/// A run leaves traces for the next one (caches of the kernel, a warm processor). So even over few
/// rounds none may keep its place or follow the same one: every other round is the previous one
/// backwards. The one that begins advances by steps of the golden section, which spread evenly
/// after any number of rounds.
pub fn turns(round: u32, of: usize) -> impl Iterator<Item = usize> {
    const GOLDEN: f64 = 0.618_033_988_749_895;
    let first = ((f64::from(round.div_ceil(2)) * GOLDEN).fract() * of as f64) as usize;
    let back = round.is_multiple_of(2);
    (0..of).map(move |turn| (first + if back { of - 1 - turn } else { turn }) % of)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over any five rounds, all have nearly the same place on average.
    #[test]
    fn places_are_even_over_few_rounds() {
        const OF: usize = 12;
        for begin in 0..20 {
            let mean = |who: usize| {
                let place = |round| turns(round, OF).position(|other| other == who).unwrap();
                (begin..begin + 5).map(place).sum::<usize>() as f64 / 5.0
            };
            let (low, high) = (0..OF).map(mean).fold((f64::MAX, 0.0), |(low, high), mean| {
                (f64::min(low, mean), f64::max(high, mean))
            });
            assert!(high - low < 3.5, "from round {begin}: places {low} to {high}");
        }
    }

    #[test]
    fn each_comes_once_a_round_and_not_after_the_same_one_twice() {
        for of in 1..14 {
            for round in 1..20 {
                let now: Vec<_> = turns(round, of).collect();
                let mut sorted = now.clone();
                sorted.sort();
                assert!(sorted.into_iter().eq(0..of), "{now:?}");
                let next: Vec<_> = turns(round + 1, of).collect();
                let same =
                    now.windows(2).filter(|pair| next.windows(2).any(|other| other == *pair));
                assert!(of < 3 || same.count() == 0, "{now:?}, then {next:?}");
            }
        }
    }
}
