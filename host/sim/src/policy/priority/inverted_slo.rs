//! `inverted-slo`.

use super::arrival;
use crate::policy::{PriorityPolicy, RequestView};
use crate::units::Micros;

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
