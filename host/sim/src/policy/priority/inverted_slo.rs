//! The priority policy `inverted-slo`.

use super::arrival;
use crate::policy::{PriorityPolicy, RequestView};
use crate::units::Micros;

/// A higher priority for later arrivals. It is a bad policy on purpose: evaluations must rank it last.
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
