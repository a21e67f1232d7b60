//! The built-in admission policies (`reference/cluster.md` §1.4), a file each.

mod always_admit;
mod gaie_legacy;
mod latency_slo;
mod policy;
mod probabilistic;
mod reject_all;
mod tenant_budgets;
mod tier_shed;
mod token_bucket;

pub use always_admit::AlwaysAdmit;
pub use gaie_legacy::GaieLegacy;
pub use latency_slo::LatencySlo;
pub use policy::{AdmissionDecision, AdmissionPolicy};
pub use probabilistic::Probabilistic;
pub use reject_all::RejectAll;
pub use tenant_budgets::TenantBudgets;
pub use tier_shed::TierShed;
pub use token_bucket::TokenBucket;

fn positive(what: &str, value: f64) -> Result<(), String> {
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(format!("{what} is a number above 0: not {value}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RequestId;
    use crate::policy::testing::{BLOCK_SIZE, TestService};
    use crate::policy::{AdmissionDecision, AdmissionPolicy, Reads, Reason, RequestView};
    use crate::request::{Name, Request};
    use crate::units::Micros;

    /// The decision about a request of class 1 and tenant 2.
    fn decide(
        policy: &mut dyn AdmissionPolicy,
        service: &TestService,
        input_tokens: u32,
        class_priority: i32,
    ) -> AdmissionDecision {
        let mut request = Request::new(RequestId(0), service.now, input_tokens, 1);
        request.tags.slo_class = Name(1);
        request.tags.tenant = Name(2);
        policy.admit(&RequestView::new(&request, class_priority, BLOCK_SIZE), &service.view())
    }

    #[test]
    fn a_bucket_starts_full_and_refills_with_time() {
        let mut service = TestService::idle(1);
        let mut policy = TokenBucket::new(100.0, 1000.0).unwrap();
        let insufficient = AdmissionDecision::Reject(Reason::InsufficientTokens);
        assert_eq!(decide(&mut policy, &service, 100, 3), AdmissionDecision::Admit, "all tokens of the bucket");
        assert_eq!(decide(&mut policy, &service, 1, 3), insufficient);
        service.now = Micros(9_999);
        assert_eq!(decide(&mut policy, &service, 10, 3), insufficient, "9.999 tokens");
        let mut fork = policy.fork();
        service.now = Micros(10_000);
        for policy in [&mut policy, fork.as_mut()] {
            assert_eq!(decide(policy, &service, 11, 3), insufficient, "elapsed time counts once");
            assert_eq!(decide(policy, &service, 10, 3), AdmissionDecision::Admit, "a rejection removes no tokens");
        }
        service.now = Micros(1_000_000);
        assert_eq!(decide(&mut policy, &service, 101, 3), insufficient, "never above its capacity");
        assert_eq!(decide(&mut policy, &service, 100, 3), AdmissionDecision::Admit);
    }

    #[test]
    fn tiers_are_shed_above_the_threshold() {
        let at = |queue, batch, in_flight| {
            TestService::idle(3).with(|signals| {
                signals.queue_depth[1] = queue;
                signals.batch_size[1] = batch;
                signals.in_flight[1] = in_flight;
            })
        };
        let mut policy = TierShed::new(12, 3);
        assert_eq!(decide(&mut policy, &at(4, 4, 4), 1, -3), AdmissionDecision::Admit);
        assert_eq!(decide(&mut policy, &at(4, 4, 5), 1, 3), AdmissionDecision::Admit);
        let reason = Reason::TierShed { class: Name(1), priority: 2, min: 3, load: 13 };
        assert_eq!(decide(&mut policy, &at(4, 4, 5), 1, 2), AdmissionDecision::Reject(reason));
        assert_eq!(
            decide(&mut TierShed::new(0, 3), &TestService::idle(0), 1, -3),
            AdmissionDecision::Admit,
            "no instance, no load"
        );
    }

    #[test]
    fn saturation_is_a_mean_of_the_fuller_measure() {
        let service = TestService::idle(2).with(|signals| {
            signals.queue_depth = vec![1, 5];
            signals.kv_utilization = vec![0.8, 0.2];
        });
        let mut policy = GaieLegacy::new(5.0, 0.8).unwrap();
        let saturated = |saturation| AdmissionDecision::Reject(Reason::GaieSaturated { class: Name(1), saturation });
        assert_eq!(decide(&mut policy, &service, 1, -1), saturated(1.0), "queue 1 on one, KV 1 on the other");
        assert_eq!(decide(&mut policy, &service, 1, 0), AdmissionDecision::Admit);
        let service = service.with(|signals| signals.kv_utilization[0] = 0.79);
        assert_eq!(decide(&mut policy, &service, 1, -1), AdmissionDecision::Admit);
        assert_eq!(decide(&mut policy, &TestService::idle(0), 1, -1), saturated(1.0));
    }

    #[test]
    fn the_probability_of_rejection_grows_with_the_saturation() {
        let stream = crate::rng::Stream::new(1, "admission");
        let mut policy = Probabilistic::new(300.0, 5.0, 5.0, 0.8, stream).unwrap();
        let mut rejected_at = |kv_utilization: f64, priority| {
            let service = TestService::idle(1).with(|signals| signals.kv_utilization[0] = kv_utilization);
            let mut admits = |id| {
                let request = Request::new(RequestId(id), service.now, 10, 1);
                policy.admit(&RequestView::new(&request, priority, BLOCK_SIZE), &service.view())
                    == AdmissionDecision::Admit
            };
            (0..2000).filter(|&id| !admits(id)).count()
        };
        assert_eq!([rejected_at(0.0, -1), rejected_at(0.26, -1), rejected_at(0.26, 0)], [0, 2000, 0]);
        // S = 0.25: 300 · 0.25^5 = 0.293.
        let some = rejected_at(0.2, -1);
        assert!((540..640).contains(&some), "{some} of 2000");
    }

    #[test]
    fn budgets_come_before_the_inner_policy_and_bind_what_may_be_shed() {
        let mut service = TestService::idle(2); // 128 slots
        let mut policy = TenantBudgets::new([(Name(2), 0.25)], Box::new(RejectAll)).unwrap();
        let over = AdmissionDecision::Reject(Reason::TenantBudget);
        let inner = AdmissionDecision::Reject(Reason::RejectAll);
        service.tenants_in_flight = vec![0, 0, 32];
        assert_eq!(decide(&mut policy, &service, 1, -1), inner, "32 of 32 is not over");
        service.tenants_in_flight = vec![0, 0, 33];
        assert_eq!(decide(&mut policy, &service, 1, -1), over);
        assert_eq!(decide(policy.fork().as_mut(), &service, 1, -1), over);
        assert_eq!(decide(&mut policy, &service, 1, 0), inner, "not sheddable");
        let mut other = TenantBudgets::new([(Name(3), 0.0)], Box::new(AlwaysAdmit)).unwrap();
        assert_eq!(decide(&mut other, &service, 1, -1), AdmissionDecision::Admit, "no budget, no limit");
    }

    #[test]
    fn a_budget_of_zero_admits_one_request() {
        let mut service = TestService::idle(2);
        let mut policy = TenantBudgets::new([(Name(2), 0.0)], Box::new(AlwaysAdmit)).unwrap();
        assert_eq!(decide(&mut policy, &service, 1, -1), AdmissionDecision::Admit);
        service.tenants_in_flight = vec![0, 0, 1];
        assert_eq!(decide(&mut policy, &service, 1, -1), AdmissionDecision::Reject(Reason::TenantBudget));
    }

    #[test]
    fn policies_declare_the_signals_that_they_read() {
        let load = Reads { load: true, ..Reads::NOTHING };
        let budgets = TenantBudgets::new([], Box::new(TierShed::new(1, 1))).unwrap();
        assert_eq!(AlwaysAdmit.reads(), Reads::NOTHING);
        assert_eq!(TokenBucket::new(1.0, 1.0).unwrap().reads(), Reads::NOTHING);
        assert_eq!(GaieLegacy::new(5.0, 0.8).unwrap().reads(), load);
        assert_eq!(budgets.reads(), Reads { in_flight: true, ..load });
    }

    #[test]
    fn invalid_parameters_are_refused_with_a_message() {
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
