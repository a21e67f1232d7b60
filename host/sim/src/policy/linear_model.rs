//! A linear model of a latency, fitted to measurements as they come.

/// Factor by which older measurements weigh less with each new one.
const KEPT: f64 = 0.999;
/// Added to the diagonal, so that there is a solution while the load has not varied.
const RIDGE: f64 = 1e-6;

/// Inputs of the model: 1, thousands of prompt tokens, requests in flight.
pub(super) type Features = [f64; 3];

/// A linear model fitted by least squares: the sums of the normal equations.
#[derive(Clone, Debug, Default)]
pub(super) struct LinearModel {
    squares: [Features; 3],
    products: Features,
}

impl LinearModel {
    /// Adds a measurement.
    pub fn add(&mut self, features: &Features, measured: f64) {
        for (i, &x) in features.iter().enumerate() {
            for (sum, &y) in self.squares[i].iter_mut().zip(features) {
                *sum = *sum * KEPT + x * y;
            }
            self.products[i] = self.products[i] * KEPT + x * measured;
        }
    }

    /// The solution of the normal equations, by elimination; their matrix is positive definite.
    pub fn coefficients(&self) -> Features {
        let (mut a, mut b) = (self.squares, self.products);
        for (i, row) in a.iter_mut().enumerate() {
            row[i] += RIDGE;
        }
        for i in 0..3 {
            let pivot = a[i];
            for j in i + 1..3 {
                let factor = a[j][i] / pivot[i];
                a[j].iter_mut().zip(pivot).skip(i).for_each(|(below, above)| *below -= factor * above);
                b[j] -= factor * b[i];
            }
        }
        let mut solved = [0.0; 3];
        for i in (0..3).rev() {
            let known: f64 = (i + 1..3).map(|k| a[i][k] * solved[k]).sum();
            solved[i] = (b[i] - known) / a[i][i];
        }
        solved
    }

    /// The prediction for `features`; 0 before the first measurement.
    pub fn predict(&self, features: &Features) -> f64 {
        Self::value(&self.coefficients(), features)
    }

    /// The prediction by `coefficients`.
    pub fn value(coefficients: &Features, features: &Features) -> f64 {
        coefficients.iter().zip(features).map(|(x, y)| x * y).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_finds_the_coefficients() {
        let mut model = LinearModel::default();
        assert_eq!(model.coefficients(), [0.0; 3], "nothing measured");
        for i in 0..200_u32 {
            let features = [1.0, f64::from(i % 7), f64::from(i % 11)];
            model.add(&features, 50.0 + 3.0 * features[1] + 0.5 * features[2]);
        }
        for (found, expected) in model.coefficients().into_iter().zip([50.0, 3.0, 0.5]) {
            assert!((found - expected).abs() < 1e-3, "{found} {expected}");
        }
    }
}
