//! The priority policy `class`.

use crate::policy::{Classes, PriorityPolicy, RequestView};
use crate::units::Micros;

/// Priority by service class; a priority set by the client takes precedence.
///
/// The result is `priority of the class - highest priority`, at most 0, so that the instance gets BLIS's number
/// `highest - priority`: 0 for the class of highest priority. A number set by the client becomes the instance's number
/// unchanged.
#[derive(Clone, Copy, Debug)]
pub struct ClassPriority {
    highest: i32,
}

impl ClassPriority {
    /// The policy for `classes`, of which only the highest priority is needed.
    #[must_use]
    pub fn new(classes: &Classes) -> Self {
        Self { highest: classes.highest() }
    }
}

impl PriorityPolicy for ClassPriority {
    fn priority(&mut self, request: &RequestView<'_>, _: Micros) -> i64 {
        match request.client_priority {
            Some(number) => -i64::from(number),
            None => i64::from(request.class_priority) - i64::from(self.highest),
        }
    }

    fn fork(&self) -> Box<dyn PriorityPolicy> {
        Box::new(*self)
    }
}
