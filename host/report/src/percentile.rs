//! Percentiles of samples.

/// Linear interpolation between the two nearest of the sorted values, as NumPy's; `percent` from 0 to 100. 0 without values.
#[must_use]
pub fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let rank = percent / 100.0 * last as f64;
    let (low, high) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    low + (high - low) * rank.fract()
}
