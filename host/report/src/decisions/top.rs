//! `blis decisions top`: the worst decisions, by the outcome of the request or by the policy's own scores.

use std::fmt::{self, Display};
use std::path::Path;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::line::{OutcomeLine, OutcomeStatus, RoutingLine, TraceLine};
use super::read::TraceReader;
use super::seen::InstanceSignals;
use super::table::{TextTable, ms, or_dash, score, seconds};
use crate::conclusion::{Concludes, Conclusion};
use blis_workload::TraceError;

/// The figure by which decisions are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::Display, strum::EnumMessage, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum TopBy {
    /// Score regret: the best score minus the score of the chosen instance
    ScoreRegret,
    /// Margin: the score of the chosen instance minus the best of the others
    // A large margin means a clear choice.
    Margin,
    /// TTFT of the request
    Ttft,
    /// E2E of the request
    E2e,
    /// Scheduling delay of the request
    // Until the (last) entry into the running batch.
    Wait,
}

/// What `blis decisions top` prints with `--output json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Top {
    /// The figure by which decisions are sorted.
    by: TopBy,
    /// Requests that have the figure. Unit: requests.
    of: u64,
    /// The worst decisions, the worst first.
    decisions: Vec<RankedDecision>,
}

impl Concludes for Top {
    fn conclusion(&self) -> Conclusion {
        let heading = self.by.heading();
        match self.decisions.first() {
            Some(worst) => Conclusion::measured(format!(
                "Request {} has the largest {heading} of {} requests",
                worst.request, self.of
            )),
            None => Conclusion::measured(format!("No request has a {heading}")),
        }
    }
}

/// A request with its routing decision and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct RankedDecision {
    /// Number of the request. Unit: number.
    request: u32,
    /// The figure: µs, or in units of the scores. Unit: as `by`.
    value: f64,
    #[serde(flatten)]
    routed: Option<Routed>,
    /// End of the request.
    status: OutcomeStatus,
    /// Time to first token.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttft_us: Option<u64>,
    /// End-to-end latency of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    e2e_us: Option<u64>,
    /// Time until it entered the running batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduling_delay_us: Option<u64>,
}

/// The part of a routing decision that is kept until the request ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Routed {
    /// Time of the routing decision.
    time_us: u64,
    /// The chosen instance. Unit: number.
    instance: u32,
    /// Reason that the policy gives.
    reason: String,
    /// Signals of the chosen instance, in words.
    observed: String,
    /// Best score minus score of the chosen instance; if the policy records scores. Unit: score.
    #[serde(skip_serializing_if = "Option::is_none")]
    score_regret: Option<f64>,
    /// Score of the chosen instance minus the best of the others; likewise. Unit: score.
    #[serde(skip_serializing_if = "Option::is_none")]
    margin: Option<f64>,
}

impl Top {
    /// The `limit` worst decisions of the trace at `path`.
    ///
    /// # Errors
    /// If the trace cannot be read.
    pub fn read(path: &Path, by: TopBy, limit: usize) -> Result<Self, TraceError> {
        Self::from_reader(&mut TraceReader::open(path)?, by, limit)
    }

    /// The `limit` worst decisions in the lines of `reader`.
    ///
    /// # Errors
    /// If the trace cannot be read.
    pub fn from_reader(reader: &mut TraceReader, by: TopBy, limit: usize) -> Result<Self, TraceError> {
        let mut live: FxHashMap<u32, Routed> = FxHashMap::default();
        // By the value; of equal values, the earlier request counts as worse.
        let keep_worst = |decisions: &mut Vec<RankedDecision>| {
            decisions.sort_by(|one, other| other.value.total_cmp(&one.value).then(one.request.cmp(&other.request)));
            decisions.truncate(limit);
        };
        let (mut decisions, mut of) = (Vec::new(), 0);
        while let Some(line) = reader.next_line()? {
            match line {
                TraceLine::Routing(routing) => {
                    let observed = InstanceSignals::of_chosen(&routing, reader.signals());
                    live.insert(routing.request, Routed::new(&routing, observed));
                }
                TraceLine::Outcome(outcome) => {
                    let routed = live.remove(&outcome.request);
                    let Some(value) = by.value(routed.as_ref(), &outcome) else { continue };
                    of += 1;
                    decisions.push(RankedDecision::new(value, routed, &outcome));
                    if decisions.len() > limit.saturating_mul(2) {
                        keep_worst(&mut decisions);
                    }
                }
                _ => {}
            }
        }
        keep_worst(&mut decisions);
        Ok(Self { by, of, decisions })
    }
}

impl TopBy {
    fn value(self, routed: Option<&Routed>, outcome: &OutcomeLine) -> Option<f64> {
        let value = match self {
            Self::ScoreRegret => routed?.score_regret?,
            Self::Margin => routed?.margin?,
            Self::Ttft => outcome.ttft_us? as f64,
            Self::E2e => outcome.e2e_us? as f64,
            Self::Wait => outcome.scheduling_delay_us? as f64,
        };
        Some(value)
    }

    fn heading(self) -> &'static str {
        match self {
            Self::ScoreRegret => "score regret",
            Self::Margin => "margin",
            Self::Ttft => "TTFT",
            Self::E2e => "E2E",
            Self::Wait => "wait",
        }
    }
}

impl Routed {
    fn new(routing: &RoutingLine, observed: String) -> Self {
        Self {
            time_us: routing.time_us,
            instance: routing.instance,
            reason: routing.reason.clone(),
            observed,
            score_regret: routing.score_regret.or_else(|| margin(routing).map(|margin| (-margin).max(0.0))),
            margin: margin(routing),
        }
    }
}

/// Score of the chosen instance minus the best of the others; needs two scores, listed or of candidates.
pub(super) fn margin(routing: &RoutingLine) -> Option<f64> {
    let by_column = || routing.scores.iter().enumerate().map(|(i, &score)| (i as u32, score));
    let listed = routing.candidates.iter().flatten().map(|candidate| (candidate.instance, candidate.score));
    let scores: Vec<(u32, f64)> = if routing.scores.is_empty() {
        listed.filter_map(|(instance, score)| Some((instance, score?))).collect()
    } else {
        by_column().filter_map(|(instance, score)| Some((instance, score?))).collect()
    };
    let of = |chosen: bool| {
        let scores = scores.iter().filter(|(instance, _)| (*instance == routing.instance) == chosen);
        scores.map(|&(_, score)| score).max_by(f64::total_cmp)
    };
    Some(of(true)? - of(false)?)
}

impl RankedDecision {
    fn new(value: f64, routed: Option<Routed>, outcome: &OutcomeLine) -> Self {
        Self {
            request: outcome.request,
            value,
            routed,
            status: outcome.status,
            ttft_us: outcome.ttft_us,
            e2e_us: outcome.e2e_us,
            scheduling_delay_us: outcome.scheduling_delay_us,
        }
    }
}

impl Display for Top {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heading = self.by.heading();
        if self.decisions.is_empty() {
            writeln!(f, "no request has a {heading}")?;
            return match self.by {
                TopBy::ScoreRegret | TopBy::Margin => {
                    writeln!(f, "the policy gives no scores: record them with `--counterfactual-k 2` or more")
                }
                TopBy::Ttft | TopBy::E2e | TopBy::Wait => Ok(()),
            };
        }
        writeln!(
            f,
            "The {} of {} requests with the largest {heading}; latencies in ms\n",
            self.decisions.len(),
            self.of
        )?;
        let scored = matches!(self.by, TopBy::ScoreRegret | TopBy::Margin);
        let headings = ["request", "routed at s", "instance", "wait", "TTFT", "E2E"];
        let mut table = TextTable::new(0, headings.into_iter().chain(scored.then_some(heading)).chain([""]));
        let mut reasons = Vec::new();
        for entry in &self.decisions {
            let routed = entry.routed.as_ref();
            let mut row = vec![
                entry.request.to_string(),
                or_dash(routed, |routed| seconds(routed.time_us)),
                or_dash(routed, |routed| routed.instance.to_string()),
                or_dash(entry.scheduling_delay_us, ms),
                or_dash(entry.ttft_us, ms),
                or_dash(entry.e2e_us, ms),
            ];
            row.extend(scored.then(|| score(entry.value)));
            row.push(String::new());
            table.row(row);
            reasons.push(routed.map_or_else(String::new, |routed| {
                let observed =
                    if routed.observed.is_empty() { String::new() } else { format!("; it had {}", routed.observed) };
                format!("         {}{observed}\n", routed.reason)
            }));
        }
        let table = table.to_string();
        let (heading, rows) = table.split_once('\n').unwrap_or_default();
        writeln!(f, "{heading}")?;
        rows.lines().zip(reasons).try_for_each(|(row, reason)| write!(f, "{row}\n{reason}"))
    }
}
