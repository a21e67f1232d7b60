//! Compiled code of a plugin, from which instances are created, and its description.

use std::sync::Arc;

use blis_sim::policy::{Events, Reads};
use blis_sim::rng::Stream;
use wasmtime::Store;

use super::describe;
use super::fault::PluginPath;
use super::functions::Functions;
use super::host::{HostInputs, WasmHost, WasmLog};
use crate::limits::DESCRIPTION_BYTES;
use crate::{Fault, Limits, PolicyDescription};

/// Compiled code with functions that are called through `F`.
pub(super) struct CompiledPlugin<F: Functions> {
    pub file: PluginPath,
    pub description: PolicyDescription,
    pub code: F::Code,
    pub host_inputs: HostInputs,
}

impl<F: Functions> CompiledPlugin<F> {
    /// Compiles the plugin in `file` to `code` and reads its description.
    pub fn new(file: &PluginPath, code: F::Code, host_inputs: HostInputs, limits: &Limits) -> Result<Self, Fault> {
        let mut compiled = Self { file: file.clone(), description: no_description(), code, host_inputs };
        compiled.describe(limits)?;
        Ok(compiled)
    }

    /// Checks that the functions in `code` have the types that a plugin with this description needs. Their results do not
    /// matter.
    pub fn check_types(
        file: &PluginPath,
        code: F::Code,
        host_inputs: HostInputs,
        description: &PolicyDescription,
        limits: &Limits,
    ) -> Result<(), Fault> {
        let compiled = Self { file: file.clone(), description: description.clone(), code, host_inputs };
        let host = WasmHost::new(file, *limits, &Arc::from([]), Stream::new(0, "check"), WasmLog::default());
        let (mut store, instance) = compiled.instantiate(host, limits)?;
        let _ = F::describe(file, &compiled.code, &mut store, &instance)?;
        for &kind in &description.kinds {
            F::find(file, &compiled.code, &mut store, &instance, kind, description)?;
        }
        Ok(())
    }

    /// Reads the description and checks that the plugin exports the functions that it requires.
    fn describe(&mut self, limits: &Limits) -> Result<(), Fault> {
        let stream = Stream::new(0, "describe");
        let host = WasmHost::new(&self.file, *limits, &Arc::from([]), stream, WasmLog::default());
        let (mut store, instance) = self.instantiate(host, limits)?;
        store.set_hostcall_fuel(DESCRIPTION_BYTES);
        store.set_fuel(limits.fuel_per_call).map_err(|error| self.file.failed("describe", &error, "", limits))?;
        let result = F::describe(&self.file, &self.code, &mut store, &instance)?;
        let wire = result.map_err(|error| self.file.failed("describe", &error, store.data().last_error(), limits))?;
        self.description = describe::checked(&self.file, wire)?;
        for kind in self.description.kinds.clone() {
            F::find(&self.file, &self.code, &mut store, &instance, kind, &self.description)?;
        }
        Ok(())
    }

    /// Creates an instance. Its start function runs under the limits of a call.
    pub fn instantiate(&self, host: WasmHost, limits: &Limits) -> Result<(Store<WasmHost>, F::Instance), Fault> {
        let mut store = Store::new(F::engine(&self.code), host);
        store.limiter(|host| host);
        // Texts and lists come out of the guest's memory, so that size bounds them; lists may overlap there.
        store.set_hostcall_fuel(limits.memory_bytes);
        let instance = store.set_fuel(limits.fuel_per_call).and_then(|()| F::instantiate(&self.code, &mut store));
        match instance {
            Ok(instance) => Ok((store, instance)),
            Err(error) => Err(self.file.failed("start", &error, store.data().last_error(), limits)),
        }
    }
}

/// The description before the guest has returned its own.
fn no_description() -> PolicyDescription {
    PolicyDescription {
        name: String::new(),
        version: String::new(),
        about: String::new(),
        kinds: Vec::new(),
        columns: Vec::new(),
        reads: Reads::NOTHING,
        events: Events::NONE,
        scores: false,
        every_step: false,
        parameters: Vec::new(),
        others: Vec::new(),
    }
}
