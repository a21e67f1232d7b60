//! `class`.

use crate::policy::{Classes, PriorityPolicy, RequestView};
use crate::units::Micros;

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
