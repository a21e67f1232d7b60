//! Compiled code of a plugin, from which instances are created, and its description.

use std::sync::Arc;

use blis_sim::rng::Stream;
use wasmtime::Store;

use super::describe;
use super::fault::PluginPath;
use super::functions::{Functions, LinkedCode};
use super::host::{HostInputs, WasmHost, WasmLog};
use crate::limits::DESCRIPTION_BYTES;
use crate::{Fault, Limits, PolicyDescription};

/// Compiled code with functions that are called through `F`.
pub(super) struct CompiledPlugin<F: Functions> {
    pub file: PluginPath,
    pub description: PolicyDescription,
    pub code: LinkedCode<F::Pre>,
    pub host_inputs: HostInputs,
}

impl<F: Functions> CompiledPlugin<F> {
    /// The plugin in `file`, compiled to `code`: reads its description and checks that it exports the functions that this requires.
    pub fn new(
        file: &PluginPath,
        code: LinkedCode<F::Pre>,
        host_inputs: HostInputs,
        limits: &Limits,
    ) -> Result<Self, Fault> {
        let (mut store, instance) = instantiate::<F>(file, &code, without_names(file, limits, "describe"), limits)?;
        store.set_hostcall_fuel(DESCRIPTION_BYTES);
        store.set_fuel(limits.fuel_per_call).map_err(|error| file.failed("describe", &error, "", limits))?;
        let mut exports = code.exports(file, &mut store, &instance);
        let result = F::describe(&mut exports)?;
        let wire =
            result.map_err(|error| file.failed("describe", &error, exports.store.data().last_error(), limits))?;
        let description = describe::checked(file, wire)?;
        for &kind in &description.kinds {
            F::find(&mut exports, kind, &description)?;
        }
        Ok(Self { file: file.clone(), description, code, host_inputs })
    }

    /// Creates an instance. Its start function runs under the limits of a call.
    pub fn instantiate(&self, host: WasmHost, limits: &Limits) -> Result<(Store<WasmHost>, F::Instance), Fault> {
        instantiate::<F>(&self.file, &self.code, host, limits)
    }
}

/// Checks that the functions in `code` have the types that a plugin with this description needs. Their results do not matter.
pub(super) fn check_types<F: Functions>(
    file: &PluginPath,
    code: &LinkedCode<F::Pre>,
    description: &PolicyDescription,
    limits: &Limits,
) -> Result<(), Fault> {
    let (mut store, instance) = instantiate::<F>(file, code, without_names(file, limits, "check"), limits)?;
    let mut exports = code.exports(file, &mut store, &instance);
    let _ = F::describe(&mut exports)?;
    for &kind in &description.kinds {
        F::find(&mut exports, kind, description)?;
    }
    Ok(())
}

/// The host of an instance that decides nothing.
fn without_names(file: &PluginPath, limits: &Limits, stream: &str) -> WasmHost {
    WasmHost::new(file, *limits, &Arc::from([]), Stream::new(0, stream), WasmLog::default())
}

fn instantiate<F: Functions>(
    file: &PluginPath,
    code: &LinkedCode<F::Pre>,
    host: WasmHost,
    limits: &Limits,
) -> Result<(Store<WasmHost>, F::Instance), Fault> {
    let mut store = Store::new(F::engine(&code.pre), host);
    store.limiter(|host| host);
    // Texts and lists come out of the guest's memory, so that size bounds them; lists may overlap there.
    store.set_hostcall_fuel(limits.memory_bytes);
    let instance = store.set_fuel(limits.fuel_per_call).and_then(|()| F::instantiate(&code.pre, &mut store));
    match instance {
        Ok(instance) => Ok((store, instance)),
        Err(error) => Err(file.failed("start", &error, store.data().last_error(), limits)),
    }
}
