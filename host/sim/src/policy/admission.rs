//! Who may enter the service: the built-in admission policies (`reference/cluster.md` §1.4).

use super::{AdmissionPolicy, ClusterView, Reads, Reason, RequestView, Verdict};
use crate::request::Name;
use crate::units::Micros;

/// Everybody.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysAdmit;

impl AdmissionPolicy for AlwaysAdmit {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn admit(&mut self, _: &RequestView<'_>, _: &ClusterView<'_>) -> Verdict {
        Verdict::Admit
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(*self)
    }
}

/// Nobody: for tests of what notices that.
#[derive(Clone, Copy, Debug, Default)]
pub struct RejectAll;

impl AdmissionPolicy for RejectAll {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn admit(&mut self, _: &RequestView<'_>, _: &ClusterView<'_>) -> Verdict {
        Verdict::Reject(Reason::RejectAll)
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(*self)
    }
}

/// At most so many prompt tokens per second, with bursts up to a capacity.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// Tokens.
    capacity: f64,
    /// Tokens per second.
    refill_rate: f64,
    /// What it holds at `filled_at`.
    tokens: f64,
    filled_at: Micros,
}

impl TokenBucket {
    /// A full bucket of `capacity` tokens that gains `refill_per_second` of them.
    ///
    /// # Errors
    ///
    /// Says which of the two is not a positive number.
    pub fn new(capacity: f64, refill_per_second: f64) -> Result<Self, String> {
        positive("the capacity of a token bucket", capacity)?;
        positive("the refill rate of a token bucket", refill_per_second)?;
        Ok(Self { capacity, refill_rate: refill_per_second, tokens: capacity, filled_at: Micros::ZERO })
    }
}

impl AdmissionPolicy for TokenBucket {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Verdict {
        let elapsed_us = cluster.now.saturating_sub(self.filled_at).0 as f64;
        self.tokens = self.capacity.min(self.tokens + elapsed_us * self.refill_rate / 1e6);
        self.filled_at = cluster.now;
        let wanted = f64::from(request.input_tokens);
        if self.tokens < wanted {
            return Verdict::Reject(Reason::InsufficientTokens);
        }
        self.tokens -= wanted;
        Verdict::Admit
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(*self)
    }
}

/// Only urgent classes while some instance is loaded.
#[derive(Clone, Copy, Debug)]
pub struct TierShed {
    threshold: u64,
    min_priority: i32,
}

impl TierShed {
    /// While the load of an instance ([`ClusterView::effective_load`]) is above `threshold`, only
    /// classes of urgency `min_priority` or more come in.
    #[must_use]
    pub fn new(threshold: u64, min_priority: i32) -> Self {
        Self { threshold, min_priority }
    }
}

impl AdmissionPolicy for TierShed {
    fn reads(&self) -> Reads {
        Reads { load: true, in_flight: true, cached_blocks: false }
    }

    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Verdict {
        if request.urgency >= self.min_priority {
            return Verdict::Admit;
        }
        let load = (0..cluster.len()).map(|i| cluster.effective_load(i)).max().unwrap_or(0);
        if load <= self.threshold {
            return Verdict::Admit;
        }
        let (class, priority, min) = (request.tags.slo_class, request.urgency, self.min_priority);
        Verdict::Reject(Reason::TierShed { class, priority, min, load })
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(*self)
    }
}

/// The rule of the Gateway API inference extension (GAIE) before flow control: classes that may be
/// shed stay out while the service is saturated.
#[derive(Clone, Copy, Debug)]
pub struct GaieLegacy {
    queue_depth: f64,
    kv_utilization: f64,
}

impl GaieLegacy {
    /// An instance is saturated with `queue_depth` requests waiting, or with `kv_utilization` of
    /// its KV blocks used.
    ///
    /// # Errors
    ///
    /// Says which of the two is out of range: `queue_depth` > 0, 0 < `kv_utilization` ≤ 1.
    pub fn new(queue_depth: f64, kv_utilization: f64) -> Result<Self, String> {
        positive("the queue depth of gaie-legacy", queue_depth)?;
        if !(kv_utilization > 0.0 && kv_utilization <= 1.0) {
            return Err(format!(
                "the KV utilization of gaie-legacy is a share of the KV blocks, above 0 and at most 1: not {kv_utilization}"
            ));
        }
        Ok(Self { queue_depth, kv_utilization })
    }

    /// Mean over instances of how full each is, 1 being saturated; 1 without instances.
    fn saturation(self, cluster: &ClusterView<'_>) -> f64 {
        if cluster.is_empty() {
            return 1.0;
        }
        let signals = cluster.signals;
        let instances = signals.queue_depth.iter().zip(&signals.kv_utilization);
        let full = instances.map(|(&q, &kv)| (f64::from(q) / self.queue_depth).max(kv / self.kv_utilization));
        full.sum::<f64>() / cluster.len() as f64
    }
}

impl AdmissionPolicy for GaieLegacy {
    fn reads(&self) -> Reads {
        Reads { load: true, in_flight: false, cached_blocks: false }
    }

    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Verdict {
        if request.urgency >= 0 {
            return Verdict::Admit;
        }
        let saturation = self.saturation(cluster);
        if saturation < 1.0 {
            return Verdict::Admit;
        }
        Verdict::Reject(Reason::GaieSaturated { class: request.tags.slo_class, saturation })
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(*self)
    }
}

/// Each tenant its share of the service's batch slots, before another policy is asked.
///
/// A tenant may pass its share by one request (the comparison is strict), and only classes that
/// may be shed (urgency below 0) are held to it. A request counts from the moment it is routed, so
/// that requests admitted but not yet routed do not count.
#[derive(Debug)]
pub struct TenantBudgets {
    /// By tenant, sorted.
    budgets: Vec<(Name, f64)>,
    inner: Box<dyn AdmissionPolicy>,
}

impl TenantBudgets {
    /// `budgets` are shares of the sum of all instances' `max_num_seqs`; tenants without one are
    /// not limited.
    ///
    /// # Errors
    ///
    /// Says which budget is not a share from 0 to 1, or is there twice.
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

    /// Whether the tenant of `request` has more in flight than its share.
    fn is_over(&self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> bool {
        let tenant = request.tags.tenant;
        let Ok(place) = self.budgets.binary_search_by_key(&tenant, |&(tenant, _)| tenant) else { return false };
        let slots: u64 = cluster.instances.iter().map(|instance| u64::from(instance.max_num_seqs)).sum();
        f64::from(cluster.tenant_in_flight(tenant)) > self.budgets[place].1 * slots as f64
    }
}

impl AdmissionPolicy for TenantBudgets {
    fn reads(&self) -> Reads {
        // Tenants are counted along with the instances.
        Reads { in_flight: true, ..self.inner.reads() }
    }

    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Verdict {
        if request.urgency < 0 && self.is_over(request, cluster) {
            return Verdict::Reject(Reason::TenantBudget);
        }
        self.inner.admit(request, cluster)
    }

    fn fork(&self) -> Box<dyn AdmissionPolicy> {
        Box::new(Self { budgets: self.budgets.clone(), inner: self.inner.fork() })
    }
}

fn positive(what: &str, value: f64) -> Result<(), String> {
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(format!("{what} is a number above 0: not {value}")) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{BLOCK_SIZE, Service};
    use super::*;
    use crate::request::Request;

    /// Asks about a request of class 1 and tenant 2.
    fn ask(policy: &mut dyn AdmissionPolicy, service: &Service, input_tokens: u32, urgency: i32) -> Verdict {
        let mut request = Request::new(0, service.now, input_tokens, 1);
        request.tags.slo_class = Name(1);
        request.tags.tenant = Name(2);
        policy.admit(&RequestView::new(&request, urgency, BLOCK_SIZE), &service.view())
    }

    #[test]
    fn a_bucket_starts_full_and_refills_with_time() {
        let mut service = Service::idle(1);
        let mut policy = TokenBucket::new(100.0, 1000.0).unwrap();
        let insufficient = Verdict::Reject(Reason::InsufficientTokens);
        assert_eq!(ask(&mut policy, &service, 100, 3), Verdict::Admit, "all of it");
        assert_eq!(ask(&mut policy, &service, 1, 3), insufficient);
        service.now = Micros(9_999);
        assert_eq!(ask(&mut policy, &service, 10, 3), insufficient, "9.999 tokens");
        let mut fork = policy.fork();
        service.now = Micros(10_000);
        for policy in [&mut policy, fork.as_mut()] {
            assert_eq!(ask(policy, &service, 11, 3), insufficient, "no time counts twice");
            assert_eq!(ask(policy, &service, 10, 3), Verdict::Admit, "a rejection takes nothing out");
        }
        service.now = Micros(1_000_000);
        assert_eq!(ask(&mut policy, &service, 101, 3), insufficient, "never above its capacity");
        assert_eq!(ask(&mut policy, &service, 100, 3), Verdict::Admit);
    }

    #[test]
    fn tiers_are_shed_above_the_threshold() {
        let at = |queue, batch, in_flight| {
            Service::idle(3).with(|signals| {
                signals.queue_depth[1] = queue;
                signals.batch_size[1] = batch;
                signals.in_flight[1] = in_flight;
            })
        };
        let mut policy = TierShed::new(12, 3);
        assert_eq!(ask(&mut policy, &at(4, 4, 4), 1, -3), Verdict::Admit);
        assert_eq!(ask(&mut policy, &at(4, 4, 5), 1, 3), Verdict::Admit);
        let reason = Reason::TierShed { class: Name(1), priority: 2, min: 3, load: 13 };
        assert_eq!(ask(&mut policy, &at(4, 4, 5), 1, 2), Verdict::Reject(reason));
        assert_eq!(ask(&mut TierShed::new(0, 3), &Service::idle(0), 1, -3), Verdict::Admit, "no instance, no load");
    }

    #[test]
    fn saturation_is_a_mean_of_the_fuller_measure() {
        let service = Service::idle(2).with(|signals| {
            signals.queue_depth = vec![1, 5];
            signals.kv_utilization = vec![0.8, 0.2];
        });
        let mut policy = GaieLegacy::new(5.0, 0.8).unwrap();
        let saturated = |saturation| Verdict::Reject(Reason::GaieSaturated { class: Name(1), saturation });
        assert_eq!(ask(&mut policy, &service, 1, -1), saturated(1.0), "queue 1 on one, KV 1 on the other");
        assert_eq!(ask(&mut policy, &service, 1, 0), Verdict::Admit);
        let service = service.with(|signals| signals.kv_utilization[0] = 0.79);
        assert_eq!(ask(&mut policy, &service, 1, -1), Verdict::Admit);
        assert_eq!(ask(&mut policy, &Service::idle(0), 1, -1), saturated(1.0));
    }

    #[test]
    fn budgets_come_before_the_inner_policy_and_bind_what_may_be_shed() {
        let mut service = Service::idle(2); // 128 slots
        let mut policy = TenantBudgets::new([(Name(2), 0.25)], Box::new(RejectAll)).unwrap();
        let over = Verdict::Reject(Reason::TenantBudget);
        let inner = Verdict::Reject(Reason::RejectAll);
        service.tenants_in_flight = vec![0, 0, 32];
        assert_eq!(ask(&mut policy, &service, 1, -1), inner, "32 of 32 is not over");
        service.tenants_in_flight = vec![0, 0, 33];
        assert_eq!(ask(&mut policy, &service, 1, -1), over);
        assert_eq!(ask(policy.fork().as_mut(), &service, 1, -1), over);
        assert_eq!(ask(&mut policy, &service, 1, 0), inner, "not sheddable");
        let mut other = TenantBudgets::new([(Name(3), 0.0)], Box::new(AlwaysAdmit)).unwrap();
        assert_eq!(ask(&mut other, &service, 1, -1), Verdict::Admit, "no budget, no limit");
    }

    #[test]
    fn a_budget_of_nothing_lets_one_through() {
        let mut service = Service::idle(2);
        let mut policy = TenantBudgets::new([(Name(2), 0.0)], Box::new(AlwaysAdmit)).unwrap();
        assert_eq!(ask(&mut policy, &service, 1, -1), Verdict::Admit);
        service.tenants_in_flight = vec![0, 0, 1];
        assert_eq!(ask(&mut policy, &service, 1, -1), Verdict::Reject(Reason::TenantBudget));
    }

    #[test]
    fn policies_read_what_they_look_at() {
        let load = Reads { load: true, ..Reads::NOTHING };
        let budgets = TenantBudgets::new([], Box::new(TierShed::new(1, 1))).unwrap();
        assert_eq!(AlwaysAdmit.reads(), Reads::NOTHING);
        assert_eq!(TokenBucket::new(1.0, 1.0).unwrap().reads(), Reads::NOTHING);
        assert_eq!(GaieLegacy::new(5.0, 0.8).unwrap().reads(), load);
        assert_eq!(budgets.reads(), Reads { in_flight: true, ..load });
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        let budgets =
            |budgets: &[(Name, f64)]| TenantBudgets::new(budgets.to_vec(), Box::new(AlwaysAdmit)).unwrap_err();
        let errors = [
            TokenBucket::new(0.0, 1.0).unwrap_err(),
            TokenBucket::new(1.0, f64::INFINITY).unwrap_err(),
            GaieLegacy::new(f64::NAN, 0.8).unwrap_err(),
            GaieLegacy::new(5.0, 1.01).unwrap_err(),
            GaieLegacy::new(5.0, 0.0).unwrap_err(),
            budgets(&[(Name(1), -0.1)]),
            budgets(&[(Name(1), f64::NAN)]),
            budgets(&[(Name(4), 0.1), (Name(1), 1.0), (Name(4), 0.2)]),
        ];
        insta::assert_snapshot!(errors.join("\n"), @r"
        the capacity of a token bucket is a number above 0: not 0
        the refill rate of a token bucket is a number above 0: not inf
        the queue depth of gaie-legacy is a number above 0: not NaN
        the KV utilization of gaie-legacy is a share of the KV blocks, above 0 and at most 1: not 1.01
        the KV utilization of gaie-legacy is a share of the KV blocks, above 0 and at most 1: not 0
        the budget of tenant 1 is a share of the service from 0 to 1: not -0.1
        the budget of tenant 1 is a share of the service from 0 to 1: not NaN
        tenant 4 has two budgets: 0.1 and 0.2
        ");
    }
}
