//! Sums over long series.

/// Numbers that are added side by side: the processor adds them at once, and rounding errors grow more slowly.
const LANES: usize = 8;

/// The mean; not a number for an empty slice.
pub(crate) fn mean(values: &[f64]) -> f64 {
    sum(values) / values.len() as f64
}

fn sum(values: &[f64]) -> f64 {
    let chunks = values.chunks_exact(LANES);
    let rest: f64 = chunks.remainder().iter().sum();
    let mut lanes = [0.0; LANES];
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value;
        }
    }
    lanes.iter().sum::<f64>() + rest
}

/// Σ aᵢ·bᵢ over the shorter of both.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let length = a.len().min(b.len());
    let (a, b) = (a[..length].chunks_exact(LANES), b[..length].chunks_exact(LANES));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    let mut lanes = [0.0; LANES];
    for (a, b) in a.zip(b) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += a * b;
        }
    }
    lanes.iter().sum::<f64>() + rest
}

/// The values without their mean.
pub(crate) fn centred(values: &[f64]) -> Vec<f64> {
    let mean = mean(values);
    values.iter().map(|value| value - mean).collect()
}

/// Σ(x − x̄)²/(n − 1); 0 for fewer than two values.
pub(crate) fn sample_variance(values: &[f64]) -> f64 {
    let centred = centred(values);
    if centred.len() < 2 { 0.0 } else { dot(&centred, &centred) / (centred.len() - 1) as f64 }
}
