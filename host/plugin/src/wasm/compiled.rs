//! Compiled code of a plugin, from which instances are created, and its description.

use std::sync::Arc;

use blis_sim::policy::{Events, Reads};
use blis_sim::rng::Stream;
use wasmtime::Store;

use super::describe;
use super::fault::File;
use super::functions::Functions;
use super::host::{Host, Log, Wants};
use crate::limits::DESCRIPTION_BYTES;
use crate::{Description, Fault, Limits};

/// Compiled code whose functions are called through `F`.
pub(super) struct Compiled<F: Functions> {
    pub file: File,
    pub description: Description,
    pub code: F::Code,
    pub wants: Wants,
}

impl<F: Functions> Compiled<F> {
    /// Compiles the plugin in `file` to `code` and reads its description.
    pub fn new(file: &File, code: F::Code, wants: Wants, limits: &Limits) -> Result<Self, Fault> {
        let mut compiled = Self { file: file.clone(), description: nothing_yet(), code, wants };
        compiled.describe(limits)?;
        Ok(compiled)
    }

    /// Reads the description and checks that the plugin exports the functions that it requires.
    fn describe(&mut self, limits: &Limits) -> Result<(), Fault> {
        let stream = Stream::new(0, "describe");
        let host = Host::new(&self.file, *limits, &Arc::from([]), stream, Log::default());
        let (mut store, instance) = self.instantiate(host, limits)?;
        store.set_hostcall_fuel(DESCRIPTION_BYTES);
        store.set_fuel(limits.fuel_per_call).map_err(|error| self.file.failed("describe", &error, "", limits))?;
        let answer = F::describe(&self.file, &self.code, &mut store, &instance)?;
        let wire = answer.map_err(|error| self.file.failed("describe", &error, store.data().said(), limits))?;
        self.description = describe::checked(&self.file, wire)?;
        for kind in self.description.kinds.clone() {
            F::find(&self.file, &self.code, &mut store, &instance, kind, self.is_told())?;
        }
        Ok(())
    }

    /// Whether the plugin subscribes to events.
    pub fn is_told(&self) -> bool {
        self.description.events != Events::NONE
    }

    /// Creates an instance. Its start function runs under the limits of a call.
    pub fn instantiate(&self, host: Host, limits: &Limits) -> Result<(Store<Host>, F::Instance), Fault> {
        let mut store = Store::new(F::engine(&self.code), host);
        store.limiter(|host| host);
        // Texts and lists come out of the guest's memory, so that size bounds them; lists may overlap there.
        store.set_hostcall_fuel(limits.memory_bytes);
        let instance = store.set_fuel(limits.fuel_per_call).and_then(|()| F::instantiate(&self.code, &mut store));
        match instance {
            Ok(instance) => Ok((store, instance)),
            Err(error) => Err(self.file.failed("start", &error, store.data().said(), limits)),
        }
    }
}

/// The description before the guest has returned its own.
fn nothing_yet() -> Description {
    Description {
        name: String::new(),
        version: String::new(),
        about: String::new(),
        kinds: Vec::new(),
        reads: Reads::NOTHING,
        events: Events::NONE,
        scores: false,
        every_step: false,
        parameters: Vec::new(),
    }
}
