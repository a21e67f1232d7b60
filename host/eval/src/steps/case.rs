//! A recorded scenario.

use std::collections::HashMap;
use std::sync::Arc;

use blis_config::engine::EngineProfile;
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::{InstanceConfig, InstancePolicies, KvGroups, Preemption, Scheduler, SchedulerOptions};
use blis_sim::kv::pages::{CacheSpec, KvLayout, LayerRule, LayoutSettings, Packing, StateMode, plan};
use blis_sim::latency::{Batch, LatencyModel};
use blis_sim::policy::InstanceLabels;
use blis_sim::request::{Content, Request, Span};
use blis_sim::units::Micros;
use serde::Deserialize;
use thiserror::Error;

/// Blocks, and tokens of a request, of a scenario at most: each is kept in memory.
const MOST_BLOCKS: u32 = 10_000_000;
const MOST_TOKENS: u64 = 10_000_000;

/// Number of a step, and bytes of a page, at most: far beyond any recording, and products of them fit their types.
const MOST_STEPS: u64 = 1 << 40;
const MOST_PAGE_BYTES: u64 = 1 << 40;

/// One step is this long, so that step numbers are times.
pub(super) const STEP: u64 = 1000;

/// A scenario, without what was recorded of it.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordedScenario {
    /// Version of vLLM that was recorded; without it the newest.
    #[serde(alias = "vllm_version")]
    vllm: Option<String>,
    config: CaseConfig,
    pub(super) requests: Vec<CaseRequest>,
    layers: Option<Vec<CaseLayers>>,
    plan: Option<CasePlan>,
    #[serde(skip)]
    engine: Option<EngineProfile>,
}

/// The scenario cannot be run.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ScenarioError {
    /// The text is no scenario.
    #[error("{0}")]
    Unreadable(String),
    /// Neither a block size nor groups.
    #[error(
        "`config` has no `block_size`, and the scenario neither `layers` nor `plan`: there is nothing to make KV blocks of"
    )]
    NoLayers,
    /// The groups are unknown.
    #[error("{0}")]
    Groups(String),
    /// A value that no recording has.
    #[error("`{key}` is `{value}`: {expected}")]
    Value {
        /// The key in the scenario.
        key: &'static str,
        /// The value that it has there.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
}

#[derive(Clone, Debug, Deserialize)]
struct CaseConfig {
    max_num_seqs: u32,
    max_num_batched_tokens: u32,
    block_size: Option<u32>,
    num_blocks: u32,
    #[serde(default = "on")]
    enable_prefix_caching: bool,
    #[serde(default = "on")]
    enable_chunked_prefill: bool,
    #[serde(default = "fcfs")]
    policy: String,
    #[serde(default)]
    long_prefill_token_threshold: u32,
    max_model_len: u32,
    #[serde(default)]
    r#async: bool,
    #[serde(default)]
    watermark: f64,
    #[serde(default)]
    prefill_schedule_interval: u32,
    max_num_active_seqs: Option<u32>,
    #[serde(default)]
    long_prefill_token_threshold_adaptive: bool,
    scheduler_reserve_full_isl: Option<bool>,
    #[serde(default, deserialize_with = "given")]
    retention_interval: Given,
    prefix_match_unit: Option<u32>,
    #[serde(default)]
    disable_hybrid: bool,
}

/// A number that may be null, which is something else than missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Given {
    #[default]
    Missing,
    Is(Option<u32>),
}

fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Given, D::Error> {
    Option::<u32>::deserialize(deserializer).map(Given::Is)
}

fn on() -> bool {
    true
}

fn fcfs() -> String {
    "fcfs".into()
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct CaseRequest {
    pub id: String,
    pub prompt: Vec<(u32, u32)>,
    pub max_tokens: u32,
    pub arrival_step: u64,
    pub abort_step: Option<u64>,
    #[serde(default)]
    pub priority: i32,
    #[serde(default)]
    pub out_base: u32,
}

#[derive(Clone, Debug, Deserialize)]
struct CaseLayers {
    spec: CaseSpec,
    layers: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct CasePlan {
    groups: Vec<CaseGroup>,
    bytes_per_block: u64,
    scheduler_block: u32,
    hash_block: u32,
    hit_alignment: u32,
}

#[derive(Clone, Debug, Deserialize)]
struct CaseGroup {
    page: u64,
    layers: u32,
    #[serde(flatten)]
    rule: CaseRule,
}

#[derive(Clone, Debug, Deserialize)]
struct CaseSpec {
    page_bytes: u64,
    #[serde(flatten)]
    rule: CaseRule,
}

#[derive(Clone, Debug, Deserialize)]
struct CaseRule {
    kind: String,
    block: u32,
    window: Option<u32>,
    chunk: Option<u32>,
    tokens_per_state: Option<u32>,
    mode: Option<String>,
    checkpoint_blocks: Option<u32>,
    checkpoint_alignment: Option<u32>,
}

impl CaseRule {
    fn rule(&self) -> Result<LayerRule, ScenarioError> {
        let missing = |key| ScenarioError::Value { key, value: "missing".into(), expected: "a number of tokens" };
        Ok(match self.kind.as_str() {
            "full_attention" => LayerRule::Full,
            "mla_attention" => LayerRule::Latent { tokens_per_state: self.tokens_per_state.unwrap_or(1) },
            "sliding_window" => LayerRule::Window(self.window.ok_or_else(|| missing("window"))?),
            "sliding_window_mla" => LayerRule::LatentWindow(self.window.ok_or_else(|| missing("window"))?),
            "chunked_local_attention" => LayerRule::Chunk(self.chunk.ok_or_else(|| missing("chunk"))?),
            "mamba" => LayerRule::State {
                mode: if self.mode.as_deref() == Some("none") { StateMode::None } else { StateMode::Align },
                checkpoints: self.checkpoint_blocks.unwrap_or(0),
                checkpoint_alignment: self.checkpoint_alignment.unwrap_or(1),
            },
            other => {
                return Err(ScenarioError::Value {
                    key: "kind",
                    value: other.into(),
                    expected: "known are full_attention, mla_attention, sliding_window, sliding_window_mla, \
                               chunked_local_attention and mamba",
                });
            }
        })
    }
}

#[derive(Debug)]
struct EqualSteps;

impl LatencyModel for EqualSteps {
    fn step_time(&self, _batch: &Batch) -> Micros {
        Micros(STEP)
    }
}

/// What the recorded layers cache.
fn caches(layers: &[CaseLayers]) -> Result<Vec<CacheSpec>, ScenarioError> {
    let caches = layers.iter().map(|kind| {
        let (block, page_bytes) = (kind.spec.rule.block, kind.spec.page_bytes);
        if block == 0 || !(1..=MOST_PAGE_BYTES).contains(&page_bytes) {
            return Err(ScenarioError::Groups(
                "`layers`: a block has at least 1 token, and a page 1 byte to 1 TiB".into(),
            ));
        }
        let layers = u32::try_from(kind.layers.len()).unwrap_or(u32::MAX);
        Ok(CacheSpec { rule: kind.spec.rule.rule()?, block, page_bytes, layers })
    });
    caches.collect()
}

/// The layers of a recorded plan.
#[cfg(test)]
pub(super) fn layers_of(layers: &serde_json::Value) -> Result<Vec<CacheSpec>, ScenarioError> {
    let layers: Vec<CaseLayers> =
        serde_json::from_value(layers.clone()).map_err(|error| ScenarioError::Unreadable(error.to_string()))?;
    caches(&layers)
}

impl RecordedScenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// If the text is no JSON, or lacks what every scenario has.
    pub fn read(json: &str) -> Result<Self, ScenarioError> {
        serde_json::from_str(json).map_err(|error| ScenarioError::Unreadable(error.to_string()))
    }

    /// The same with the scheduler of `engine`, for recordings that do not name their version.
    #[must_use]
    pub fn with_engine(self, engine: EngineProfile) -> Self {
        Self { engine: Some(engine), ..self }
    }

    /// Whether it describes KV groups.
    pub(super) fn has_groups(&self) -> bool {
        self.config.block_size.is_none()
    }

    /// Whether prompts are looked up in the cache.
    pub(super) fn is_cached(&self) -> bool {
        self.config.enable_prefix_caching
    }

    /// Whether the next step is planned before the last one's output is known.
    pub(super) fn is_asynchronous(&self) -> bool {
        self.config.r#async
    }

    /// The KV groups: of `layers`, or as `plan` has them.
    ///
    /// # Errors
    /// If there are neither, or they have no form that vLLM has.
    pub fn layout(&self) -> Result<KvLayout, ScenarioError> {
        if let Some(layers) = &self.layers {
            let caches = caches(layers)?;
            let side_by_side = caches.iter().any(|layer| matches!(layer.rule, LayerRule::LatentWindow(_)));
            let settings = LayoutSettings {
                hybrid: !self.config.disable_hybrid,
                prefix_caching: self.config.enable_prefix_caching,
                prefix_match_unit: self.config.prefix_match_unit,
                packing: if side_by_side { Packing::BlocksOutermost } else { Packing::EqualPages },
            };
            return plan(&caches, settings).map_err(|error| ScenarioError::Groups(error.to_string()));
        }
        let plan = self.plan.as_ref().ok_or(ScenarioError::NoLayers)?;
        let groups = plan.groups.iter().map(|group| {
            Ok(blis_sim::kv::pages::KvGroup {
                rule: group.rule.rule()?,
                block: group.rule.block,
                page_bytes: group.page,
                layers: group.layers,
            })
        });
        Ok(KvLayout {
            groups: groups.collect::<Result<_, ScenarioError>>()?,
            bytes_per_block: plan.bytes_per_block,
            scheduler_block: plan.scheduler_block,
            hash_block: plan.hash_block,
            hit_alignment: plan.hit_alignment,
        })
    }

    fn engine(&self) -> EngineProfile {
        if let Some(engine) = self.engine {
            return engine;
        }
        let is_old = self.vllm.as_deref().is_some_and(|version| version.starts_with("0.15"));
        if is_old { EngineProfile::Vllm015 } else { EngineProfile::Vllm033 }
    }

    /// Refuses numbers with which nothing can be planned, and sizes that no recording has.
    fn check(&self, layout: Option<&KvLayout>) -> Result<(), ScenarioError> {
        let config = &self.config;
        let wrong = |key, value: u64, expected| ScenarioError::Value { key, value: value.to_string(), expected };
        let positive = [
            ("max_num_seqs", Some(config.max_num_seqs)),
            ("max_num_batched_tokens", Some(config.max_num_batched_tokens)),
            ("max_model_len", Some(config.max_model_len)),
            ("block_size", config.block_size),
        ];
        if let Some(&(key, _)) = positive.iter().find(|(_, value)| *value == Some(0)) {
            return Err(wrong(key, 0, "it must be at least 1"));
        }
        if config.num_blocks > MOST_BLOCKS {
            return Err(wrong("num_blocks", u64::from(config.num_blocks), "there may be 10 million blocks"));
        }
        for request in &self.requests {
            let tokens: u64 = request.prompt.iter().map(|&(_, length)| u64::from(length)).sum();
            if tokens == 0 || tokens + u64::from(request.max_tokens) > MOST_TOKENS {
                return Err(wrong("prompt", tokens, "a prompt has 1 token to 10 million tokens, its output included"));
            }
            let step = request.arrival_step.max(request.abort_step.unwrap_or(0));
            if step > MOST_STEPS {
                return Err(wrong("arrival_step", step, "steps are numbered to 2^40"));
            }
        }
        let Some(layout) = layout else { return Ok(()) };
        let of_layout = [layout.scheduler_block, layout.hash_block, layout.hit_alignment];
        let fits = |group: &blis_sim::kv::pages::KvGroup| {
            let window = group.rule.window().unwrap_or(1);
            let chunk = if let LayerRule::Chunk(tokens) = group.rule { tokens } else { 1 };
            // Without prefix caching nothing is hashed.
            let hashed = self.is_cached() && group.is_cacheable();
            group.block > 0 && window > 0 && chunk > 0 && (!hashed || group.block.is_multiple_of(layout.hash_block))
        };
        if of_layout.contains(&0) || layout.groups.is_empty() || !layout.groups.iter().all(fits) {
            return Err(ScenarioError::Groups(
                "blocks, windows and chunks are of 1 token or more, and blocks are multiples of the hash block".into(),
            ));
        }
        Ok(())
    }

    /// The instance of the scenario.
    ///
    /// # Errors
    /// If its KV cache is unknown.
    pub(super) fn instance(&self) -> Result<InstanceConfig, ScenarioError> {
        let config = &self.config;
        let engine = self.engine();
        let by_priority = match config.policy.as_str() {
            "fcfs" => false,
            "priority" => true,
            other => {
                return Err(ScenarioError::Value { key: "policy", value: other.into(), expected: "fcfs or priority" });
            }
        };
        let layout = if self.has_groups() { Some(self.layout()?) } else { None };
        self.check(layout.as_ref())?;
        let block_size = layout.as_ref().map_or(config.block_size, |layout| Some(layout.hash_block));
        let retention = match config.retention_interval {
            Given::Missing => Some(0),
            Given::Is(interval) => interval,
        };
        let groups = layout.map(|layout| Arc::new(KvGroups { layout, retention, pipeline: 1 }));
        Ok(InstanceConfig {
            labels: InstanceLabels::default(),
            index: InstanceIndex(0),
            max_num_seqs: config.max_num_seqs,
            max_num_batched_tokens: config.max_num_batched_tokens,
            long_prefill_token_threshold: config.long_prefill_token_threshold,
            max_model_len: Some(config.max_model_len),
            block_size: block_size.ok_or(ScenarioError::NoLayers)?,
            total_kv_blocks: config.num_blocks.saturating_sub(1), // one is vLLM's null block
            kv_groups: groups,
            enable_prefix_caching: config.enable_prefix_caching,
            enable_chunked_prefill: config.enable_chunked_prefill,
            async_scheduling: config.r#async,
            reserve_full_prompt: config.scheduler_reserve_full_isl.unwrap_or(engine.reserves_full_prompt()),
            options: SchedulerOptions {
                max_num_active_seqs: config.max_num_active_seqs,
                adaptive_prefill_threshold: config.long_prefill_token_threshold_adaptive,
                prefill_schedule_interval: config.prefill_schedule_interval,
                watermark_blocks: (config.watermark * f64::from(config.num_blocks)) as u32,
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
            adapters: None,
            semantics: engine.semantics(),
            latency: Arc::new(EqualSteps),
        })
    }

    /// The requests in the order of their arrival, with a key for each block of `block_size` tokens; their ids are positions.
    pub(super) fn arrivals(&self, block_size: u32) -> Vec<Request> {
        let mut keys = HashMap::new();
        let mut all: Vec<Request> =
            (0..).zip(&self.requests).map(|(id, r)| r.request(id, block_size, &mut keys)).collect();
        all.sort_by_key(|request| request.arrival);
        all
    }
}

impl CaseRequest {
    pub fn prompt_tokens(&self) -> u32 {
        self.prompt.iter().map(|&(_, length)| length).sum()
    }

    fn request(&self, position: u32, block_size: u32, keys: &mut HashMap<(u32, Vec<u32>), u32>) -> Request {
        let prompt = self.prompt.iter().flat_map(|&(base, length)| base..base.saturating_add(length));
        let outputs = self.out_base..self.out_base.saturating_add(self.max_tokens);
        let tokens: Vec<u32> = prompt.chain(outputs).collect();
        let mut parent = u32::MAX;
        let mut spans = Vec::new();
        for block in tokens.chunks_exact(block_size as usize) {
            let next = u32::try_from(keys.len()).unwrap_or(u32::MAX);
            parent = *keys.entry((parent, block.to_vec())).or_insert(next);
            spans.push(Span { first: parent, len: 1 });
        }
        Request {
            max_output_tokens: Some(self.max_tokens),
            deadline: self.abort_step.map(|step| Micros((step * STEP).saturating_sub(1))),
            // Equal priorities are served by position in the recording, whatever the step of arrival.
            priority: i64::from(self.priority) * 1_000_000 + i64::from(position),
            content: Content::shared(&spans),
            ..Request::new(RequestId(position), Micros(self.arrival_step * STEP), self.prompt_tokens(), self.max_tokens)
        }
    }
}
