//! The order of knobs, and which cause binds.

use super::attribution::Times;
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
    pub gives_up: bool,
}

impl RankedKnob {
    /// What it gains for what it costs: the logarithm of the figure over the factor of GPUs.
    fn score(&self) -> f64 {
        self.effect.gain() / self.gpu_factor.max(1.0)
    }

    fn is_free(&self) -> bool {
        self.gpu_factor < 1.001
    }

    fn class(&self, most: f64) -> KnobClass {
        match (self.effect.is_better(), self.effect.is_worse()) {
            (true, _) if self.gives_up => KnobClass::ServesLess,
            (true, _) if self.is_free() && self.effect.gain() >= SUBSTANTIAL * most => KnobClass::Free,
            (true, _) => KnobClass::Better,
            (false, false) => KnobClass::Undecided,
            (false, true) => KnobClass::Worse,
        }
    }
}

/// A knob without further GPUs comes before all that cost some if its gain is at least this part of the largest.
const SUBSTANTIAL: f64 = 0.25;

/// Classes of knobs, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KnobClass {
    Free,
    Better,
    ServesLess,
    Undecided,
    Worse,
}

/// The best first: those that need no further GPUs and do much, then those that improve the figure, by gain for their cost. If the interval of the
/// first contains the effect of one of its class that relieves `expected`, the largest cause, that one is first.
pub(super) fn in_order(mut knobs: Vec<RankedKnob>, expected: Cause) -> Vec<RankedKnob> {
    let gains = knobs.iter().filter(|knob| knob.effect.is_better() && !knob.gives_up).map(|knob| knob.effect.gain());
    let most = gains.fold(0.0, f64::max);
    knobs.sort_by(|a, b| a.class(most).cmp(&b.class(most)).then(b.score().total_cmp(&a.score())));
    let Some(&first) = knobs.first().filter(|knob| knob.class(most) <= KnobClass::Better) else { return knobs };
    let reach = first.effect.interval.map_or(first.effect.change, |interval| interval.high);
    let is_as_good = |knob: &RankedKnob| {
        let is_peer = knob.class(most) == first.class(most) && knob.gpu_factor <= first.gpu_factor;
        is_peer && knob.effect.change <= reach && expected.is_relieved_by(knob.name)
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

/// The causes with their weights, the largest first: their shares, but of decode steps `decode_excess`, the part beyond those that requests have alone, if
/// another cause matters.
pub(super) fn weighted(shares: &Times, decode_excess: f64) -> Vec<(Cause, f64)> {
    let causes = CAUSES[..TIMED].iter().map(|row| row.cause).filter(|&cause| cause != Cause::Fixed);
    let mut weights: Vec<(Cause, f64)> = causes.map(|cause| (cause, shares[cause as usize])).collect();
    let others = weights.iter().filter(|(cause, _)| *cause != Cause::Decode).map(|(_, share)| *share);
    if others.fold(0.0, f64::max) >= MATTERS {
        let decode = weights.iter_mut().filter(|(cause, _)| *cause == Cause::Decode);
        decode.for_each(|(_, share)| *share *= decode_excess);
    }
    weights.sort_by(|a, b| b.1.total_cmp(&a.1));
    weights
}

/// The cause that binds of those of [`weighted`], and whether the best knob relieves it. `best`: the knob that is ranked first, if any improves the
/// figure.
///
/// The largest one binds, unless the best knob does not relieve it and relieves another one that is not much smaller: shares are attributions, and
/// re-simulation proves them.
pub(super) fn binding(causes: &[(Cause, f64)], best: Option<KnobName>) -> (Cause, bool) {
    let (largest, share) = causes[0];
    let Some(best) = best else { return (largest, false) };
    let least = LEAST_SHARE.max(COMPARABLE * share);
    let relieved = causes.iter().find(|(cause, share)| cause.is_relieved_by(best) && *share >= least);
    match relieved {
        Some(&(cause, _)) => (cause, true),
        None => (largest, largest.is_relieved_by(best)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::effect::ChangeInterval;
    use super::*;

    fn knob(name: KnobName, percent: f64, gpu_factor: f64) -> RankedKnob {
        let change = percent / 100.0;
        let interval = Some(ChangeInterval { low: change - 0.02, high: change + 0.02 });
        RankedKnob { name, effect: Effect { change, interval }, gpu_factor, gives_up: false }
    }

    fn shares(of: &[(Cause, f64)]) -> Times {
        let mut shares = [0.0; TIMED];
        of.iter().for_each(|&(cause, share)| shares[cause as usize] = share);
        shares
    }

    #[test]
    fn a_free_knob_that_does_much_comes_before_twice_the_gpus() {
        let knobs = vec![
            knob(KnobName::TensorParallel, -70.0, 2.0),
            knob(KnobName::AdaptersDouble, -44.0, 1.0),
            knob(KnobName::Async, -3.0, 1.0),
        ];
        let names: Vec<KnobName> = in_order(knobs, Cause::AdapterLoad).into_iter().map(|knob| knob.name).collect();
        assert_eq!(names, [KnobName::AdaptersDouble, KnobName::TensorParallel, KnobName::Async]);
    }

    #[test]
    fn of_knobs_that_are_as_good_the_one_for_the_largest_cause_is_first() {
        let knobs = vec![knob(KnobName::WeightsFp8, -98.0, 1.0), knob(KnobName::NoGateway, -97.0, 1.0)];
        assert_eq!(in_order(knobs.clone(), Cause::GatewayQueue)[0].name, KnobName::NoGateway);
        assert_eq!(in_order(knobs, Cause::Decode)[0].name, KnobName::WeightsFp8);
    }

    #[test]
    fn what_serves_less_is_never_first() {
        let less = RankedKnob { gives_up: true, ..knob(KnobName::Rate, -90.0, 1.0) };
        let order = in_order(vec![less, knob(KnobName::KvFp8, -10.0, 1.0)], Cause::KvBlocks);
        assert_eq!(order[0].name, KnobName::KvFp8);
    }

    #[test]
    fn decode_steps_that_requests_have_alone_bind_only_if_nothing_else_matters() {
        let alone = shares(&[(Cause::Decode, 0.9), (Cause::Interference, 0.1)]);
        assert_eq!(weighted(&alone, 0.0)[0].0, Cause::Decode);
        let preempts = shares(&[(Cause::Decode, 0.6), (Cause::Preemption, 0.4)]);
        assert_eq!(weighted(&preempts, 0.2)[0].0, Cause::Preemption);
        assert_eq!(weighted(&preempts, 0.9)[0].0, Cause::Decode);
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
