//! The priority policy `slo-based`.

use super::arrival;
use crate::policy::{PriorityPolicy, RequestView};
use crate::units::Micros;

/// A higher priority for earlier arrivals: requests are served in the order of arrival at the service.
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
