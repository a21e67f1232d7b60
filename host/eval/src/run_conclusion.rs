//! What follows from one run, in a sentence.

use blis_report::{Concludes, Conclusion, ConclusionKind, latency_in_words, three_digits};
use blis_stats::{RunState, StateReason};

use crate::run::RunResult;
use crate::run_state::in_words;

impl Concludes for RunResult {
    fn conclusion(&self) -> Conclusion {
        let all = &self.report.cluster;
        let rate = three_digits(all.responses_per_second());
        let text = match self.state.state {
            RunState::Overloaded => self.overloaded(),
            RunState::TooShort => self.too_short(),
            RunState::Starved | RunState::Deadline => {
                format!("{}; {rate} requests/s are served", in_words(&self.state))
            }
            _ if all.ttft.count == 0 => format!("{}: no request completed", in_words(&self.state)),
            state => {
                let ttft = latency_in_words(all.ttft.p95_ms);
                let within = self.report.goodput.as_ref().map_or(String::new(), |goodput| {
                    format!(", {} % within SLO", three_digits(100.0 * goodput.slo_attainment))
                });
                let (begin, separator) = match state {
                    RunState::Steady if self.load.is_none() => ("All requests at once".to_owned(), ':'),
                    RunState::Steady => (in_words(&self.state), ':'),
                    _ => (in_words(&self.state), ';'),
                };
                format!("{begin}{separator} p95 TTFT {ttft}, {rate} requests/s{within} on {}", self.service())
            }
        };
        Conclusion::new(ConclusionKind::State(self.state.state), text)
    }

    fn caveats(&self) -> Vec<blis_report::Caveat> {
        self.caveats.clone()
    }
}

impl RunResult {
    /// `4 × H100 (qwen3-14b, TP 2)`.
    fn service(&self) -> String {
        self.subject.service_in_words()
    }

    fn overloaded(&self) -> String {
        match (self.state.reason, &self.load) {
            (StateReason::Lost(_), _) => in_words(&self.state),
            (_, Some(load)) => format!(
                "Overloaded: {} requests/s arrive, {} are served; latencies grow with the run",
                three_digits(load.offered_rps),
                three_digits(load.served_rps)
            ),
            (_, None) => "Overloaded: latencies grow with the run".to_owned(),
        }
    }

    fn too_short(&self) -> String {
        let arrivals = self.report.arrived;
        let span = self.load.as_ref().map_or(0.0, |load| load.arrivals_s);
        format!("Too short: {arrivals} requests arrive in {} s, before the service is steady", three_digits(span))
    }
}
