//! `constant`.

use crate::policy::{PriorityPolicy, RequestView};
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
