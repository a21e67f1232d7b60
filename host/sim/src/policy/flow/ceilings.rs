//! The saturation up to which the requests of each band are dispatched.

use super::{Band, CeilingsPolicy};
use crate::numbers::truncated;
use crate::units::Micros;

/// The same ceiling for every band (llm-d's `static-usage-limit`).
#[derive(Clone, Copy, Debug)]
pub struct StaticCeiling {
    /// The ceiling, > 0.
    pub ceiling: f64,
}

impl CeilingsPolicy for StaticCeiling {
    fn ceilings(&mut self, _now: Micros, _saturation: f64, bands: &[Band], ceilings: &mut Vec<f64>) {
        ceilings.resize(bands.len(), self.ceiling);
    }

    fn repeats(&self, _saturation: f64) -> u64 {
        u64::MAX
    }

    fn fork(&self) -> Box<dyn CeilingsPolicy> {
        Box::new(*self)
    }
}

/// Room is held back for higher bands: ceilings fall evenly from `max` for the highest band to `min` for the lowest, by
/// rank (llm-d's `priority-holdback-usage-limit`; BLIS's `--usage-limit-threshold` is `min`).
#[derive(Clone, Copy, Debug)]
pub struct PriorityHoldback {
    /// Ceiling of the lowest band, from 0 to `max`.
    pub min: f64,
    /// Ceiling of the highest band.
    pub max: f64,
}

impl CeilingsPolicy for PriorityHoldback {
    fn ceilings(&mut self, _now: Micros, _saturation: f64, bands: &[Band], ceilings: &mut Vec<f64>) {
        let steps = bands.len().saturating_sub(1).max(1) as f64;
        ceilings.extend((0..bands.len()).map(|rank| self.max - rank as f64 * (self.max - self.min) / steps));
    }

    fn repeats(&self, _saturation: f64) -> u64 {
        u64::MAX
    }

    fn fork(&self) -> Box<dyn CeilingsPolicy> {
        Box::new(*self)
    }
}

/// Bands are closed one after the other as the service fills, and opened for one call in a few, the fewer the fuller it is
/// (llm-d's `soft-reflective-ceiling`, found by evolution with BLIS).
///
/// Band i of N has the threshold r = 1 − i·S/(N − 1). Below it the band is open (ceiling 1). From S = 1 on it is closed
/// (0). In between it is open in one of round(S / (1 − S)) calls, by a counter that all bands share and that advances
/// while 1 − S ≤ S < 1. The highest band is always open.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftReflective {
    calls: u64,
}

impl SoftReflective {
    /// Whether a call at saturation `s` is counted.
    fn advances(s: f64) -> bool {
        s >= 1.0 - s && s < 1.0
    }

    /// Bands are open in one of so many calls at saturation `s`.
    fn one_in(s: f64) -> u64 {
        truncated(libm::round(s / (1.0 - s)).max(1.0))
    }
}

impl CeilingsPolicy for SoftReflective {
    fn ceilings(&mut self, _now: Micros, saturation: f64, bands: &[Band], ceilings: &mut Vec<f64>) {
        let s = saturation;
        if Self::advances(s) {
            self.calls += 1;
        }
        let last = bands.len().saturating_sub(1);
        ceilings.extend((0..bands.len()).map(|rank| {
            if rank == 0 || s < 1.0 - rank as f64 * s / last as f64 {
                return 1.0;
            }
            if s >= 1.0 {
                return 0.0;
            }
            if self.calls.is_multiple_of(Self::one_in(s)) { 1.0 } else { 0.0 }
        }));
    }

    fn repeats(&self, saturation: f64) -> u64 {
        if !Self::advances(saturation) {
            return u64::MAX;
        }
        let one_in = Self::one_in(saturation);
        match self.calls % one_in {
            0 => 0,
            closed => one_in - closed - 1,
        }
    }

    fn repeated(&mut self, saturation: f64, calls: u64) {
        if Self::advances(saturation) {
            self.calls += calls;
        }
    }

    fn fork(&self) -> Box<dyn CeilingsPolicy> {
        Box::new(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ceilings(policy: &mut dyn CeilingsPolicy, saturation: f64, bands: usize) -> Vec<f64> {
        let band = |rank| Band { priority: -(rank as i32), queued: 1, oldest_wait_us: 0 };
        let bands: Vec<Band> = (0..bands).map(band).collect();
        let mut found = Vec::new();
        policy.ceilings(Micros::ZERO, saturation, &bands, &mut found);
        found
    }

    #[test]
    fn holdback_falls_evenly() {
        let holdback = &mut PriorityHoldback { min: 0.5, max: 1.0 };
        assert_eq!(ceilings(holdback, 0.0, 3), [1.0, 0.75, 0.5]);
        assert_eq!(ceilings(holdback, 0.0, 1), [1.0]);
    }

    #[test]
    fn soft_reflective_opens_one_call_in_a_few() {
        let policy = &mut SoftReflective::default();
        assert_eq!(ceilings(policy, 0.4, 3), [1.0, 1.0, 1.0], "below every threshold: 1, 0.8, 0.6");
        assert_eq!(ceilings(policy, 1.0, 3), [1.0, 0.0, 0.0]);
        // S = 0.8: one call in four; thresholds 1, 0.6 and 0.2.
        let open: Vec<f64> = (0..8).map(|_| ceilings(policy, 0.8, 3)[2]).collect();
        assert_eq!(open, [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
        assert_eq!(ceilings(policy, 0.8, 1), [1.0], "the only band is the highest");
    }
}
