//! Schedules first the request that must start first to meet its time to first token.
//!
//! Each class has a target for its time to first token. A request with a long prompt must start earlier than one with a
//! short prompt to meet the same target, so requests are ordered by their latest start:
//!
//! ```text
//! rank = min(arrival + target of its class, deadline of the client) - duration of its prefill
//! ```
//!
//! Earliest deadline first meets all deadlines whenever any order does (on one server with preemption); under overload
//! it degrades without starving a class, because *age is in the rank*: a batch request with a target of 30 s is
//! scheduled before every critical request that arrives 30 s after it. Fixed priorities starve the lowest class under
//! the same load.
//!
//! The output of a preempted request has stalled: its next token is due now, so it is scheduled before all
//! requests that can still meet their target, and after those that are late.
//!
//! The prefill speed of an instance depends on its batch; a constant estimate is enough here, because only differences
//! between prompts matter.

use blis_sdk::{Description, Policy, Queued, Request, Scheduling, Setup};
use serde::{Deserialize, Serialize};

/// Targets for the time to first token, µs, and the prefill time per token, µs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SloScheduler {
    critical_us: f64,
    standard_us: f64,
    batch_us: f64,
    us_per_token: f64,
}

impl Policy for SloScheduler {
    type Signals = ();

    fn describe() -> Description {
        Description::new("slo-scheduler")
            .version(env!("CARGO_PKG_VERSION"))
            .about("Earliest latest-start first: targets by class for the time to first token, less the prefill.")
            .parameter("critical_ms", 500.0, 1.0..=3_600_000.0, "target of classes of priority 4 and above")
            .parameter("standard_ms", 2_000.0, 1.0..=3_600_000.0, "target of classes of priority 0 to 3")
            .parameter(
                "batch_ms",
                30_000.0,
                1.0..=3_600_000.0,
                "target of classes of priority below 0, which may be rejected under load",
            )
            .parameter("prefill_tokens_per_s", 20_000.0, 1.0..=1e9, "prefill speed of an instance")
    }

    fn new(setup: &Setup) -> Result<Self, String> {
        Ok(Self {
            critical_us: 1e3 * setup.parameter("critical_ms"),
            standard_us: 1e3 * setup.parameter("standard_ms"),
            batch_us: 1e3 * setup.parameter("batch_ms"),
            us_per_token: 1e6 / setup.parameter("prefill_tokens_per_s"),
        })
    }
}

impl Scheduling for SloScheduler {
    fn rank(&mut self, request: &Request, queued: &Queued) -> f64 {
        let due = if queued.generated_tokens > 0 {
            request.now_us as f64
        } else {
            let target = request.arrival_us as f64 + self.target_us(request.class_priority);
            request.deadline().map_or(target, |deadline| target.min(deadline as f64))
        };
        // After a preemption, prompt and generated tokens are computed again.
        let tokens = f64::from(request.input_tokens) + f64::from(queued.generated_tokens);
        due - tokens * self.us_per_token
    }
}

impl SloScheduler {
    fn target_us(&self, class_priority: i32) -> f64 {
        match class_priority {
            4.. => self.critical_us,
            0..4 => self.standard_us,
            ..0 => self.batch_us,
        }
    }
}

blis_sdk::export_policy!(SloScheduler: Scheduling);

#[cfg(test)]
mod tests {
    use blis_sdk::Kind;

    use super::*;

    fn rank(request: Request, queued: Queued) -> f64 {
        let setup = Setup::of(Kind::Scheduling, &SloScheduler::describe());
        SloScheduler::new(&setup).unwrap().rank(&request, &queued)
    }

    fn at(arrival_us: u64, class_priority: i32, input_tokens: u32) -> Request {
        Request { arrival_us, now_us: arrival_us, class_priority, input_tokens, ..Request::default() }
    }

    fn fresh(request: Request) -> f64 {
        rank(request, Queued::default())
    }

    #[test]
    fn high_priority_classes_and_long_prompts_start_first() {
        assert!(fresh(at(0, 4, 100)) < fresh(at(0, 3, 100)));
        assert!(fresh(at(0, 3, 100)) < fresh(at(0, -3, 100)));
        assert!(fresh(at(0, 3, 8000)) < fresh(at(0, 3, 100)), "it needs more time");
    }

    #[test]
    fn no_class_starves() {
        let batch = fresh(at(0, -1, 100));
        assert!(fresh(at(29_000_000, 4, 100)) < batch);
        assert!(batch < fresh(at(30_000_000, 4, 100)), "after 30 s it comes before new critical requests");
    }

    #[test]
    fn a_client_about_to_leave_counts() {
        let patient = at(0, -1, 100);
        assert_eq!(fresh(Request { deadline_us: 400_000, ..patient }), 400_000.0 - 5_000.0);
        assert_eq!(fresh(Request { deadline_us: 90_000_000, ..patient }), fresh(patient));
    }

    #[test]
    fn a_preempted_request_is_due_now() {
        let request = Request { now_us: 7_000_000, ..at(6_900_000, 3, 100) };
        let preempted = Queued { generated_tokens: 300, preemptions: 1, turn: -1, ..Queued::default() };
        assert_eq!(rank(request, preempted), 7_000_000.0 - 20_000.0);
        assert!(rank(request, preempted) < fresh(at(7_000_000, 4, 100)));
        assert!(fresh(at(5_000_000, 3, 1000)) < rank(request, preempted), "that one is late");
    }
}
