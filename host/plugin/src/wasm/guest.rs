//! A plugin with a state, as a [`Guest`]: the part that does not depend on the way in which functions are called.

use std::fmt;
use std::sync::Arc;

use blis_abi::Row as _;
use blis_sim::policy::{AdmissionDecision, Event, Reason};
use wasmtime::Store;

use super::compiled::CompiledPlugin;
use super::fault::PluginPath;
use super::functions::{Functions, WasmInputs};
use super::host::{WasmCallInput, WasmHost, WasmLog};
use crate::rows::{AgesRow, InstanceRows, RequestRow, Rows, ages_row, decision_row, event_row, request_row};
use crate::text::plain;
use crate::{Fault, FaultKind, Function, Guest, GuestSetup, Inputs, Kind, Output};

/// An instance that was configured and accepts calls.
struct LiveInstance<F> {
    store: Store<WasmHost>,
    functions: F,
}

/// A guest: the code, the setup, and the instance unless it trapped.
pub(super) struct WasmGuest<F: Functions> {
    plugin: Arc<CompiledPlugin<F>>,
    setup: GuestSetup,
    live: Option<LiveInstance<F>>,
    /// Boxed, because a call takes it out of the guest.
    rows: Option<Box<InstanceRows>>,
    used: u64,
    log: WasmLog,
}

impl<F: Functions> fmt::Debug for WasmGuest<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmGuest").field("file", &self.plugin.file).field("kind", &self.setup.kind).finish()
    }
}

impl<F: Functions> WasmGuest<F> {
    pub(super) fn start(plugin: &Arc<CompiledPlugin<F>>, setup: &GuestSetup) -> Result<Self, Fault> {
        let mut guest = Self {
            plugin: Arc::clone(plugin),
            setup: setup.clone(),
            live: None,
            rows: Some(Box::new(InstanceRows::new(&plugin.description.columns))),
            used: 0,
            log: WasmLog::default(),
        };
        guest.ready()?;
        Ok(guest)
    }

    fn file(&self) -> &PluginPath {
        &self.plugin.file
    }

    /// Creates and configures an instance if there is none.
    #[inline]
    fn ready(&mut self) -> Result<(), Fault> {
        if self.live.is_some() { Ok(()) } else { self.start_instance() }
    }

    #[cold]
    fn start_instance(&mut self) -> Result<(), Fault> {
        self.forget_rows();
        let GuestSetup { kind, names, stream, limits, .. } = &self.setup;
        let (mut store, instance) =
            self.plugin.instantiate(WasmHost::new(self.file(), *limits, names, *stream, self.log), limits)?;
        let CompiledPlugin { file, code, description, .. } = &*self.plugin;
        let functions = F::find(&mut code.exports(file, &mut store, &instance), *kind, description)?;
        self.live = Some(LiveInstance { store, functions });
        self.configure()
    }

    /// At the next decision any row may have changed. A call that starts an instance again has them and does the same.
    fn forget_rows(&mut self) {
        self.rows.iter_mut().for_each(|rows| rows.forget());
    }

    fn configure(&mut self) -> Result<(), Fault> {
        let setup = self.setup.clone();
        let plugin = Arc::clone(&self.plugin);
        let values = setup.values(&plugin.description);
        let configured = self.invoke("configure", &WasmCallInput::default(), |functions, store| {
            functions.configure(store, &setup, &values)
        });
        let configured = configured.and_then(|result| self.accepted("configure", result));
        if configured.is_err() {
            self.live = None;
        }
        configured
    }

    /// Turns an error that the guest returned into a fault.
    fn accepted(&self, function: &str, result: Result<(), String>) -> Result<(), Fault> {
        result.map_err(|text| {
            let text = plain(&text, self.setup.limits.message_bytes);
            self.file().fault(FaultKind::Refused, format_args!("{function}: {text}"))
        })
    }

    /// Calls the function called `name` by `call`. Allocates nothing unless the call fails.
    #[inline]
    fn invoke<A>(
        &mut self,
        name: &str,
        about: &WasmCallInput<'_>,
        call: impl FnOnce(&F, &mut Store<WasmHost>) -> wasmtime::Result<A>,
    ) -> Result<A, Fault> {
        let LiveInstance { store, functions } = self.live.as_mut().expect("made ready before");
        store.data_mut().begin(about, self.plugin.host_inputs);
        let fuel = self.setup.limits.fuel_per_call;
        let result = store.set_fuel(fuel).and_then(|()| call(functions, store));
        self.used = fuel - store.get_fuel().unwrap_or(fuel).min(fuel);
        result.map_err(|error| self.failed(name, &error))
    }

    /// Calls `function`, and before a choice that is to be explained the one that computes its scores.
    #[inline(always)] // it has one caller, and the inputs stay where they are
    fn decide(
        &mut self,
        function: Function,
        about: &WasmCallInput<'_>,
        inputs: &WasmInputs<'_>,
        numbers: &mut Vec<f64>,
    ) -> Result<Output, Fault> {
        let mut used = 0;
        if function == Function::Route && self.setup.explain && self.plugin.description.scores {
            used = self.explain(about, inputs, numbers)?;
        }
        let name = function.row().wit;
        let output = self.invoke(name, about, |functions, store| functions.call(store, function, inputs, numbers));
        self.used += used;
        if function != Function::Admit {
            return output;
        }
        output.map(|output| match output {
            Output::Decision(AdmissionDecision::Reject(Reason::Text(text))) => {
                let text = plain(&text, self.setup.limits.message_bytes);
                Output::Decision(AdmissionDecision::Reject(Reason::Text(text.into())))
            }
            output => output,
        })
    }

    /// Appends the scores of a choice that is to be explained; returns the fuel that it used.
    #[inline(never)]
    fn explain(
        &mut self,
        about: &WasmCallInput<'_>,
        inputs: &WasmInputs<'_>,
        numbers: &mut Vec<f64>,
    ) -> Result<u64, Fault> {
        let scores = Function::Scores;
        self.invoke(scores.row().wit, about, |functions, store| functions.call(store, scores, inputs, numbers))?;
        Ok(self.used)
    }

    /// An instance cannot continue after a trap: the next call creates a new one.
    #[cold]
    fn failed(&mut self, function: &str, error: &wasmtime::Error) -> Fault {
        let live = self.live.take();
        let host = live.as_ref().map(|live| live.store.data());
        self.log = host.map_or(self.log, WasmHost::log);
        self.file().failed(function, error, host.map_or("", WasmHost::last_error), &self.setup.limits)
    }
}

impl<F: Functions> Guest for WasmGuest<F> {
    fn kind(&self) -> Kind {
        self.setup.kind
    }

    fn call(&mut self, function: Function, inputs: Inputs<'_>, numbers: &mut Vec<f64>) -> Result<Output, Fault> {
        if self.setup.kind != function.kind() {
            return Err(Fault::missing(function.kind()));
        }
        if function == Function::Scores && !self.plugin.description.scores {
            return Err(super::inspect::not_exported(self.file(), function.interface()));
        }
        self.ready()?;
        let Inputs { now, about, ties, request, cluster, number, rows, .. } = inputs;
        let mut about = WasmCallInput { id: about.unwrap_or_default(), request, ties, changed: None };
        let mut inputs = WasmInputs {
            request: match (request, cluster) {
                (Some(request), Some(cluster)) => decision_row(request, cluster),
                (Some(request), None) => request_row(request, now, 0),
                (None, _) => RequestRow::ZERO,
            },
            now_us: now.0,
            number,
            rows,
            ages: AgesRow::ZERO,
            instances: Rows::default(),
        };
        let mut kept = cluster.and_then(|_| self.rows.take());
        if let (Some(kept), Some(cluster)) = (&mut kept, cluster) {
            inputs.instances = kept.of(request, cluster);
            inputs.ages = ages_row(cluster.staleness);
            about.changed = inputs.instances.changed;
        }
        let output = self.decide(function, &about, &inputs, numbers);
        if let Some(mut kept) = kept {
            if output.is_err() {
                kept.forget();
            }
            self.rows = Some(kept);
        }
        output
    }

    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        self.ready()?;
        let about = WasmCallInput { id: event.request, ..WasmCallInput::default() };
        let row = event_row(event);
        self.invoke("observe", &about, |functions, store| functions.observe(store, &row))
    }

    fn save(&mut self) -> Result<Vec<u8>, Fault> {
        self.ready()?;
        let state = self.invoke("save", &WasmCallInput::default(), F::save)?;
        let allowed = self.setup.limits.state_bytes;
        if state.len() > allowed {
            let what = format!("save: the state has {} bytes; it may have {allowed}", state.len());
            return Err(self.file().fault(FaultKind::OutOfMemory, what));
        }
        Ok(state)
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), Fault> {
        self.forget_rows();
        self.ready()?;
        let result =
            self.invoke("restore", &WasmCallInput::default(), |functions, store| functions.restore(store, state))?;
        self.accepted("restore", result).inspect_err(|_| self.live = None)
    }

    fn fork(&mut self) -> Result<Box<dyn Guest>, Fault> {
        let state = self.save()?;
        let mut copy = Self::start(&self.plugin, &self.setup)?;
        let started = copy.used;
        copy.restore(&state)?;
        copy.used += started;
        Ok(Box::new(copy))
    }

    fn used(&self) -> Option<u64> {
        Some(self.used)
    }
}

impl<F: Functions> Drop for WasmGuest<F> {
    fn drop(&mut self) {
        let log = self.live.as_ref().map_or(self.log, |live| live.store.data().log());
        if log.dropped > 0 {
            tracing::warn!("{}: {} further lines of its log are left out", self.plugin.file, log.dropped);
        }
    }
}
