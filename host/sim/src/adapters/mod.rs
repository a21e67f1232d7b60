//! LoRA adapters: what an instance may load, and what that costs.
//!
//! A request may name an adapter ([`Tags::adapter`](crate::request::Tags::adapter)): small matrices beside the weights of
//! the model, which the step multiplies with the tokens of that request. An instance has room for some of them on its GPU
//! (slots), and keeps more in the memory of its host.
//!
//! In vLLM a request enters the batch only if its adapter is that of a running request or a slot is free of running ones;
//! otherwise it is passed over. The step that introduces an adapter begins with loading it. BLIS loads one adapter at a
//! time between steps, for the head of the queue, which holds back all requests behind it
//! ([`Semantics::adapters_load_ahead`](crate::semantics::Semantics::adapters_load_ahead)).

mod ranked;
mod slots;

use crate::policy::AdapterSlotUse;
use crate::request::Name;
use crate::units::Micros;

pub(crate) use slots::{AdapterGate, AdapterSlots};

/// The adapters that instances may load, and the room for them. All instances share it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdapterSettings {
    /// The costs of each adapter, by the index of its name; `None` for names of anything else.
    costs: Box<[Option<AdapterCosts>]>,
    /// Adapters that fit the GPU (vLLM `max_loras`), ≥ 1.
    slots: u32,
    /// Adapters that fit the host's memory (vLLM `max_cpu_loras`), at least as many.
    host_slots: u32,
}

/// What one adapter costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdapterCosts {
    /// The rank of its matrices. A batch has the overhead of its largest rank.
    pub rank: u32,
    /// Time to load it from disk into a slot.
    pub from_disk: Micros,
    /// Time to copy it from the host's memory into a slot.
    pub from_host: Micros,
    /// Share by which each distinct adapter of a batch lengthens the step, if this one has the largest rank; ≥ 0.
    pub overhead: f64,
}

impl AdapterSettings {
    /// Room for `slots` adapters on the GPU, at least one, and for `host_slots` in the host's memory, raised to `slots`.
    #[must_use]
    pub fn new(slots: u32, host_slots: u32, adapters: impl IntoIterator<Item = (Name, AdapterCosts)>) -> Self {
        let mut costs = Vec::new();
        for (name, adapter) in adapters {
            if name != Name::NONE {
                costs.resize(costs.len().max(name.index() + 1), None);
                costs[name.index()] = Some(adapter);
            }
        }
        let slots = slots.max(1);
        Self { costs: costs.into(), slots, host_slots: host_slots.max(slots) }
    }

    /// The costs of the adapter `name`; `None` for requests of the base model.
    #[inline]
    #[must_use]
    pub fn costs(&self, name: Name) -> Option<&AdapterCosts> {
        self.costs.get(name.index())?.as_ref()
    }

    /// Adapters that fit the GPU.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }
}

/// The adapters of the requests of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct AdapterMix {
    /// Number of distinct adapters.
    pub distinct: u32,
    rank: u32,
    /// [`AdapterCosts::overhead`] of the largest rank; the largest of them, so that the order does not matter.
    overhead: f64,
}

impl AdapterMix {
    fn add(&mut self, costs: &AdapterCosts) {
        self.distinct += 1;
        if (costs.rank, costs.overhead) > (self.rank, self.overhead) {
            (self.rank, self.overhead) = (costs.rank, costs.overhead);
        }
    }

    /// The factor by which they lengthen a step: 1 + overhead · distinct adapters.
    ///
    /// Source: BLIS f90a1e3a, `engine.md` §8.2, there k6/k7 · A; a linear overhead in the number of distinct adapters is also
    /// what the digital twin of vLLM's adapter serving measured (arXiv 2508.08343).
    pub fn factor(&self) -> f64 {
        1.0 + self.overhead * f64::from(self.distinct)
    }
}

/// The duration of a step of which the adapters lengthen it by `factor`, truncated as in BLIS.
#[inline]
pub(crate) fn lengthened(step: Micros, factor: f64) -> Micros {
    if factor == 1.0 { step } else { Micros::from_f64(step.0 as f64 * factor).max(Micros(1)) }
}

/// The adapters of an instance as it reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdapterReport {
    /// Adapters that a request can use at once: those of running requests (vLLM's `running_lora_adapters`); in BLIS those
    /// that are loaded, the least recently used first.
    pub active: Vec<Name>,
    /// Adapters of waiting requests, each once, in the order of the queue (vLLM's `waiting_lora_adapters`).
    pub waiting: Vec<Name>,
    /// Adapters that fit the GPU (vLLM's `max_lora`); 0 without adapters.
    pub slots: u32,
    /// Which of them `active` lists.
    pub slots_in_use: AdapterSlotUse,
}

impl AdapterReport {
    /// Slots that are left: in vLLM by the adapters of running and waiting requests, in BLIS by those loaded.
    #[must_use]
    pub fn free_slots(&self) -> u32 {
        let waiting = if self.slots_in_use == AdapterSlotUse::Requested { self.waiting.len() } else { 0 };
        self.slots.saturating_sub(u32::try_from(self.active.len() + waiting).unwrap_or(u32::MAX))
    }

    /// Adds the adapter of a waiting request.
    pub(crate) fn waits(&mut self, adapter: Name) {
        if adapter != Name::NONE && !self.waiting.contains(&adapter) {
            self.waiting.push(adapter);
        }
    }
}
