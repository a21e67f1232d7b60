//! What policies see of requests and instances.

use crate::request::{BlockKey, Content, Name, Request, Tags};
use crate::units::Micros;

/// A request as the service knows it on arrival.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// Number in the workload.
    pub id: u32,
    /// When it reached the service.
    pub arrival: Micros,
    /// Prompt length, tokens.
    pub input_tokens: u32,
    /// The client's budget for the answer, tokens; `None` if it gave none.
    pub max_output_tokens: Option<u32>,
    /// When the client gives up (absolute); `None` if never.
    pub deadline: Option<Micros>,
    /// Priority the client asks for; lower is more urgent.
    pub client_priority: Option<i32>,
    /// Names.
    pub tags: Tags,
    /// Urgency of its class: bigger is more urgent, below 0 may be shed.
    pub urgency: i32,
    /// Full KV blocks of the prompt.
    pub prompt_blocks: u32,
    /// Tokens in a KV block.
    pub block_size: u32,
    /// Private: it may tell the length of the answer. [`Self::shared_blocks`] does not.
    content: &'a Content,
}

impl<'a> RequestView<'a> {
    /// `request` for an engine with KV blocks of `block_size` tokens.
    #[must_use]
    pub fn new(request: &'a Request, urgency: i32, block_size: u32) -> Self {
        Self::with_content(request, &request.content, urgency, block_size)
    }

    /// As [`Self::new`], where `content` is kept apart from the request.
    pub(crate) fn with_content(request: &Request, content: &'a Content, urgency: i32, block_size: u32) -> Self {
        Self {
            id: request.id,
            arrival: request.arrival,
            input_tokens: request.input_tokens,
            max_output_tokens: request.max_output_tokens,
            deadline: request.deadline,
            client_priority: request.client_priority,
            tags: request.tags,
            urgency,
            prompt_blocks: request.input_tokens / block_size,
            block_size,
            content,
        }
    }

    /// Whether any block of the prompt may equal one of another request.
    #[must_use]
    pub fn shares_blocks(&self) -> bool {
        self.prompt_blocks > 0 && !self.content.spans().is_empty()
    }

    /// How many blocks [`Self::shared_blocks`] names.
    #[must_use]
    pub fn shared_block_count(&self) -> u32 {
        self.content.shared_blocks().min(self.prompt_blocks)
    }

    /// Identity of the leading blocks of the prompt that may equal blocks of other requests, in
    /// order. The blocks behind them, up to [`Self::prompt_blocks`], are unique to the request.
    pub fn shared_blocks(&self) -> impl Iterator<Item = BlockKey> + 'a {
        self.content.keys().take(self.prompt_blocks as usize)
    }
}

/// What is known of an instance beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceInfo {
    /// Number in the cluster, from 0; written as `instance_<id>`.
    pub id: u32,
    /// Most requests in its batch.
    pub max_num_seqs: u32,
    /// Its KV blocks.
    pub total_kv_blocks: u32,
    /// Tokens in one of them.
    pub block_size: u32,
}

/// What instances report: a column each, over the instances of the view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signals {
    /// Requests in the wait queue. Periodic, as all but the last two.
    pub queue_depth: Vec<u32>,
    /// Requests in the running batch.
    pub batch_size: Vec<u32>,
    /// Used share of the KV blocks, 0 to 1.
    pub kv_utilization: Vec<f64>,
    /// Unused KV blocks.
    pub free_kv_blocks: Vec<u32>,
    /// Share of prefix-cache look-ups that hit since the start, 0 to 1.
    pub cache_hit_rate: Vec<f64>,
    /// Requests thrown out of the batch since the start.
    pub preemption_count: Vec<u64>,
    /// Requests handed to the instance and not yet answered. The router counts them itself, so
    /// this is never stale.
    pub in_flight: Vec<u32>,
    /// Leading blocks of this request's prompt in the instance's prefix cache, as of the cache
    /// signal. Filled in only for policies that read it.
    pub cached_blocks: Vec<u32>,
}

/// How old each group of signals is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    /// The periodic columns.
    pub load: Micros,
    /// [`Signals::cached_blocks`].
    pub cached_blocks: Micros,
    /// [`Signals::in_flight`]: always 0.
    pub in_flight: Micros,
}

/// Numbers that tell whether columns are the same as at an earlier decision, so that what follows
/// from them need not be computed again. Equal numbers: equal columns, of the same instances. 0
/// promises nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// The periodic columns.
    pub load: u64,
    /// [`Signals::cached_blocks`].
    pub cached_blocks: u64,
}

/// Which entries of a column changed lately, so that a copy of it can follow without looking at all.
#[derive(Clone, Copy, Debug)]
pub struct Changes<'a> {
    /// How many changes there were before the first of `recent`; [`u64::MAX`] if nobody counts.
    before: u64,
    recent: &'a [u32],
}

impl<'a> Changes<'a> {
    /// Anything may have changed.
    pub const UNKNOWN: Self = Self { before: u64::MAX, recent: &[] };

    /// `recent` are the entries that changed last, after `before` changes.
    #[must_use]
    pub fn new(before: u64, recent: &'a [u32]) -> Self {
        Self { before, recent }
    }

    /// How many there were ever; to be given to [`Self::since`] later.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.before.saturating_add(self.recent.len() as u64)
    }

    /// The entries that changed since there were `seen` changes, some of them more than once; `None` if
    /// that is too long ago to be known.
    #[must_use]
    pub fn since(&self, seen: u64) -> Option<&'a [u32]> {
        let counted = self.before != u64::MAX;
        self.recent.get(usize::try_from(seen.checked_sub(self.before).filter(|_| counted)?).ok()?..)
    }
}

/// The service at the moment of a decision.
#[derive(Clone, Copy, Debug)]
pub struct ClusterView<'a> {
    /// The time.
    pub now: Micros,
    /// The instances that may be chosen.
    pub instances: &'a [InstanceInfo],
    /// What they report, in the same order.
    pub signals: &'a Signals,
    /// How old that is.
    pub ages: Ages,
    /// Whether it is what it was.
    pub versions: Versions,
    /// Changes of [`Signals::in_flight`].
    pub in_flight_changes: Changes<'a>,
    /// Requests in flight by tenant name; tenants beyond its end have none.
    pub tenants_in_flight: &'a [u32],
}

impl ClusterView<'_> {
    /// Number of instances that may be chosen.
    #[must_use]
    pub fn len(&self) -> usize {
        self.instances.len()
    }

    /// Whether nothing can be chosen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// BLIS's load of instance `i`: waiting, running and in flight. A request on the instance is
    /// counted twice, once fresh and once as old as the signals are.
    #[must_use]
    pub fn effective_load(&self, i: usize) -> u64 {
        let signals = self.signals;
        [signals.queue_depth[i], signals.batch_size[i], signals.in_flight[i]].into_iter().map(u64::from).sum()
    }

    /// Requests of `tenant` in flight.
    #[must_use]
    pub fn tenant_in_flight(&self, tenant: Name) -> u32 {
        self.tenants_in_flight.get(tenant.index()).copied().unwrap_or(0)
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
    fn the_view_ends_where_the_prompt_ends() {
        let request = Request {
            id: 1,
            arrival: Micros(5),
            input_tokens: 70,
            output_tokens: 500,
            max_output_tokens: None,
            deadline: None,
            client_priority: None,
            priority: 0,
            tags: Tags::default(),
            content: Content::shared(&[Span { first: 10, len: 3 }, Span { first: 40, len: 20 }]),
        };
        let view = RequestView::new(&request, 3, 16);
        assert_eq!(view.shared_blocks().collect::<Vec<_>>(), [10, 11, 12, 40], "4 full blocks of prompt");
    }
}
