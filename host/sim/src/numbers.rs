//! Conversions between numbers that lose nothing where they are used: a debug build checks it, a release build pays nothing.

/// A count or a position as a number of 32 bits: a simulation has fewer requests, blocks and instances than that.
#[inline]
#[must_use]
#[track_caller]
pub const fn count(number: usize) -> u32 {
    narrow(number as u64)
}

/// As [`count`], of 16 bits.
#[inline]
#[must_use]
#[track_caller]
#[expect(clippy::cast_possible_truncation, reason = "checked")]
pub const fn count_u16(number: usize) -> u16 {
    debug_assert!(number <= u16::MAX as usize, "more than 16 bits");
    number as u16
}

/// A number that fits 32 bits.
#[inline]
#[must_use]
#[track_caller]
#[expect(clippy::cast_possible_truncation, reason = "checked")]
pub const fn narrow(number: u64) -> u32 {
    debug_assert!(number <= u32::MAX as u64, "more than 32 bits");
    number as u32
}

/// The lower half of two numbers of 32 bits in one.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the upper half is another number")]
pub const fn lower_half(pair: u64) -> u32 {
    pair as u32
}

/// A position in memory.
#[inline]
#[must_use]
#[track_caller]
#[expect(clippy::cast_possible_truncation, reason = "checked")]
pub const fn index(number: u64) -> usize {
    debug_assert!(number <= usize::MAX as u64, "more than the address space");
    number as usize
}

/// The whole part of a number; 0 below 0 and of NaN, the largest number where it is more.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "it is what the function is for")]
pub const fn truncated(number: f64) -> u64 {
    number as u64
}

/// As [`truncated`], but signed, which takes a third of the instructions.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "it is what the function is for")]
pub const fn truncated_i64(number: f64) -> i64 {
    number as i64
}

/// As [`truncated`], of 32 bits.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "it is what the function is for")]
pub const fn truncated_u32(number: f64) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_saturate() {
        assert_eq!(
            [truncated(-1.5), truncated(f64::NAN), truncated(2.9), truncated(f64::INFINITY)],
            [0, 0, 2, u64::MAX]
        );
        assert_eq!([truncated_u32(-1.5), truncated_u32(f64::NAN), truncated_u32(1e10)], [0, 0, u32::MAX]);
    }

    #[test]
    #[should_panic(expected = "more than 32 bits")]
    fn what_does_not_fit_is_found_in_debug_builds() {
        let _ = narrow(1 << 32);
    }
}
