//! What the queue reports to a scaler.

use super::Gateway;
use crate::policy::{ClusterView, InstanceRole};
use crate::request::Name;
use crate::scaling::GatewayView;
use crate::units::Micros;

impl Gateway {
    /// How full the service is, as of `cluster`: 1 without instances, as in llm-d, and where a policy says not-a-number.
    pub fn saturation(&mut self, cluster: &ClusterView<'_>) -> f64 {
        let saturation = if cluster.is_empty() { 1.0 } else { self.control.saturation.saturation(cluster) };
        if saturation.is_nan() { 1.0 } else { saturation }
    }

    /// How full the instances of `cluster` with each of these roles are; `None` where the policy cannot say.
    pub fn saturation_by_role(&mut self, cluster: &ClusterView<'_>, roles: &[InstanceRole]) -> Vec<Option<f64>> {
        let number = |saturation: f64| if saturation.is_nan() { 1.0 } else { saturation };
        roles.iter().map(|&role| self.control.saturation.saturation_of(role, cluster).map(number)).collect()
    }

    /// The requests that wait for a model that `serves` accepts.
    pub fn waiting_for(&self, now: Micros, saturation: Option<f64>, serves: impl Fn(Name) -> bool) -> GatewayView {
        let mut view = GatewayView { saturation, ..GatewayView::default() };
        for queued in self.requests.values().filter(|queued| serves(queued.request.tags.model)) {
            view.queued += 1;
            view.queued_tokens += u64::from(queued.request.input_tokens);
            view.oldest_wait = view.oldest_wait.max(now.saturating_sub(queued.enqueued));
        }
        view
    }
}
