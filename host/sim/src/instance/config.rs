//! The configuration of one instance.

use std::sync::Arc;

use super::cache_events::CacheEvents;
use super::policy::{InstancePolicies, JoiningRequest, QueueKey, SchedulingChoice};
use crate::adapters::{AdapterSettings, AdapterSlots};
use crate::ids::InstanceIndex;
use crate::kv::cache::PlainCache;
use crate::kv::pages::{GroupedKv, KvLayout, PagePoolSettings, PageRules};
use crate::kv::plain::PlainKv;
use crate::kv::tiers::BlisTiers;
use crate::latency::LatencyModel;
use crate::observer::{Interests, Observer, SimEvent};
use crate::offload::OffloadConfig;
use crate::outcome::{AdapterChange, AdapterEvent, AdapterEviction, Decision};
use crate::policy::kv_cache::KvCacheChoice;
use crate::policy::{BatchView, Classes, InstanceLabels, QueuedView, RequestView};
use crate::request::{Name, Request};
use crate::sampling::Sampling;
use crate::semantics::Semantics;
use crate::units::Micros;

/// The configuration of one instance. A clone has copies of the policies.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct InstanceConfig {
    /// The latency model, which computes the duration of a step.
    pub latency: Arc<dyn LatencyModel>,
    /// Index of the instance in the cluster.
    pub index: InstanceIndex,
    /// Its group, role and price, for policies to read.
    pub labels: InstanceLabels,
    /// Maximum number of requests in the running batch (vLLM `max_num_seqs`), ≥ 1.
    pub max_num_seqs: u32,
    /// Token budget of one step (vLLM `max_num_batched_tokens`), ≥ 1.
    pub max_num_batched_tokens: u32,
    /// Size of a KV block, tokens, ≥ 1.
    pub block_size: u32,
    /// Usable KV blocks, ≥ 1. (vLLM's `num_gpu_blocks` includes one null block.) With groups: usable pages.
    pub total_kv_blocks: u32,
    /// The KV groups, if some layers keep less than every token; then `block_size` is the block of one content hash.
    pub kv_groups: Option<Arc<KvGroups>>,
    /// Maximum number of prefill tokens of one request in a step; 0 for no limit.
    pub long_prefill_token_threshold: u32,
    /// Maximum length of prompt plus output, tokens; `None` for unlimited.
    pub max_model_len: Option<u32>,
    /// Whether blocks with equal content are shared through the prefix cache.
    pub enable_prefix_caching: bool,
    /// Whether a prompt may be chunked over several steps. If not, a prompt that exceeds the remaining budget waits.
    pub enable_chunked_prefill: bool,
    /// vLLM's asynchronous scheduling: a step is planned before the previous one's output is known, so a finished
    /// request keeps its slot and KV blocks for one more plan.
    pub async_scheduling: bool,
    /// Admit a request to the batch only if its whole prompt fits the free KV blocks (vLLM's
    /// `scheduler_reserve_full_isl`): far fewer preemptions under memory pressure.
    pub reserve_full_prompt: bool,
    /// Options that are off unless the user sets them.
    pub options: SchedulerOptions,
    /// Behaviour where vLLM and BLIS differ.
    pub semantics: Semantics,
    /// The policies that decide here.
    pub policies: InstancePolicies,
    /// Priorities of the SLO classes. Only policies that are not built in read them.
    pub classes: Arc<Classes>,
    /// The CPU tier of the KV cache; `None` for none. It needs prefix caching.
    pub offload: Option<OffloadConfig>,
    /// BLIS's tiers below the GPU's KV cache, with [`Semantics::BLIS`] and [`Plain`](super::Plain) only; `None` for none.
    pub blis_tiers: Option<Arc<BlisTiers>>,
    /// The LoRA adapters that it may load; `None`: the base model serves every request.
    pub adapters: Option<Arc<AdapterSettings>>,
}

impl InstanceConfig {
    /// Whether a request that arrives during a step misses the next step too, because that is planned already.
    pub(super) fn plans_ahead(&self) -> bool {
        self.async_scheduling && self.latency.plans_ahead()
    }

    /// Whether a request with this deadline is aborted in the step that generates its last token and ends at `end`. With asynchronous scheduling
    /// the next step is planned before the tokens of this one are processed, and what was aborted by then is not.
    #[inline]
    pub(super) fn aborts_before(&self, deadline: Option<Micros>, end: Micros) -> bool {
        self.async_scheduling && deadline.is_some_and(|deadline| deadline < end)
    }

    /// When an instance without requests schedules one that joins its queue at `now`; its last request ended at
    /// `left_at`, with the step that completed it.
    #[inline]
    pub(super) fn wakes_at(&self, now: Micros, left_at: Micros) -> Micros {
        if self.semantics.idle_at_step_start { now } else { now.max(left_at) }
    }

    /// What the router has to learn of the prefix cache; `None` if it learns all at once.
    pub(super) fn cache_events(&self) -> Option<Box<CacheEvents>> {
        let delays = !self.semantics.cache_events_at_step_start;
        delays.then(|| Box::new(CacheEvents::new(self.async_scheduling)))
    }

    /// The sampling of `request`, if it costs other than that of requests that set no parameter.
    #[inline]
    pub(super) fn sampling(&self, request: &Request) -> Option<Sampling> {
        if request.sampling.is_unset() { None } else { self.latency.sampling(request.sampling) }
    }

    /// The slots of its adapters, empty; `None` without adapters. Boxed: most instances have none.
    pub(super) fn adapter_slots(&self) -> Option<Box<AdapterSlots>> {
        let settings = Arc::clone(self.adapters.as_ref()?);
        let policy = match &self.policies.kv_cache {
            KvCacheChoice::BuiltIn => None,
            KvCacheChoice::Custom(policy) => Some(policy.fork()),
        };
        Some(Box::new(AdapterSlots::new(settings, self.semantics.adapters_load_ahead, policy)))
    }

    /// Reports changes of the adapters at `now` to `observer`.
    pub(super) fn adapter_changes(&self, now: Micros, observer: &mut impl Observer) -> impl FnMut(Name, AdapterChange) {
        let instance = self.index;
        move |adapter, change| {
            observer.record(&SimEvent::Adapter(&AdapterEvent { instance, now, adapter, change }));
        }
    }

    /// Reports to `observer` which adapters made room when `request` entered the batch at `now`.
    pub(super) fn report_adapter_choices(
        &self,
        slots: &AdapterSlots,
        request: &Request,
        now: Micros,
        observer: &mut impl Observer,
    ) {
        if slots.choices().is_empty() || !observer.interests().contains(Interests::SCHEDULING) {
            // Only observers of decisions read choices, and vLLM's built-in LRU makes none.
            return;
        }
        for choice in slots.choices() {
            let eviction = AdapterEviction {
                instance: self.index,
                now,
                request: request.id,
                adapter: request.tags.adapter,
                tier: choice.tier,
                candidates: &choice.candidates,
                ranks: &choice.ranks,
                evicted: choice.evicted,
            };
            observer.record(&SimEvent::Decision(&Decision::AdapterEviction(eviction)));
        }
    }

    /// The event for observers that `count` inter-token latencies of `gap` occurred here.
    #[inline]
    pub(super) fn latencies(&self, gap: Micros, count: u64) -> SimEvent<'static> {
        SimEvent::InterTokenLatency { instance: self.index, gap, count }
    }

    /// The sort key of a request that joins the queue. Built-in policies need no view.
    pub(super) fn queue_key(&mut self, joining: &JoiningRequest<'_>) -> QueueKey {
        match self.policies.scheduler {
            SchedulingChoice::BuiltIn(scheduler) => scheduler.key(joining.request, joining.turn),
            SchedulingChoice::Custom(_) => self.queue_key_by_view(joining),
        }
    }

    /// As [`Self::queue_key`], always through the policy's view.
    pub(super) fn queue_key_by_view(&mut self, joining: &JoiningRequest<'_>) -> QueueKey {
        let &JoiningRequest { now, request, content, generated_tokens, preemptions, turn } = joining;
        let class = request.tags.slo_class;
        let class_priority = self.classes.priority(class);
        let view = QueuedView {
            now,
            request: RequestView::with_content(request, content, class_priority, self.block_size)
                .with_targets(self.classes.targets(class)),
            priority: request.priority,
            generated_tokens,
            preemptions,
            turn,
        };
        QueueKey::new(self.policies.scheduler.policy().rank(&view), request)
    }

    /// The index in `batch` of the preemption victim, always through the policy's view.
    pub(super) fn victim_by_view(&mut self, batch: &BatchView) -> usize {
        self.policies.preemption.policy().victim(batch).min(batch.len() - 1)
    }
}

/// KV memory as pages of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvGroups {
    /// The groups.
    pub layout: KvLayout,
    /// vLLM's `prefix_cache_retention_interval`, tokens; `None` to keep every boundary.
    pub retention: Option<u32>,
    /// Pipeline stages: so many batches are in flight, and one more with asynchronous scheduling.
    pub pipeline: u32,
}

impl InstanceConfig {
    /// The settings of the pool of pages with these groups.
    pub(super) fn pool_settings(&self, groups: &KvGroups) -> PagePoolSettings {
        let batches = u64::from(groups.pipeline) + u64::from(self.async_scheduling);
        let longest_chunk = match self.long_prefill_token_threshold {
            0 => self.max_num_batched_tokens,
            threshold => threshold.min(self.max_num_batched_tokens),
        };
        PagePoolSettings {
            caching: self.enable_prefix_caching,
            retention: groups.retention,
            max_model_len: self.max_model_len.unwrap_or(u32::MAX),
            tokens_in_flight: u64::from(self.max_num_batched_tokens) * batches,
            longest_chunk,
        }
    }

    /// How a pool treats the KV groups, if there are some.
    pub(super) fn page_rules(&self) -> Option<PageRules> {
        let groups = self.kv_groups.as_ref()?;
        Some(PageRules { layout: groups.layout.clone(), settings: self.pool_settings(groups) })
    }

    /// The empty KV cache of the reference engine.
    pub(super) fn plain_cache(&self) -> PlainCache {
        let Self { total_kv_blocks, block_size, enable_prefix_caching, semantics, .. } = *self;
        let blocks = || PlainKv::new(total_kv_blocks, block_size, enable_prefix_caching, semantics);
        match self.page_rules() {
            None => PlainCache::Blocks(Box::new(blocks())),
            Some(rules) => PlainCache::paged(GroupedKv::new(rules, total_kv_blocks)),
        }
    }
}

/// Options of vLLM's scheduler and API server that its users rarely set; the default turns all of them off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// Maximum number of requests that enter the running batch (vLLM `max_num_active_seqs`), ≥ 1; `None` for
    /// `max_num_seqs`.
    pub max_num_active_seqs: Option<u32>,
    /// Raise the threshold of long prefills to an equal share of the token budget (vLLM
    /// `long_prefill_token_threshold_adaptive`).
    pub adaptive_prefill_threshold: bool,
    /// Prefill tokens are scheduled only every so many steps (vLLM `prefill_schedule_interval`); 0 and 1 for every step.
    pub prefill_schedule_interval: u32,
    /// KV blocks that stay free when a request enters a batch that is not empty (vLLM's `watermark`, as a number).
    pub watermark_blocks: u32,
    /// Number of requests, waiting and running, at which the API server refuses further ones (vLLM
    /// `max_num_queued_reqs`); `None` for no limit.
    pub max_num_queued_reqs: Option<u32>,
    /// Number of prompt tokens of requests without a first token, at which the API server refuses further requests (vLLM
    /// `max_num_queued_tokens`); `None` for no limit.
    pub max_num_queued_tokens: Option<u64>,
    /// Whether the KV blocks of decode parts stay when they have completed, for the next turn of the session (vLLM's
    /// `bidirectional_kv_xfer`).
    pub keeps_decoded_kv: bool,
    /// Fewest tokens that a prefill reads from a decode instance instead of computing them (vLLM's `kv_recompute_threshold`).
    pub kv_recompute_threshold: u32,
}
