//! The service and its requests as a trace records them, in the form in which policies get them.

use std::sync::Arc;

use blis_diag::RowError;
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::policy::{Changes, Classes, ClusterView, InstanceInfo, Reads, RequestView, Signals, Staleness, Versions};
use blis_sim::request::{Name, Request, Tags};
use blis_sim::units::Micros;
use blis_workload::Names;
use rustc_hash::FxHashMap;

use super::line::{AdmissionLine, DecisionHeader, DecisionSignals, SignalsLine};

/// The largest service that a run simulates.
const MOST_INSTANCES: u64 = 65_536;

/// The state of the service at the latest decision, and the requests between admission and routing.
#[derive(Debug)]
pub(super) struct RecordedService {
    pub names: Names,
    pub instances: Arc<[InstanceInfo]>,
    classes: Classes,
    admission_latency: Micros,
    requests: FxHashMap<RequestId, RecordedRequest>,
    now: Micros,
    signals: Signals,
    staleness: Staleness,
    versions: Versions,
    tenants_in_flight: Vec<u32>,
}

#[derive(Debug)]
struct RecordedRequest {
    request: Request,
    tenant_in_flight: u32,
}

impl RecordedService {
    /// The service of `header` before its first decision; `names` are the texts of all requests.
    pub fn new(header: &DecisionHeader, names: Names) -> Result<Self, RowError> {
        let instances = instances(header)?;
        let signals = Signals::idle(instances.iter().map(|info| info.total_kv_blocks));
        Ok(Self {
            classes: Classes::new(names.texts().iter().map(AsRef::as_ref), &[]),
            tenants_in_flight: vec![0; names.texts().len()],
            names,
            instances: instances.into(),
            admission_latency: Micros(header.admission_latency_us),
            requests: FxHashMap::default(),
            now: Micros::ZERO,
            signals,
            staleness: Staleness::default(),
            versions: Versions::default(),
        })
    }

    /// The request of `line` arrives at admission.
    pub fn arrive(&mut self, line: &AdmissionLine) {
        let name = |text: &str| self.names.find(text).unwrap_or(Name::NONE);
        let arrival = Micros(line.time_us).saturating_sub(self.admission_latency);
        let id = RequestId(line.request);
        let mut request = Request::new(id, arrival, line.input_tokens, 0);
        request.max_output_tokens = line.max_output_tokens;
        request.deadline = line.deadline_us.map(Micros);
        request.tags = Tags {
            slo_class: name(&line.class),
            tenant: name(&line.tenant),
            model: name(&line.model),
            ..Tags::default()
        };
        let tenant_in_flight = line.tenant_in_flight.unwrap_or(0);
        self.requests.insert(id, RecordedRequest { request, tenant_in_flight });
    }

    /// `request` is rejected or dispatched: no further decision is about it.
    pub fn forget(&mut self, request: RequestId) {
        self.requests.remove(&request);
    }

    /// A decision at `time_us` with the signals `seen`, after the line `signals`.
    pub fn advance(&mut self, time_us: u64, seen: &DecisionSignals<'_>, signals: Option<&SignalsLine>) {
        self.now = Micros(time_us);
        if let Some(line) = signals.filter(|line| seen.reading.is_some() && line.reading != self.versions.load) {
            self.refresh(line);
        }
        self.staleness = Staleness {
            load: Micros(seen.reading_age_us.unwrap_or(0)),
            cached_blocks: Micros(seen.cached_blocks_age_us.unwrap_or(0)),
            in_flight: Micros::ZERO,
        };
        let signals = &mut self.signals;
        replace(&mut signals.in_flight, seen.in_flight);
        replace(&mut signals.cached_blocks, seen.cached_blocks);
        replace(&mut signals.adapter_active, seen.adapter_active);
        replace(&mut signals.adapter_waiting, seen.adapter_waiting);
        replace(&mut signals.free_adapter_slots, seen.free_adapter_slots);
        replace(&mut signals.in_flight_tokens, seen.in_flight_tokens);
        replace(&mut signals.in_flight_output, seen.in_flight_output);
        replace(&mut signals.ttft_ewma, seen.ttft_ewma_us);
        replace(&mut signals.itl_ewma, seen.itl_ewma_us);
    }

    /// Replaces the periodic signals.
    fn refresh(&mut self, line: &SignalsLine) {
        let signals = &mut self.signals;
        signals.queue_depth.copy_from_slice(&line.queue_depth);
        signals.batch_size.copy_from_slice(&line.batch_size);
        signals.free_kv_blocks.copy_from_slice(&line.free_kv_blocks);
        replace(&mut signals.cache_hit_rate, line.cache_hit_rate.as_deref());
        replace(&mut signals.preemption_count, line.preemption_count.as_deref());
        replace(&mut signals.waiting_tokens, line.waiting_tokens.as_deref());
        for ((used, info), &free) in signals.kv_utilization.iter_mut().zip(&*self.instances).zip(&line.free_kv_blocks) {
            let total = info.total_kv_blocks;
            *used = if total == 0 { 0.0 } else { f64::from(total.saturating_sub(free)) / f64::from(total) };
        }
        self.versions.load = line.reading;
    }

    /// The views of the decision about `request`; `None` if it was not admitted before.
    pub fn views(&mut self, request: RequestId) -> Option<(RequestView<'_>, ClusterView<'_>)> {
        let RecordedRequest { request, tenant_in_flight } = self.requests.get(&request)?;
        // Of other tenants the number is unknown, and policies read that of the request's tenant only.
        if let Some(count) = self.tenants_in_flight.get_mut(request.tags.tenant.index()) {
            *count = if request.tags.tenant == Name::NONE { 0 } else { *tenant_in_flight };
        }
        let block_size = self.instances.first()?.block_size;
        let view = RequestView::new(request, self.classes.priority(request.tags.slo_class), block_size);
        let cluster = ClusterView {
            now: self.now,
            instances: &self.instances,
            signals: &self.signals,
            staleness: self.staleness,
            versions: self.versions,
            in_flight_changes: Changes::UNKNOWN,
            tenants_in_flight: &self.tenants_in_flight,
            scores: &[],
        };
        Some((view, cluster))
    }
}

/// The values of `column` become those that are recorded, if any are.
fn replace<T: Copy>(column: &mut [T], recorded: Option<&[T]>) {
    if let Some(recorded) = recorded {
        column.copy_from_slice(recorded);
    }
}

/// The instances of `header` one by one.
fn instances(header: &DecisionHeader) -> Result<Vec<InstanceInfo>, RowError> {
    let count: u64 = header.instances.iter().map(|group| u64::from(group.count)).sum();
    if count > MOST_INSTANCES {
        return Err(RowError::new(format!("a service of {count} instances; at most {MOST_INSTANCES} can be replayed")));
    }
    if header.instances.iter().any(|group| group.block_size == 0) {
        return Err(RowError::new("`block_size` is 0; it must be at least 1"));
    }
    let infos = header.instances.iter().flat_map(|group| {
        (0..group.count).map(|index| InstanceInfo {
            id: InstanceIndex(group.first + index),
            max_num_seqs: group.max_num_seqs,
            total_kv_blocks: group.total_kv_blocks,
            block_size: group.block_size,
            // A trace is of equal instances.
            labels: blis_sim::policy::InstanceLabels::default(),
        })
    });
    Ok(infos.collect())
}

/// The first of the columns in `reads` that is not among those `seen`, by its name in the trace.
pub(super) fn missing(reads: Reads, seen: &DecisionSignals<'_>) -> Option<&'static str> {
    let columns = [
        ("reading", reads.load && seen.reading.is_none()),
        ("in_flight", reads.in_flight && seen.in_flight.is_none()),
        ("cached_blocks", reads.cached_blocks && seen.cached_blocks.is_none()),
        ("in_flight_tokens", reads.tokens && seen.in_flight_tokens.is_none()),
        ("ttft_ewma_us", reads.latencies && seen.ttft_ewma_us.is_none()),
        ("adapter_active", reads.adapters && seen.adapter_active.is_none()),
    ];
    columns.into_iter().find(|(_, is_missing)| *is_missing).map(|(name, _)| name)
}
