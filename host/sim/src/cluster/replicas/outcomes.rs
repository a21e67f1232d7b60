//! The latencies of the last minute, as the router measures them.

use std::collections::VecDeque;

use crate::ids::InstanceIndex;
use crate::numbers::count;
use crate::outcome::{FirstToken, Outcome};
use crate::request::{Name, Request};
use crate::scaling::{OUTCOME_WINDOW, OutcomeWindow};
use crate::units::Micros;

/// Arrivals, first tokens and completions of the last minute. Instances run ahead: some of them lie in the future.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct OutcomeLog {
    /// The group of each instance, by index.
    groups: Vec<usize>,
    arrivals: VecDeque<(Micros, Name)>,
    first_tokens: Vec<(Micros, usize, Micros)>,
    completed: Vec<Completion>,
}

#[derive(Clone, Copy, Debug)]
struct Completion {
    at: Micros,
    group: usize,
    tpot: Option<Micros>,
    input_tokens: u32,
    cached_tokens: u32,
    output_tokens: u32,
}

impl OutcomeLog {
    /// The next instance belongs to `group`.
    pub fn add_instance(&mut self, group: usize) {
        self.groups.push(group);
    }

    pub fn arrived(&mut self, request: &Request) {
        self.arrivals.push_back((request.arrival, request.tags.model));
    }

    pub fn first_token(&mut self, first: &FirstToken) {
        let group = self.group(first.instance);
        self.first_tokens.push((first.arrival.saturating_add(first.ttft), group, first.ttft));
    }

    pub fn ended(&mut self, outcome: &Outcome) {
        // The windows of the policy are about completed requests: only these have a latency on an instance.
        let (Some(instance), Some(e2e)) = (outcome.instance, outcome.e2e) else { return };
        let further = outcome.generated_tokens.saturating_sub(1);
        let tpot = |ttft| Micros(e2e.saturating_sub(ttft).0 / u64::from(further));
        self.completed.push(Completion {
            at: outcome.arrival.saturating_add(e2e),
            group: self.group(instance),
            tpot: outcome.ttft.filter(|_| further > 0).map(tpot),
            input_tokens: outcome.input_tokens,
            cached_tokens: outcome.cached_tokens,
            output_tokens: outcome.generated_tokens,
        });
    }

    fn group(&self, instance: InstanceIndex) -> usize {
        self.groups[instance.index()]
    }

    /// Drops what is too old for the windows that end at `now` or later.
    pub fn forget_before(&mut self, now: Micros) {
        let from = now.saturating_sub(OUTCOME_WINDOW);
        while self.arrivals.pop_front_if(|&mut (at, _)| at < from).is_some() {}
        self.first_tokens.retain(|&(at, ..)| at >= from);
        self.completed.retain(|one| one.at >= from);
    }

    /// The window that ends at `now`, exclusive, of a group and of the models that it serves.
    pub fn window(&self, now: Micros, group: usize, serves: impl Fn(Name) -> bool) -> OutcomeWindow {
        let completed = || self.completed.iter().filter(|one| one.group == group && one.at < now);
        let first_tokens = self.first_tokens.iter().filter(|&&(at, of, _)| of == group && at < now);
        let sum = |tokens: fn(&Completion) -> u32| completed().map(|one| u64::from(tokens(one))).sum();
        OutcomeWindow {
            arrived: count(self.arrivals.iter().filter(|&&(at, model)| at < now && serves(model)).count()),
            completed: count(completed().count()),
            ttft_p90: p90(first_tokens.map(|&(_, _, ttft)| ttft).collect()),
            tpot_p90: p90(completed().filter_map(|one| one.tpot).collect()),
            input_tokens: sum(|one| one.input_tokens),
            cached_tokens: sum(|one| one.cached_tokens),
            output_tokens: sum(|one| one.output_tokens),
        }
    }
}

/// The smallest value that nine tenths of the values do not exceed.
fn p90(mut values: Vec<Micros>) -> Option<Micros> {
    values.sort_unstable();
    let rank = (values.len() * 9).div_ceil(10);
    values.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RequestId;
    use crate::outcome::Status;

    #[test]
    fn the_window_is_the_minute_before_the_scrape() {
        let mut log = OutcomeLog::default();
        (0..2).for_each(|group| log.add_instance(group));
        for id in 0..10_u32 {
            let arrival = Micros(u64::from(id) * 10_000_000);
            let request = Request { ..Request::new(RequestId(id), arrival, 100, 11) };
            log.arrived(&request);
            let ttft = Micros(1_000_000 + 1000 * u64::from(id));
            log.first_token(&FirstToken::new(&request, InstanceIndex(id % 2), ttft));
            log.ended(&Outcome {
                instance: Some(InstanceIndex(id % 2)),
                generated_tokens: 11,
                ttft: Some(ttft),
                e2e: Some(ttft + Micros(10 * 7000)),
                cached_tokens: 16,
                ..Outcome::new(&request, Status::Completed)
            });
        }
        let now = Micros(80_000_000);
        log.forget_before(now);
        let window = log.window(now, 1, |_| true);
        // Those of group 1 that arrived at 30, 50 and 70 s; of both groups 20 to 70 s.
        assert_eq!((window.arrived, window.completed), (6, 3));
        assert_eq!((window.ttft_p90, window.tpot_p90), (Some(Micros(1_007_000)), Some(Micros(7000))));
        assert_eq!((window.input_tokens, window.cached_tokens, window.output_tokens), (300, 48, 33));
        assert_eq!(log.window(now, 1, |_| false).arrived, 0);
        let empty = log.window(Micros(1), 0, |_| true);
        assert_eq!((empty.ttft_p90, empty.tpot_p90), (None, None));
        assert_eq!(p90((1..=10).map(Micros).collect()), Some(Micros(9)));
    }
}
