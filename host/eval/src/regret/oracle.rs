//! How much is left: the same run, with each routing decision the best that one step of look-ahead finds.
//!
//! At every decision the candidates are tried out for a while, the policy deciding from then on; the one
//! that costs least is taken for good, and so on to the end. It knows the arrivals to come and the lengths
//! of answers, so no real policy can do that. It is a bound found by search, not the optimum: a policy that
//! beats it is possible, far from it is not.

use blis_sim::cluster::{Force, Halt, Timeline};
use blis_sim::cost::Cost;
use blis_sim::instance::Instance;
use blis_sim::observer::Observer;
use blis_sim::outcome::Counters;
use blis_sim::units::Micros;
use rayon::prelude::*;
use serde::Serialize;

use super::run_world;
use super::worlds::{Sight, candidates, state};

/// What the look-ahead did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Oracle {
    /// Routing decisions.
    pub decisions: u64,
    /// Of those, the ones that were not the policy's.
    pub changed: u64,
}

/// Runs `timeline` to its end, every routing decision being the best of the policy's and `alternatives`
/// others over `window`; of equal ones the policy's.
///
/// # Errors
/// The first failure of a world.
pub fn look_ahead<I: Instance + Clone + Send + Sync>(
    mut timeline: Timeline<I>,
    window: Micros,
    alternatives: usize,
    observer: &mut dyn Observer,
) -> Result<(Vec<Counters>, Oracle), Halt> {
    let mut oracle = Oracle::default();
    while timeline.next_decision(observer)? {
        let pending = timeline.pending().filter(|pending| !pending.is_admission);
        if let Some((at, request)) = pending.map(|pending| (pending.at, pending.request.clone())) {
            let mut sight = Sight::default();
            timeline.clone().decide(&mut sight)?;
            if let Some(Force::Route(chosen)) = sight.answer {
                let mut fork = timeline.clone();
                let mut past = Cost::new(at, at.saturating_add(window), request.id);
                fork.catch_up(at, &mut past)?;
                let state = state(&fork, &request);
                let mut places = vec![chosen];
                places.extend(candidates(&sight.scores(), &state, chosen, alternatives));
                let worlds: Vec<(Timeline<I>, u32)> = places.iter().map(|&place| (fork.clone(), place)).collect();
                let costs: Vec<Result<Cost, Halt>> = worlds
                    .into_par_iter()
                    .map(|(world, place)| {
                        let force = Some((request.id, Force::Route(place)));
                        run_world(world, force, past.clone(), (at, window), false)
                    })
                    .collect();
                let costs: Vec<Micros> =
                    costs.into_iter().map(|cost| Ok(cost?.present)).collect::<Result<_, Halt>>()?;
                let best = places.iter().zip(&costs).min_by_key(|(_, cost)| **cost).map_or(chosen, |(&place, _)| place);
                oracle.decisions += 1;
                if best != chosen {
                    oracle.changed += 1;
                    timeline.force(request.id, Force::Route(best));
                }
            }
        }
        timeline.decide(observer)?;
    }
    Ok((timeline.finish(Micros::MAX, observer)?, oracle))
}
