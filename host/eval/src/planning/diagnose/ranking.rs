//! The order of knobs, and which cause binds.

use super::attribution::CauseTimes;
use super::cause::{CAUSES, Cause, TIMED};
use super::effect::Effect;
use super::knob::KnobName;

/// A knob that was tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankedKnob {
    pub name: KnobName,
    pub effect: Effect,
    /// GPUs over those of the service.
    pub gpu_factor: f64,
    /// Whether it serves less.
    pub serves_less: bool,
}

impl RankedKnob {
    /// What it gains for what it costs: the logarithm of the figure over the factor of GPUs.
    fn score(&self) -> f64 {
        self.effect.gain() / self.gpu_factor.max(1.0)
    }

    fn is_free(&self) -> bool {
        self.gpu_factor < 1.001
    }

    fn class(&self) -> KnobClass {
        match (self.effect.is_better(), self.effect.is_worse()) {
            (true, _) if self.serves_less => KnobClass::ServesLess,
            (true, _) => KnobClass::Better,
            (false, false) => KnobClass::Undecided,
            (false, true) => KnobClass::Worse,
        }
    }
}

/// The share of the best score from which on a knob is about as good.
const ABOUT_AS_GOOD: f64 = 0.75;
/// The same for a knob without further GPUs, if the best one needs some: faster GPUs make everything faster, and prove little.
const ABOUT_AS_GOOD_FOR_FREE: f64 = 0.25;

/// Classes of knobs, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KnobClass {
    Better,
    ServesLess,
    Undecided,
    Worse,
}

/// The best first: those that improve the figure, by gain for their cost; of those that are about as good as the first, one that relieves `expected`,
/// the largest cause, comes before it. Behind them those that serve less, then those that change nothing.
pub(super) fn in_order(mut knobs: Vec<RankedKnob>, expected: Cause) -> Vec<RankedKnob> {
    knobs.sort_by(|a, b| a.class().cmp(&b.class()).then(b.score().total_cmp(&a.score())));
    let Some(&best) = knobs.first().filter(|knob| knob.class() == KnobClass::Better) else { return knobs };
    let is_as_good = |knob: &RankedKnob| {
        let least = if knob.is_free() && !best.is_free() { ABOUT_AS_GOOD_FOR_FREE } else { ABOUT_AS_GOOD };
        let is_close = knob.class() == KnobClass::Better && knob.score() >= least * best.score();
        is_close && expected.is_relieved_by(knob.name)
    };
    if let Some(index) = knobs.iter().position(is_as_good) {
        knobs[..=index].rotate_right(1);
    }
    knobs
}

/// A cause with less than this part of the time does not bind.
const LEAST_SHARE: f64 = 0.1;
/// A cause binds instead of the largest one if it has at least this part of that one's time, and the best knob relieves it alone.
const COMPARABLE: f64 = 0.3;
/// From which share on another cause is compared with the excess of decode steps only: those that a request has alone are its own work.
const MATTERS: f64 = 0.15;

/// A cause and how much it counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct WeightedCause {
    pub cause: Cause,
    /// At most its share of the time.
    pub weight: f64,
}

/// The causes with their weights, the largest first: their shares, but of decode steps `decode_excess`, the part beyond those that requests have alone, if
/// another cause matters.
pub(super) fn weighted(shares: &CauseTimes, decode_excess: f64) -> Vec<WeightedCause> {
    let causes = CAUSES[..TIMED].iter().map(|row| row.cause).filter(|&cause| cause != Cause::Fixed);
    let mut causes: Vec<WeightedCause> =
        causes.map(|cause| WeightedCause { cause, weight: shares[cause as usize] }).collect();
    let others = causes.iter().filter(|one| one.cause != Cause::Decode).map(|one| one.weight);
    if others.fold(0.0, f64::max) >= MATTERS {
        let decode = causes.iter_mut().filter(|one| one.cause == Cause::Decode);
        decode.for_each(|one| one.weight *= decode_excess);
    }
    causes.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    causes
}

/// The cause that binds of those of [`weighted`], and whether the best knob relieves it. `best`: the knob that is ranked first, if any improves the
/// figure.
///
/// The largest one binds, unless the best knob does not relieve it and relieves another one that is not much smaller: shares are attributions, and
/// re-simulation proves them.
pub(super) fn binding(causes: &[WeightedCause], best: Option<KnobName>) -> (Cause, bool) {
    let largest = causes[0];
    let Some(best) = best else { return (largest.cause, false) };
    let least = LEAST_SHARE.max(COMPARABLE * largest.weight);
    let relieved = causes.iter().find(|one| one.cause.is_relieved_by(best) && one.weight >= least);
    match relieved {
        Some(one) => (one.cause, true),
        None => (largest.cause, largest.cause.is_relieved_by(best)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::effect::ChangeInterval;
    use super::*;

    fn knob(name: KnobName, percent: f64, gpu_factor: f64) -> RankedKnob {
        let change = percent / 100.0;
        let interval = Some(ChangeInterval { low: change - 0.02, high: change + 0.02 });
        RankedKnob { name, effect: Effect { change, interval }, gpu_factor, serves_less: false }
    }

    fn shares(of: &[(Cause, f64)]) -> CauseTimes {
        let mut shares = [0.0; TIMED];
        of.iter().for_each(|&(cause, share)| shares[cause as usize] = share);
        shares
    }

    #[test]
    fn twice_the_gpus_must_do_twice_as_much() {
        let knobs = vec![
            knob(KnobName::TensorParallel, -70.0, 2.0),
            knob(KnobName::AdaptersDouble, -44.0, 1.0),
            knob(KnobName::WeightsFp8, -50.0, 1.0),
        ];
        let names: Vec<KnobName> = in_order(knobs, Cause::AdapterLoad).into_iter().map(|knob| knob.name).collect();
        assert_eq!(names, [KnobName::AdaptersDouble, KnobName::WeightsFp8, KnobName::TensorParallel]);
    }

    #[test]
    fn of_knobs_that_are_as_good_the_one_for_the_largest_cause_is_first() {
        let knobs = vec![knob(KnobName::WeightsFp8, -98.0, 1.0), knob(KnobName::NoGateway, -97.0, 1.0)];
        assert_eq!(in_order(knobs.clone(), Cause::GatewayQueue)[0].name, KnobName::NoGateway);
        assert_eq!(in_order(knobs, Cause::Decode)[0].name, KnobName::WeightsFp8);
    }

    #[test]
    fn a_free_knob_for_the_largest_cause_comes_before_faster_gpus() {
        let knobs = || vec![knob(KnobName::TensorParallel, -44.0, 2.0), knob(KnobName::RouteTokenAware, -17.0, 1.0)];
        assert_eq!(in_order(knobs(), Cause::ColdCache)[0].name, KnobName::RouteTokenAware);
        assert_eq!(in_order(knobs(), Cause::OwnPrefill)[0].name, KnobName::TensorParallel);
    }

    #[test]
    fn what_serves_less_is_never_first() {
        let less = RankedKnob { serves_less: true, ..knob(KnobName::Rate, -90.0, 1.0) };
        let order = in_order(vec![less, knob(KnobName::KvFp8, -10.0, 1.0)], Cause::KvBlocks);
        assert_eq!(order[0].name, KnobName::KvFp8);
    }

    #[test]
    fn decode_steps_that_requests_have_alone_bind_only_if_nothing_else_matters() {
        let alone = shares(&[(Cause::Decode, 0.9), (Cause::Interference, 0.1)]);
        assert_eq!(weighted(&alone, 0.0)[0].cause, Cause::Decode);
        let preempts = shares(&[(Cause::Decode, 0.6), (Cause::Preemption, 0.4)]);
        assert_eq!(weighted(&preempts, 0.2)[0].cause, Cause::Preemption);
        assert_eq!(weighted(&preempts, 0.9)[0].cause, Cause::Decode);
    }

    #[test]
    fn the_best_knob_proves_a_cause_with_a_comparable_share() {
        let causes = weighted(&shares(&[(Cause::TokenBudget, 0.6), (Cause::ColdCache, 0.3)]), 0.0);
        assert_eq!(binding(&causes, Some(KnobName::RouteTokenAware)), (Cause::ColdCache, true));
        assert_eq!(binding(&causes, Some(KnobName::TokensDouble)), (Cause::TokenBudget, true));
        assert_eq!(binding(&causes, Some(KnobName::Async)), (Cause::TokenBudget, false));
        assert_eq!(binding(&causes, None), (Cause::TokenBudget, false));
    }
}
