//! A guest of a native library: one state, and the calls to the functions of the library.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use blis_abi::Row as _;
use blis_abi::decisions::OutputShape;
use blis_abi::table::{self, CArguments, CHost, CResult, CText};
use blis_sim::policy::{AdmissionDecision, Event, Reason};

use super::host::{NativeCallInput, NativeHost, copied};
use super::library::Library;
use crate::call::left_out;
use crate::rows::{AgesRow, InstanceRows, NONE_U32, RequestRow, Rows, ages_row, decision_row, event_row, request_row};
use crate::{Fault, FaultKind, Function, Guest, GuestSetup, Inputs, Kind, Output, ParameterValue, ValueTable};

/// Stream index for `host->random` in a call that is about no request.
const NO_REQUEST: u64 = u64::MAX;

/// One state of `library`.
#[derive(Debug)]
pub(super) struct NativeGuest {
    library: Arc<Library>,
    host: NativeHost,
    setup: GuestSetup,
    state: NonNull<c_void>,
    rows: InstanceRows,
}

// SAFETY: the header requires that a state is used by one thread at a time, which may be any thread, and that states
// share nothing; the `NativeHost` belongs to this guest alone.
unsafe impl Send for NativeGuest {}

impl NativeGuest {
    pub fn start(library: Arc<Library>, setup: &GuestSetup) -> Result<Self, Fault> {
        let description = &library.description;
        if !description.kinds.contains(&setup.kind) {
            return Err(library.fault(FaultKind::MissingExport, &format!("it does not implement `{}`", setup.kind)));
        }
        let given = setup.parameters.len() + setup.others.len();
        let declared = description.parameters.len() + description.others.len();
        if given != declared {
            let what = format!("{given} values for its {declared} parameters");
            return Err(library.fault(FaultKind::Refused, &what));
        }
        let host = NativeHost::new(&library.file, setup);
        let state = create(&library, &host, setup)?;
        let rows = InstanceRows::new(&library.description.columns);
        Ok(Self { library, host, setup: setup.clone(), state, rows })
    }

    /// Calls `function`; `name` is its name in messages.
    fn during<T>(
        &self,
        function: &str,
        about: NativeCallInput<'_>,
        call: impl FnOnce(*const CHost, *mut c_void) -> T,
    ) -> Result<T, Fault> {
        let result = self.host.during(about, |host| call(host, self.state.as_ptr()));
        result.map_err(|reason| self.refused(function, &reason))
    }

    #[cold]
    fn refused(&self, function: &str, reason: &str) -> Fault {
        self.library.fault(FaultKind::Refused, &format!("{function} failed: {reason}"))
    }
}

fn create(library: &Library, host: &NativeHost, setup: &GuestSetup) -> Result<NonNull<c_void>, Fault> {
    let info = |info: &blis_sim::policy::InstanceInfo| blis_abi::InstanceInfo {
        id: info.id.0,
        max_num_seqs: info.max_num_seqs,
        total_kv_blocks: info.total_kv_blocks,
        block_size: info.block_size,
    };
    let instances: Vec<_> = setup.instances.iter().map(info).collect();
    let model_fact = |(name, value): &(String, f64)| table::CModelFact { name: CText::of(name), value: *value };
    let model_facts: Vec<_> = setup.model_facts.iter().map(model_fact).collect();
    let values: Vec<_> = setup.values(&library.description).into_iter().map(lowered).collect();
    let raw = table::CSetup {
        kind: CText::of(setup.kind.name()),
        instances: instances.as_ptr(),
        instance_count: instances.len(),
        parameters: values.as_ptr(),
        model_facts: model_facts.as_ptr(),
        model_fact_count: model_facts.len(),
    };
    let create = library.functions.create;
    // SAFETY: the header gives the function this type; all pointers live until it returns.
    let state = host.during(NativeCallInput::item(NO_REQUEST), |host| unsafe { create(host, &raw const raw) });
    let state = state.map_err(|reason| library.fault(FaultKind::Refused, &format!("create: {reason}")))?;
    NonNull::new(state).ok_or_else(|| {
        library.fault(FaultKind::Refused, "create returned NULL without a reason; it should call host->fail")
    })
}

fn lowered(value: ParameterValue<'_>) -> table::CValue {
    let nothing = table::CValue::number(0.0);
    match value {
        ParameterValue::Number(number) => table::CValue::number(number),
        ParameterValue::Text(text) => table::CValue { kind: table::CValue::TEXT, text: CText::of(text), ..nothing },
        ParameterValue::Table(ValueTable { columns, numbers }) => table::CValue {
            kind: table::CValue::TABLE,
            columns: *columns,
            numbers: numbers.as_ptr(),
            count: numbers.len(),
            ..nothing
        },
    }
}

impl Drop for NativeGuest {
    fn drop(&mut self) {
        let destroy = self.library.functions.destroy;
        // SAFETY: `state` came from `create` of the same library and is not used afterwards.
        unsafe { destroy(self.state.as_ptr()) };
    }
}

/// Most numbers of 64 bits that a row takes that a function writes.
const MOST_WORDS: usize = 16;

/// What the arguments of a call point to.
struct CallMemory {
    request: RequestRow,
    ages: AgesRow,
    /// The row that the function writes, at first what holds if it writes none.
    result: [u64; MOST_WORDS],
}

impl CallMemory {
    fn new(function: Function, inputs: &Inputs<'_>) -> Self {
        let mut result = [0; MOST_WORDS];
        if let OutputShape::Record { shape, default, .. } = &function.row().output {
            shape.write(default, &mut result);
        }
        let request = match (inputs.request, inputs.cluster) {
            (Some(request), Some(cluster)) => decision_row(request, cluster),
            (Some(request), None) => request_row(request, inputs.now, 0),
            (None, _) => RequestRow::ZERO,
        };
        let ages = inputs.cluster.map_or(AgesRow::ZERO, |cluster| ages_row(cluster.staleness));
        Self { request, ages, result }
    }
}

impl NativeGuest {
    /// The arguments of `function`; numbers that it is to write are appended to `numbers`.
    fn arguments(
        &self,
        function: Function,
        inputs: &Inputs<'_>,
        instances: Option<&Rows<'_, '_>>,
        memory: &mut CallMemory,
        numbers: &mut Vec<f64>,
    ) -> CArguments {
        let shape = &function.row().inputs;
        let (row, rest) = match (&shape.row, inputs.rows.split_first()) {
            (Some(_), Some((row, rest))) => (row.bytes().as_ptr().cast(), rest),
            _ => (std::ptr::null(), inputs.rows),
        };
        let mut lists = [(std::ptr::null(), 0); 2];
        for (list, rows) in lists.iter_mut().zip(rest) {
            *list = (rows.bytes().as_ptr().cast(), rows.len());
        }
        let mut stride = shape.lists.first().map_or(0, |shape| shape.size);
        if let Some(rows) = instances {
            let width = size_of::<f64>() * self.library.description.columns.len();
            (lists[0], stride) = ((rows.numbers.as_ptr().cast(), rows.count), width);
        }
        if matches!(function.row().output, OutputShape::Numbers(_)) {
            // A number that the library does not write stays NaN, which the caller detects.
            numbers.resize(inputs.count(function), f64::NAN);
        }
        CArguments {
            request: &raw const memory.request,
            ages: &raw const memory.ages,
            now_us: inputs.now.0,
            number: inputs.number,
            row,
            lists,
            stride,
            numbers: numbers.as_mut_ptr(),
            result: (&raw mut memory.result).cast(),
        }
    }

    /// The output of `function` that `result` is; `written` is the row that it wrote, if it writes one.
    fn output(&self, function: Function, result: CResult, written: &[u64]) -> Result<Output, Fault> {
        Ok(match (&function.row().output, result) {
            (OutputShape::Chosen, CResult::Index(index)) => {
                Output::Chosen((index != NONE_U32).then_some(index as usize))
            }
            (OutputShape::Flag, CResult::Index(flag)) => Output::Flag(flag != 0),
            (_, CResult::Index(index)) => Output::Index(index as usize),
            (OutputShape::Integer, CResult::Whole(number)) => Output::Integer(number.cast_signed()),
            (_, CResult::Whole(us)) => Output::Duration(us),
            (_, CResult::Real(number)) => Output::Number(number),
            (OutputShape::Record { shape, .. }, CResult::Written) => Output::Record(shape.words(written).collect()),
            (_, CResult::Written) => Output::Numbers,
            (_, CResult::Admitted(1, _)) => Output::Decision(AdmissionDecision::Admit),
            (_, CResult::Admitted(0, reason)) => {
                // SAFETY: the header requires a text that stays valid until the next call.
                let reason = unsafe { copied(reason, self.setup.limits.message_bytes) };
                Output::Decision(AdmissionDecision::Reject(Reason::Text(reason.into())))
            }
            (_, CResult::Admitted(other, _)) => {
                let what = format!("admit returned {other}; it must be 1 to admit or 0 to reject");
                return Err(self.library.fault(FaultKind::OutOfRange, &what));
            }
        })
    }

    /// Calls `function` about `about`; `instances` are the rows of a function that gets them, with the size of one, bytes.
    fn decide(
        &self,
        function: Function,
        inputs: &Inputs<'_>,
        instances: Option<&Rows<'_, '_>>,
        numbers: &mut Vec<f64>,
    ) -> Result<Output, Fault> {
        let about = NativeCallInput {
            item: inputs.about.map_or(NO_REQUEST, |id| id.0.into()),
            request: inputs.request,
            ties: inputs.ties,
            changed: instances.and_then(|rows| rows.changed),
        };
        let mut memory = CallMemory::new(function, inputs);
        let arguments = self.arguments(function, inputs, instances, &mut memory, numbers);
        let (functions, state) = (&self.library.table.functions, self.state.as_ptr());
        // SAFETY: the arguments are made of the inputs, which live until the function returns; their rows are those of the
        // function, because only the methods of `dyn Guest` make inputs.
        let result = self.host.during(about, |host| unsafe { functions.call(function, host, state, &arguments) });
        let result = result.map_err(|reason| self.refused(function.name(), &reason))?;
        let kind = function.kind();
        let lacks = || self.library.fault(FaultKind::MissingExport, &format!("it does not implement `{kind}`"));
        self.output(function, result.ok_or_else(lacks)?, &memory.result)
    }
}

impl Guest for NativeGuest {
    fn kind(&self) -> Kind {
        self.setup.kind
    }

    fn has(&self, function: Function) -> bool {
        self.library.table.functions.has(function)
    }

    fn call(&mut self, function: Function, inputs: Inputs<'_>, numbers: &mut Vec<f64>) -> Result<Output, Fault> {
        let kind = function.kind();
        if self.setup.kind != kind {
            return Err(self.library.fault(FaultKind::MissingExport, &format!("it does not implement `{kind}`")));
        }
        if !self.has(function)
            && let Some(output) = left_out(function, &inputs, numbers, true)
        {
            return Ok(output);
        }
        let Some(cluster) = inputs.cluster else { return self.decide(function, &inputs, None, numbers) };
        let mut kept = std::mem::take(&mut self.rows);
        let rows = kept.of(inputs.request, cluster);
        let mut output = Ok(Output::Numbers);
        if function == Function::Route && self.setup.explain && self.has(Function::Scores) {
            output = self.decide(Function::Scores, &inputs, Some(&rows), numbers);
        }
        let output = output.and_then(|_| self.decide(function, &inputs, Some(&rows), numbers));
        if output.is_err() {
            kept.forget();
        }
        self.rows = kept;
        output
    }

    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        let Some(observe) = self.library.table.functions.observe else { return Ok(()) };
        let row = event_row(event);
        self.during("observe", NativeCallInput::item(event.request.0.into()), |host, state| {
            // SAFETY: the header gives the function this type; all pointers live until it returns.
            unsafe { observe(host, state, &raw const row) };
        })
    }

    fn save(&mut self) -> Result<Vec<u8>, Fault> {
        let (save, most) = (self.library.functions.save, self.setup.limits.state_bytes);
        let mut state = vec![0; 256.min(most)];
        // One call returns the size of the state, a second one is needed if the state exceeds the first buffer.
        for _ in 0..2 {
            let (buffer, capacity) = (state.as_mut_ptr(), state.len());
            let needed = self.during("save", NativeCallInput::item(NO_REQUEST), |host, own| {
                // SAFETY: the header gives the function this type; all pointers live until it returns.
                unsafe { save(host, own, buffer, capacity) }
            })?;
            if needed > most {
                let what = format!("save needs {needed} bytes; a state may have {most}: keep less in it");
                return Err(self.library.fault(FaultKind::OutOfMemory, &what));
            }
            state.resize(needed, 0);
            if needed <= capacity {
                return Ok(state);
            }
        }
        Err(self
            .library
            .fault(FaultKind::OutOfRange, "save needed more bytes at its second call; it must change nothing"))
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), Fault> {
        self.rows.forget();
        let restore = self.library.functions.restore;
        let done = self.during("restore", NativeCallInput::item(NO_REQUEST), |host, own| {
            // SAFETY: the header gives the function this type; all pointers live until it returns.
            unsafe { restore(host, own, state.as_ptr(), state.len()) }
        })?;
        if done == 0 {
            return Err(self.library.fault(FaultKind::Refused, "restore refused this state"));
        }
        Ok(())
    }

    fn fork(&mut self) -> Result<Box<dyn Guest>, Fault> {
        let state = self.save()?;
        let mut copy = Self::start(Arc::clone(&self.library), &self.setup)?;
        copy.restore(&state)?;
        Ok(Box::new(copy))
    }
}
