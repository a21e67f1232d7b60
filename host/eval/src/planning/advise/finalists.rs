//! The last look at the deployments that are shown: unseen seeds, one replica fewer, head-room, errors of the model, robustness.

use std::collections::BTreeSet;

use crate::error::RunError;
use crate::paired::mean_interval;
use crate::planning::capacity::critical_load;
use crate::planning::load_run::EarlyStop;
use crate::planning::model_error::{ModelRisk, factors};
use crate::planning::size::{SizeCheck, SizeResult};
use crate::runs::run_all;

use super::bench::{EvaluatedDeployment, Loads};
use super::document::{HeadRoom, Robustness};
use super::race::{Deployed, DesignSearch, Race};
use super::risk;
use super::space::ReplicaLayout;

/// Rows that are shown.
pub(super) const ROWS: usize = 7;
/// Ties for the choice that are checked with unseen seeds, until one holds.
const MOST_CHECKED: usize = 12;
/// As in the search.
const STOP: EarlyStop = EarlyStop(5.0);
/// Draws of the model's error: of the choice, and of the others.
const DRAWS: usize = 20;
const COARSE_DRAWS: usize = 5;
/// Requests of a run up to which everything is known of every row; of longer ones, only of the choice.
const MOST_DETAILED: u64 = 20_000;
/// Seeds of the head-room of what is not the choice.
const FEWER_SEEDS: usize = 3;

/// A deployment that is shown.
pub(super) struct Finalist {
    pub deployed: Deployed,
    pub evaluated: EvaluatedDeployment,
    pub check: SizeCheck,
    pub fewer: Option<EvaluatedDeployment>,
    pub fewer_check: Option<SizeCheck>,
    pub head_room: Option<HeadRoom>,
    /// The factor of the load up to which one replica fewer would do.
    pub fewer_head_room: Option<HeadRoom>,
    pub risk: Option<ModelRisk>,
    pub robustness: Vec<Robustness>,
}

/// The deployments that are shown, the choice first.
pub(super) fn finalists(race: &mut Race, risk: f64) -> Result<Vec<Finalist>, RunError> {
    let Some(choice) = confirmed(race)? else { return Ok(Vec::new()) };
    race.note("choice confirmed");
    let rows = other_families(race, &choice)?;
    race.note("other families searched");
    let confirmed = run_all(&rows, &[0], |&deployed, _| confirm(race, deployed))?;
    let mut all: Vec<Confirmed> = confirmed.into_iter().flatten().flatten().collect();
    all.sort_by(|a, b| compare(race, a, b));
    // A row that unseen seeds raise is no choice, nor is one that they lower, unless it is confirmed to be cheaper.
    let position = all.iter().position(|of| compare(race, of, &choice).is_gt()).unwrap_or(all.len());
    all.insert(position, choice);
    all.truncate(ROWS);
    race.note("rows confirmed");
    let numbered: Vec<(usize, &Confirmed)> = all.iter().enumerate().collect();
    let found = run_all(&numbered, &[0], |&(rank, of), _| examined(race, rank, of, risk))?;
    Ok(found.into_iter().flatten().collect())
}

/// A deployment that holds under unseen seeds, too.
#[derive(Clone)]
struct Confirmed {
    deployed: Deployed,
    evaluated: EvaluatedDeployment,
    check: SizeCheck,
}

fn compare(race: &Race, a: &Confirmed, b: &Confirmed) -> std::cmp::Ordering {
    let by_cost = race.cost(a.deployed).total_cmp(&race.cost(b.deployed));
    by_cost.then(b.evaluated.slack.total_cmp(&a.evaluated.slack)).then(a.deployed.cmp(&b.deployed))
}

/// The first of the cheapest deployments that unseen seeds confirm.
fn confirmed(race: &Race) -> Result<Option<Confirmed>, RunError> {
    let mut raised: Vec<Confirmed> = Vec::new();
    for deployed in race.holders().into_iter().take(MOST_CHECKED) {
        let cost = race.cost(deployed);
        if raised.iter().any(|of| race.cost(of.deployed) < cost) {
            break;
        }
        match confirm(race, deployed)? {
            Some(of) if race.cost(of.deployed) <= cost => return Ok(Some(of)),
            other => raised.extend(other),
        }
    }
    raised.sort_by(|a, b| compare(race, a, b));
    Ok(raised.into_iter().next())
}

/// A deployment with as many more replicas as unseen seeds show that it needs, or with one fewer, if they show that it is enough where the others
/// could not tell; `None` if the budget ends before.
fn confirm(race: &Race, (index, layout): Deployed) -> Result<Option<Confirmed>, RunError> {
    let design = &race.designs[index];
    let unseen = unseen(race, index)?;
    let mut first = layout.replicas;
    if first > design.least && unseen.is_some() {
        let fewer = race.layout_from(index, layout, first - 1)?;
        let evaluated = seen(race, (index, fewer))?;
        let is_open = evaluated.check.result == SizeResult::Undecided;
        if is_open && checked(race, (index, fewer), &evaluated, unseen.as_ref())?.result == SizeResult::Holds {
            first -= 1;
        }
    }
    for replicas in first..=design.most.min(first.saturating_mul(2).max(4)) {
        let layout = race.layout_from(index, layout, replicas)?;
        let evaluated = seen(race, (index, layout))?;
        let check = checked(race, (index, layout), &evaluated, unseen.as_ref())?;
        if check.result != SizeResult::Holds {
            continue;
        }
        let of = Confirmed { deployed: (index, layout), evaluated, check };
        return Ok(Some(of));
    }
    Ok(None)
}

/// The requests that the search did not see; `None` of a trace.
fn unseen(race: &Race, index: usize) -> Result<Option<Loads>, RunError> {
    let seeds = race.config.unseen_seeds();
    if seeds.is_empty() {
        return Ok(None);
    }
    race.requests.of(index, &seeds, race.length.requests()).map(Some)
}

/// A deployment under the seeds of the search.
fn seen(race: &Race, deployed: Deployed) -> Result<EvaluatedDeployment, RunError> {
    if let Some(known) = race.evaluated.get(&deployed) {
        return Ok(known.clone());
    }
    let (index, layout) = deployed;
    race.bench.evaluate(index, layout, &race.loads(index)?, STOP)
}

/// What unseen seeds say of a deployment; where they cannot decide, together with those of the search.
fn checked(
    race: &Race,
    (index, layout): Deployed,
    seen: &EvaluatedDeployment,
    unseen: Option<&Loads>,
) -> Result<SizeCheck, RunError> {
    let Some(unseen) = unseen else { return Ok(seen.check.clone()) };
    let of = race.bench.evaluate(index, layout, unseen, STOP)?;
    let mut check = of.check;
    if check.result == SizeResult::Undecided {
        let all: Vec<_> = of.runs.iter().chain(&seen.runs).cloned().collect();
        check.result = SizeCheck::of(layout.replicas, &all, race.bench.slos).result;
    }
    Ok(check)
}

/// The best deployments of the other families, at most as many as there are rows.
fn other_families(race: &mut Race, choice: &Confirmed) -> Result<Vec<Deployed>, RunError> {
    let family = |race: &Race, (index, _): Deployed| race.designs[index].family;
    let mut seen = BTreeSet::from([family(race, choice.deployed)]);
    let mut rows: Vec<Deployed> = Vec::new();
    for deployed in race.holders() {
        if seen.insert(family(race, deployed)) {
            rows.push(deployed);
        }
    }
    // Families that cost more were only screened.
    let screened = race.screened.iter().enumerate().filter_map(|(index, of)| Some((index, of.as_ref()?.clone())));
    let mut screened: Vec<(usize, super::screening::Screened)> = screened.filter(|(_, of)| of.holds()).collect();
    screened.sort_by(|(a, one), (b, other)| {
        let by_cost = race.cost((*a, one.layout)).total_cmp(&race.cost((*b, other.layout)));
        by_cost.then(super::race::slack_of(race, other).total_cmp(&super::race::slack_of(race, one))).then(a.cmp(b))
    });
    let room = (ROWS - 1).min(race.searches_affordable()?).saturating_sub(rows.len());
    let searches = screened.into_iter().filter(|(index, of)| seen.insert(family(race, (*index, of.layout)))).take(room);
    let searches: Vec<DesignSearch> = searches
        .map(|(index, of)| DesignSearch { index, start: of.layout.replicas, least: 1, most: race.designs[index].most })
        .collect();
    race.search_all(&searches)?;
    let holders = race.holders();
    let found = searches.iter().filter_map(|search| holders.iter().find(|(index, _)| *index == search.index));
    rows.extend(found.copied().collect::<Vec<_>>());
    rows.truncate((ROWS - 1).min(race.searches_affordable()?));
    Ok(rows)
}

/// Everything about a deployment that is shown at that `rank`, from 0.
fn examined(race: &Race, rank: usize, of: &Confirmed, risk: f64) -> Result<Finalist, RunError> {
    let (index, layout) = of.deployed;
    let design = &race.designs[index];
    let loads = race.loads(index)?;
    let is_detailed = race.requests_of_run()? <= MOST_DETAILED;
    let few = FEWER_SEEDS.min(loads.len());
    let fewer = layout.replicas.checked_sub(1).filter(|&fewer| fewer >= design.least);
    let fewer = fewer.map(|fewer| race.layout_from(index, layout, fewer)).transpose()?;
    let (mut fewer_seen, mut fewer_check, mut fewer_head_room) = (None, None, None);
    if let Some(fewer) = fewer {
        let evaluated = seen(race, (index, fewer))?;
        fewer_check = Some(checked(race, (index, fewer), &evaluated, unseen(race, index)?.as_ref())?);
        fewer_seen = Some(evaluated);
        if rank == 0 && is_detailed {
            fewer_head_room = head_room(race, (index, fewer), &loads, few, 0.9);
        }
    }
    let mut finalist = Finalist {
        deployed: of.deployed,
        evaluated: of.evaluated.clone(),
        check: of.check.clone(),
        fewer: fewer_seen,
        fewer_check,
        head_room: None,
        fewer_head_room,
        risk: None,
        robustness: Vec::new(),
    };
    if is_detailed || rank == 0 {
        let seeds = if rank == 0 && is_detailed { loads.len() } else { few };
        finalist.head_room = head_room(race, of.deployed, &loads, seeds, 1.1);
        let draws = factors(&design.deployment, if rank == 0 { DRAWS } else { COARSE_DRAWS })?;
        let seeded = if is_detailed { loads[0].clone() } else { race.screening_load(index)? };
        finalist.risk = Some(risk::model_risk(&race.bench, index, layout, &seeded, &draws, risk)?);
        finalist.robustness = robustness(race, of.deployed, &loads, fewer)?;
    }
    Ok(finalist)
}

/// The load at which the first SLO is missed, as a multiple of the load; `None` if the SLOs hold at any, or at none.
fn head_room(race: &Race, (index, layout): Deployed, loads: &Loads, seeds: usize, hint: f64) -> Option<HeadRoom> {
    let design = &race.designs[index];
    let service = design.with(layout);
    let critical = |seeded: &crate::planning::load::SeededLoad| {
        let hint = seeded.usual * hint;
        Some(critical_load(&service, &design.deployment, seeded, race.bench.slos, hint)? / seeded.usual)
    };
    let multiples: Option<Vec<f64>> = loads[..seeds].iter().map(critical).collect();
    let logs: Vec<f64> = multiples?.into_iter().map(f64::ln).collect();
    let interval = mean_interval(&logs);
    Some(HeadRoom {
        factor: (logs.iter().sum::<f64>() / logs.len() as f64).exp(),
        low: interval.map(|interval| interval.low.exp()),
        high: interval.map(|interval| interval.high.exp()),
    })
}

/// More load, longer requests, and one replica lost.
fn robustness(
    race: &Race,
    (index, layout): Deployed,
    loads: &Loads,
    fewer: Option<ReplicaLayout>,
) -> Result<Vec<Robustness>, RunError> {
    const LONGER: f64 = 1.2;
    const WHOLE: EarlyStop = EarlyStop(f64::INFINITY);
    let mut found = Vec::new();
    for factor in [1.1, 1.25] {
        let of = race.bench.evaluate_at(index, layout, loads, factor, WHOLE)?;
        found.push(entry(format!("load × {factor}"), &of));
    }
    let longer: Option<Vec<_>> = loads.iter().map(|seeded| seeded.with_longer_requests(LONGER)).collect();
    if let Some(longer) = longer {
        let of = race.bench.evaluate(index, layout, &longer, WHOLE)?;
        found.push(entry(format!("lengths × {LONGER}"), &of));
    }
    let is_plain = !race.designs[index].has_roles && layout.replicas > 1;
    match fewer.or(is_plain.then(|| ReplicaLayout::of(layout.replicas - 1))) {
        Some(fewer) => {
            let of = race.bench.evaluate(index, fewer, loads, WHOLE)?;
            found.push(entry(LOST.to_owned(), &of));
        }
        None => found.push(Robustness {
            change: LOST.to_owned(),
            result: SizeResult::Fails,
            overloaded: true,
            attainment: None,
            values_ms: vec![None; race.bench.slos.len()],
        }),
    }
    Ok(found)
}

/// What the loss of a replica is called.
pub(super) const LOST: &str = "one replica lost";

fn entry(change: String, of: &EvaluatedDeployment) -> Robustness {
    Robustness {
        change,
        result: of.check.result,
        overloaded: of.is_overloaded(),
        attainment: of.attainment(),
        values_ms: of.check.values_ms.clone(),
    }
}
