//! The built-in priority policies: constant, by class, or by age.
//!
//! A priority is computed once, when the request is dispatched, and never changes. That is sufficient for the policies
//! by age, which older versions of BLIS recomputed at every step as `base ± weight · (now - arrival)`: `now` is the
//! same for all compared requests, so the order of any two ages is the order of their arrivals at every step, and the
//! arrival itself can serve as the priority (`reference/cluster.md` §1.3).

mod class;
mod constant;
mod inverted_slo;
mod policy;
mod slo_based;

pub use class::ClassPriority;
pub use constant::ConstantPriority;
pub use inverted_slo::InvertedSlo;
pub use policy::PriorityPolicy;
pub use slo_based::SloBased;

use super::RequestView;
use crate::units::Micros;

/// The arrival in µs as a signed number; times end at [`Micros::MAX`], the largest `i64`.
fn arrival(request: &RequestView<'_>) -> i64 {
    request.arrival.min(Micros::MAX).0 as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{BLOCK_SIZE, request};
    use crate::policy::{Classes, PriorityPolicy};

    /// The number that the instance gets, for a request of class priority `class_priority` that arrived at `arrival`.
    fn on_instance(
        policy: &dyn PriorityPolicy,
        class_priority: i32,
        arrival: u64,
        client_priority: Option<i32>,
    ) -> i64 {
        let mut request = request(0, 1, &[]);
        request.arrival = Micros(arrival);
        request.client_priority = client_priority;
        -policy.fork().priority(&RequestView::new(&request, class_priority, BLOCK_SIZE), Micros(1_000_000))
    }

    #[test]
    fn classes_have_the_numbers_of_blis() {
        let policy = ClassPriority::new(&Classes::default());
        let numbers = [4, 3, -1, -2, -3].map(|class_priority| on_instance(&policy, class_priority, 0, None));
        assert_eq!(numbers, [0, 1, 5, 6, 7]);
    }

    #[test]
    fn the_instance_gets_the_priority_set_by_the_client() {
        let policy = ClassPriority::new(&Classes::default());
        let numbers = [i32::MIN, -2, 0, 9, i32::MAX].map(|number| on_instance(&policy, 4, 0, Some(number)));
        assert_eq!(numbers, [i64::from(i32::MIN), -2, 0, 9, i64::from(i32::MAX)]);
    }

    #[test]
    fn priorities_by_age_are_in_order_of_arrival() {
        assert!(on_instance(&SloBased, 3, 10, None) < on_instance(&SloBased, 3, 11, None));
        assert!(on_instance(&InvertedSlo, 3, 10, None) > on_instance(&InvertedSlo, 3, 11, None));
        assert_eq!(on_instance(&ConstantPriority, 3, 10, None), on_instance(&ConstantPriority, 4, 99, Some(1)));
        assert!(on_instance(&SloBased, 3, u64::MAX, None) > on_instance(&SloBased, 3, 5, None));
    }
}
