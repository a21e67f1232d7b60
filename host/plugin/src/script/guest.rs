//! A guest of a script: calls its functions and checks the type of their results.

use std::sync::Arc;

use blis_sim::ids::RequestId;
use blis_sim::latency::Batch;
use blis_sim::policy::flow::{BandView, FlowView, InFlightView};
use blis_sim::policy::kv_cache::KvCacheDecisions;
use blis_sim::policy::{
    AdmissionDecision, BatchView, ClusterView, Event, QueuedView, Reason, RequestView, StepMemory, Ties,
};
use blis_sim::units::Micros;
use rhai::{Dynamic, Map};

use super::call::{self, NO_REQUEST, ScriptLog};
use super::code::{Script, SpecializedCode};
use super::column::{Column, extremes, number, type_name};
use super::evaluation::ScriptEvaluation;
use super::fast::{FastMemory, FastOutput, FastResult, HostArguments};
use super::flow::{BandObject, BandsObject, FlowsObject, InFlightObject};
use super::kv_cache::{ChunksObject, HitObject, OfferObject};
use super::pools::{DecodesObject, LinkObject, PrefillsObject, RoutedObject};
use super::replicas::{RowObject, RowsObject};
use super::scaling::GroupsObject;
use super::state::{self, StateSize};
use super::step_views::StepViews;
use super::values::NameTexts;
use super::views::{
    BatchObject, ClusterFields, ClusterObject, EventObject, QueuedObject, RequestFields, RequestObject, StepObject,
};
use crate::limits::{LONGEST_US, STEPS_PER_VALUE, UNMEASURED_BYTES, VALUES_CHECKED, constant_range};
use crate::rows::{
    ChunkOfferRow, ChunkRow, DrainGroupRow, GroupRow, LatestView, NONE_U32, NodeRow, PoolInstanceRow, PrefillChoiceRow,
    ReplicaRow, RoutedRequestRow, StartingReplicaRow, TierHitRow, first_nan, number_of,
};
use crate::text::plain;
use crate::{
    AdmissionGuest, CeilingsGuest, DisaggregationGuest, DrainGuest, EvictionGuest, FairnessGuest, Fault, FaultKind,
    FilterGuest, Guest, GuestSetup, Kind, KvCacheGuest, LatencyConstants, LatencyGuest, OrderingGuest, PlacementGuest,
    PreemptionGuest, PriorityGuest, RoutingGuest, SaturationGuest, ScalingGuest, SchedulingGuest, StartedGuest,
};

pub(super) struct ScriptGuest {
    script: Arc<Script>,
    code: SpecializedCode,
    evaluation: ScriptEvaluation,
    /// The memory of calls that need no script engine; `None` after one that did.
    fast: Option<FastMemory>,
    setup: GuestSetup,
    names: NameTexts,
    /// The value of `this`.
    state: Dynamic,
    /// Upper bound of the growth of the state since it was measured, bytes.
    grown: u64,
    /// The state when it was last checked, with what it may have grown by since then.
    size: StateSize,
    /// What calls since then pay for another check, values.
    paid: u64,
    /// The views of the latest call: the next one uses their memory again.
    request: Option<Arc<RequestFields>>,
    cluster: Arc<ClusterFields>,
    /// The latest view of the cluster, if the script calls `changed`.
    latest: LatestView,
    /// Result of `changed` for the next call.
    changed: Option<Vec<u32>>,
    log: ScriptLog,
    used: u64,
}

impl std::fmt::Debug for ScriptGuest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptGuest")
            .field("script", &self.script.source.path)
            .field("kind", &self.setup.kind)
            .field("state", &self.state)
            .field("size", &self.size)
            .field("paid", &self.paid)
            .finish_non_exhaustive()
    }
}

impl ScriptGuest {
    pub fn start(script: Arc<Script>, code: SpecializedCode, setup: &GuestSetup) -> Result<Self, Fault> {
        let log = ScriptLog {
            path: Arc::clone(&script.source.path),
            lines_left: setup.limits.log_lines,
            unwritten: 0,
            line_bytes: setup.limits.message_bytes,
        };
        let mut guest = Self {
            names: Arc::clone(&setup.names),
            evaluation: ScriptEvaluation::new(&script.kit.engine, &code.ast),
            fast: Some(FastMemory::default()),
            script,
            code,
            setup: setup.clone(),
            state: Dynamic::from_map(Map::new()),
            grown: 0,
            size: StateSize::default(),
            paid: 0,
            request: None,
            cluster: Arc::default(),
            latest: LatestView::default(),
            changed: None,
            log,
            used: 0,
        };
        guest.initialise()?;
        Ok(guest)
    }

    /// Calls `init`, which turns the empty state into the initial one.
    fn initialise(&mut self) -> Result<(), Fault> {
        self.state = Dynamic::from_map(Map::new());
        self.grown = 0;
        let Some(parameters) = self.script.function("init").map(|init| init.parameters) else { return Ok(()) };
        let output = if parameters == 0 {
            self.call("init", (), NO_REQUEST, None)?
        } else {
            let info = Dynamic::from_map(self.info());
            self.size.bytes = state::check(&info).unwrap_or_default().bytes;
            self.call("init", (info,), NO_REQUEST, None)?
        };
        if output.is_map() {
            self.state = output;
        } else if !output.is_unit() {
            let text =
                format!("init returned {}; it must return the state, an object map `#{{…}}`", type_name(&output));
            return Err(self.bad_output("init", FaultKind::Refused, &text));
        }
        self.check_state("init")
    }

    /// The argument of `init`.
    fn info(&self) -> Map {
        let int = |value: u32| Dynamic::from_int(i64::from(value));
        let instance = |info: &blis_sim::policy::InstanceInfo| {
            let fields = [
                ("id", info.id.0),
                ("max_num_seqs", info.max_num_seqs),
                ("total_kv_blocks", info.total_kv_blocks),
                ("block_size", info.block_size),
            ];
            Dynamic::from_map(fields.into_iter().map(|(name, value)| (name.into(), int(value))).collect())
        };
        let instances = self.setup.instances.iter().map(instance).collect();
        let model_facts =
            self.setup.model_facts.iter().map(|(name, value)| (name.into(), Dynamic::from_float(*value))).collect();
        let mut info = Map::new();
        info.insert("kind".into(), self.setup.kind.name().into());
        info.insert("instances".into(), Dynamic::from_array(instances));
        info.insert("model_facts".into(), Dynamic::from_map(model_facts));
        info
    }

    /// Calls `function` about request number `about`.
    pub fn call(
        &mut self,
        function: &str,
        arguments: impl HostArguments,
        about: RequestId,
        ties: Option<&Ties>,
    ) -> Result<Dynamic, Fault> {
        let mut numbers = Vec::new();
        let output = self.call_for_column(function, arguments, about, ties, &mut numbers)?;
        Ok(output.unwrap_or_else(|| Dynamic::from(Column::new(numbers))))
    }

    /// As [`Self::call`], for a function that is to return a column. `None` if its numbers were appended to `numbers`.
    fn call_for_column(
        &mut self,
        function: &str,
        arguments: impl HostArguments,
        about: RequestId,
        ties: Option<&Ties>,
        numbers: &mut Vec<f64>,
    ) -> Result<Option<Dynamic>, Fault> {
        if let Some(output) = self.call_fast(function, &arguments, numbers) {
            return output;
        }
        self.call_engine(function, arguments, about, ties).map(Some)
    }

    /// Calls `function` as a step of a pipeline with `memory`: as [`Self::call_for_column`], with the views that the steps share.
    fn call_step(
        &mut self,
        function: &str,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        memory: &mut StepMemory,
        numbers: &mut Vec<f64>,
    ) -> Result<Option<Dynamic>, Fault> {
        self.look_for_changes(cluster);
        let decision = memory.decision();
        let views = memory.shared::<StepViews>();
        let views = views.of(decision, request, cluster, &self.script.used_fields, &self.names);
        if let Some(output) = self.call_fast(function, views, numbers) {
            return output;
        }
        self.call_engine(function, views.clone(), request.id, Some(ties)).map(Some)
    }

    fn call_engine(
        &mut self,
        function: &str,
        arguments: impl HostArguments,
        about: RequestId,
        ties: Option<&Ties>,
    ) -> Result<Dynamic, Fault> {
        let kit = &self.script.kit;
        let changed = self.changed.take();
        let (stream, ties, bytes) = (self.setup.stream, ties.copied(), self.size.bytes);
        let about = call::ScriptCallInput { request: about, stream, ties, changed, bytes };
        call::begin(&kit.limits, &self.code.constants, &self.setup.abort, about);
        call::swap_log(&mut self.log);
        let output = call::finish(self.evaluation.call(&kit.engine, function, &mut self.state, arguments));
        call::swap_log(&mut self.log);
        let (steps, numbers) = call::used();
        self.used = steps;
        let returned = output.as_ref().map_or(0, state::own_bytes) as u64;
        self.size.bytes = self.size.bytes.saturating_add(call::added().saturating_sub(returned));
        let output = output.map_err(|error| {
            // The call may have ended before the script used the result of `changed`.
            self.latest = LatestView::default();
            self.evaluation = ScriptEvaluation::new(&kit.engine, &self.code.ast);
            self.script.source.runtime(&error, kit, function)
        });
        self.check_growth(function, steps, numbers)?;
        output
    }

    /// Calls `function` without the script engine. `None` if it is one that needs the engine, or has needed it before.
    fn call_fast(
        &mut self,
        function: &str,
        arguments: &impl HostArguments,
        numbers: &mut Vec<f64>,
    ) -> Option<Result<Option<Dynamic>, Fault>> {
        let memory = self.fast.as_mut()?;
        let fast = self.code.fast(function)?;
        let Some(called) = fast.call(arguments.views(), &mut self.state, &self.script.kit.limits, memory) else {
            // Another such call would be made twice.
            self.fast = None;
            return None;
        };
        let FastOutput { output, operations, numbers: processed } = called;
        let output = match output {
            FastResult::Value(value) => Some(value),
            FastResult::Column(column) => {
                numbers.extend_from_slice(column);
                None
            }
        };
        self.changed = None;
        self.used = operations;
        if fast.uses_state()
            && let Err(fault) = self.check_growth(function, operations, processed)
        {
            return Some(Err(fault));
        }
        Some(Ok(output))
    }

    /// Checks the state from time to time, after a call of `function` with `steps` operations and `numbers` column elements.
    fn check_growth(&mut self, function: &str, steps: u64, numbers: u64) -> Result<(), Fault> {
        // One operation can add an entry of some 64 bytes; each column element has 8 bytes.
        self.grown = self.grown.saturating_add(steps.saturating_mul(64)).saturating_add(numbers.saturating_mul(8));
        if self.grown > UNMEASURED_BYTES || !self.state.is_map() {
            self.measure(function)?;
        }
        // A state with few values is checked after every call; for a large one that would take longer than the call.
        self.paid = self.paid.saturating_add(VALUES_CHECKED + steps / STEPS_PER_VALUE);
        if self.paid >= self.size.values {
            self.check_state(function)?;
        }
        Ok(())
    }

    /// Fails, and resets the state, if it has a value that cannot be saved.
    fn check_state(&mut self, function: &str) -> Result<(), Fault> {
        self.paid = 0;
        let (path, text) = match state::check(&self.state) {
            Ok(size) => {
                self.size = size;
                return Ok(());
            }
            Err(wrong) => wrong,
        };
        let shown: String = path.iter().take(4).map(String::as_str).collect();
        let more = if path.len() > 4 { " …" } else { "" };
        let text = format!("in `{function}`: the state keeps what it cannot: this{shown}{more} {text}");
        let line = path.first().and_then(|step| self.script.source.assignment_of(&format!("this{step}")));
        let fault = match line {
            Some(line) => self.script.source.fault_in_line(FaultKind::Refused, line, &text),
            None => self.bad_output(function, FaultKind::Refused, &text),
        };
        self.forget(function)?;
        Err(fault)
    }

    /// Fails, and resets the state, if the state is too large or is not an object map.
    fn measure(&mut self, function: &str) -> Result<(), Fault> {
        let most = self.setup.limits.state_bytes;
        let fault = if !self.state.is_map() {
            let text = format!("`this` became {}; it stays an object map", type_name(&self.state));
            self.bad_output(function, FaultKind::Trap, &text)
        } else if state::size(&self.state) > most {
            let text = format!("the state, `this`, takes more than {most} bytes: forget what is old");
            self.bad_output(function, FaultKind::OutOfMemory, &text)
        } else {
            self.grown = 0;
            return Ok(());
        };
        self.forget(function)?;
        Err(fault)
    }

    /// Resets the state after a fault of `function`.
    fn forget(&mut self, function: &str) -> Result<(), Fault> {
        self.state = Dynamic::from_map(Map::new());
        self.latest = LatestView::default();
        (self.grown, self.size) = (0, StateSize::default());
        // `init` may be what makes the state wrong.
        if function == "init" { Ok(()) } else { self.initialise() }
    }

    /// A fault of the result of `function`, located at its last line.
    fn bad_output(&self, function: &str, kind: FaultKind, text: &str) -> Fault {
        let line = self.script.function(function).map_or(1, |function| function.last_line);
        self.script.source.fault_in_line(kind, line, text)
    }

    fn missing(&self, function: &str, kind: Kind) -> Result<(), Fault> {
        if self.script.function(function).is_some() {
            return Ok(());
        }
        let text = format!("there is no function `{function}`, which `{kind}` needs");
        Err(self.script.source.fault(FaultKind::MissingExport, None, &text))
    }

    pub fn request(&mut self, request: &RequestView<'_>, now: Micros, tenant_in_flight: Option<u32>) -> RequestObject {
        let fields = RequestFields::new(request, now, tenant_in_flight, &self.script.used_fields, &self.names);
        // If the script has kept the view of an earlier call, that view stays unchanged.
        let mut view = self.request.take().unwrap_or_else(|| Arc::new(fields.clone()));
        match Arc::get_mut(&mut view) {
            Some(own) => *own = fields,
            None => view = Arc::new(fields),
        }
        self.request = Some(Arc::clone(&view));
        RequestObject(view)
    }

    /// The arguments of a decision that reads the cluster.
    pub fn views(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> (RequestObject, ClusterObject) {
        let tenant_in_flight = cluster.tenant_in_flight(request.tags.tenant);
        let view = self.request(request, cluster.now, Some(tenant_in_flight));
        (view, self.view(Some(request), cluster))
    }

    /// The cluster, for a decision about `request`, if it is about one.
    pub fn view(&mut self, request: Option<&RequestView<'_>>, cluster: &ClusterView<'_>) -> ClusterObject {
        // If the script has kept the view of an earlier call, that view stays unchanged.
        Arc::make_mut(&mut self.cluster).update(request, cluster, &self.script.used_fields);
        self.look_for_changes(cluster);
        ClusterObject(Arc::clone(&self.cluster))
    }

    /// Notes the result of `changed` for the next call, if the script calls it.
    fn look_for_changes(&mut self, cluster: &ClusterView<'_>) {
        if self.script.used_fields.changed {
            self.changed = self.latest.advance(cluster).changed().map(<[u32]>::to_vec);
        }
    }

    /// Calls `fair_pick`.
    pub fn call_fair_pick(
        &mut self,
        now: Micros,
        saturation: f64,
        band: BandView,
        flows: &[FlowView],
    ) -> Result<Dynamic, Fault> {
        let band = BandObject { now, saturation: Some(saturation), band };
        let view = FlowsObject::new(now, flows, &self.script.used_fields.flow, &self.names);
        self.call("fair_pick", (band, view), number_of(now), Some(&Ties::LowestIndex))
    }

    /// Calls `evict`.
    pub fn call_evict(&mut self, now: Micros, demand: BandView, in_flight: &[InFlightView]) -> Result<Dynamic, Fault> {
        let band = BandObject { now, saturation: None, band: demand };
        let view = InFlightObject::new(now, in_flight, &self.script.used_fields.flow, &self.names);
        self.call("evict", (band, view), number_of(now), Some(&Ties::LowestIndex))
    }

    /// Makes all calls with the script engine.
    #[cfg(test)]
    pub fn use_engine(&mut self) {
        self.fast = None;
    }

    /// Whether `function` needs the script engine, or a call has needed it.
    #[cfg(test)]
    pub fn needs_engine(&self, function: &str) -> bool {
        self.fast.is_none() || self.code.fast(function).is_none()
    }

    /// A choice among `len` from the result: an index, or a score for each, of which the highest wins. Without an `output` the
    /// scores are in `scores`.
    fn choice(
        &self,
        function: &str,
        output: Option<&Dynamic>,
        len: usize,
        scores: &mut Vec<f64>,
        tie: impl FnOnce(usize) -> usize,
    ) -> Result<usize, Fault> {
        let bad = |kind, text: String| Err(self.bad_output(function, kind, &text));
        if let Some(index) = output.filter(|output| !output.is_bool()).and_then(number) {
            return self.index(function, index, len);
        }
        self.column(function, "it must return a column of scores, or an index", output, scores)?;
        if scores.len() != len {
            let text = format!("{function} returned {} scores; it must return one for each of {len}", scores.len());
            scores.clear();
            return bad(FaultKind::OutOfRange, text);
        }
        if let Some(index) = first_nan(scores) {
            scores.clear();
            let text = format!("{function} returned not-a-number (NaN) as score of index {index}; {NAN_COMES_FROM}");
            return bad(FaultKind::NotANumber, text);
        }
        let (_, best) = extremes(scores);
        let tied = scores.iter().filter(|&&score| score == best).count();
        if tied == 0 {
            return bad(
                FaultKind::OutOfRange,
                format!("{function} returned no scores: there is nothing to choose from"),
            );
        }
        let mut indices = scores.iter().enumerate().filter(|&(_, &score)| score == best).map(|(index, _)| index);
        Ok(indices.nth(tie(tied)).unwrap_or(0))
    }

    /// The numbers of `output`, one for each instance; `wanted` says what it must be. Without an `output` they are in `numbers`.
    fn column(
        &self,
        function: &str,
        wanted: &str,
        output: Option<&Dynamic>,
        numbers: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let Some(output) = output else { return Ok(()) };
        if let Some(column) = output.read_lock::<Column>() {
            numbers.extend_from_slice(column.values());
        } else if let Ok(array) = output.as_array_ref() {
            match super::column::numbers(&array) {
                Ok(values) => numbers.extend(values),
                Err(error) => return Err(self.script.source.runtime(&error, &self.script.kit, function)),
            }
        } else {
            let hint = if output.is_unit() { ": does its last line end in `;`?" } else { "" };
            let text = format!("{function} returned {}; {wanted}{hint}", type_name(output));
            return Err(self.bad_output(function, FaultKind::Trap, &text));
        }
        Ok(())
    }

    fn index(&self, function: &str, index: f64, len: usize) -> Result<usize, Fault> {
        if index.is_nan() {
            let text = format!("{function} returned not-a-number (NaN); {NAN_COMES_FROM}");
            return Err(self.bad_output(function, FaultKind::NotANumber, &text));
        }
        if index.fract() == 0.0 && index >= 0.0 && index < len as f64 {
            return Ok(index as usize);
        }
        let range = if len == 0 {
            "there is nothing to choose from".to_owned()
        } else {
            format!("an index from 0 to {}", len - 1)
        };
        let text = format!("{function} returned {}; it must be {range}", short(index));
        Err(self.bad_output(function, FaultKind::OutOfRange, &text))
    }

    fn number(&self, function: &str, output: &Dynamic) -> Result<f64, Fault> {
        let Some(value) = number(output).filter(|_| !output.is_bool()) else {
            let hint = if output.is_unit() { ": does its last line end in `;`?" } else { "" };
            let text = format!("{function} returned {}; it must return a number{hint}", type_name(output));
            return Err(self.bad_output(function, FaultKind::Trap, &text));
        };
        if value.is_nan() {
            let text = format!("{function} returned not-a-number (NaN); {NAN_COMES_FROM}");
            return Err(self.bad_output(function, FaultKind::NotANumber, &text));
        }
        Ok(value)
    }

    /// The value of the constant `name` of a latency model.
    fn constant(&self, name: &str, value: &Dynamic) -> Result<u64, Fault> {
        let us = self.number("constants", value)?.round();
        let (least, most) = constant_range(name);
        if (least as f64..=most as f64).contains(&us) {
            return Ok(us as u64);
        }
        let text = format!("{name} is {}; it must be from {least} to {most} µs", short(us));
        Err(self.bad_output("constants", FaultKind::OutOfRange, &text))
    }

    fn duration(&self, function: &str, output: &Dynamic) -> Result<u64, Fault> {
        let us = self.number(function, output)?;
        if (0.0..=LONGEST_US as f64).contains(&us) {
            return Ok(us.round() as u64);
        }
        let text = format!("{function} returned {} µs; it must be at least 0 and at most a day", short(us));
        Err(self.bad_output(function, FaultKind::OutOfRange, &text))
    }
}

/// A number for a message, without hundreds of digits.
fn short(x: f64) -> String {
    if x.abs() < 1e15 { x.to_string() } else { format!("{x:e}") }
}

const NAN_COMES_FROM: &str = "look for 0/0, infinity minus infinity, or a root or logarithm of a negative number";

impl AdmissionGuest for ScriptGuest {
    fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Result<AdmissionDecision, Fault> {
        self.missing("admit", Kind::Admission)?;
        let views = self.views(request, cluster);
        let output = self.call("admit", views, request.id, None)?;
        if let Ok(admitted) = output.as_bool() {
            return Ok(if admitted {
                AdmissionDecision::Admit
            } else {
                AdmissionDecision::Reject(Reason::Plugin(None))
            });
        }
        if let Ok(reason) = output.as_immutable_string_ref() {
            let reason = plain(&reason, self.setup.limits.message_bytes);
            return Ok(AdmissionDecision::Reject(Reason::Text(reason.into())));
        }
        let hint = if output.is_unit() { ": does its last line end in `;`?" } else { "" };
        let text = format!(
            "admit returned {}; it must return true, or false or a text (the reason) to reject{hint}",
            type_name(&output)
        );
        Err(self.bad_output("admit", FaultKind::Trap, &text))
    }
}

impl RoutingGuest for ScriptGuest {
    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<usize, Fault> {
        self.missing("route", Kind::Routing)?;
        let views = self.views(request, cluster);
        let output = self.call_for_column("route", views, request.id, Some(ties), scores)?;
        self.choice("route", output.as_ref(), cluster.len(), scores, |tied| ties.pick(request.id, tied))
    }

    fn scores(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        self.step_scores(request, cluster, ties, &mut StepMemory::default(), scores)
    }

    fn step_scores(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        memory: &mut StepMemory,
        scores: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        self.missing("route", Kind::Routing)?;
        let output = self.call_step("route", request, cluster, ties, memory, scores)?;
        self.column("route", "as a scorer it must return a column of scores", output.as_ref(), scores)
    }
}

impl FilterGuest for ScriptGuest {
    fn filter(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        kept: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        self.step_filter(request, cluster, ties, &mut StepMemory::default(), kept)
    }

    fn step_filter(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        memory: &mut StepMemory,
        kept: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        self.missing("filter", Kind::RoutingFilter)?;
        let output = self.call_step("filter", request, cluster, ties, memory, kept)?;
        let wanted = "it must return a column, 0 for instances that it leaves out, as `s.queue_depth < 5`";
        self.column("filter", wanted, output.as_ref(), kept)
    }
}

impl PriorityGuest for ScriptGuest {
    fn priority(&mut self, request: &RequestView<'_>, now: Micros) -> Result<i64, Fault> {
        self.missing("priority", Kind::Priority)?;
        let view = self.request(request, now, None);
        let output = self.call("priority", (view,), request.id, None)?;
        if let Ok(priority) = output.as_int() {
            return Ok(priority);
        }
        // Conversion to i64 saturates, so an infinite priority becomes the highest one.
        self.number("priority", &output).map(|priority| priority.round() as i64)
    }
}

impl SchedulingGuest for ScriptGuest {
    fn rank(&mut self, queued: &QueuedView<'_>) -> Result<f64, Fault> {
        self.missing("rank", Kind::Scheduling)?;
        let view = self.request(&queued.request, queued.now, None);
        let output = self.call("rank", (view, QueuedObject::from(queued)), queued.request.id, None)?;
        self.number("rank", &output)
    }
}

impl PreemptionGuest for ScriptGuest {
    fn victim(&mut self, batch: &BatchView) -> Result<usize, Fault> {
        self.missing("victim", Kind::Preemption)?;
        let about = batch.id.get(batch.requester).copied().unwrap_or(NO_REQUEST);
        let ties = batch.ties();
        let output = self.call("victim", (BatchObject::new(batch, &self.names),), about, Some(&ties))?;
        self.choice("victim", Some(&output), batch.len(), &mut Vec::new(), |tied| ties.pick(about, tied))
    }
}

impl LatencyGuest for ScriptGuest {
    fn step_time(&mut self, batch: &Batch) -> Result<u64, Fault> {
        self.missing("step_time", Kind::Latency)?;
        let output = self.call("step_time", (StepObject(*batch),), NO_REQUEST, None)?;
        self.duration("step_time", &output)
    }

    fn queueing_time(&mut self, input_tokens: u32) -> Result<u64, Fault> {
        self.missing("step_time", Kind::Latency)?;
        if self.script.function("queueing_time").is_none() {
            return Ok(0);
        }
        let output = self.call("queueing_time", (i64::from(input_tokens),), NO_REQUEST, None)?;
        self.duration("queueing_time", &output)
    }

    fn constants(&mut self) -> Result<LatencyConstants, Fault> {
        self.missing("step_time", Kind::Latency)?;
        let mut constants = LatencyConstants::default();
        if self.script.function("constants").is_none() {
            return Ok(constants);
        }
        let output = self.call("constants", (), NO_REQUEST, None)?;
        let Ok(map) = output.as_map_ref() else {
            let text = format!("constants returned {}; it must return an object map", type_name(&output));
            return Err(self.bad_output("constants", FaultKind::Trap, &text));
        };
        for (name, value) in map.iter() {
            let field = match name.as_str() {
                "shortest_step_us" => &mut constants.shortest_step_us,
                "output_token_us" => &mut constants.output_token_us,
                "post_decode_us" => &mut constants.post_decode_us,
                "scheduling_us" => &mut constants.scheduling_us,
                "preemption_us" => &mut constants.preemption_us,
                other => {
                    let known =
                        ["shortest_step_us", "output_token_us", "post_decode_us", "scheduling_us", "preemption_us"];
                    let text = format!("there is no constant `{other}`{}", super::header::near(other, &known, ""));
                    return Err(self.bad_output("constants", FaultKind::OutOfRange, &text));
                }
            };
            *field = self.constant(name, value)?;
        }
        Ok(constants)
    }
}

impl SaturationGuest for ScriptGuest {
    fn saturation(&mut self, cluster: &ClusterView<'_>) -> Result<f64, Fault> {
        self.missing("saturation", Kind::Saturation)?;
        let view = self.view(None, cluster);
        let output = self.call("saturation", (view,), number_of(cluster.now), Some(&Ties::LowestIndex))?;
        self.number("saturation", &output)
    }
}

impl CeilingsGuest for ScriptGuest {
    fn ceilings(
        &mut self,
        now: Micros,
        saturation: f64,
        bands: &[BandView],
        ceilings: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        self.missing("ceilings", Kind::Ceilings)?;
        let view = BandsObject::new(now, bands);
        let about = number_of(now);
        let output = self.call_for_column("ceilings", (saturation, view), about, Some(&Ties::LowestIndex), ceilings)?;
        self.column("ceilings", "it must return a column, a ceiling for each band", output.as_ref(), ceilings)
    }
}

impl FairnessGuest for ScriptGuest {
    fn fair_pick(&mut self, now: Micros, saturation: f64, band: BandView, flows: &[FlowView]) -> Result<usize, Fault> {
        self.missing("fair_pick", Kind::Fairness)?;
        let output = self.call_fair_pick(now, saturation, band, flows)?;
        self.choice("fair_pick", Some(&output), flows.len(), &mut Vec::new(), |_| 0)
    }
}

impl OrderingGuest for ScriptGuest {
    fn order(&mut self, request: &RequestView<'_>, now: Micros, expires: Micros) -> Result<f64, Fault> {
        self.missing("order", Kind::Ordering)?;
        let view = self.request(request, now, None);
        let expires = super::values::optional((expires < Micros::MAX).then_some(expires.0));
        let output = self.call("order", (view, expires), request.id, None)?;
        self.number("order", &output)
    }
}

impl EvictionGuest for ScriptGuest {
    fn evict(&mut self, now: Micros, demand: BandView, in_flight: &[InFlightView]) -> Result<Option<usize>, Fault> {
        self.missing("evict", Kind::Eviction)?;
        let output = self.call_evict(now, demand, in_flight)?;
        if output.is_unit() {
            return Ok(None);
        }
        self.choice("evict", Some(&output), in_flight.len(), &mut Vec::new(), |_| 0).map(Some)
    }
}

impl ScalingGuest for ScriptGuest {
    fn scale(
        &mut self,
        now: Micros,
        groups: &[GroupRow],
        history: &[GroupRow],
        targets: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        self.missing("scale", Kind::Scaling)?;
        let view = GroupsObject::new(now, groups, history, &self.names);
        let output = self.call("scale", (view,), number_of(now), Some(&Ties::LowestIndex))?;
        if output.is_unit() {
            targets.resize(groups.len(), -1.0);
            return Ok(());
        }
        if let Some(one) = number(&output).filter(|_| !output.is_bool()) {
            targets.push(one);
            return Ok(());
        }
        self.column("scale", "it must return a column, a number of replicas for each group", Some(&output), targets)
    }
}

impl DrainGuest for ScriptGuest {
    fn drain(&mut self, group: &DrainGroupRow, replicas: &[ReplicaRow]) -> Result<usize, Fault> {
        self.missing("drain", Kind::Drain)?;
        let view = (RowObject { row: *group, names: Arc::clone(&self.names) }, RowsObject(replicas.into()));
        let output = self.call("drain", view, number_of(Micros(group.now_us)), Some(&Ties::LowestIndex))?;
        self.choice("drain", Some(&output), replicas.len(), &mut Vec::new(), |_| 0)
    }
}

impl PlacementGuest for ScriptGuest {
    fn placement(&mut self, replica: &StartingReplicaRow, nodes: &[NodeRow]) -> Result<Option<usize>, Fault> {
        self.missing("placement", Kind::Placement)?;
        let view = (RowObject { row: *replica, names: Arc::clone(&self.names) }, RowsObject(nodes.into()));
        let output = self.call("placement", view, number_of(Micros(replica.now_us)), Some(&Ties::LowestIndex))?;
        if output.is_unit() {
            return Ok(None);
        }
        self.choice("placement", Some(&output), nodes.len(), &mut Vec::new(), |_| 0).map(Some)
    }
}

/// A script without `keep` ranks all chunks alike.
impl KvCacheGuest for ScriptGuest {
    fn decides(&self) -> KvCacheDecisions {
        let has = |function| self.script.function(function).is_some();
        KvCacheDecisions { store: has("store"), load: has("load") }
    }

    fn keep(&mut self, now: Micros, chunks: &[ChunkRow], ranks: &mut Vec<f64>) -> Result<(), Fault> {
        if self.script.function("keep").is_none() {
            ranks.resize(chunks.len(), 0.0);
            return Ok(());
        }
        let view = (ChunksObject { now, rows: chunks.into() },);
        let output = self.call_for_column("keep", view, number_of(now), Some(&Ties::LowestIndex), ranks)?;
        self.for_each_chunk("keep", "it must return a column, a rank for each chunk", output.as_ref(), chunks, ranks)
    }

    fn store(&mut self, offer: &ChunkOfferRow, chunks: &[ChunkRow], stored: &mut Vec<f64>) -> Result<(), Fault> {
        if self.script.function("store").is_none() {
            stored.resize(chunks.len(), 1.0);
            return Ok(());
        }
        let now = Micros(offer.now_us);
        let view = (OfferObject(*offer), ChunksObject { now, rows: chunks.into() });
        let output = self.call_for_column("store", view, number_of(now), Some(&Ties::LowestIndex), stored)?;
        self.for_each_chunk("store", "it must return a column, 0 or 1 for each chunk", output.as_ref(), chunks, stored)
    }

    fn load(&mut self, hit: &TierHitRow) -> Result<bool, Fault> {
        if self.script.function("load").is_none() {
            return Ok(true);
        }
        let about = number_of(Micros(hit.now_us));
        let output = self.call("load", (HitObject(*hit),), about, Some(&Ties::LowestIndex))?;
        match output.as_bool() {
            Ok(loads) => Ok(loads),
            Err(_) => Ok(self.number("load", &output)? != 0.0),
        }
    }
}

impl DisaggregationGuest for ScriptGuest {
    fn disaggregate(
        &mut self,
        request: &RoutedRequestRow,
        decode: &[PoolInstanceRow],
        prefill: &[PoolInstanceRow],
    ) -> Result<PrefillChoiceRow, Fault> {
        self.missing("disaggregate", Kind::Disaggregation)?;
        let views = (
            RoutedObject { row: *request, names: Arc::clone(&self.names) },
            DecodesObject { rows: decode.into(), chosen: request.chosen },
            PrefillsObject { rows: prefill.into() },
            LinkObject(*request),
        );
        let output = self.call("disaggregate", views, RequestId(request.request), Some(&Ties::LowestIndex))?;
        let Ok(map) = output.as_map_ref() else { return self.truth(&output).map(PrefillChoiceRow::new) };
        let mut choice = PrefillChoiceRow::new(false);
        for (name, value) in map.iter() {
            let index = |pool: &[PoolInstanceRow]| match value.is_unit() {
                true => Ok(NONE_U32),
                false => {
                    let chosen = self.choice("disaggregate", Some(value), pool.len(), &mut Vec::new(), |_| 0)?;
                    Ok(chosen as u32)
                }
            };
            match name.as_str() {
                "remote" => choice.remote = u32::from(self.truth(value)?),
                "decode" => choice.decode = index(decode)?,
                "prefill" => choice.prefill = index(prefill)?,
                other => {
                    let known = super::header::near(other, &["remote", "decode", "prefill"], "");
                    let text = format!("disaggregate returned `{other}`, which is no part of its result{known}");
                    return Err(self.bad_output("disaggregate", FaultKind::OutOfRange, &text));
                }
            }
        }
        Ok(choice)
    }
}

impl ScriptGuest {
    /// Whether a request is prefilled elsewhere: a truth value, or a number other than 0.
    fn truth(&self, output: &Dynamic) -> Result<bool, Fault> {
        if let Ok(remote) = output.as_bool() {
            return Ok(remote);
        }
        match number(output) {
            Some(remote) if !remote.is_nan() => Ok(remote != 0.0),
            _ => {
                let hint = if output.is_unit() { ": does its last line end in `;`?" } else { "" };
                let wanted = "it must return true or false, or a map such as `#{ remote: true, prefill: 0 }`";
                let text = format!("disaggregate returned {}; {wanted}{hint}", type_name(output));
                Err(self.bad_output("disaggregate", FaultKind::Trap, &text))
            }
        }
    }

    /// The numbers of `output`, one for each chunk; a single one holds for all.
    fn for_each_chunk(
        &self,
        function: &str,
        wanted: &str,
        output: Option<&Dynamic>,
        chunks: &[ChunkRow],
        numbers: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        if let Some(one) = output.and_then(number) {
            numbers.resize(chunks.len(), one);
            return Ok(());
        }
        self.column(function, wanted, output, numbers)
    }
}

impl Guest for ScriptGuest {
    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        if self.script.function("observe").is_none() {
            self.used = 0;
            return Ok(());
        }
        let view = EventObject { event: *event, names: Arc::clone(&self.names) };
        self.call("observe", (view,), event.request, None).map(|_| ())
    }

    fn save(&mut self) -> Result<Vec<u8>, Fault> {
        self.used = 0;
        state::save(&self.state, self.setup.limits.state_bytes)
            .map_err(|(kind, text)| self.script.source.fault(kind, None, &format!("the state cannot be saved: {text}")))
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), Fault> {
        let refused = |text: String| {
            let text = format!("the state cannot be restored: {text}");
            self.script.source.fault(FaultKind::Refused, None, &text)
        };
        let state = state::restore(state).map_err(refused)?;
        let size = state::check(&state).map_err(|(path, text)| refused(format!("this{} {text}", path.concat())))?;
        self.state = state;
        self.latest = LatestView::default();
        (self.grown, self.size, self.paid) = (0, size, 0);
        Ok(())
    }

    fn fork(&mut self) -> Result<StartedGuest, Fault> {
        let state = self.save()?;
        let mut fork = Self {
            // What the engine has looked up takes memory, which calls are charged for.
            evaluation: self.evaluation.clone(),
            fast: self.fast.as_ref().map(|_| FastMemory::default()),
            script: Arc::clone(&self.script),
            code: self.code.clone(),
            setup: self.setup.clone(),
            names: Arc::clone(&self.names),
            state: Dynamic::UNIT,
            grown: 0,
            size: StateSize::default(),
            paid: 0,
            request: None,
            cluster: Arc::default(),
            latest: LatestView::default(),
            changed: None,
            log: self.log.clone(),
            used: 0,
        };
        fork.restore(&state)?;
        // Calls of the copy are charged and checked as those of the original.
        (fork.grown, fork.size, fork.paid) = (self.grown, self.size, self.paid);
        Ok(StartedGuest::of(self.setup.kind, fork))
    }

    fn used(&self) -> Option<u64> {
        Some(self.used)
    }
}
