//! The regret of a run, summed up over its evaluated decisions.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};

use blis_report::{Concludes, Conclusion, ConclusionKind, three_digits};
use blis_sim::units::Micros;
use serde::Serialize;
use strum::VariantArray as _;

use super::decision_kind::DecisionKind;
use super::decision_regret::{DecisionRegret, Situation};
use super::survey::{Stratum, Survey};
use crate::paired::{ConfidenceInterval, mean, mean_interval};
use crate::workload_config::plural;

/// The decisions with the largest regret that are reported in full.
const WORST: usize = 10;
/// Smaller regrets count as 0, request-seconds.
const NEGLIGIBLE: f64 = 1e-3;

/// Counterfactual regret of sampled decisions (`--regret`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Regret {
    /// Time after a decision in which its effects count.
    pub window_s: f64,
    /// By the policy that decided; kinds without an evaluated decision are left out.
    pub kinds: BTreeMap<DecisionKind, RegretSection>,
    /// The decisions with the largest regret, of any kind.
    pub worst: Vec<DecisionRegret>,
}

impl Concludes for Regret {
    /// About the kind of decisions that loses most.
    fn conclusion(&self) -> Conclusion {
        let uniform = self.kinds.iter().filter_map(|(kind, section)| Some((kind, section, section.uniform.as_ref()?)));
        let lost = |section: &RegretSection, of: &Estimate| of.regret_s * section.decisions as f64;
        let worst = uniform.max_by(|one, other| lost(one.1, one.2).total_cmp(&lost(other.1, other.2)));
        let Some((kind, section, of)) = worst else {
            return Conclusion::new(ConclusionKind::UNDECIDED, "Undecided: no decision was evaluated");
        };
        let interval = of
            .interval_s
            .map_or(String::new(), |[low, high]| format!(" [{}, {}]", three_digits(low), three_digits(high)));
        let share = three_digits(100.0 * of.share_positive);
        Conclusion::measured(format!(
            "{} lose {}{interval} request-seconds each, {} in all; {share} % of {} sampled have an alternative that is better",
            plural(section.decisions as u64, &format!("{} decision", kind.name())),
            three_digits(of.regret_s),
            three_digits(lost(section, of)),
            of.evaluated
        ))
    }
}

/// Regret of one kind of decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegretSection {
    /// Decisions of this kind in the run; for scheduling, routing decisions; of flow control, those with an
    /// alternative. Unit: decisions.
    pub decisions: usize,
    /// Decisions drawn at random from all: the figures of the policy.
    pub uniform: Option<Estimate>,
    /// Decisions drawn because of a bad outcome (`missed`) or a wide margin (`margin`): not to be mixed with the
    /// uniform ones.
    pub strata: BTreeMap<Stratum, Estimate>,
    /// All evaluated decisions by situation.
    pub situations: BTreeMap<Situation, Estimate>,
    /// All evaluated decisions by SLO class; absent if there is only one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<String, Estimate>,
    /// Pearson's r between score regret and outcome regret of the uniform decisions; `null` if one of them does not
    /// vary. Unit: correlation.
    pub score_correlation: Option<f64>,
}

/// Means over a sample of decisions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Decisions in the sample. Unit: decisions.
    pub evaluated: usize,
    /// Mean regret per decision. Unit: request-seconds.
    pub regret_s: f64,
    /// 95 % confidence interval of the mean regret, by Student's t; `null` for one decision. Unit: request-seconds.
    pub interval_s: Option<[f64; 2]>,
    /// Decisions with a regret of a millisecond or more. Unit: share, 0 to 1.
    pub share_positive: f64,
    /// Mean part that is the time of the request itself.
    pub own_s: f64,
    /// Mean part that is the time of other requests. Unit: request-seconds.
    pub externality_s: f64,
    /// Mean advantage over the mean alternative; above 0 is better than a random decision. Unit: request-seconds.
    pub advantage_s: f64,
    /// Mean regret if the policies make all later decisions anew. Unit: request-seconds.
    pub rollout_regret_s: f64,
    /// Mean difference of the TTFT of the request itself, over decisions with a first token in both branches.
    pub ttft_regret_ms: Option<f64>,
    /// Mean difference of the E2E of the request itself, over decisions with a completed request in both branches.
    pub e2e_regret_ms: Option<f64>,
}

impl Regret {
    /// Sums up `decisions` of the run that `survey` recorded.
    #[must_use]
    pub fn new(mut regrets: Vec<DecisionRegret>, survey: &Survey, window: Micros) -> Self {
        let mut kinds = BTreeMap::new();
        for &kind in DecisionKind::VARIANTS {
            let those: Vec<&DecisionRegret> = regrets.iter().filter(|one| one.kind == kind).collect();
            if !those.is_empty() {
                let counted = if kind == DecisionKind::Scheduling { DecisionKind::Routing } else { kind };
                kinds.insert(kind, RegretSection::new(survey.decisions(counted), &those));
            }
        }
        // The sort is stable: among equal regrets, the earlier decision comes first.
        regrets.sort_by(|one, other| other.regret_s.total_cmp(&one.regret_s));
        regrets.retain(|one| one.regret_s >= NEGLIGIBLE);
        regrets.truncate(WORST);
        Self { window_s: window.as_secs_f64(), kinds, worst: regrets }
    }
}

impl RegretSection {
    fn new(decisions: usize, regrets: &[&DecisionRegret]) -> Self {
        let of = |choose: &dyn Fn(&DecisionRegret) -> bool| -> Vec<&DecisionRegret> {
            regrets.iter().copied().filter(|one| choose(one)).collect()
        };
        let uniform = of(&|one| one.stratum == Stratum::Uniform);
        let strata = [Stratum::Missed, Stratum::Margin]
            .into_iter()
            .filter_map(|stratum| Some((stratum, Estimate::from_regrets(&of(&|one| one.stratum == stratum))?)));
        let situations =
            [Situation::MissedCacheHit, Situation::HotInstance, Situation::StaleSignal].into_iter().filter_map(
                |situation| Some((situation, Estimate::from_regrets(&of(&|one| one.situations.contains(&situation)))?)),
            );
        let mut names: Vec<&String> = regrets.iter().map(|one| &one.slo_class).collect();
        names.sort_unstable();
        names.dedup();
        let several = names.len() > 1;
        let classes = names.into_iter().filter(|_| several);
        let classes = classes
            .filter_map(|name| Some((name.clone(), Estimate::from_regrets(&of(&|one| one.slo_class == *name))?)));
        Self {
            decisions,
            strata: strata.collect(),
            situations: situations.collect(),
            classes: classes.collect(),
            score_correlation: correlation(&uniform),
            uniform: Estimate::from_regrets(&uniform),
        }
    }
}

impl Estimate {
    /// `None` if there are no decisions.
    fn from_regrets(regrets: &[&DecisionRegret]) -> Option<Self> {
        let all = |figure: &dyn Fn(&DecisionRegret) -> f64| regrets.iter().map(|one| figure(one)).collect::<Vec<f64>>();
        let mean_of = |figure: &dyn Fn(&DecisionRegret) -> f64| mean(all(figure).into_iter()).unwrap_or(0.0);
        let mean_some = |figure: &dyn Fn(&DecisionRegret) -> Option<f64>| {
            mean(regrets.iter().filter_map(|one| figure(one)).collect::<Vec<_>>().into_iter())
        };
        let values = all(&|one| one.regret_s);
        let positive = values.iter().filter(|&&regret| regret >= NEGLIGIBLE).count();
        Some(Self {
            evaluated: regrets.len(),
            regret_s: mean(values.iter().copied())?,
            interval_s: mean_interval(&values).map(|ConfidenceInterval { low, high }| [low, high]),
            share_positive: positive as f64 / regrets.len() as f64,
            own_s: mean_of(&|one| one.own_s),
            externality_s: mean_of(&|one| one.externality_s),
            advantage_s: mean_of(&|one| one.advantage_s),
            rollout_regret_s: mean_of(&|one| one.rollout_regret_s),
            ttft_regret_ms: mean_some(&|one| one.ttft_regret_ms),
            e2e_regret_ms: mean_some(&|one| one.e2e_regret_ms),
        })
    }
}

/// Pearson's r between score regret and outcome regret.
fn correlation(regrets: &[&DecisionRegret]) -> Option<f64> {
    let pairs: Vec<(f64, f64)> = regrets.iter().filter_map(|one| Some((one.score_regret?, one.regret_s))).collect();
    let mean_x = mean(pairs.iter().map(|pair| pair.0))?;
    let mean_y = mean(pairs.iter().map(|pair| pair.1))?;
    let sum = |term: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|&(x, y)| term(x - mean_x, y - mean_y)).sum::<f64>();
    let (xx, yy, xy) = (sum(&|x, _| x * x), sum(&|_, y| y * y), sum(&|x, y| x * y));
    (xx > 0.0 && yy > 0.0).then(|| (xy / (xx * yy).sqrt()).clamp(-1.0, 1.0))
}

/// A table, then the decisions with the largest regret.
impl Display for Regret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = self.window_s;
        writeln!(f, "Outcome regret: request-seconds per decision, within {window:.1} s after it, against")?;
        writeln!(f, "the best alternative in hindsight, all other decisions being the same; `> 0` is")?;
        writeln!(f, "how many have any, `others` the part of other requests. Above 0 the `advantage`")?;
        writeln!(f, "over the mean alternative is good. `rollout`: regret if the policies make all")?;
        writeln!(f, "later decisions anew, which adds noise.")?;
        if self.kinds.is_empty() {
            return writeln!(f, "No decision had an alternative.");
        }
        writeln!(f)?;
        line(f, "", ["n", "regret", "95 % interval", "> 0", "others", "advantage", "rollout"].map(str::to_owned))?;
        for (&kind, section) in &self.kinds {
            writeln!(f, "{}", kind.name())?;
            if let Some(uniform) = &section.uniform {
                row(f, "  at random", uniform)?;
            }
            for (stratum, estimate) in &section.strata {
                let why = match (kind, stratum) {
                    (DecisionKind::Admission, _) => "rejected",
                    (_, Stratum::Missed) => "late requests",
                    (_, Stratum::Margin | Stratum::Uniform) => "wide margin",
                };
                row(f, &format!("  {why}"), estimate)?;
            }
            for (&situation, estimate) in &section.situations {
                row(f, &format!("  {}", situation.into_str()), estimate)?;
            }
            for (class, estimate) in &section.classes {
                let class = if class.is_empty() { "no class" } else { class };
                row(f, &format!("  class {class}"), estimate)?;
            }
            if let Some(r) = section.score_correlation {
                writeln!(f, "  correlation with score regret: {r:.2}")?;
            }
        }
        if !self.worst.is_empty() {
            writeln!(f, "\nLargest regret:")?;
        }
        self.worst.iter().try_for_each(|one| worst(f, one))
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, estimate: &Estimate) -> fmt::Result {
    let interval =
        estimate.interval_s.map_or_else(String::new, |[low, high]| format!("{} to {}", short(low), short(high)));
    let Estimate { evaluated, regret_s, share_positive, externality_s, advantage_s, rollout_regret_s, .. } = estimate;
    let cells = [
        evaluated.to_string(),
        short(*regret_s),
        interval,
        format!("{:.0}%", 100.0 * share_positive),
        short(*externality_s),
        short(*advantage_s),
        short(*rollout_regret_s),
    ];
    line(f, name, cells)
}

/// A line of the table, 80 columns.
fn line(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    [n, regret, interval, positive, others, advantage, rollout]: [String; 7],
) -> fmt::Result {
    writeln!(f, "{name:<19}{n:>6}{regret:>8}{interval:>16}{positive:>5}{others:>8}{advantage:>10}{rollout:>8}")
}

/// Seconds in at most six characters, from -9 999 to 99 999.
fn short(seconds: f64) -> String {
    let decimals = match seconds.abs() {
        size if size < 9.9995 => 3,
        size if size < 99.995 => 2,
        size if size < 999.95 => 1,
        _ => 0,
    };
    format!("{seconds:.decimals$}")
}

fn worst(f: &mut fmt::Formatter<'_>, one: &DecisionRegret) -> fmt::Result {
    let DecisionRegret { kind, request_id, time_us, regret_s, own_s, branches, state, reason, .. } = one;
    let at = *time_us as f64 / 1e6;
    let situations: Vec<&str> = one.situations.iter().map(|&situation| situation.into_str()).collect();
    let why = if situations.is_empty() { String::new() } else { format!(" [{}]", situations.join(", ")) };
    let reason = if reason.is_empty() { String::new() } else { format!(", {reason}") };
    let kind = kind.name();
    writeln!(f, "  {kind} of {request_id} at {at:.3} s: {regret_s:.3}, own {own_s:.3}{reason}{why}")?;
    for (i, branch) in branches.iter().enumerate() {
        let mut line = format!("    {} {}: {:.3}", if i == 0 { "*" } else { " " }, branch.decision, branch.cost_s);
        match (branch.ttft_ms, branch.e2e_ms, branch.gpu_s) {
            (.., Some(held)) => write!(line, ", {held:.0} GPU-seconds")?,
            (Some(ttft), Some(e2e), None) => write!(line, ", TTFT {ttft:.1} ms, E2E {e2e:.1} ms")?,
            _ => write!(line, ", {}", branch.status)?,
        }
        writeln!(f, "{line}")?;
    }
    writeln!(
        f,
        "      queue {:?} batch {:?} arriving {:?} cached {:?}",
        state.queue_depth, state.batch_size, state.arriving, state.cached_blocks
    )
}
