//! A guest of a script: calls its functions and checks the type of their results.

use std::sync::Arc;

use blis_abi::decisions::{Missing, OutputShape};
use blis_abi::{AnyRows, Field, Row as _, RowShape};
use blis_sim::ids::RequestId;
use blis_sim::policy::flow::ServedTokens;
use blis_sim::policy::{AdmissionDecision, ClusterView, Event, Reason, RequestView, StepMemory, Ties};
use blis_sim::units::Micros;
use rhai::{Dynamic, Map};

use super::call::{self, NO_REQUEST, ScriptLog};
use super::code::{Script, SpecializedCode};
use super::column::{Column, extremes, number, type_name};
use super::evaluation::ScriptEvaluation;
use super::fast::{FastMemory, FastOutput, FastResult, HostArguments};
use super::rows::{LinkObject, RowObject, RowViews};
use super::state::{self, StateSize};
use super::step_views::StepViews;
use super::values::NameTexts;
use super::views::{ClusterFields, ClusterObject, EventObject, RequestFields, RequestObject};
use crate::call::left_out;
use crate::limits::{LONGEST_US, STEPS_PER_VALUE, UNMEASURED_BYTES, VALUES_CHECKED, constant_range};
use crate::rows::{
    BandRow, ChunkOfferRow, ChunkRow, DrainGroupRow, FlowRow, GroupRow, InFlightRow, LatestView, NONE_U32, NodeRow,
    PoolInstanceRow, PrefillChoiceRow, QueuedRow, ReplicaRow, RoutedRequestRow, RunningRow, StartingReplicaRow,
    StepRow, TierHitRow, first_nan,
};
use crate::text::plain;
use crate::{Fault, FaultKind, Function, Guest, GuestSetup, Inputs, Kind, Output};

pub(super) struct ScriptGuest {
    script: Arc<Script>,
    code: SpecializedCode,
    /// Which functions of its kind the script has.
    functions: [bool; MOST_FUNCTIONS],
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

/// Most functions of a kind.
const MOST_FUNCTIONS: usize = 3;

/// Which functions of `kind` the script has; scores are those of `route`.
fn functions_of(script: &Script, kind: Kind) -> [bool; MOST_FUNCTIONS] {
    let mut has = [false; MOST_FUNCTIONS];
    for (has, &function) in has.iter_mut().zip(kind.functions()) {
        let function = if function == Function::Scores { Function::Route } else { function };
        *has = script.function(function.name()).is_some();
    }
    has
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
        let evaluation = ScriptEvaluation::new(&script.kit.engine, &code.ast);
        let mut guest = Self::with(script, code, setup, evaluation, log);
        guest.initialise()?;
        Ok(guest)
    }

    /// A guest with an empty state.
    fn with(
        script: Arc<Script>,
        code: SpecializedCode,
        setup: &GuestSetup,
        evaluation: ScriptEvaluation,
        log: ScriptLog,
    ) -> Self {
        Self {
            names: Arc::clone(&setup.names),
            evaluation,
            fast: Some(FastMemory::default()),
            functions: functions_of(&script, setup.kind),
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
        }
    }

    /// Calls `init`, which turns the empty state into the initial one.
    fn initialise(&mut self) -> Result<(), Fault> {
        self.state = Dynamic::from_map(Map::new());
        self.grown = 0;
        let Some(parameters) = self.script.function("init").map(|init| init.parameters) else { return Ok(()) };
        let output = if parameters == 0 {
            self.run("init", (), NO_REQUEST, None)?
        } else {
            let info = Dynamic::from_map(self.info());
            self.size.bytes = state::check(&info).unwrap_or_default().bytes;
            self.run("init", (info,), NO_REQUEST, None)?
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
    pub fn run(
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

    /// As [`Self::run`], for a function that is to return a column. `None` if its numbers were appended to `numbers`.
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

    /// The fault of a result that is not what `wanted` says.
    fn other_type(&self, function: &str, output: &Dynamic, wanted: &str) -> Fault {
        let hint = if output.is_unit() { ": does its last line end in `;`?" } else { "" };
        let text = format!("{function} returned {}; {wanted}{hint}", type_name(output));
        self.bad_output(function, FaultKind::Trap, &text)
    }

    /// The fault of a result that is not-a-number, if it is.
    fn check_number(&self, function: &str, number: f64) -> Result<(), Fault> {
        if !number.is_nan() {
            return Ok(());
        }
        let text = format!("{function} returned not-a-number (NaN); {NAN_COMES_FROM}");
        Err(self.bad_output(function, FaultKind::NotANumber, &text))
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
    #[inline(always)] // it has one caller on the way of every routing decision
    fn choice(
        &self,
        function: &str,
        output: Option<&Dynamic>,
        len: usize,
        scores: &mut Vec<f64>,
        tie: impl Fn(usize) -> usize,
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
            return Err(self.other_type(function, output, wanted));
        }
        Ok(())
    }

    fn index(&self, function: &str, index: f64, len: usize) -> Result<usize, Fault> {
        self.check_number(function, index)?;
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
            return Err(self.other_type(function, output, "it must return a number"));
        };
        self.check_number(function, value)?;
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

impl ScriptGuest {
    /// Calls `function` with the views of its inputs. `None` if its output is a column, the numbers of which were appended to `numbers`.
    #[inline(always)] // it has one caller
    fn decide(
        &mut self,
        function: Function,
        inputs: &mut Inputs<'_>,
        numbers: &mut Vec<f64>,
    ) -> Result<Option<Dynamic>, Fault> {
        let (name, about, ties) = (function.name(), inputs.about.unwrap_or(NO_REQUEST), inputs.ties);
        match (function, inputs.request, inputs.cluster) {
            (Function::Scores | Function::Filter, Some(request), Some(cluster)) => {
                let Some(ties) = ties else { return Ok(None) };
                let mut alone = StepMemory::default();
                let memory = inputs.memory.take().unwrap_or(&mut alone);
                let name = if function == Function::Scores { Function::Route.name() } else { name };
                self.call_step(name, request, cluster, ties, memory, numbers)
            }
            (_, Some(request), Some(cluster)) => {
                let views = self.views(request, cluster);
                self.call_for_column(name, views, about, ties, numbers)
            }
            (_, None, Some(cluster)) => {
                let view = self.view(None, cluster);
                self.call_for_column(name, (view,), about, ties, numbers)
            }
            (_, Some(request), None) => {
                let view = self.request(request, inputs.now, None);
                match inputs.rows {
                    [row] => {
                        let queued = self.views_of_rows(inputs.now).one::<QueuedRow>(row);
                        self.call_for_column(name, (view, queued), about, ties, numbers)
                    }
                    _ if function == Function::Order => {
                        let expires = (inputs.number < Micros::MAX.0).then_some(inputs.number);
                        let views = (view, super::values::optional(expires));
                        self.call_for_column(name, views, about, ties, numbers)
                    }
                    _ => self.call_for_column(name, (view,), about, ties, numbers),
                }
            }
            (_, None, None) => self.decide_on_rows(function, inputs, numbers),
        }
    }

    fn views_of_rows(&self, now: Micros) -> RowViews<'_> {
        RowViews { now, used: &self.script.used_fields.rows, names: &self.names }
    }

    /// As [`Self::decide`], of a function that gets neither a request nor the instances.
    fn decide_on_rows(
        &mut self,
        function: Function,
        inputs: &Inputs<'_>,
        numbers: &mut Vec<f64>,
    ) -> Result<Option<Dynamic>, Fault> {
        let &Inputs { now, about, ties, number, rows, .. } = inputs;
        let (name, about) = (function.name(), about.unwrap_or(NO_REQUEST));
        let views = self.views_of_rows(now);
        macro_rules! call {
            ($arguments:expr) => {{
                let arguments = $arguments;
                self.call_for_column(name, arguments, about, ties, numbers)
            }};
        }
        match (function, rows) {
            (Function::Victim, [batch]) => {
                call!((views.list::<RunningRow, 0>(batch).with_chosen(number as u32),))
            }
            (Function::QueueingTime, _) => call!((number.cast_signed(),)),
            (Function::StepTime, [step]) => call!((views.one::<StepRow>(step),)),
            (Function::Ceilings, [bands]) => call!((f64::from_bits(number), views.list::<BandRow, 0>(bands))),
            (Function::FairPick, [band, flows]) => {
                let saturation = Some(f64::from_bits(number));
                let band = RowObject { saturation, ..views.one::<BandRow>(band) };
                // Scripts get what was served as it counts now.
                let decayed = |flow: &FlowRow| FlowRow {
                    served_decayed: ServedTokens::from(flow).decayed_at(now),
                    served_as_of_us: now.0,
                    ..*flow
                };
                let is_read = views.uses::<FlowRow>("served_decayed");
                let now_served: Vec<FlowRow> = flows.typed().iter().take_while(|_| is_read).map(decayed).collect();
                let flows = if is_read { &AnyRows::new(&now_served) } else { flows };
                call!((band, views.list::<FlowRow, 0>(flows)))
            }
            (Function::Evict, [demand, in_flight]) => {
                call!((views.one::<BandRow>(demand), views.list::<InFlightRow, 0>(in_flight)))
            }
            (Function::Scale, [groups, history]) => {
                call!((views.list::<GroupRow, 0>(groups).with_history(history.typed(), groups.typed()),))
            }
            (Function::Drain, [group, replicas]) => {
                call!((views.one::<DrainGroupRow>(group), views.list::<ReplicaRow, 0>(replicas)))
            }
            (Function::Placement, [replica, nodes]) => {
                call!((views.one::<StartingReplicaRow>(replica), views.list::<NodeRow, 0>(nodes)))
            }
            (Function::Keep, [chunks]) => call!((views.list::<ChunkRow, 0>(chunks),)),
            (Function::Store, [offer, chunks]) => {
                call!((views.one::<ChunkOfferRow>(offer), views.list::<ChunkRow, 0>(chunks)))
            }
            (Function::Load, [hit]) => call!((views.one::<TierHitRow>(hit),)),
            (Function::Disaggregate, [request, decode, prefill]) => {
                let request = views.one::<RoutedRequestRow>(request);
                let decode = views.list::<PoolInstanceRow, 0>(decode).with_chosen(request.row.chosen);
                let prefill = views.list::<PoolInstanceRow, 1>(prefill);
                call!((request.clone(), decode, prefill, LinkObject(request)))
            }
            (_, [row]) if function.row().inputs.row.is_some() => call!((views.any(row),)),
            _ => call!(()),
        }
    }

    /// The output of `function`, of which it returned `output`, or a column that is in `numbers`. `count` is the number of rows to choose
    /// from, or for which numbers are returned.
    #[inline(always)] // it has one caller
    fn output(
        &self,
        function: Function,
        output: Option<&Dynamic>,
        count: usize,
        tie: impl Fn(usize) -> usize,
        numbers: &mut Vec<f64>,
    ) -> Result<Output, Fault> {
        let name = if function == Function::Scores { Function::Route.name() } else { function.name() };
        Ok(match (&function.row().output, output) {
            (OutputShape::Chosen, Some(output)) if output.is_unit() => Output::Chosen(None),
            (shape @ (OutputShape::Index | OutputShape::Chosen), _) => {
                let index = self.choice(name, output, count, numbers, tie)?;
                if *shape == OutputShape::Index { Output::Index(index) } else { Output::Chosen(Some(index)) }
            }
            (OutputShape::Numbers(_), _) => {
                let single = output.and_then(number);
                match (function, output, single) {
                    (Function::Scale, Some(output), _) if output.is_unit() => numbers.resize(count, -1.0),
                    (Function::Scale, Some(output), Some(one)) if !output.is_bool() => numbers.push(one),
                    (Function::Keep | Function::Store, _, Some(one)) => numbers.resize(count, one),
                    _ => self.column(name, wanted(function), output, numbers)?,
                }
                Output::Numbers
            }
            (shape, None) => {
                let column = Dynamic::from(Column::new(std::mem::take(numbers)));
                self.value(function, shape, &column)?
            }
            (shape, Some(output)) => self.value(function, shape, output)?,
        })
    }

    /// An output that is one value.
    fn value(&self, function: Function, shape: &OutputShape, output: &Dynamic) -> Result<Output, Fault> {
        let name = function.name();
        Ok(match shape {
            OutputShape::Reason => Output::Decision(self.decision(output)?),
            // Conversion to i64 saturates, so an infinite priority becomes the highest one.
            OutputShape::Integer => Output::Integer(match output.as_int() {
                Ok(number) => number,
                Err(_) => self.number(name, output)?.round() as i64,
            }),
            OutputShape::Duration => Output::Duration(self.duration(name, output)?),
            OutputShape::Flag => Output::Flag(match output.as_bool() {
                Ok(flag) => flag,
                Err(_) => self.number(name, output)? != 0.0,
            }),
            OutputShape::Record { shape, default, .. } => self.record(function, shape, default, output)?,
            _ => Output::Number(self.number(name, output)?),
        })
    }

    fn decision(&self, output: &Dynamic) -> Result<AdmissionDecision, Fault> {
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
        let wanted = "it must return true, or false or a text (the reason) to reject";
        Err(self.other_type("admit", output, wanted))
    }

    /// The fields of a record from a map; those that it leaves out have their defaults.
    fn record(&self, function: Function, shape: &RowShape, default: &[u64], output: &Dynamic) -> Result<Output, Fault> {
        let name = function.name();
        let Ok(map) = output.as_map_ref() else {
            let text = format!("{name} returned {}; it must return an object map", type_name(output));
            return Err(self.bad_output(name, FaultKind::Trap, &text));
        };
        let mut words = default.to_vec();
        for (key, value) in map.iter() {
            let Some(index) = shape.fields.iter().position(|field| field.name == key) else {
                let known: Vec<&str> = shape.fields.iter().map(|field| field.name).collect();
                let what = if function == Function::Constants { "constant" } else { "field" };
                let text = format!("there is no {what} `{key}`{}", super::header::near(key, &known, ""));
                return Err(self.bad_output(name, FaultKind::OutOfRange, &text));
            };
            words[index] = match function {
                Function::Constants => self.constant(key, value)?,
                _ => self.field(name, &shape.fields[index], value)?,
            };
        }
        Ok(Output::Record(words.into()))
    }

    /// The value of a field, which is a whole number from 0 on; what is more than its largest counts as that.
    fn field(&self, function: &str, field: &Field, value: &Dynamic) -> Result<u64, Fault> {
        if field.meaning.optional && value.is_unit() {
            return Ok(u64::MAX);
        }
        let number = self.number(function, value)?;
        if number >= field.meaning.least {
            return Ok((number.round() as u64).min(u32::MAX.into()));
        }
        let text = format!("{} is {}; it must be at least {}", field.name, short(number), field.meaning.least);
        Err(self.bad_output(function, FaultKind::OutOfRange, &text))
    }

    /// Where a request is prefilled: a truth value, or a map with indices of `decode` and of `prefill` instances.
    fn prefill_choice(&self, output: &Dynamic, decode: usize, prefill: usize) -> Result<Output, Fault> {
        let mut choice = PrefillChoiceRow::new(false);
        if let Ok(map) = output.as_map_ref() {
            for (name, value) in map.iter() {
                let index = |count: usize| match value.is_unit() {
                    true => Ok(NONE_U32),
                    false => {
                        let chosen = self.choice("disaggregate", Some(value), count, &mut Vec::new(), |_| 0)?;
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
        } else {
            choice.remote = u32::from(self.truth(output)?);
        }
        let (remote, decode, prefill) = choice.numbers();
        Ok(Output::Record([remote.into(), decode.into(), prefill.into()].into()))
    }

    /// Whether a request is prefilled elsewhere: a truth value, or a number other than 0.
    fn truth(&self, output: &Dynamic) -> Result<bool, Fault> {
        if let Ok(remote) = output.as_bool() {
            return Ok(remote);
        }
        match number(output) {
            Some(remote) if !remote.is_nan() => Ok(remote != 0.0),
            _ => {
                let wanted = "it must return true or false, or a map such as `#{ remote: true, prefill: 0 }`";
                Err(self.other_type("disaggregate", output, wanted))
            }
        }
    }
}

/// What a function that returns numbers must return, in messages.
fn wanted(function: Function) -> &'static str {
    match function {
        Function::Scores => "as a scorer it must return a column of scores",
        Function::Filter => "it must return a column, 0 for instances that it leaves out, as `s.queue_depth < 5`",
        Function::Ceilings => "it must return a column, a ceiling for each band",
        Function::Scale => "it must return a column, a number of replicas for each group",
        Function::Keep => "it must return a column, a rank for each chunk",
        Function::Store => "it must return a column, 0 or 1 for each chunk",
        _ => "it must return a column, a number for each row",
    }
}

impl Guest for ScriptGuest {
    fn kind(&self) -> Kind {
        self.setup.kind
    }

    fn has(&self, function: Function) -> bool {
        self.functions[function.index()]
    }

    fn call(&mut self, function: Function, mut inputs: Inputs<'_>, numbers: &mut Vec<f64>) -> Result<Output, Fault> {
        if self.setup.kind != function.kind() {
            return Err(Fault::missing(function.kind()));
        }
        if !self.has(function) {
            let needed = function.kind().functions().iter().find(|of| of.row().missing == Missing::Never);
            if let Some(needed) = needed {
                self.missing(needed.name(), function.kind())?;
            }
            self.used = 0;
            return left_out(function, &inputs, numbers, false).ok_or_else(|| Fault::missing(function.kind()));
        }
        let (count, about, ties) = (inputs.count(function), inputs.about, inputs.ties);
        let lists = inputs.rows;
        let output = self.decide(function, &mut inputs, numbers)?;
        if let (Function::Disaggregate, [_, decode, prefill], Some(output)) = (function, lists, &output) {
            return self.prefill_choice(output, decode.len(), prefill.len());
        }
        let tie = |tied: usize| ties.zip(about).map_or(0, |(ties, about)| ties.pick(about, tied));
        self.output(function, output.as_ref(), count, tie, numbers)
    }

    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        if self.script.function("observe").is_none() {
            self.used = 0;
            return Ok(());
        }
        let view = EventObject { event: *event, names: Arc::clone(&self.names) };
        self.run("observe", (view,), event.request, None).map(|_| ())
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

    fn fork(&mut self) -> Result<Box<dyn Guest>, Fault> {
        let state = self.save()?;
        // What the engine has looked up takes memory, which calls are charged for.
        let (evaluation, log) = (self.evaluation.clone(), self.log.clone());
        let mut fork = Self::with(Arc::clone(&self.script), self.code.clone(), &self.setup, evaluation, log);
        fork.fast = self.fast.as_ref().map(|_| FastMemory::default());
        fork.restore(&state)?;
        // Calls of the copy are charged and checked as those of the original.
        (fork.grown, fork.size, fork.paid) = (self.grown, self.size, self.paid);
        Ok(Box::new(fork))
    }

    fn used(&self) -> Option<u64> {
        Some(self.used)
    }
}
