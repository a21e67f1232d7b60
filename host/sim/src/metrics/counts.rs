//! Requests by their final status.

use crate::outcome::{DropReason, Rejection, Status};

/// Requests by their final status. Every request that arrived is in exactly one of `completed`, `queued`, `running`,
/// `arriving`, `in_gateway`, `timed_out`, `evicted`, the four `dropped_…` and the six `rejected_…`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All output tokens were generated, or the output ended early at `max_model_len`.
    pub completed: u64,
    /// The part of `completed` that ended early at `max_model_len`.
    pub length_capped: u64,
    /// In the waiting queue at the end of the simulation.
    pub queued: u64,
    /// In the running batch at the end of the simulation.
    pub running: u64,
    /// Between arrival and waiting queue at the end of the simulation.
    pub arriving: u64,
    /// In the gateway's queue at the end of the simulation.
    pub in_gateway: u64,
    /// Timed out at the client's deadline.
    pub timed_out: u64,
    /// Ended on their instance by the gateway, to make room for requests of higher priority.
    pub evicted: u64,
    /// Dropped: the prompt alone reaches `max_model_len`.
    pub dropped_prompt_too_long: u64,
    /// Dropped: prompt and `max_tokens` exceed `max_model_len`.
    pub dropped_budget_too_long: u64,
    /// Dropped: the prompt needs more KV blocks than there are.
    pub dropped_kv_too_small: u64,
    /// Dropped: the decode instance had no KV blocks when the prefill had ended.
    pub dropped_no_decode_blocks: u64,
    /// Rejected by the admission policy.
    pub rejected_by_admission: u64,
    /// Rejected because no instance serves their model.
    pub rejected_by_routing: u64,
    /// Rejected because no replica of their model was active.
    pub rejected_no_replica: u64,
    /// Rejected by the API server of their instance.
    pub rejected_by_server: u64,
    /// Rejected because the gateway's queue was full.
    pub rejected_gateway_full: u64,
    /// Displaced from the gateway's queue by a request of higher priority.
    pub rejected_gateway_displaced: u64,
    /// Expired in the gateway's queue.
    pub rejected_gateway_expired: u64,
    /// Sum of the generated tokens of completed requests.
    pub output_tokens: u64,
}

impl Counts {
    /// Requests that were dropped because they can never be served.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped_prompt_too_long
            + self.dropped_budget_too_long
            + self.dropped_kv_too_small
            + self.dropped_no_decode_blocks
    }

    /// Requests that joined no queue because the service rejected them.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        let by_service = self.rejected_by_admission + self.rejected_by_routing + self.rejected_no_replica;
        by_service + self.rejected_by_server + self.rejected_by_gateway()
    }

    /// Requests that left the gateway's queue unserved, or found it full; without clients that timed out.
    #[must_use]
    pub fn rejected_by_gateway(&self) -> u64 {
        self.rejected_gateway_full + self.rejected_gateway_displaced + self.rejected_gateway_expired
    }

    /// Requests that reached an instance, as published: without those rejected and those still arriving.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.completed + self.queued + self.running + self.dropped() + self.timed_out
    }

    /// Requests that arrived at the service, whatever their status.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.injected() + self.evicted + self.arriving + self.in_gateway + self.rejected()
    }

    pub(super) fn count(&mut self, status: Status, generated_tokens: u32) {
        match status {
            Status::Completed => self.completed += 1,
            Status::LengthCapped => {
                self.completed += 1;
                self.length_capped += 1;
            }
            Status::TimedOut => self.timed_out += 1,
            Status::Evicted => self.evicted += 1,
            Status::Dropped(DropReason::PromptTooLong) => self.dropped_prompt_too_long += 1,
            Status::Dropped(DropReason::BudgetTooLong) => self.dropped_budget_too_long += 1,
            Status::Dropped(DropReason::KvTooSmall) => self.dropped_kv_too_small += 1,
            Status::Dropped(DropReason::NoDecodeBlocks) => self.dropped_no_decode_blocks += 1,
            Status::Queued => self.queued += 1,
            Status::Running => self.running += 1,
            Status::Arriving => self.arriving += 1,
            Status::InGateway => self.in_gateway += 1,
            Status::Rejected(Rejection::Admission) => self.rejected_by_admission += 1,
            Status::Rejected(Rejection::Routing) => self.rejected_by_routing += 1,
            Status::Rejected(Rejection::NoReplica) => self.rejected_no_replica += 1,
            Status::Rejected(Rejection::Server) => self.rejected_by_server += 1,
            Status::Rejected(Rejection::GatewayFull) => self.rejected_gateway_full += 1,
            Status::Rejected(Rejection::GatewayDisplaced) => self.rejected_gateway_displaced += 1,
            Status::Rejected(Rejection::GatewayExpired) => self.rejected_gateway_expired += 1,
        }
        if matches!(status, Status::Completed | Status::LengthCapped) {
            self.output_tokens += u64::from(generated_tokens);
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.completed += other.completed;
        self.length_capped += other.length_capped;
        self.queued += other.queued;
        self.running += other.running;
        self.arriving += other.arriving;
        self.timed_out += other.timed_out;
        self.evicted += other.evicted;
        self.dropped_prompt_too_long += other.dropped_prompt_too_long;
        self.dropped_budget_too_long += other.dropped_budget_too_long;
        self.dropped_kv_too_small += other.dropped_kv_too_small;
        self.dropped_no_decode_blocks += other.dropped_no_decode_blocks;
        self.rejected_by_admission += other.rejected_by_admission;
        self.rejected_by_routing += other.rejected_by_routing;
        self.rejected_no_replica += other.rejected_no_replica;
        self.rejected_by_server += other.rejected_by_server;
        self.rejected_gateway_full += other.rejected_gateway_full;
        self.rejected_gateway_displaced += other.rejected_gateway_displaced;
        self.rejected_gateway_expired += other.rejected_gateway_expired;
        self.in_gateway += other.in_gateway;
        self.output_tokens += other.output_tokens;
    }
}
