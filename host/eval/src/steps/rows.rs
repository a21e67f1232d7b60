//! What the scheduler did with a scenario, in the form of its recording.

use std::collections::BTreeMap;

use serde::Serialize;

/// What the scheduler did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SchedulerSteps {
    /// One row per step.
    pub steps: Vec<ScenarioRow>,
    /// Sums over all steps.
    pub summary: StepTotals,
    /// What the engine reports of each request at its end, by its name in the scenario.
    #[serde(skip)]
    pub per_request: BTreeMap<String, RequestTotals>,
}

/// What the engine reports of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTotals {
    /// Tokens of its prompt that were cached when it was first admitted.
    pub cached_tokens: u32,
    /// Tokens that it generated.
    pub output_tokens: u32,
}

/// What one step of the scheduler did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ScenarioRow {
    /// Of a scenario with KV groups.
    Groups(GroupRow),
    /// Of a scenario with one block size.
    Blocks(BlockRow),
}

/// A step in the form of `cases/vllm-groups`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupRow {
    /// Number of the step.
    pub s: u64,
    /// Scheduled requests: id, `n` new, `r` running or `p` resumed after a preemption, tokens, tokens computed before, whether a token
    /// comes out.
    pub q: Vec<(String, &'static str, u32, u32, u8)>,
    /// Free pages after planning.
    pub f: u32,
    /// Pages held per group.
    pub h: Vec<u32>,
    /// Preempted requests, in the order of their arrival.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub p: Vec<String>,
    /// Requests that finished, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub d: Vec<String>,
    /// Free pages after the update.
    pub g: u32,
}

/// A step in the form of `cases/vllm`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockRow {
    /// Number of the step.
    pub step: u64,
    /// Requests with tokens in this step, in order.
    pub scheduled: Vec<ScheduledRow>,
    /// Preempted requests, in the order of their arrival.
    pub preempted: Vec<String>,
    /// Requests that finished, sorted.
    pub finished: Vec<String>,
    /// Free blocks after planning.
    pub free_blocks_after_schedule: u32,
    /// Free blocks after the update.
    pub free_blocks_after_update: u32,
}

/// A request with tokens in a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScheduledRow {
    /// Its name in the scenario.
    pub id: String,
    /// `new`, `running` or `resumed`.
    pub kind: &'static str,
    /// Number of tokens that it computes.
    pub tokens: u32,
    /// Number of tokens that were computed before.
    pub computed_before: u32,
    /// Whether a token comes out.
    pub samples: bool,
}

impl From<GroupRow> for BlockRow {
    fn from(row: GroupRow) -> Self {
        let kind = |short| match short {
            "n" => "new",
            "p" => "resumed",
            _ => "running",
        };
        let scheduled = row.q.into_iter().map(|(id, short, tokens, computed_before, samples)| ScheduledRow {
            id,
            kind: kind(short),
            tokens,
            computed_before,
            samples: samples == 1,
        });
        Self {
            step: row.s,
            scheduled: scheduled.collect(),
            preempted: row.p,
            finished: row.d,
            free_blocks_after_schedule: row.f,
            free_blocks_after_update: row.g,
        }
    }
}

/// Sums, as the counters of vLLM's metrics have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepTotals {
    /// Number of rows above.
    pub steps: u64,
    /// Tokens of all steps.
    pub scheduled_tokens: u64,
    /// Number of preempted requests, each time.
    pub preemptions: u64,
    /// Cached tokens at first admissions.
    pub hit: u64,
    /// Cached tokens at later admissions.
    pub hit_on_resume: u64,
    /// Tokens that were looked up at first admissions.
    pub prefix_cache_queries: u64,
    /// Tokens that were found then.
    pub prefix_cache_hits: u64,
}
