//! The real vLLM scheduler's plans, step by step, against both engines under default semantics.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use blis_sim::instance::{Fast, Instance, InstanceConfig, Plain, Preemption, Scheduler, StepRecord};
use blis_sim::latency::{Batch, LatencyModel};
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::outcome::Outcome;
use blis_sim::request::{Content, Request, Span};
use blis_sim::semantics::Semantics;
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
    steps: Vec<Step>,
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
struct Step {
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
struct Outcomes(BTreeMap<u32, Outcome>);

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
    fn instance(&self) -> InstanceConfig {
        let c = &self.config;
        let by_priority = c.policy == "priority";
        InstanceConfig {
            index: 0,
            max_num_seqs: c.max_num_seqs,
            max_num_batched_tokens: c.max_num_batched_tokens,
            long_prefill_token_threshold: c.long_prefill_token_threshold,
            max_model_len: Some(c.max_model_len),
            block_size: c.block_size,
            total_kv_blocks: c.num_blocks - 1, // one is vLLM's null block
            enable_prefix_caching: c.enable_prefix_caching,
            enable_chunked_prefill: c.enable_chunked_prefill,
            async_scheduling: c.r#async,
            reserve_full_prompt: false,
            scheduler: if by_priority { Scheduler::PriorityFcfs } else { Scheduler::Fcfs }.into(),
            preemption: if by_priority { Preemption::Priority } else { Preemption::Fcfs }.into(),
            classes: Arc::default(),
            semantics: Semantics::VLLM,
            latency: Arc::new(Constant),
        }
    }

    /// The requests, with block keys interned from the recorded token ids.
    fn requests(&self) -> Vec<Request> {
        let mut keys = HashMap::new();
        let mut all: Vec<Request> = self
            .requests
            .iter()
            .map(|r| {
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
                    priority: r.priority.into(),
                    content: Content::shared(&spans),
                    ..Request::new(number(&r.id), Micros(r.arrival_step * STEP), input_tokens, r.max_tokens)
                }
            })
            .collect();
        all.sort_by_key(|r| r.arrival);
        all
    }

    fn expected(&self, step: &Step) -> StepRecord {
        let ids = |names: &[String]| names.iter().map(|name| number(name)).collect::<Vec<_>>();
        StepRecord {
            now: Micros(step.step * STEP),
            end: Micros((step.step + 1) * STEP),
            scheduled: step.scheduled.iter().map(|s| (number(&s.id), s.tokens, s.computed_before)).collect(),
            preempted: ids(&step.preempted),
            finished: ids(&step.finished),
            free_blocks_planned: step.free_blocks_after_schedule,
            free_blocks: step.free_blocks_after_update,
            // Not recorded.
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
                        records.push(StepRecord { waiting: 0, running: 0, ..after });
                    }
                }
                _ => break,
            }
        }
        instance.finish(Micros::MAX, sink);
        records
    }

    fn check(&self, engine: &str, got: &[StepRecord], outcomes: &Outcomes) {
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
        for (got, want) in got.iter().zip(&want) {
            assert_eq!(got, want, "{}, {engine} engine", self.name);
        }
        assert_eq!(got.len(), want.len(), "{}, {engine} engine: number of steps", self.name);
        for (name, want) in &self.per_request {
            let got = &outcomes.0[&number(name)];
            assert_eq!(got.preemptions, want.preemptions, "{} {name}, {engine}: preemptions", self.name);
            assert_eq!(
                got.cached_tokens,
                want.cached_tokens.unwrap_or(0),
                "{} {name}, {engine}: cached tokens",
                self.name
            );
            assert_eq!(got.generated_tokens, want.output_tokens, "{} {name}, {engine}: output tokens", self.name);
        }
    }
}

fn number(name: &str) -> u32 {
    name[1..].parse().expect("names are r0, r1, …")
}

#[test]
fn every_recorded_plan_is_ours() {
    let Some(folder) = shared("cases/vllm/0.15.1") else { return };
    let mut seen = 0;
    let mut files: Vec<_> = std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    files.sort();
    for file in files {
        let scenario: Scenario =
            serde_json::from_str(&read(&file)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let mut outcomes = Outcomes::default();
        let steps = scenario.run(Plain::new(scenario.instance()), |i| i.last_step.clone(), &mut outcomes);
        scenario.check("plain", &steps, &outcomes);

        let mut outcomes = Outcomes::default();
        let fast = Fast::new(scenario.instance()).recording();
        let steps = scenario.run(fast, |i| i.last_step().expect("recording").clone(), &mut outcomes);
        scenario.check("fast", &steps, &outcomes);
        seen += 1;
    }
    assert!(seen > 0, "no scenario found");
    eprintln!("{seen} scenarios");
}
