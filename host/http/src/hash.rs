//! A hash of numbers.

/// A well-mixed hash of both numbers (the finisher of SplitMix64).
pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    let mut mixed = hash.rotate_left(23) ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
