//! Chance that can be had again: SplitMix64.

/// A sequence of numbers that is the same for the same seed.
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `limit` - 1.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap();
        usize::try_from(self.next() % limit).unwrap()
    }

    /// True once in so many times.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Text of up to so many characters of every kind.
    pub(super) fn text(&mut self, limit: usize) -> String {
        const KINDS: [char; 16] = [
            'a', 'Z', '0', ' ', '/', '%', '+', '"', '\\', '\u{1}', '\u{7f}', 'ü', '√', '🚢',
            '\u{202e}', '\u{0}',
        ];
        let length = self.below(limit + 1);
        (0..length).map(|_| *self.pick(&KINDS)).collect()
    }

    pub(super) fn bytes(&mut self, limit: usize) -> Vec<u8> {
        let length = self.below(limit + 1);
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}
