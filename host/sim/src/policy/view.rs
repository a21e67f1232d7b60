//! Views: the part of a request and of the instances that policies can read.

use rand::Rng as _;

use super::ClientTargets;
use crate::ids::{InstanceIndex, RequestId};
use crate::numbers::narrow;
use crate::request::{BlockKey, Content, Name, Request, Tags};
use crate::rng::Stream;
use crate::units::Micros;

/// A request as the service receives it.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// [`Request::id`].
    pub id: RequestId,
    /// Time at which it reached the service.
    pub arrival: Micros,
    /// Length of the prompt, tokens.
    pub input_tokens: u32,
    /// The client's limit on output tokens (`max_tokens`); `None` if it set none.
    pub max_output_tokens: Option<u32>,
    /// Time at which the client times out (absolute); `None` if never.
    pub deadline: Option<Micros>,
    /// Priority set by the client; lower is served first.
    pub client_priority: Option<i32>,
    /// Service class, tenant, session and other metadata.
    pub tags: Tags,
    /// Priority of its service class: higher is served first, below 0 may be shed.
    pub class_priority: i32,
    /// Latencies that the client asks for.
    pub targets: ClientTargets,
    /// Full KV blocks of the prompt.
    pub prompt_blocks: u32,
    /// Size of a KV block, tokens.
    pub block_size: u32,
    /// Private, because its length may reveal the output length. [`Self::shared_blocks`] does not.
    content: &'a Content,
    block_ids: BlockIds,
}

/// The ids by which a policy knows KV blocks: equal ids stand for equal blocks.
///
/// Keys are assigned one after the other, those of an output together with those of its prompt. A policy that sees keys
/// would see how many were assigned to the outputs in between, before these are generated. Hidden ids are a permutation
/// of all numbers of 32 bits, which depends on the seed of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockIds(Option<[u32; 3]>);

impl BlockIds {
    /// The keys themselves, for policies of this program, which do nothing but compare them.
    pub const KEYS: Self = Self(None);

    /// Ids that show neither the order nor the distance of keys.
    #[must_use]
    pub fn hidden(stream: Stream) -> Self {
        let mut generator = stream.at(0);
        Self(Some([generator.next_u32(), generator.next_u32(), generator.next_u32()]))
    }

    /// The id of the block with the key `key`. Every step can be reversed, so that different keys have different ids:
    /// the finaliser of MurmurHash3 (Appleby 2011) between secret numbers.
    #[inline]
    #[must_use]
    pub fn id(self, key: BlockKey) -> u32 {
        let Some([first, second, third]) = self.0 else { return key };
        let mut id = key ^ first;
        id = (id ^ (id >> 16)).wrapping_mul(0x85eb_ca6b) ^ second;
        id = (id ^ (id >> 13)).wrapping_mul(0xc2b2_ae35);
        (id ^ (id >> 16)) ^ third
    }
}

impl<'a> RequestView<'a> {
    /// The view of `request` for an engine with KV blocks of `block_size` tokens.
    #[must_use]
    pub fn new(request: &'a Request, class_priority: i32, block_size: u32) -> Self {
        Self::with_content(request, &request.content, class_priority, block_size)
    }

    /// As [`Self::new`], where `content` is stored apart from the request.
    pub(crate) fn with_content(request: &Request, content: &'a Content, class_priority: i32, block_size: u32) -> Self {
        Self {
            id: request.id,
            arrival: request.arrival,
            input_tokens: request.input_tokens,
            max_output_tokens: request.max_output_tokens,
            deadline: request.deadline,
            client_priority: request.client_priority,
            tags: request.tags,
            class_priority,
            targets: ClientTargets::default(),
            prompt_blocks: request.input_tokens / block_size,
            block_size,
            content,
            block_ids: BlockIds::KEYS,
        }
    }

    /// The same view, with the `targets` that the client of the request asks for.
    #[must_use]
    pub fn with_targets(self, targets: ClientTargets) -> Self {
        Self { targets, ..self }
    }

    /// The same view with other ids of blocks.
    #[must_use]
    pub fn with_block_ids(self, block_ids: BlockIds) -> Self {
        Self { block_ids, ..self }
    }

    /// The ids by which the policy knows the blocks.
    #[must_use]
    pub fn block_ids(&self) -> BlockIds {
        self.block_ids
    }

    /// Whether any block of the prompt may equal a block of another request.
    #[must_use]
    pub fn shares_blocks(&self) -> bool {
        self.prompt_blocks > 0 && !self.content.spans().is_empty()
    }

    /// Number of blocks that [`Self::shared_blocks`] yields.
    #[must_use]
    pub fn shared_block_count(&self) -> u32 {
        self.content.shared_blocks().min(self.prompt_blocks)
    }

    /// Ids of the leading blocks of the prompt that may equal blocks of other requests, in order. The blocks behind
    /// them, up to [`Self::prompt_blocks`], are unique to the request.
    pub fn shared_blocks(&self) -> impl Iterator<Item = BlockKey> + 'a {
        let ids = self.block_ids;
        self.content.keys().take(self.prompt_blocks as usize).map(move |key| ids.id(key))
    }
}

/// The constant properties of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InstanceInfo {
    /// Index in the cluster.
    pub id: InstanceIndex,
    /// Maximum batch size, requests.
    pub max_num_seqs: u32,
    /// KV blocks of the instance, used and unused.
    pub total_kv_blocks: u32,
    /// Size of a KV block, tokens.
    pub block_size: u32,
    /// What its operator says of it.
    pub labels: InstanceLabels,
}

/// What the operator of an instance says of it; the simulator itself reads none of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InstanceLabels {
    /// Its group of equal instances, from 0; of instances with roles, its pool.
    pub group: u32,
    /// Its part in prefill apart from decode.
    pub role: InstanceRole,
    /// Price of its GPUs, dollars per hour; 0 if none is known.
    pub price: f64,
}

/// What an instance does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceRole {
    /// It computes prompts for other instances.
    Prefill,
    /// It decodes, and prefills requests that are not prefilled elsewhere.
    Decode,
    /// It prefills for others, and decodes.
    #[default]
    PrefillDecode,
    /// It encodes images, audio and video.
    Encode,
    /// Nothing: it is in no pool (BLIS).
    Unassigned,
}

impl InstanceRole {
    /// Whether it prefills for other instances.
    #[must_use]
    pub fn prefills(self) -> bool {
        matches!(self, Self::Prefill | Self::PrefillDecode)
    }

    /// Whether it generates outputs.
    #[must_use]
    pub fn decodes(self) -> bool {
        matches!(self, Self::Decode | Self::PrefillDecode)
    }
}

/// The signals of the instances: a column each, indexed by the instances of the view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signals {
    /// Requests in the waiting queue. A periodic signal, as all up to the preemptions.
    pub queue_depth: Vec<u32>,
    /// Requests in the running batch.
    pub batch_size: Vec<u32>,
    /// Used share of the KV blocks, 0 to 1.
    pub kv_utilization: Vec<f64>,
    /// KV blocks that are not used.
    pub free_kv_blocks: Vec<u32>,
    /// Prefix-cache hit rate since the start, 0 to 1.
    pub cache_hit_rate: Vec<f64>,
    /// Number of preemptions since the start.
    pub preemption_count: Vec<u64>,
    /// Requests dispatched to the instance and not yet completed. The router counts them itself, so the signal is never
    /// stale.
    pub in_flight: Vec<u32>,
    /// Leading blocks of this request's prompt in the instance's prefix cache, as of the last refresh of the cache
    /// signal. Computed only for policies that read it.
    pub cached_blocks: Vec<u32>,
    /// Leading blocks of this request's prompt in the instance's CPU tier, whether its GPU has them or not, as of the same
    /// refresh; 0 without a tier. Computed only for policies that read it.
    pub cpu_cached_blocks: Vec<u32>,
    /// Prompt tokens of the requests in the waiting queue, computed or not; of a preempted request also its output
    /// tokens so far. A periodic signal. Counted only for policies that read it, as all columns below.
    pub waiting_tokens: Vec<u64>,
    /// Whether the instance can use the LoRA adapter of this request at once (1) or not (0): a running request uses it; in
    /// BLIS, it is loaded. A periodic signal, as the next two. 0 for requests of the base model.
    pub adapter_active: Vec<u32>,
    /// Whether a request in its waiting queue names the same adapter (1) or not (0).
    pub adapter_waiting: Vec<u32>,
    /// Slots for adapters that neither running nor waiting requests name; an adapter of both is counted twice, as in
    /// llm-d. In BLIS, slots without an adapter.
    pub free_adapter_slots: Vec<u32>,
    /// The meaning of the columns of adapters.
    pub adapter_slots: AdapterSlotUse,
    /// Prompt tokens of the requests that were dispatched to the instance and have no first token yet, without those
    /// that it had in its prefix cache when it was chosen, by the cache signal of that time. Never stale, as all columns
    /// below: the router counts them itself.
    pub in_flight_tokens: Vec<u64>,
    /// Output tokens that the requests in flight are expected to generate: for each 1.5 times its prompt, at most the
    /// client's limit (llm-d's estimate).
    pub in_flight_output: Vec<u64>,
    /// Moving average of the times to first token of its requests, as the router measures them, µs; 0 before the first.
    pub ttft_ewma: Vec<f64>,
    /// Moving average over its completed requests of their mean inter-token latencies, as the router measures them, µs;
    /// 0 before the first.
    pub itl_ewma: Vec<f64>,
}

/// What instances report about the slots of their LoRA adapters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdapterSlotUse {
    /// Nothing: there are no adapters, or no report was read.
    #[default]
    None,
    /// The adapters that running and waiting requests name, as vLLM.
    Requested,
    /// The adapters that are loaded, as BLIS.
    Loaded,
}

impl Signals {
    /// The signals of idle instances with these numbers of KV blocks.
    #[must_use]
    pub fn idle(kv_blocks: impl IntoIterator<Item = u32>) -> Self {
        let free_kv_blocks: Vec<u32> = kv_blocks.into_iter().collect();
        let n = free_kv_blocks.len();
        Self {
            queue_depth: vec![0; n],
            batch_size: vec![0; n],
            kv_utilization: vec![0.0; n],
            free_kv_blocks,
            cache_hit_rate: vec![0.0; n],
            preemption_count: vec![0; n],
            in_flight: vec![0; n],
            cached_blocks: vec![0; n],
            cpu_cached_blocks: vec![0; n],
            waiting_tokens: vec![0; n],
            adapter_active: vec![0; n],
            adapter_waiting: vec![0; n],
            free_adapter_slots: vec![0; n],
            adapter_slots: AdapterSlotUse::None,
            in_flight_tokens: vec![0; n],
            in_flight_output: vec![0; n],
            ttft_ewma: vec![0.0; n],
            itl_ewma: vec![0.0; n],
        }
    }

    /// Adds the entry of an idle instance behind the others.
    pub(crate) fn push_idle(&mut self, kv_blocks: u32) {
        self.queue_depth.push(0);
        self.batch_size.push(0);
        self.kv_utilization.push(0.0);
        self.free_kv_blocks.push(kv_blocks);
        self.cache_hit_rate.push(0.0);
        self.preemption_count.push(0);
        self.in_flight.push(0);
        self.cached_blocks.push(0);
        self.cpu_cached_blocks.push(0);
        self.waiting_tokens.push(0);
        self.adapter_active.push(0);
        self.adapter_waiting.push(0);
        self.free_adapter_slots.push(0);
        self.in_flight_tokens.push(0);
        self.in_flight_output.push(0);
        self.ttft_ewma.push(0.0);
        self.itl_ewma.push(0.0);
    }

    /// Replaces all columns by the entries of `from` at `rows`; columns that are not in `reads` have as many zeros.
    pub(crate) fn copy_rows(&mut self, from: &Self, rows: &[usize], reads: Reads) {
        copy_rows(rows, &from.queue_depth, &mut self.queue_depth, reads.load);
        copy_rows(rows, &from.batch_size, &mut self.batch_size, reads.load);
        copy_rows(rows, &from.kv_utilization, &mut self.kv_utilization, reads.load);
        copy_rows(rows, &from.free_kv_blocks, &mut self.free_kv_blocks, reads.load);
        copy_rows(rows, &from.cache_hit_rate, &mut self.cache_hit_rate, reads.load);
        copy_rows(rows, &from.preemption_count, &mut self.preemption_count, reads.load);
        copy_rows(rows, &from.waiting_tokens, &mut self.waiting_tokens, reads.waiting_tokens);
        copy_rows(rows, &from.adapter_active, &mut self.adapter_active, reads.adapters);
        copy_rows(rows, &from.adapter_waiting, &mut self.adapter_waiting, reads.adapters);
        copy_rows(rows, &from.free_adapter_slots, &mut self.free_adapter_slots, reads.adapters);
        self.adapter_slots = from.adapter_slots;
        copy_rows(rows, &from.in_flight, &mut self.in_flight, reads.in_flight);
        copy_rows(rows, &from.cached_blocks, &mut self.cached_blocks, reads.cached_blocks);
        copy_rows(rows, &from.cpu_cached_blocks, &mut self.cpu_cached_blocks, reads.cpu_cached_blocks);
        copy_rows(rows, &from.in_flight_tokens, &mut self.in_flight_tokens, reads.tokens);
        copy_rows(rows, &from.in_flight_output, &mut self.in_flight_output, reads.tokens);
        copy_rows(rows, &from.ttft_ewma, &mut self.ttft_ewma, reads.latencies);
        copy_rows(rows, &from.itl_ewma, &mut self.itl_ewma, reads.latencies);
    }

    /// Tokens of the prompt of `request` in the prefix cache of instance `i`: whole blocks, at most the prompt.
    #[inline]
    #[must_use]
    pub fn cached_tokens(&self, request: &RequestView<'_>, i: usize) -> u32 {
        cached_tokens(request, self.cached_blocks[i])
    }
}

/// Tokens of so many leading blocks of a prompt, at most those of the prompt.
#[inline]
fn cached_tokens(request: &RequestView<'_>, blocks: u32) -> u32 {
    let tokens = u64::from(blocks) * u64::from(request.block_size);
    narrow(tokens.min(u64::from(request.input_tokens)))
}

/// Replaces `to` by the entries of `from` at `rows`, or by as many defaults if it is not `read`.
pub(crate) fn copy_rows<T: Copy + Default>(rows: &[usize], from: &[T], to: &mut Vec<T>, read: bool) {
    to.clear();
    if read {
        to.extend(rows.iter().map(|&row| from[row]));
    } else {
        to.resize(rows.len(), T::default());
    }
}

/// The staleness of each group of signals: time since its last refresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staleness {
    /// Staleness of the periodic columns.
    pub load: Micros,
    /// Staleness of [`Signals::cached_blocks`].
    pub cached_blocks: Micros,
    /// Staleness of [`Signals::in_flight`]: always 0.
    pub in_flight: Micros,
}

/// Version numbers of columns. Equal numbers mean equal columns of the same instances as at an earlier decision, so
/// that values computed from them can be reused. 0 means unknown, except for [`Self::instances`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// Version of the periodic columns.
    pub load: u64,
    /// Version of [`Signals::cached_blocks`].
    pub cached_blocks: u64,
    /// Version of [`ClusterView::instances`]. Another number means other instances, and other numbers of the columns, too;
    /// always 0 if the instances are fixed.
    pub instances: u64,
}

/// The entries of a column that changed recently, so that a copy can be updated without reading the whole column.
#[derive(Clone, Copy, Debug)]
pub struct Changes<'a> {
    /// Number of changes before the first of `recent`; [`u64::MAX`] if changes are not counted.
    before: u64,
    recent: &'a [u32],
}

impl<'a> Changes<'a> {
    /// No information: any entry may have changed.
    pub const UNKNOWN: Self = Self { before: u64::MAX, recent: &[] };

    /// `recent` are the entries that changed last, after `before` earlier changes.
    #[must_use]
    pub fn new(before: u64, recent: &'a [u32]) -> Self {
        Self { before, recent }
    }

    /// Number of changes so far, to be passed to [`Self::since`] later.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.before.saturating_add(self.recent.len() as u64)
    }

    /// The entries that changed since there were `seen` changes, some of them more than once; `None` if the list does
    /// not reach that far back.
    #[must_use]
    pub fn since(&self, seen: u64) -> Option<&'a [u32]> {
        let counted = self.before != u64::MAX;
        self.recent.get(usize::try_from(seen.checked_sub(self.before).filter(|_| counted)?).ok()?..)
    }
}

/// The service at the time of a decision.
#[derive(Clone, Copy, Debug)]
pub struct ClusterView<'a> {
    /// Time of the decision.
    pub now: Micros,
    /// The instances that may be chosen.
    pub instances: &'a [InstanceInfo],
    /// Their signals, in the same order.
    pub signals: &'a Signals,
    /// Staleness of the signals.
    pub staleness: Staleness,
    /// Versions of the signals, to detect unchanged columns.
    pub versions: Versions,
    /// Recent changes of [`Signals::in_flight`] and of the other columns that the router keeps.
    pub in_flight_changes: Changes<'a>,
    /// Requests in flight, indexed by tenant name; tenants beyond the end have none.
    pub tenants_in_flight: &'a [u32],
    /// For the picker of a routing pipeline: the weighted sums of the scores. Empty for all other policies.
    pub scores: &'a [f64],
}

impl ClusterView<'_> {
    /// Number of instances that may be chosen.
    #[must_use]
    pub fn len(&self) -> usize {
        self.instances.len()
    }

    /// Whether there is no instance to choose.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// BLIS's effective load of instance `i`: requests waiting, running and in flight. A request on the instance is
    /// counted twice, once as in flight and once in the periodic signals.
    #[must_use]
    pub fn effective_load(&self, i: usize) -> u64 {
        let signals = self.signals;
        [signals.queue_depth[i], signals.batch_size[i], signals.in_flight[i]].into_iter().map(u64::from).sum()
    }

    /// Number of requests of `tenant` in flight.
    #[must_use]
    pub fn tenant_in_flight(&self, tenant: Name) -> u32 {
        self.tenants_in_flight.get(tenant.index()).copied().unwrap_or(0)
    }
}

/// The columns of [`Signals`] that a policy reads. Columns that no policy reads are not kept up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The periodic columns: queue depth, batch size, KV blocks, cache hit rate, preemptions.
    pub load: bool,
    /// [`Signals::in_flight`] and [`ClusterView::tenants_in_flight`].
    pub in_flight: bool,
    /// [`Signals::cached_blocks`], computed for the prompt of each request.
    pub cached_blocks: bool,
    /// [`Signals::cpu_cached_blocks`], computed for the prompt of each request.
    pub cpu_cached_blocks: bool,
    /// [`Signals::in_flight_tokens`] and [`Signals::in_flight_output`].
    pub tokens: bool,
    /// [`Signals::ttft_ewma`] and [`Signals::itl_ewma`].
    pub latencies: bool,
    /// [`Signals::waiting_tokens`], a periodic column that instances count only if it is read.
    pub waiting_tokens: bool,
    /// [`Signals::adapter_active`] and the columns of adapters behind it, which instances report only if they are read.
    pub adapters: bool,
}

impl Reads {
    /// No column: the policy does not depend on the state of instances.
    pub const NOTHING: Self = Self {
        load: false,
        in_flight: false,
        cached_blocks: false,
        cpu_cached_blocks: false,
        tokens: false,
        latencies: false,
        waiting_tokens: false,
        adapters: false,
    };

    /// The union of the columns of two policies.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            load: self.load || other.load,
            in_flight: self.in_flight || other.in_flight,
            cached_blocks: self.cached_blocks || other.cached_blocks,
            cpu_cached_blocks: self.cpu_cached_blocks || other.cpu_cached_blocks,
            tokens: self.tokens || other.tokens,
            latencies: self.latencies || other.latencies,
            waiting_tokens: self.waiting_tokens || other.waiting_tokens,
            adapters: self.adapters || other.adapters,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Span;

    #[test]
    fn changes_are_known_or_anything_may_have_changed() {
        let changes = Changes::new(10, &[3, 1, 3]);
        assert_eq!(changes.count(), 13);
        assert_eq!(
            [changes.since(10), changes.since(12), changes.since(13)],
            [Some(&[3, 1, 3][..]), Some(&[3]), Some(&[])]
        );
        assert_eq!([changes.since(9), changes.since(14)], [None; 2]);
        let unknown = Changes::UNKNOWN;
        assert_eq!([unknown.since(0), unknown.since(unknown.count())], [None; 2]);
    }

    #[test]
    fn hidden_ids_are_different_numbers_in_no_order() {
        use std::collections::BTreeSet;
        let ids = BlockIds::hidden(Stream::new(5, "block ids"));
        let numbers: Vec<u32> = (0..10_000).chain(u32::MAX - 10_000..=u32::MAX).map(|key| ids.id(key)).collect();
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len());
        let near = numbers.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 1 << 16).count();
        assert!(near < 10, "{near} neighbours stayed near each other");
        assert_ne!(ids.id(7), BlockIds::hidden(Stream::new(6, "block ids")).id(7));
        assert_eq!(BlockIds::KEYS.id(7), 7);
    }

    #[test]
    fn the_view_has_the_blocks_of_the_prompt_only() {
        let request = Request {
            id: RequestId(1),
            arrival: Micros(5),
            input_tokens: 70,
            output_tokens: 500,
            max_output_tokens: None,
            deadline: None,
            client_priority: None,
            priority: 0,
            sampling: crate::sampling::SamplingParams::default(),
            tags: Tags::default(),
            stage: crate::request::Stage::Whole,
            remote_tokens: 0,
            remote_until: Micros::ZERO,
            media_tokens: 0,
            content: Content::shared(&[Span { first: 10, len: 3 }, Span { first: 40, len: 20 }]),
        };
        let view = RequestView::new(&request, 3, 16);
        assert_eq!(view.shared_blocks().collect::<Vec<_>>(), [10, 11, 12, 40], "4 full blocks of prompt");
    }
}
