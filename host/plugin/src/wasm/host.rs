//! The host functions of a guest (`blis:policy/host`) and its resource limits.

use std::sync::Arc;

use blis_sim::ids::RequestId;
use blis_sim::policy::{RequestView, Ties};
use blis_sim::rng::{Generator, Stream};
use rand::Rng as _;
use wasmtime::component::{Linker, WasmStr};
use wasmtime::{ResourceLimiter, StoreContextMut, Trap};

use super::fault::{LimitExceeded, PluginPath};
use super::memory::GuestMemory;
use crate::Limits;
use crate::limits::{COMPONENT_PARTS, HOST_CALL_FUEL, LOG_CALL_FUEL, TABLE_ELEMENTS};
use crate::text::plain;

/// The data behind the host functions of one guest.
pub(super) struct WasmHost {
    file: PluginPath,
    limits: Limits,
    names: Arc<[Box<str>]>,
    stream: Stream,
    memory_bytes: usize,
    table_elements: usize,
    log: WasmLog,
    call: WasmCall,
    /// The guest's memory, where `direct.rs` writes the results of host functions.
    pub(super) memory: Option<GuestMemory>,
}

/// Number of lines that a guest has logged, over all its instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WasmLog {
    pub lines: u32,
    pub dropped: u64,
}

/// The call in progress.
#[derive(Default)]
struct WasmCall {
    request: RequestId,
    ties: Option<Ties>,
    /// Blocks of the prompt, if the guest imports that function.
    blocks: Vec<u32>,
    /// Rows that may differ from those of the previous call, if the guest imports that function; `None` if any may.
    changed: Option<Vec<u32>>,
    generator: Option<Generator>,
    /// The last error that the guest logged.
    last_error: String,
}

/// The input of a call as far as host functions need it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WasmCallInput<'a> {
    /// Number of the request; 0 if there is none.
    pub id: RequestId,
    /// The request, if the policy may read its prompt blocks.
    pub request: Option<&'a RequestView<'a>>,
    /// The tie-breaking rule for `pick`.
    pub ties: Option<&'a Ties>,
    /// Indices of the rows that may differ from those of the previous call; `None` if any may.
    pub changed: Option<&'a [u32]>,
}

/// Data that must be prepared before each call because the guest imports the function that returns it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostInputs {
    pub blocks: bool,
    pub changed: bool,
}

impl HostInputs {
    /// The data needed by a guest that imports `functions` of `host`.
    pub(super) fn of<'a>(functions: impl Iterator<Item = &'a str>) -> Self {
        let mut inputs = Self::default();
        for function in functions {
            inputs.blocks |= function == "prompt-blocks";
            inputs.changed |= function == "changed";
        }
        inputs
    }
}

impl WasmHost {
    pub(super) fn new(
        file: &PluginPath,
        limits: Limits,
        names: &Arc<[Box<str>]>,
        stream: Stream,
        log: WasmLog,
    ) -> Self {
        Self {
            file: file.clone(),
            limits,
            names: Arc::clone(names),
            stream,
            memory_bytes: 0,
            table_elements: 0,
            log,
            call: WasmCall::default(),
            memory: None,
        }
    }

    /// Begins a call: stores its input and resets its state.
    #[inline]
    pub(super) fn begin(&mut self, about: &WasmCallInput<'_>, inputs: HostInputs) {
        let call = &mut self.call;
        call.request = about.id;
        call.ties = about.ties.copied();
        call.generator = None;
        call.last_error.clear();
        if inputs.blocks {
            call.blocks.clear();
            call.blocks.extend(about.request.iter().flat_map(|request| request.shared_blocks()));
        }
        if inputs.changed {
            match (about.changed, &mut call.changed) {
                (Some(indices), Some(kept)) => {
                    kept.clear();
                    kept.extend_from_slice(indices);
                }
                (indices, kept) => *kept = indices.map(<[u32]>::to_vec),
            }
        }
    }

    pub(super) fn log(&self) -> WasmLog {
        self.log
    }

    /// The last error that the guest logged in this call; empty if none.
    pub(super) fn last_error(&self) -> &str {
        &self.call.last_error
    }

    fn write(&mut self, level: u32, text: &str) {
        let text = plain(text, self.limits.message_bytes);
        let file = &self.file;
        match level {
            0 => tracing::error!("{file}: {text}"),
            1 => tracing::warn!("{file}: {text}"),
            2 => tracing::info!("{file}: {text}"),
            _ => tracing::debug!("{file}: {text}"),
        }
        if level == 0 {
            self.call.last_error = text;
        }
        self.log.lines += 1;
    }
}

// The host functions themselves, independent of the way in which they are linked.

pub(super) fn log(
    mut store: StoreContextMut<'_, WasmHost>,
    level: u32,
    text: impl FnOnce(&mut StoreContextMut<'_, WasmHost>) -> wasmtime::Result<String>,
) -> wasmtime::Result<()> {
    charge(&mut store, LOG_CALL_FUEL)?;
    let host = store.data_mut();
    if host.log.lines >= host.limits.log_lines {
        host.log.dropped += 1;
        return Ok(());
    }
    let text = text(&mut store)?;
    charge(&mut store, text.len() as u64)?;
    store.data_mut().write(level, &text);
    Ok(())
}

pub(super) fn random(mut store: StoreContextMut<'_, WasmHost>) -> wasmtime::Result<u64> {
    charge(&mut store, HOST_CALL_FUEL)?;
    let WasmHost { call, stream, .. } = store.data_mut();
    Ok(call.generator.get_or_insert_with(|| stream.at(u64::from(call.request.0))).next_u64())
}

pub(super) fn pick(mut store: StoreContextMut<'_, WasmHost>, n: u32) -> wasmtime::Result<u32> {
    charge(&mut store, HOST_CALL_FUEL)?;
    let WasmHost { call, stream, .. } = store.data();
    if n == 0 {
        wasmtime::bail!("host.pick(0): there must be something to choose from");
    }
    let index = call.ties.unwrap_or(Ties::Random(*stream)).pick(call.request, n as usize);
    Ok(u32::try_from(index).expect("below n"))
}

pub(super) fn prompt_blocks(store: &mut StoreContextMut<'_, WasmHost>) -> wasmtime::Result<Vec<u32>> {
    let blocks = store.data().call.blocks.clone();
    charge(store, HOST_CALL_FUEL + blocks.len() as u64)?;
    Ok(blocks)
}

pub(super) fn text(store: &mut StoreContextMut<'_, WasmHost>, name: u32) -> wasmtime::Result<String> {
    let text: String = store.data().names.get(name as usize).map_or("", |text| text).to_owned();
    charge(store, HOST_CALL_FUEL + text.len() as u64)?;
    Ok(text)
}

/// The rows that may differ from those of the previous call; `None` if any may.
pub(super) fn changed(store: &mut StoreContextMut<'_, WasmHost>) -> wasmtime::Result<Option<Vec<u32>>> {
    let changed = store.data().call.changed.clone();
    charge(store, HOST_CALL_FUEL + changed.as_ref().map_or(0, |indices| indices.len() as u64))?;
    Ok(changed)
}

/// Links `host` for components that import it as `full_name`.
pub(super) fn link(linker: &mut Linker<WasmHost>, full_name: &str) -> wasmtime::Result<()> {
    let mut host = linker.instance(full_name)?;
    host.func_wrap("log", |store: StoreContextMut<'_, WasmHost>, (level, message): (u32, WasmStr)| {
        log(store, level, |store| Ok(message.to_str(store)?.into_owned()))
    })?;
    host.func_wrap("random", |store: StoreContextMut<'_, WasmHost>, (): ()| Ok((random(store)?,)))?;
    host.func_wrap("pick", |store: StoreContextMut<'_, WasmHost>, (n,): (u32,)| Ok((pick(store, n)?,)))?;
    host.func_wrap("prompt-blocks", |mut store: StoreContextMut<'_, WasmHost>, (): ()| {
        Ok((prompt_blocks(&mut store)?,))
    })?;
    host.func_wrap("text", |mut store: StoreContextMut<'_, WasmHost>, (name,): (u32,)| Ok((text(&mut store, name)?,)))?;
    host.func_wrap("changed", |mut store: StoreContextMut<'_, WasmHost>, (): ()| Ok((changed(&mut store)?,)))
}

fn charge(store: &mut StoreContextMut<'_, WasmHost>, fuel: u64) -> wasmtime::Result<()> {
    let left = store.get_fuel()?.checked_sub(fuel);
    store.set_fuel(left.unwrap_or(0))?;
    if left.is_none() { Err(Trap::OutOfFuel.into()) } else { Ok(()) }
}

/// Counts that what takes `current` of the `held` takes `desired` from now on; false if the guest has declared less itself.
fn grow(
    held: &mut usize,
    current: usize,
    desired: usize,
    max: Option<usize>,
    allowed: usize,
    unit: &'static str,
) -> wasmtime::Result<bool> {
    if max.is_some_and(|max| desired > max) {
        return Ok(false);
    }
    let needed = (*held - current.min(*held)).saturating_add(desired);
    if needed > allowed {
        return Err(LimitExceeded { needed, allowed, unit }.into());
    }
    *held = needed;
    Ok(true)
}

/// A guest can observe a refusal only at the maximum that it declared itself; every other limit ends the call, so that
/// the memory of the machine has no influence on a run.
impl ResourceLimiter for WasmHost {
    fn memory_growing(&mut self, current: usize, desired: usize, max: Option<usize>) -> wasmtime::Result<bool> {
        grow(&mut self.memory_bytes, current, desired, max, self.limits.memory_bytes, "bytes of memory")
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }

    fn table_growing(&mut self, current: usize, desired: usize, max: Option<usize>) -> wasmtime::Result<bool> {
        grow(&mut self.table_elements, current, desired, max, TABLE_ELEMENTS, "elements of tables")
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }

    fn instances(&self) -> usize {
        COMPONENT_PARTS
    }

    fn tables(&self) -> usize {
        COMPONENT_PARTS
    }

    fn memories(&self) -> usize {
        COMPONENT_PARTS
    }
}
