//! The race: of all designs, the cheapest deployments that hold under all seeds.
//!
//! 1. *Screening*: families first, then batches and routers from the number of their family, up to a third more than the cheapest.
//! 2. *Incumbent*: the cheapest families with all seeds; the cheapest that holds sets the cost.
//! 3. *Challenge*: every design that may be as cheap is tried at the most replicas for that cost, and at one fewer, with two seeds. Those that fail under both
//!    are out. Of those that only tie, the half with more slack stays. What is left is searched with all seeds, and may set a lower cost;
//!    then again, until nothing changes.
//! 4. *Lengthening*: what would be cheaper and is undecided is run longer, fewer of them each time.

use std::collections::BTreeMap;

use crate::error::RunError;
use crate::planning::PlanConfig;
use crate::planning::length::RunLength;
use crate::planning::load::{LoadUnit, SeededLoad};
use crate::planning::load_run::EarlyStop;
use crate::planning::size::SizeResult;
use crate::runs::run_all;

use super::bench::{Bench, EvaluatedDeployment, Loads, SearchRequests, slack};
use super::config::AdviseConfig;
use super::screening::{Screened, best_division, first_guess, screen};
use super::space::{Design, MOST_REPLICAS, ReplicaLayout};
use crate::planning::fewest::{Fewest, ProbeResult, fewest};

/// A run ends early with that many times the violations that a percentile allows, as in `blis size`.
const STOP: EarlyStop = EarlyStop(5.0);
/// How much more than the cheapest family a design of another batch may need to be screened, as a multiple of the cost.
const SCREENED_UP_TO: f64 = 1.34;
/// Requests of the screening at least and at most.
const FEWEST_SCREENED: u64 = 500;
const MOST_SCREENED: usize = 20_000;
/// Families that are searched first with all seeds.
const LEADERS: usize = 4;
/// Seeds of a challenge.
const CHALLENGE_SEEDS: usize = 2;
/// Ties that are not halved.
const FEWEST_TIES: usize = 40;
/// How many undecided designs are run longer, by attempt.
const LENGTHENED: [usize; 3] = [12, 6, 3];

/// Requests of all runs of a stage, about: of long runs, fewer designs are looked at.
const STAGE: u64 = 4_000_000;
/// The same of sessions, which have long prompts and take longer to simulate.
const STAGE_OF_SESSIONS: u64 = 1_000_000;
/// Runs of a design, about: of the screening, and that of the first of a family; of a challenge; of a search, as a multiple of the seeds.
const SCREENING_RUNS: u64 = 3;
const FAMILY_RUNS: u64 = 5;
const CHALLENGE_RUNS: u64 = 4;
const SEARCH_ROUNDS: u64 = 3;

/// A deployment: the index of its design, and its replicas.
pub(super) type Deployed = (usize, ReplicaLayout);

/// A race and what it found.
pub(super) struct Race<'a> {
    pub config: &'a PlanConfig,
    pub designs: &'a [Design],
    pub bench: Bench<'a>,
    pub requests: SearchRequests<'a>,
    pub length: RunLength,
    /// Requests of all runs of a stage, about.
    stage: u64,
    /// By design; `None` of those that were never tried.
    pub screened: Vec<Option<Screened>>,
    /// Under all seeds.
    pub evaluated: BTreeMap<Deployed, EvaluatedDeployment>,
    /// Under two seeds: those that fail.
    refuted: BTreeMap<Deployed, ()>,
}

impl<'a> Race<'a> {
    pub fn new(config: &'a AdviseConfig) -> Result<Self, RunError> {
        let designs = &config.space.designs[..];
        let (requests, length) = (SearchRequests::new(designs, &config.slos), RunLength::new(&config.plan)?);
        let is_of_sessions = requests.of(0, &config.plan.seeds[..1], length.requests())?[0].sessions.is_some();
        Ok(Self {
            config: &config.plan,
            designs,
            bench: Bench::new(designs, &config.slos),
            requests,
            length,
            stage: if is_of_sessions { STAGE_OF_SESSIONS } else { STAGE },
            screened: designs.iter().map(|_| None).collect(),
            evaluated: BTreeMap::new(),
            refuted: BTreeMap::new(),
        })
    }

    /// Runs the race to its end.
    pub fn run(&mut self) -> Result<(), RunError> {
        self.screen_families()?;
        self.note("families screened");
        self.screen_others()?;
        self.note("others screened");
        loop {
            self.find_incumbents()?;
            self.note("incumbents found");
            self.challenge_until_stable()?;
            self.note("no challenge left");
            let is_cheaper = self.lengthen()?;
            self.note("undecided ones run longer");
            if is_cheaper {
                continue;
            }
            let Some(longer) = self.longer_for_best() else { return Ok(()) };
            self.length = longer;
            self.evaluated.clear();
            self.refuted.clear();
        }
    }

    /// How many designs a stage has time for, at least 1, if each takes `runs` runs of `requests` requests.
    fn affordable(&self, runs: u64, requests: u64) -> usize {
        (self.stage / (runs * requests).max(1)).clamp(1, u64::from(u32::MAX)) as usize
    }

    /// How many designs a stage has time for that searches each with all seeds.
    pub fn searches_affordable(&self) -> Result<usize, RunError> {
        let runs = SEARCH_ROUNDS * self.config.seeds.len() as u64;
        Ok(self.affordable(runs, self.requests_of_run()?))
    }

    /// Requests of a run.
    pub fn requests_of_run(&self) -> Result<u64, RunError> {
        let loads = self.requests.of(0, &self.config.seeds[..1], self.length.requests())?;
        Ok(loads[0].requests().unwrap_or(1))
    }

    /// Logs how far the search is.
    pub fn note(&self, what: &str) {
        let (runs, requests) = (self.bench.runs(), self.length.requests());
        tracing::debug!(
            "advise: {what}; {runs} runs so far, of {requests:?} requests; best cost {:?}",
            self.best().map(|(_, cost)| cost)
        );
    }

    /// The requests of the search for a design.
    pub fn loads(&self, index: usize) -> Result<Loads, RunError> {
        self.requests.of(index, &self.config.seeds, self.length.requests())
    }

    /// The cheapest deployment that holds, and what it costs.
    pub fn best(&self) -> Option<(Deployed, f64)> {
        self.holders().first().map(|&deployed| (deployed, self.cost(deployed)))
    }

    /// All deployments that hold under all seeds: the cheapest first, of equal ones that with more slack, then with fewer settings.
    pub fn holders(&self) -> Vec<Deployed> {
        let holding = self.evaluated.iter().filter(|(_, of)| of.holds()).map(|(&deployed, _)| deployed);
        let mut holders: Vec<Deployed> = holding.collect();
        holders.sort_by(|&a, &b| self.compare(a, b));
        holders
    }

    fn compare(&self, a: Deployed, b: Deployed) -> std::cmp::Ordering {
        let slack = |deployed: Deployed| self.evaluated.get(&deployed).map_or(f64::NEG_INFINITY, |of| of.slack);
        let settings = |(index, _): Deployed| self.designs[index].settings.len();
        let by_cost = self.cost(a).total_cmp(&self.cost(b));
        by_cost.then(slack(b).total_cmp(&slack(a))).then(settings(a).cmp(&settings(b))).then(a.cmp(&b))
    }

    pub fn cost(&self, (index, layout): Deployed) -> f64 {
        self.designs[index].cost(layout)
    }

    /// The requests of the screening.
    pub fn screening_load(&self, index: usize) -> Result<SeededLoad, RunError> {
        let loads = self.requests.of(index, &self.config.seeds[..1], self.length.requests())?;
        let half = loads[0].requests().unwrap_or(0) / 2;
        Ok(loads[0].beginning((half.max(FEWEST_SCREENED) as usize).min(MOST_SCREENED)))
    }

    /// The first design of each family. Runs are lengthened until those of the cheapest are long enough.
    fn screen_families(&mut self) -> Result<(), RunError> {
        let mut seen = std::collections::BTreeSet::new();
        let firsts = (0..self.designs.len()).filter(|&index| seen.insert(self.designs[index].family));
        let mut firsts: Vec<usize> = firsts.collect();
        loop {
            let requests = self.screening_load(firsts[0])?.requests().unwrap_or(1);
            let affordable = 2 * self.affordable(FAMILY_RUNS, requests);
            if firsts.len() > affordable {
                // The plain ones first: whole requests, then formats as published.
                firsts.sort_by_key(|&index| (self.designs[index].has_roles, self.designs[index].settings.len(), index));
                firsts.truncate(affordable);
            }
            let found = run_all(&firsts, &[0], |&index, _| {
                let seeded = self.screening_load(index)?;
                let design = &self.designs[index];
                screen(&self.bench, index, &seeded, guess(design, &seeded), design.most)
            })?;
            for (&index, of) in firsts.iter().zip(found.into_iter().flatten()) {
                self.screened[index] = Some(of);
            }
            let Some(longer) = self.longer_for_screening(&firsts)? else { return Ok(()) };
            self.length = longer;
        }
    }

    /// The length with which the cheapest screened design would be long enough, if it is not.
    fn longer_for_screening(&self, firsts: &[usize]) -> Result<Option<RunLength>, RunError> {
        let holding = firsts.iter().filter_map(|&index| Some((index, self.screened[index].as_ref()?)));
        let holding = holding.filter(|(_, of)| of.holds());
        let cheapest = holding
            .min_by(|(a, one), (b, other)| self.cost((*a, one.layout)).total_cmp(&self.cost((*b, other.layout))));
        let Some((index, of)) = cheapest else { return Ok(None) };
        let (Some(whole), Some(needed)) = (self.length.requests(), self.length.needed_by(&of.run)) else {
            return Ok(None);
        };
        let used = self.screening_load(index)?.requests().unwrap_or(whole);
        let wanted = (needed as f64 * used as f64 / whole as f64).ceil() as u64;
        Ok(if wanted > whole { self.length.extended(wanted) } else { None })
    }

    /// What the cheapest screened design costs.
    fn screened_cost(&self) -> Option<f64> {
        let holding = self.screened.iter().enumerate().filter_map(|(index, of)| Some((index, of.as_ref()?)));
        let costs = holding.filter(|(_, of)| of.holds()).map(|(index, of)| self.cost((index, of.layout)));
        costs.min_by(f64::total_cmp)
    }

    fn screen_others(&mut self) -> Result<(), RunError> {
        /// Replicas up to which designs are tried if no family holds.
        const WITHOUT_COST: u32 = 64;
        let cost = self.screened_cost();
        let mut family_layout: BTreeMap<usize, u32> = BTreeMap::new();
        let mut family_cost: BTreeMap<usize, f64> = BTreeMap::new();
        for (index, of) in self.screened.iter().enumerate() {
            let Some(of) = of.as_ref().filter(|of| of.holds()) else { continue };
            family_layout.insert(self.designs[index].family, of.layout.replicas);
            family_cost.insert(self.designs[index].family, self.cost((index, of.layout)));
        }
        let others = (0..self.designs.len()).filter(|&index| self.screened[index].is_none());
        let mut others: Vec<usize> = others.collect();
        let of_family = |&index: &usize| family_cost.get(&self.designs[index].family).copied().unwrap_or(f64::INFINITY);
        others.sort_by(|a, b| of_family(a).total_cmp(&of_family(b)).then(a.cmp(b)));
        let requests = self.screening_load(0)?.requests().unwrap_or(1);
        others.truncate(self.affordable(SCREENING_RUNS, requests));
        let found = run_all(&others, &[0], |&index, _| {
            let design = &self.designs[index];
            let most = cost.map_or(design.most.min(WITHOUT_COST), |cost| design.replicas_for(cost * SCREENED_UP_TO));
            let of_family = family_layout.get(&design.family).copied();
            let start = of_family.unwrap_or_else(|| cost.map_or(most, |cost| design.replicas_for(cost)));
            let seeded = self.screening_load(index)?;
            screen(&self.bench, index, &seeded, start, most.max(design.least))
        })?;
        for (index, of) in others.into_iter().zip(found.into_iter().flatten()) {
            self.screened[index] = Some(of);
        }
        Ok(())
    }

    /// Searches the cheapest designs of the cheapest families with all seeds; if none holds in the screening, those that came closest.
    fn find_incumbents(&mut self) -> Result<(), RunError> {
        if self.best().is_some() {
            return Ok(());
        }
        let mut order: Vec<(usize, &Screened)> =
            self.screened.iter().enumerate().filter_map(|(index, of)| Some((index, of.as_ref()?))).collect();
        let excess = |of: &Screened| of.run.results.iter().map(|of| of.excess).fold(f64::NEG_INFINITY, f64::max);
        order.sort_by(|(a, one), (b, other)| {
            let by_cost = self.cost((*a, one.layout)).total_cmp(&self.cost((*b, other.layout)));
            let by_cost = if one.holds() { by_cost } else { std::cmp::Ordering::Equal };
            other.holds().cmp(&one.holds()).then(by_cost).then(excess(one).total_cmp(&excess(other))).then(a.cmp(b))
        });
        let mut seen = std::collections::BTreeSet::new();
        let leaders = order.into_iter().filter(|(index, _)| seen.insert(self.designs[*index].family));
        let leaders = leaders.take(LEADERS.min(self.searches_affordable()?));
        let leaders: Vec<DesignSearch> = leaders
            .map(|(index, of)| DesignSearch {
                index,
                start: of.layout.replicas,
                least: 1,
                most: self.designs[index].most,
            })
            .collect();
        self.search_all(&leaders)
    }

    /// Searches each with all seeds.
    pub fn search_all(&mut self, searches: &[DesignSearch]) -> Result<(), RunError> {
        let found = run_all(searches, &[0], |search, _| self.search(search))?;
        self.evaluated.extend(found.into_iter().flatten().flatten());
        Ok(())
    }

    /// The fewest replicas that hold with all seeds: everything that was tried.
    fn search(&self, search: &DesignSearch) -> Result<Vec<(Deployed, EvaluatedDeployment)>, RunError> {
        let &DesignSearch { index, start, least, most } = search;
        let design = &self.designs[index];
        let loads = self.loads(index)?;
        let mut tried: Vec<(Deployed, EvaluatedDeployment)> = Vec::new();
        let least = least.max(design.least);
        fewest(start, least, most.max(least), |replicas| {
            let layout = self.layout(index, replicas)?;
            let known = self.evaluated.get(&(index, layout)).cloned();
            let of = known.map_or_else(|| self.bench.evaluate(index, layout, &loads, STOP), Ok)?;
            let idle = of.runs.iter().all(|run| crate::planning::size::is_idle(run, replicas));
            let found = if of.holds() {
                ProbeResult::Holds
            } else if idle {
                ProbeResult::Idle
            } else {
                ProbeResult::Fails
            };
            tried.push(((index, layout), of));
            Ok(found)
        })?;
        Ok(tried)
    }

    /// The replicas of a design, divided into roles if it has some.
    pub fn layout(&self, index: usize, replicas: u32) -> Result<ReplicaLayout, RunError> {
        let design = &self.designs[index];
        if let Some(fixed) = design.fixed_roles {
            return Ok(fixed);
        }
        if !design.has_roles {
            return Ok(ReplicaLayout::of(replicas));
        }
        let screened = self.screened[index].as_ref().map(|of| of.layout);
        if let Some(known) = screened.filter(|layout| layout.replicas == replicas) {
            return Ok(known);
        }
        let share = screened.map_or(0.5, |of| f64::from(of.prefill) / f64::from(of.replicas));
        Ok(best_division(&self.bench, index, &self.screening_load(index)?, replicas, share)?.0)
    }

    /// As [`Self::layout`], divided as `near` is.
    pub fn layout_from(&self, index: usize, near: ReplicaLayout, replicas: u32) -> Result<ReplicaLayout, RunError> {
        if near.replicas == replicas { Ok(near) } else { self.layout(index, replicas) }
    }

    fn challenge_until_stable(&mut self) -> Result<(), RunError> {
        if self.best().is_none() && self.designs.iter().any(|design| design.most < MOST_REPLICAS) {
            self.challenge(f64::INFINITY)?;
        }
        while let Some((_, cost)) = self.best() {
            self.challenge(cost)?;
            if self.best().is_some_and(|(_, now)| now >= cost) {
                break;
            }
        }
        Ok(())
    }

    /// Tries everything that may cost as little as `cost`, or less.
    fn challenge(&mut self, cost: f64) -> Result<(), RunError> {
        let mut challengers: Vec<usize> = (0..self.designs.len()).filter(|&index| self.may_cost(index, cost)).collect();
        let affordable = self.affordable(CHALLENGE_RUNS, self.requests_of_run()?);
        if challengers.len() > affordable {
            self.best_first(&mut challengers);
            challengers.truncate(affordable);
        }
        let tried = run_all(&challengers, &[0], |&index, _| self.tried_with_two(index, cost))?;
        let mut ties: Vec<Challenge> = Vec::new();
        let mut searches = Vec::new();
        for of in tried.into_iter().flatten() {
            self.refuted.extend(of.refuted.iter().map(|&deployed| (deployed, ())));
            let is_tie = self.designs[of.index].unit_cost() * f64::from(of.most) >= cost * (1.0 - 1e-9);
            match (of.most_may_hold, of.fewer_may_hold) {
                (_, true) => {
                    searches.push(DesignSearch { index: of.index, start: of.most - 1, least: 1, most: of.most });
                }
                (true, false) if is_tie => ties.push(of),
                (true, false) => {
                    searches.push(DesignSearch { index: of.index, start: of.most, least: of.most, most: of.most });
                }
                (false, false) => {}
            }
        }
        ties.sort_by(|a, b| b.slack.total_cmp(&a.slack).then(a.index.cmp(&b.index)));
        ties.truncate((ties.len() / 2).max(FEWEST_TIES).min(self.searches_affordable()?));
        searches.extend(ties.iter().map(|of| DesignSearch {
            index: of.index,
            start: of.most,
            least: of.most,
            most: of.most,
        }));
        self.search_all(&searches)
    }

    /// Sorts designs by their screening: the best of each family, then the others.
    fn best_first(&self, designs: &mut [usize]) {
        let key = |index: usize| {
            let screened = self.screened[index].as_ref();
            let cost = screened.map_or(f64::INFINITY, |of| self.cost((index, of.layout)));
            (cost, screened.map_or(f64::NEG_INFINITY, |of| slack_of(self, of)))
        };
        let by_key = |&a: &usize, &b: &usize| {
            let ((cost_a, slack_a), (cost_b, slack_b)) = (key(a), key(b));
            cost_a.total_cmp(&cost_b).then(slack_b.total_cmp(&slack_a)).then(a.cmp(&b))
        };
        designs.sort_by(by_key);
        let mut seen = std::collections::BTreeSet::new();
        let firsts: Vec<usize> =
            designs.iter().copied().filter(|&index| seen.insert(self.designs[index].family)).collect();
        // Stable: among the first ones, and among the others, the order stays.
        designs.sort_by_key(|index| !firsts.contains(index));
    }

    /// Whether a design may hold at that `cost`, by its screening, and was not tried there.
    fn may_cost(&self, index: usize, cost: f64) -> bool {
        let design = &self.designs[index];
        let most = design.replicas_for(cost);
        if most < design.least {
            return false;
        }
        let is_known = |deployed: &Deployed| deployed.0 == index && deployed.1.replicas == most;
        if self.evaluated.keys().any(is_known) || self.refuted.keys().any(is_known) {
            return false;
        }
        match self.screened[index].as_ref().map(|of| of.result) {
            Some(Fewest::Found(count)) => count - (count / 20).max(1) <= most,
            Some(Fewest::Beyond(count)) => count <= most,
            Some(Fewest::Idle(_)) | None => false,
        }
    }

    /// A design at the most replicas for `cost`, and at one fewer, under two seeds.
    fn tried_with_two(&self, index: usize, cost: f64) -> Result<Challenge, RunError> {
        let design = &self.designs[index];
        let most = design.replicas_for(cost);
        let loads = self.loads(index)?;
        let loads = &loads[..CHALLENGE_SEEDS.min(loads.len())];
        let mut refuted = Vec::new();
        let mut slack = f64::NEG_INFINITY;
        let mut may_hold = |replicas: u32| {
            if replicas < design.least {
                return Ok(false);
            }
            let layout = self.layout(index, replicas)?;
            let of = self.bench.evaluate(index, layout, loads, STOP)?;
            let holds = of.runs.iter().any(|run| run.meets_all() || crate::planning::length::may_only_fill(run));
            if !holds {
                refuted.push((index, layout));
            }
            slack = slack.max(of.slack);
            Ok::<_, RunError>(holds)
        };
        let most_may_hold = may_hold(most)?;
        let fewer_may_hold = most_may_hold && may_hold(most - 1)?;
        Ok(Challenge { index, most, most_may_hold, fewer_may_hold, slack, refuted })
    }

    /// Runs longer what is undecided and would be cheaper. Whether one of them holds.
    fn lengthen(&mut self) -> Result<bool, RunError> {
        let cost = self.best().map_or(f64::INFINITY, |(_, cost)| cost);
        let mut undecided: Vec<Deployed> = self
            .evaluated
            .iter()
            .filter(|&(&deployed, of)| of.check.result == SizeResult::Undecided && self.cost(deployed) < cost)
            .map(|(&deployed, _)| deployed)
            .collect();
        let mut length = self.length;
        for most in LENGTHENED {
            let wanted = length.requests().and_then(|requests| length.to_decide(4 * requests));
            let Some(longer) = wanted.and_then(|wanted| length.extended(wanted)) else { break };
            length = longer;
            undecided.sort_by(|a, b| {
                let excess = |deployed: &Deployed| self.evaluated[deployed].excess();
                self.cost(*a).total_cmp(&self.cost(*b)).then(excess(a).total_cmp(&excess(b))).then(a.cmp(b))
            });
            undecided.truncate(most);
            let found = run_all(&undecided, &[0], |&(index, layout), _| {
                let loads = self.requests.of(index, &self.config.seeds, length.requests())?;
                self.bench.evaluate(index, layout, &loads, STOP)
            })?;
            self.evaluated.extend(undecided.iter().copied().zip(found.into_iter().flatten()));
            if undecided.iter().any(|deployed| self.evaluated[deployed].holds()) {
                return Ok(true);
            }
            undecided.retain(|deployed| self.evaluated[deployed].check.result == SizeResult::Undecided);
            if undecided.is_empty() {
                break;
            }
        }
        Ok(false)
    }

    /// The length that the runs of the best deployment need, if they are too short.
    fn longer_for_best(&self) -> Option<RunLength> {
        let (best, _) = self.best()?;
        let runs = &self.evaluated[&best].runs;
        let wanted = runs.iter().filter_map(|run| self.length.needed_by(run)).max()?;
        self.length.extended(wanted)
    }
}

/// A search of the fewest replicas.
pub(super) struct DesignSearch {
    pub index: usize,
    pub start: u32,
    pub least: u32,
    pub most: u32,
}

/// What two seeds say of a design at some cost.
struct Challenge {
    index: usize,
    most: u32,
    most_may_hold: bool,
    fewer_may_hold: bool,
    slack: f64,
    refuted: Vec<Deployed>,
}

/// Where the search for the replicas of `design` begins.
fn guess(design: &Design, seeded: &SeededLoad) -> u32 {
    match (seeded.unit, seeded.mean_tokens()) {
        (LoadUnit::RequestsPerS, Some(tokens)) => first_guess(design, seeded.usual, tokens),
        _ => design.least,
    }
}

/// The slack of one run.
pub(super) fn slack_of(race: &Race, screened: &Screened) -> f64 {
    let values: Vec<Option<f64>> = screened.run.results.iter().map(|of| of.value_ms).collect();
    slack(race.bench.slos, &values)
}
