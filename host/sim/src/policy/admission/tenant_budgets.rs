//! Budgets of tenants, applied before any admission policy.

use crate::policy::{AdmissionDecision, AdmissionPolicy, ClusterView, Reads, Reason, RequestView};
use crate::request::Name;

/// Limits each tenant to its share of the service's batch slots; requests within the share go to the inner policy.
///
/// A tenant may exceed its share by one request (the comparison is strict), and the limit applies only to classes that
/// may be shed (priority below 0). A request counts from the moment it is routed: requests that are admitted but not
/// yet routed do not count.
#[derive(Debug)]
pub struct TenantBudgets {
    /// Share of each limited tenant, 0 to 1, sorted by tenant.
    budgets: Vec<(Name, f64)>,
    inner: Box<dyn AdmissionPolicy>,
}

impl TenantBudgets {
    /// `budgets` are shares of the sum of all instances' `max_num_seqs`; tenants without a budget are not limited.
    ///
    /// # Errors
    ///
    /// A message if a budget is not a share from 0 to 1, or a tenant has two.
    pub fn new(
        budgets: impl IntoIterator<Item = (Name, f64)>,
        inner: Box<dyn AdmissionPolicy>,
    ) -> Result<Self, String> {
        let mut budgets: Vec<_> = budgets.into_iter().collect();
        budgets.sort_by_key(|&(tenant, _)| tenant);
        if let Some((tenant, budget)) = budgets.iter().find(|(_, budget)| !(0.0..=1.0).contains(budget)) {
            return Err(format!(
                "the budget of tenant {} is a share of the service from 0 to 1: not {budget}",
                tenant.0
            ));
        }
        if let Some(pair) = budgets.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("tenant {} has two budgets: {} and {}", pair[0].0.0, pair[0].1, pair[1].1));
        }
        Ok(Self { budgets, inner })
    }

    /// Whether the tenant of `request` has more requests in flight than its share.
    fn is_over(&self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> bool {
        let tenant = request.tags.tenant;
        let Ok(index) = self.budgets.binary_search_by_key(&tenant, |&(tenant, _)| tenant) else { return false };
        let slots: u64 = cluster.instances.iter().map(|instance| u64::from(instance.max_num_seqs)).sum();
        f64::from(cluster.tenant_in_flight(tenant)) > self.budgets[index].1 * slots as f64
    }
}

impl AdmissionPolicy for TenantBudgets {
    fn reads(&self) -> Reads {
        // The requests of tenants are counted together with those of instances.
        Reads { in_flight: true, ..self.inner.reads() }
    }

    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> AdmissionDecision {
        if request.class_priority < 0 && self.is_over(request, cluster) {
            return AdmissionDecision::Reject(Reason::TenantBudget);
        }
        self.inner.admit(request, cluster)
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(Self { budgets: self.budgets.clone(), inner: self.inner.fork() })
    }
}
