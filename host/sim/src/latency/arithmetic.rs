//! Arithmetic of the hot path: fewer instructions, the same bits.

/// A sum of a [`super::Batch`] as a float. The sums are far below 2^53, so the conversion is exact; through `i64` it
/// takes one instruction instead of several.
pub(super) fn exact(sum: u64) -> f64 {
    sum as i64 as f64
}

/// Computes `x / gpus / rate`, in this order. Dividing by a power of two is exact, so for the usual numbers of GPUs one
/// division by `gpus · rate` gives the same bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct PerGpu {
    gpus: f64,
    rate: f64,
}

impl PerGpu {
    pub(super) fn new(gpus: u32, rate: f64) -> Self {
        if gpus.is_power_of_two() {
            Self { gpus: 1.0, rate: f64::from(gpus) * rate }
        } else {
            Self { gpus: f64::from(gpus), rate }
        }
    }

    pub(super) fn time(self, work: f64) -> f64 {
        if self.gpus == 1.0 { work / self.rate } else { work / self.gpus / self.rate }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn per_gpu_is_two_divisions(gpus in 1u32..64, work in 0.0f64..1e18, rate in 1.0f64..1e18) {
            prop_assert_eq!(PerGpu::new(gpus, rate).time(work), work / f64::from(gpus) / rate);
        }
    }
}
