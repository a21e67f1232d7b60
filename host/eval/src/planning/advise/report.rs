//! The document of a race.

use std::collections::BTreeMap;

use blis_report::latency_in_words;

use crate::error::RunError;
use crate::paired::CONFIDENCE;
use crate::planning::load_run::EarlyStop;
use crate::planning::size::SizeResult;
use crate::planning::slo::Slo;

use super::bench::EvaluatedDeployment;
use super::config::AdviseConfig;
use super::document::{AdvisedDeployment, CutCount, DeploymentAdvice, NearMiss};
use super::finalists::Finalist;
use super::race::{Deployed, Race};
use super::screening::Screened;
use super::space::{Design, ReplicaLayout};
use crate::planning::fewest::Fewest;

/// The longest conclusion, characters.
const LONGEST: usize = 160;

/// The document of what `race` found; `rows`: the deployments that are shown, the choice first.
pub(super) fn advice(config: &AdviseConfig, race: &Race, rows: &[Finalist]) -> Result<DeploymentAdvice, RunError> {
    let has_prices = race.designs.iter().any(|design| design.usd_per_gpu_hour.is_some());
    let first = race.loads(0)?;
    let choice = rows.first();
    let mut deployments: Vec<AdvisedDeployment> =
        rows.iter().enumerate().map(|(rank, row)| entry(race, rank, row, choice)).collect();
    let others = other_entries(race, rows);
    let count = others.len() as u64;
    if config.all {
        deployments.extend(others);
        deployments.iter_mut().zip(1..).for_each(|(of, rank)| of.rank = rank);
    }
    let nearest = if choice.is_none() { nearest(race)? } else { None };
    let mut notes = config.plan.notes();
    notes.extend(config.space.notes.iter().cloned());
    notes.extend(caveats(race, choice));
    let mut advice = DeploymentAdvice {
        sentence: String::new(),
        slo: config.slos.clone(),
        load: first[0].usual,
        unit: first[0].unit,
        objective: if has_prices { "usd_per_hour" } else { "gpus" }.to_owned(),
        budget: config.budget.text(),
        changes: choice.map(|choice| changes(race, choice, rows, config.risk)).unwrap_or_default(),
        others: if config.all { 0 } else { count },
        deployments,
        nearest,
        space: config.space.size as u64,
        left_out: left_out(config, race),
        simulated: race.bench.simulated(),
        runs: race.bench.runs(),
        confidence: CONFIDENCE,
        seeds: config.plan.seeds.clone(),
        unseen_seeds: config.plan.unseen_seeds(),
        requests_per_run: first[0].requests(),
        risk: config.risk,
        notes,
    };
    advice.sentence = conclusion(&advice);
    Ok(advice)
}

/// `4 × H100 TP 2, FP8, KV fp8, token-aware`.
pub(super) fn words(race: &Race, (index, layout): Deployed) -> String {
    let design = &race.designs[index];
    let deployment = &design.deployment;
    let replicas = match layout.prefill {
        0 => layout.replicas.to_string(),
        prefill => format!("{prefill}P{}D", layout.replicas - prefill),
    };
    let mut text = format!("{replicas} × {} TP {}", deployment.hardware, deployment.tensor_parallel_size);
    let sizes = [("PP", deployment.pipeline_parallel_size), ("DP", deployment.data_parallel_size)];
    for (name, size) in sizes.into_iter().filter(|&(_, size)| size > 1) {
        text.push_str(&format!(" {name} {size}"));
    }
    let several_models = race.designs.iter().any(|other| other.deployment.model != deployment.model);
    if several_models {
        text.push_str(&format!(", {}", deployment.model));
    }
    let precision = deployment.precision.quantization.as_deref().or(deployment.precision.dtype.as_deref());
    text.extend(precision.map(|name| format!(", {}", format_name(name))));
    for setting in &design.settings {
        let value = &setting.value;
        match setting.name.as_str() {
            "kv-cache-dtype" if value != "auto" => text.push_str(&format!(", KV {value}")),
            "enable-expert-parallel" if value == "true" => text.push_str(", EP"),
            "max-num-batched-tokens" => text.push_str(&format!(", {value} tokens a step")),
            "max-num-seqs" => text.push_str(&format!(", batch {value}")),
            "routing-policy" if layout.replicas > 1 && !design.has_roles => text.push_str(&format!(", {value}")),
            "routing-policy" | "model" | "hardware" | "tp" | "quantization" | "kv-cache-dtype" => {}
            "enable-expert-parallel" | "prefill-instances" | "decode-instances" | "pd-decider" => {}
            name => text.push_str(&format!(", {name} {value}")),
        }
    }
    text
}

fn format_name(name: &str) -> String {
    match name {
        "bfloat16" => "BF16".to_owned(),
        "float16" => "FP16".to_owned(),
        "fp8" | "awq" | "gptq" => name.to_uppercase(),
        other => other.to_owned(),
    }
}

fn usd(design: &Design, layout: ReplicaLayout) -> Option<f64> {
    design.usd_per_gpu_hour.map(|_| design.cost(layout))
}

fn finite(values: &[Option<f64>]) -> Vec<Option<f64>> {
    values.iter().map(|value| value.filter(|ms| ms.is_finite())).collect()
}

/// A deployment without the figures of finalists.
fn plain_entry(race: &Race, (index, layout): Deployed, values_ms: &[Option<f64>], slack: f64) -> AdvisedDeployment {
    let design = &race.designs[index];
    AdvisedDeployment {
        rank: 0,
        deployment: words(race, (index, layout)),
        settings: design.settings.clone(),
        hardware: design.deployment.hardware.clone(),
        replicas: layout.replicas,
        prefill_replicas: layout.prefill,
        gpus_per_replica: design.gpus,
        gpus: u64::from(layout.replicas) * u64::from(design.gpus),
        usd_per_hour: usd(design, layout),
        searched: false,
        values_ms: finite(values_ms),
        slack,
        check: None,
        fewer: None,
        head_room: None,
        model_risk: None,
        robustness: Vec::new(),
        why_not_cheaper: String::new(),
        launch: design.launch(),
    }
}

/// The entry of a finalist at that `rank`, from 0.
fn entry(race: &Race, rank: usize, row: &Finalist, choice: Option<&Finalist>) -> AdvisedDeployment {
    let plain = plain_entry(race, row.deployed, &row.evaluated.values_ms, row.evaluated.slack);
    AdvisedDeployment {
        rank: rank as u64 + 1,
        searched: true,
        check: Some(row.check.clone()),
        fewer: row.fewer_check.clone(),
        head_room: row.head_room,
        model_risk: row.risk,
        robustness: row.robustness.clone(),
        why_not_cheaper: why(race, rank, row, choice),
        ..plain
    }
}

/// Why nothing cheaper than `row` holds, or why another is the choice.
fn why(race: &Race, rank: usize, row: &Finalist, choice: Option<&Finalist>) -> String {
    if let Some(choice) = choice.filter(|_| rank > 0)
        && race.cost(choice.deployed) == race.cost(row.deployed)
    {
        let gap = 100.0 * (choice.evaluated.slack - row.evaluated.slack);
        return format!("as cheap, {gap:.1} % less slack");
    }
    match &row.fewer {
        Some(fewer) => missed(race.bench.slos, fewer),
        None if race.designs[row.deployed.0].is_sized => "its size is set".to_owned(),
        None => "there is no smaller one".to_owned(),
    }
}

/// What a deployment misses: `6 replicas: tpot_p90 44.7 ms of 40 ms`.
fn missed(slos: &[Slo], of: &EvaluatedDeployment) -> String {
    let count = crate::workload_config::plural(of.check.count.into(), "replica");
    let slo = of.binding(slos);
    if of.is_overloaded() {
        return format!("{count}: overloaded");
    }
    let value = of.values_ms[slo].unwrap_or(f64::INFINITY);
    let figure = figure(&slos[slo], value);
    match of.check.result {
        SizeResult::Fails => format!("{count}: {figure}"),
        SizeResult::Undecided => format!("{count}: near the limit, {figure}"),
        SizeResult::Holds => format!("{count}: not confirmed, {figure}"),
    }
}

/// `tpot_p90 44.7 ms of 40 ms`.
pub(super) fn figure(slo: &Slo, value_ms: f64) -> String {
    let value = if value_ms.is_finite() { latency_in_words(value_ms) } else { "infinite".to_owned() };
    format!("{} {value} of {}", slo.figure(), latency_in_words(slo.limit.as_millis_f64()))
}

/// The designs that hold and are no row: those that were searched, then those that were only screened.
fn other_entries(race: &Race, rows: &[Finalist]) -> Vec<AdvisedDeployment> {
    let mut shown: std::collections::BTreeSet<usize> = rows.iter().map(|row| row.deployed.0).collect();
    let mut others = Vec::new();
    for deployed in race.holders() {
        if shown.insert(deployed.0) {
            let of = &race.evaluated[&deployed];
            let entry = plain_entry(race, deployed, &of.values_ms, of.slack);
            others.push(AdvisedDeployment { searched: true, ..entry });
        }
    }
    let screened = race.screened.iter().enumerate().filter_map(|(index, of)| Some((index, of.as_ref()?)));
    let holding = screened.filter(|(index, of)| of.holds() && !shown.contains(index));
    let entries = holding.map(|(index, of)| {
        let values: Vec<Option<f64>> = of.run.results.iter().map(|result| result.value_ms).collect();
        plain_entry(race, (index, of.layout), &values, super::race::slack_of(race, of))
    });
    others.extend(entries);
    let cost = |of: &AdvisedDeployment| of.usd_per_hour.unwrap_or(of.gpus as f64);
    others.sort_by(|a, b| cost(a).total_cmp(&cost(b)).then(b.slack.total_cmp(&a.slack)));
    others
}

/// The deployment that comes closest, of those that were screened.
fn nearest(race: &Race) -> Result<Option<NearMiss>, RunError> {
    /// How many of the screened ones are tried to their ends.
    const CLOSEST: usize = 8;
    let screened = race.screened.iter().enumerate().filter_map(|(index, of)| Some((index, of.as_ref()?)));
    let mut closest: Vec<(usize, &Screened)> = screened.collect();
    let excess = |of: &Screened| of.run.results.iter().map(|of| of.excess).fold(f64::NEG_INFINITY, f64::max);
    closest.sort_by(|(a, one), (b, other)| excess(one).total_cmp(&excess(other)).then(a.cmp(b)));
    let mut best: Option<(Deployed, EvaluatedDeployment)> = None;
    for (index, of) in closest.into_iter().take(CLOSEST.min(race.searches_affordable()?)) {
        let loads = race.loads(index)?;
        let of_all = race.bench.evaluate(index, of.layout, &loads, EarlyStop(f64::INFINITY))?;
        if best.as_ref().is_none_or(|(_, known)| of_all.slack > known.slack) {
            best = Some(((index, of.layout), of_all));
        }
    }
    best.map(|(deployed, of)| near_miss(race, deployed, &of)).transpose()
}

fn near_miss(race: &Race, (index, layout): Deployed, of: &EvaluatedDeployment) -> Result<NearMiss, RunError> {
    /// Almost no load.
    const ALONE: f64 = 0.01;
    let design = &race.designs[index];
    let first = &race.loads(index)?[..1];
    let alone = race.bench.evaluate_at(index, layout, first, ALONE, EarlyStop(f64::INFINITY))?;
    let slo = of.binding(race.bench.slos);
    Ok(NearMiss {
        deployment: words(race, (index, layout)),
        settings: design.settings.clone(),
        gpus: u64::from(layout.replicas) * u64::from(design.gpus),
        usd_per_hour: usd(design, layout),
        values_ms: finite(&of.values_ms),
        binding: figure(&race.bench.slos[slo], of.values_ms[slo].unwrap_or(f64::INFINITY)),
        overloaded: of.is_overloaded(),
        idle: alone.slack < 0.0,
    })
}

/// Designs that are no choice, by reason: before anything is simulated, then by their screening.
fn left_out(config: &AdviseConfig, race: &Race) -> Vec<CutCount> {
    let mut counts: BTreeMap<&str, u64> =
        config.space.cut.iter().map(|(&reason, &count)| (reason, count as u64)).collect();
    for (design, of) in race.designs.iter().zip(&race.screened) {
        let reason = match of.as_ref().map(|of| of.result) {
            Some(Fewest::Idle(_)) => "misses an SLO at any number of replicas",
            Some(Fewest::Beyond(most)) if most >= design.most => "misses an SLO within the budget",
            Some(Fewest::Beyond(_)) => "needs a third more than the cheapest",
            None => "not simulated, because runs are long: vary fewer settings",
            Some(Fewest::Found(_)) => continue,
        };
        *counts.entry(reason).or_default() += 1;
    }
    counts.into_iter().map(|(reason, designs)| CutCount { reason: reason.to_owned(), designs }).collect()
}

/// What would change the choice: the load, a limit, the error of the model where a share `within_risk` of draws may fail, a price.
fn changes(race: &Race, choice: &Finalist, rows: &[Finalist], within_risk: f64) -> Vec<String> {
    let mut changes = Vec::new();
    let loads = race.loads(choice.deployed.0);
    if let (Some(room), Ok(loads)) = (choice.head_room, loads) {
        let most = room.low.unwrap_or(room.factor) * loads[0].usual;
        let unit = loads[0].unit;
        let load = |load: f64| format!("{} {}", crate::planning::text::load(unit, load), unit.name());
        let least = choice.fewer_head_room.map(|of| of.high.unwrap_or(of.factor) * loads[0].usual);
        let least = least.filter(|&least| least < most && least < loads[0].usual);
        let from = least.map_or(String::new(), |least| format!("from {} ", load(least)));
        changes.push(format!("load: the same deployment {from}up to {}", load(most.max(loads[0].usual))));
    }
    if let Some(fewer) = choice.fewer.as_ref().filter(|fewer| !fewer.is_overloaded()) {
        let slos = race.bench.slos;
        let slo = fewer.binding(slos);
        let others_hold = (0..slos.len())
            .filter(|&other| other != slo)
            .all(|other| fewer.values_ms[other].is_none_or(|ms| ms <= slos[other].limit.as_millis_f64()));
        if let Some(ms) =
            fewer.values_ms[slo].filter(|ms| others_hold && ms.is_finite() && *ms > slos[slo].limit.as_millis_f64())
        {
            let count = crate::workload_config::plural(fewer.check.count.into(), "replica");
            changes.push(format!(
                "limit: with {} = {} {count} would do",
                slos[slo].figure(),
                latency_in_words(ms * 1.02)
            ));
        }
    }
    if let Some(risk) = choice.risk {
        let own = choice.deployed.1.replicas;
        let share = 100.0 - 100.0 * within_risk;
        changes.push(match risk.replicas_within_risk {
            Some(count) if count <= own => format!("error of the model: not in {share:.0} % of the draws"),
            Some(count) => {
                let count = crate::workload_config::plural(count.into(), "replica");
                format!("error of the model: {count} hold in {share:.0} % of the draws")
            }
            None => format!("error of the model: no number of replicas holds in {share:.0} % of the draws"),
        });
    }
    changes.extend(price_changes(race, choice, rows));
    changes
}

/// At which price another GPU would be as cheap.
fn price_changes(race: &Race, choice: &Finalist, rows: &[Finalist]) -> Vec<String> {
    let (index, layout) = choice.deployed;
    let own = &race.designs[index];
    let mut seen = std::collections::BTreeSet::from([own.deployment.hardware.as_str()]);
    let mut changes = Vec::new();
    for row in &rows[1..] {
        let other = &race.designs[row.deployed.0];
        if !seen.insert(other.deployment.hardware.as_str()) {
            continue;
        }
        let gpus = f64::from(row.deployed.1.replicas) * f64::from(other.gpus);
        let (gpu, own_gpu) = (&other.deployment.hardware, &own.deployment.hardware);
        changes.push(match other.usd_per_gpu_hour {
            Some(now) => {
                let price = own.cost(layout) / gpus;
                format!("price: {gpu} below {price:.2} $/h each (now {now:.2}) would be the cheapest")
            }
            None => {
                let ratio = own.cost(layout) / gpus;
                format!("price: {gpu} would be the cheapest if one costs less than {ratio:.2} × an {own_gpu}")
            }
        });
    }
    changes
}

/// What the deployment of the choice is known to be: notes of its latency model.
fn caveats(race: &Race, choice: Option<&Finalist>) -> Vec<String> {
    let Some((index, _)) = choice.map(|choice| choice.deployed) else { return Vec::new() };
    let deployment = &race.designs[index].deployment;
    let about = |note: &&String| {
        note.starts_with("physics coefficients") || note.contains("quantized") || note.contains("weights of")
    };
    let mut notes: Vec<String> = deployment.notes.iter().filter(about).cloned().collect();
    notes.extend(deployment.memory_warnings.iter().map(|warning| warning.what.clone()));
    if race.designs.iter().any(|design| design.usd_per_gpu_hour.is_none()) {
        let gpus: std::collections::BTreeSet<&str> =
            race.designs.iter().map(|design| design.deployment.hardware.as_str()).collect();
        if gpus.len() > 1 {
            notes.push("without --prices a GPU of any kind counts the same".to_owned());
        }
    }
    let quantised = race.designs[index].settings.iter().any(|setting| setting.name == "quantization");
    let kv =
        race.designs[index].settings.iter().any(|setting| setting.name == "kv-cache-dtype" && setting.value != "auto");
    if quantised || kv {
        notes.push("narrower numbers may change what the model writes: check it, or keep the model's with --allow published, --kv-cache-dtype auto".to_owned());
    }
    notes
}

/// What follows, in a sentence of at most [`LONGEST`] characters.
fn conclusion(advice: &DeploymentAdvice) -> String {
    let cost = |usd: Option<f64>, gpus: u64| match usd {
        Some(usd) => format!("{usd:.2} $/h"),
        None => crate::workload_config::plural(gpus, "GPU"),
    };
    let Some(choice) = advice.choice() else { return without_choice(advice) };
    let mut text = format!("Cheapest: {}, {}", choice.deployment, cost(choice.usd_per_hour, choice.gpus));
    if let Some(risk) = choice.model_risk {
        text.push_str(&format!("; holds in {} of {} draws", risk.held, risk.draws));
    }
    if let Some(next) = advice.deployments.get(1) {
        let next = format!("; next: {}, {}", next.deployment, cost(next.usd_per_hour, next.gpus));
        if text.chars().count() + next.chars().count() <= LONGEST {
            text.push_str(&next);
        }
    }
    shortened(text)
}

fn without_choice(advice: &DeploymentAdvice) -> String {
    let within = if advice.budget.is_empty() { String::new() } else { format!(" within {}", advice.budget) };
    let Some(nearest) = &advice.nearest else { return format!("Nothing{within} holds") };
    let why = match (nearest.overloaded, nearest.idle) {
        (_, true) => "also without load",
        (true, false) => "overloaded",
        (false, false) => "the load is too high",
    };
    shortened(format!("Nothing{within} holds: {} comes closest, {}, {why}", nearest.deployment, nearest.binding))
}

fn shortened(text: String) -> String {
    if text.chars().count() <= LONGEST {
        return text;
    }
    let cut: String = text.chars().take(LONGEST - 1).collect();
    format!("{cut}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_stands_beside_its_limit() {
        let slo = Slo::parse("tpot_p90=40ms").expect("valid");
        assert_eq!(figure(&slo, 44.71), "tpot_p90 44.7 ms of 40 ms");
    }

    #[test]
    fn a_conclusion_is_short() {
        let text = shortened("x".repeat(200));
        assert_eq!((text.chars().count(), text.ends_with('…')), (LONGEST, true));
    }
}
