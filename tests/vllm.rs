//! The plans of the real schedulers of vLLM 0.15.1 and 0.33.0, step by step, against both engines.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use blis_config::engine::EngineProfile;
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::{
    Fast, Instance, InstanceConfig, InstancePolicies, Plain, Preemption, Scheduler, SchedulerOptions, StepRecord,
};
use blis_sim::latency::{Batch, LatencyModel};
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::Outcome;
use blis_sim::request::{Content, Request, Span};
use blis_sim::units::Micros;
use serde::Deserialize;

use crate::shared::{read, shared};

/// One step is this long, so that step numbers are times.
const STEP: u64 = 1000;

#[derive(Deserialize)]
struct Scenario {
    name: String,
    config: Config,
    requests: Vec<Recorded>,
    per_request: BTreeMap<String, PerRequest>,
    steps: Vec<PlannedStep>,
}

#[derive(Deserialize)]
struct Config {
    max_num_seqs: u32,
    max_num_batched_tokens: u32,
    block_size: u32,
    num_blocks: u32,
    enable_prefix_caching: bool,
    enable_chunked_prefill: bool,
    policy: String,
    long_prefill_token_threshold: u32,
    max_model_len: u32,
    r#async: bool,
    // Options of 0.33 that are off unless they are named.
    #[serde(default)]
    watermark: f64,
    #[serde(default)]
    prefill_schedule_interval: u32,
    max_num_active_seqs: Option<u32>,
    #[serde(default)]
    long_prefill_token_threshold_adaptive: bool,
    scheduler_reserve_full_isl: Option<bool>,
}

#[derive(Deserialize)]
struct Recorded {
    id: String,
    prompt: Vec<(u32, u32)>,
    max_tokens: u32,
    arrival_step: u64,
    abort_step: Option<u64>,
    priority: i32,
    out_base: u32,
}

#[derive(Deserialize)]
struct PerRequest {
    preemptions: u32,
    /// Absent if it never ran.
    cached_tokens: Option<u32>,
    output_tokens: u32,
}

#[derive(Deserialize)]
struct PlannedStep {
    step: u64,
    running_before: Vec<String>,
    waiting_before: Vec<String>,
    scheduled: Vec<Scheduled>,
    preempted: Vec<String>,
    free_blocks_after_schedule: u32,
    finished: Vec<String>,
    free_blocks_after_update: u32,
}

#[derive(Deserialize)]
struct Scheduled {
    id: String,
    tokens: u32,
    computed_before: u32,
}

#[derive(Debug)]
struct Constant;

impl LatencyModel for Constant {
    fn step_time(&self, _batch: &Batch) -> Micros {
        Micros(STEP)
    }
}

#[derive(Default)]
struct Outcomes(BTreeMap<RequestId, Outcome>);

impl Observer for Outcomes {
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Outcome(&outcome) = *event {
            assert!(self.0.insert(outcome.id, outcome).is_none(), "request_{} ended twice", outcome.id);
        }
    }
}

impl Scenario {
    fn instance(&self, engine: EngineProfile) -> InstanceConfig {
        let c = &self.config;
        let by_priority = c.policy == "priority";
        InstanceConfig {
            labels: blis_sim::policy::InstanceLabels::default(),
            index: InstanceIndex(0),
            max_num_seqs: c.max_num_seqs,
            max_num_batched_tokens: c.max_num_batched_tokens,
            long_prefill_token_threshold: c.long_prefill_token_threshold,
            max_model_len: Some(c.max_model_len),
            block_size: c.block_size,
            total_kv_blocks: c.num_blocks - 1, // one is vLLM's null block
            enable_prefix_caching: c.enable_prefix_caching,
            enable_chunked_prefill: c.enable_chunked_prefill,
            async_scheduling: c.r#async,
            reserve_full_prompt: c.scheduler_reserve_full_isl.unwrap_or(engine.reserves_full_prompt()),
            options: SchedulerOptions {
                max_num_active_seqs: c.max_num_active_seqs,
                adaptive_prefill_threshold: c.long_prefill_token_threshold_adaptive,
                prefill_schedule_interval: c.prefill_schedule_interval,
                watermark_blocks: (c.watermark * f64::from(c.num_blocks)) as u32,
                ..SchedulerOptions::default()
            },
            policies: InstancePolicies {
                scheduler: if by_priority { Scheduler::PriorityFcfs } else { Scheduler::Fcfs }.into(),
                preemption: if by_priority { Preemption::Priority } else { Preemption::Fcfs }.into(),
                ..InstancePolicies::default()
            },
            classes: Arc::default(),
            offload: None,
            blis_tiers: None,
            kv_groups: None,
            adapters: None,
            semantics: engine.semantics(),
            latency: Arc::new(Constant),
        }
    }

    /// The requests, with block keys interned from the recorded token ids.
    fn requests(&self) -> Vec<Request> {
        let mut keys = HashMap::new();
        let mut all: Vec<Request> = self
            .requests
            .iter()
            .enumerate()
            .map(|(position, r)| {
                let prompt = r.prompt.iter().flat_map(|&(base, len)| base..base + len);
                let tokens: Vec<u32> = prompt.chain(r.out_base..r.out_base + r.max_tokens).collect();
                let input_tokens = r.prompt.iter().map(|&(_, len)| len).sum();
                let mut parent = u32::MAX;
                let mut spans = Vec::new();
                for block in tokens.chunks_exact(self.config.block_size as usize) {
                    let next = keys.len() as u32;
                    parent = *keys.entry((parent, block.to_vec())).or_insert(next);
                    spans.push(Span { first: parent, len: 1 });
                }
                Request {
                    max_output_tokens: Some(r.max_tokens),
                    deadline: r.abort_step.map(|step| Micros(step * STEP - 1)),
                    // Equal priorities are served by position in the recording, whatever the step of arrival.
                    priority: i64::from(r.priority) * 1_000_000 + position as i64,
                    content: Content::shared(&spans),
                    ..Request::new(number(&r.id), Micros(r.arrival_step * STEP), input_tokens, r.max_tokens)
                }
            })
            .collect();
        all.sort_by_key(|r| r.arrival);
        all
    }

    fn expected(&self, step: &PlannedStep) -> StepRecord {
        let ids = |names: &[String]| names.iter().map(|name| number(name)).collect::<Vec<_>>();
        let (preempted, finished) = (sorted(ids(&step.preempted)), sorted(ids(&step.finished))); // sets
        StepRecord {
            now: Micros(step.step * STEP),
            end: Micros((step.step + 1) * STEP),
            scheduled: step.scheduled.iter().map(|s| (number(&s.id), s.tokens, s.computed_before)).collect(),
            preempted,
            finished,
            free_blocks_planned: step.free_blocks_after_schedule,
            free_blocks: step.free_blocks_after_update,
            // Not recorded.
            held_pages: Vec::new(),
            waiting: 0,
            running: 0,
        }
    }

    /// Runs the engine and returns what each step did.
    fn run<I: Instance>(
        &self,
        mut instance: I,
        last_step: impl Fn(&I) -> StepRecord,
        sink: &mut Outcomes,
    ) -> Vec<StepRecord> {
        let mut records = Vec::new();
        let mut arrivals = self.requests().into_iter().peekable();
        loop {
            let next = arrivals.peek().map(|r| r.arrival);
            match (next, instance.next_event()) {
                (Some(at), event) if event.is_none_or(|event| at <= event) => {
                    let request = arrivals.next().expect("peeked");
                    instance.arrive(request.arrival, request);
                }
                (_, Some(event)) => {
                    let before = last_step(&instance);
                    instance.advance(event + Micros(1), sink).expect("not stuck");
                    let after = last_step(&instance);
                    if after != before {
                        let (preempted, finished) = (sorted(after.preempted.clone()), sorted(after.finished.clone()));
                        records.push(StepRecord { waiting: 0, running: 0, preempted, finished, ..after });
                    }
                }
                _ => break,
            }
        }
        instance.finish(Micros::MAX, sink);
        records
    }

    /// Compares what an engine did with the recording.
    fn check(&self, engine: &str, got: &[StepRecord], outcomes: &Outcomes) -> Result<(), String> {
        let mut want: Vec<StepRecord> = self
            .steps
            .iter()
            .filter(|s| !(s.running_before.is_empty() && s.waiting_before.is_empty()))
            .map(|s| self.expected(s))
            .collect();
        if self.config.r#async {
            // vLLM reports an end when it processes the output, one plan after the step.
            for i in 0..want.len() {
                want[i].finished = want.get(i + 1).map_or(Vec::new(), |next| next.finished.clone());
            }
        }
        let wrong = |what: String| format!("{}, {engine} engine: {what}", self.name);
        let all = got;
        if let Some((got, want)) = got.iter().zip(&want).find(|(got, want)| got != want) {
            return Err(wrong(format!("\n  ours     {got:?}\n  recorded {want:?}")));
        }
        if got.len() != want.len() {
            return Err(wrong(format!("{} steps, recorded {}", got.len(), want.len())));
        }
        for (name, want) in &self.per_request {
            // A request that has finished can be preempted before its output is processed: its outcome is known by then.
            let preemptions = all.iter().flat_map(|step| &step.preempted).filter(|&&id| id == number(name)).count();
            let got = &outcomes.0[&number(name)];
            let got = (preemptions as u32, got.cached_tokens, got.generated_tokens);
            let want = (want.preemptions, want.cached_tokens.unwrap_or(0), want.output_tokens);
            if got != want {
                return Err(wrong(format!("{name}: (preemptions, cached, output) {got:?}, recorded {want:?}")));
            }
        }
        Ok(())
    }
}

fn sorted(mut ids: Vec<RequestId>) -> Vec<RequestId> {
    ids.sort_unstable();
    ids
}

fn number(name: &str) -> RequestId {
    RequestId(name[1..].parse().expect("names are r0, r1, …"))
}

/// Compares every scenario in `folder` with both engines under `profile`.
fn compare_all(folder: &Path, profile: EngineProfile) {
    let mut files: Vec<_> = std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    files.sort();
    let mut wrong = Vec::new();
    for file in &files {
        let scenario: Scenario =
            serde_json::from_str(&read(file)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let mut outcomes = Outcomes::default();
        let steps = scenario.run(Plain::new(scenario.instance(profile)), |i| i.last_step.clone(), &mut outcomes);
        wrong.extend(scenario.check("plain", &steps, &outcomes).err());

        let mut outcomes = Outcomes::default();
        let fast = Fast::new(scenario.instance(profile)).recording();
        let steps = scenario.run(fast, |i| i.last_step().expect("recording").clone(), &mut outcomes);
        wrong.extend(scenario.check("fast", &steps, &outcomes).err());
    }
    assert!(!files.is_empty(), "no scenario found");
    assert!(wrong.is_empty(), "{} of {} differ\n{}", wrong.len(), 2 * files.len(), wrong.join("\n"));
}

#[test]
fn every_plan_of_vllm_0_15_is_ours() {
    let Some(folder) = shared("cases/vllm/0.15.1") else { return };
    compare_all(&folder, EngineProfile::Vllm015);
}

#[test]
fn every_plan_of_vllm_0_33_is_ours() {
    let Some(folder) = shared("cases/vllm/0.33.0") else { return };
    compare_all(&folder, EngineProfile::Vllm033);
}

/// Plans recorded with `tools/vllm-oracle` for this repository: options of 0.33 that the shared scenarios leave off, and
/// random requests.
#[test]
fn every_plan_recorded_here_is_ours() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vllm-plans");
    compare_all(&folder.join("0.15.1"), EngineProfile::Vllm015);
    compare_all(&folder.join("0.33.0"), EngineProfile::Vllm033);
}
