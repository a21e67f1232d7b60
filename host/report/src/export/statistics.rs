//! Figures over all requests in the way of load generators: NumPy's percentiles.

use crate::percentile;

/// Sorted values of one latency.
#[derive(Clone, Debug)]
pub(super) struct Statistics {
    /// Values in ascending order.
    sorted: Vec<f64>,
}

impl Statistics {
    pub fn from_values(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        Self { sorted }
    }

    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The mean; 0 without values, as vLLM and AIPerf write it.
    pub fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len().max(1) as f64
    }

    /// Standard deviation of the population, not of a sample.
    pub fn std(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.sorted.iter().map(|value| (value - mean).powi(2)).sum();
        (squares / self.sorted.len().max(1) as f64).sqrt()
    }

    /// Linear interpolation between the two nearest values; `percent` from 0 to 100.
    pub fn percentile(&self, percent: f64) -> f64 {
        percentile(&self.sorted, percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_numpy() {
        let some = Statistics::from_values([4.0, 1.0, 3.0, 2.0].into_iter());
        assert_eq!((some.count(), some.mean(), some.percentile(50.0), some.percentile(25.0)), (4, 2.5, 2.5, 1.75));
        assert_eq!((some.percentile(0.0), some.percentile(100.0)), (1.0, 4.0));
        assert!((some.std() - 1.118_033_988_749_895).abs() < 1e-15);
        let none = Statistics::from_values(std::iter::empty());
        assert_eq!((none.mean(), none.std(), none.percentile(99.0)), (0.0, 0.0, 0.0));
    }
}
