//! The priority policy `constant`.

use crate::policy::{PriorityPolicy, RequestView};
use crate::units::Micros;

/// The same priority, 0, for every request.
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
