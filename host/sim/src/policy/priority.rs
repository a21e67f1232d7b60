//! How urgent a request is on its instance: constant, by class, or by age.
//!
//! A number is given once, when the request is handed over, and holds for good. That is enough for
//! the policies by age, which older versions of BLIS computed anew at every step as
//! `base ± weight · (now - arrival)`: `now` is the same for all requests compared, so the order of
//! any two ages is the order of their arrivals at every step, and the arrival itself serves as the
//! number (`reference/cluster.md` §1.3).

use super::{Classes, PriorityPolicy, RequestView};
use crate::units::Micros;

/// All alike.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConstantPriority;

impl PriorityPolicy for ConstantPriority {
    fn priority(&mut self, _: &RequestView<'_>, _: Micros) -> i64 {
        0
    }

    fn fork(&self) -> Box<dyn PriorityPolicy> {
        Box::new(*self)
    }
}

/// By service class; a priority the client asks for comes before.
///
/// The answer is `urgency - most`, at most 0, so that the instance gets BLIS's number
/// `most - urgency`: 0 for the most urgent class. A client's number is taken as the instance's.
#[derive(Clone, Copy, Debug)]
pub struct ClassPriority {
    most: i32,
}

impl ClassPriority {
    /// With urgencies up to that of the most urgent of `classes`.
    #[must_use]
    pub fn new(classes: &Classes) -> Self {
        Self { most: classes.most() }
    }
}

impl PriorityPolicy for ClassPriority {
    fn priority(&mut self, request: &RequestView<'_>, _: Micros) -> i64 {
        match request.client_priority {
            Some(number) => -i64::from(number),
            None => i64::from(request.urgency) - i64::from(self.most),
        }
    }

    fn fork(&self) -> Box<dyn PriorityPolicy> {
        Box::new(*self)
    }
}

/// The older the more urgent: the order of arrival at the service.
#[derive(Clone, Copy, Debug, Default)]
pub struct SloBased;

impl PriorityPolicy for SloBased {
    fn priority(&mut self, request: &RequestView<'_>, _: Micros) -> i64 {
        -arrival(request)
    }

    fn fork(&self) -> Box<dyn PriorityPolicy> {
        Box::new(*self)
    }
}

/// The newer the more urgent: for tests of what notices that.
#[derive(Clone, Copy, Debug, Default)]
pub struct InvertedSlo;

impl PriorityPolicy for InvertedSlo {
    fn priority(&mut self, request: &RequestView<'_>, _: Micros) -> i64 {
        arrival(request)
    }

    fn fork(&self) -> Box<dyn PriorityPolicy> {
        Box::new(*self)
    }
}

/// In µs; times end at [`Micros::MAX`], the largest `i64`.
fn arrival(request: &RequestView<'_>) -> i64 {
    request.arrival.min(Micros::MAX).0 as i64
}

#[cfg(test)]
mod tests {
    use super::super::testing::{BLOCK_SIZE, request};
    use super::*;

    /// The number an instance gets, for a request of `urgency` that arrived at `arrival`.
    fn on_instance(policy: &dyn PriorityPolicy, urgency: i32, arrival: u64, client_priority: Option<i32>) -> i64 {
        let mut request = request(0, 1, &[]);
        request.arrival = Micros(arrival);
        request.client_priority = client_priority;
        -policy.fork().priority(&RequestView::new(&request, urgency, BLOCK_SIZE), Micros(1_000_000))
    }

    #[test]
    fn classes_give_the_numbers_of_blis() {
        let policy = ClassPriority::new(&Classes::default());
        let numbers = [4, 3, -1, -2, -3].map(|urgency| on_instance(&policy, urgency, 0, None));
        assert_eq!(numbers, [0, 1, 5, 6, 7]);
    }

    #[test]
    fn the_instance_gets_the_number_of_the_client() {
        let policy = ClassPriority::new(&Classes::default());
        let numbers = [i32::MIN, -2, 0, 9, i32::MAX].map(|number| on_instance(&policy, 4, 0, Some(number)));
        assert_eq!(numbers, [i64::from(i32::MIN), -2, 0, 9, i64::from(i32::MAX)]);
    }

    #[test]
    fn age_puts_the_older_first_or_last() {
        assert!(on_instance(&SloBased, 3, 10, None) < on_instance(&SloBased, 3, 11, None));
        assert!(on_instance(&InvertedSlo, 3, 10, None) > on_instance(&InvertedSlo, 3, 11, None));
        assert_eq!(on_instance(&ConstantPriority, 3, 10, None), on_instance(&ConstantPriority, 4, 99, Some(1)));
        assert!(on_instance(&SloBased, 3, u64::MAX, None) > on_instance(&SloBased, 3, 5, None));
    }
}
