//! Requests by tenant, and fairness between tenants.

use super::counts::Counts;

/// The requests of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantReport {
    /// Requests by their final status, and the output tokens of completed ones.
    pub counts: Counts,
}

/// Jain's index of fairness, `(Σx)²/(n·Σx²)` (Jain, Chiu and Hawe 1984): 1 if all n tenants received the same, 1/n if
/// one received everything. x are the output tokens of a tenant's completed requests. 1 if no tenant received any;
/// `None` without tenants.
pub(super) fn jain_index(tokens: &[u64]) -> Option<f64> {
    if tokens.is_empty() {
        return None;
    }
    let sum: f64 = tokens.iter().map(|&x| x as f64).sum();
    let squares: f64 = tokens.iter().map(|&x| x as f64 * x as f64).sum();
    Some(if squares == 0.0 { 1.0 } else { sum * sum / (tokens.len() as f64 * squares) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_lies_between_one_nth_and_one() {
        assert_eq!(jain_index(&[]), None);
        assert_eq!(jain_index(&[0, 0]), Some(1.0));
        assert_eq!(jain_index(&[7, 7, 7]), Some(1.0));
        assert_eq!(jain_index(&[0, 9, 0, 0]), Some(0.25));
        // (3 + 1)² / (2·(9 + 1))
        assert_eq!(jain_index(&[3, 1]), Some(0.8));
    }
}
