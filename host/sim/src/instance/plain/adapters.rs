//! The LoRA adapters of the reference engine.

use super::{Plain, PlainRequest};
use crate::adapters::AdapterMix;
use crate::observer::Observer;
use crate::request::Name;
use crate::units::Micros;

impl Plain {
    /// Starts to load the adapter of the head of the queue, if adapters are loaded between steps.
    pub(super) fn load_for_head(&mut self, now: Micros, observer: &mut impl Observer) {
        let head = self.waiting.first_key_value().map_or(Name::NONE, |(_, live)| live.request.tags.adapter);
        if let Some(slots) = &mut self.adapters {
            slots.start_load(now, head, self.config.adapter_changes(now, observer));
        }
    }

    /// When the adapter that is being loaded between steps is loaded.
    pub(super) fn adapter_loaded_at(&self) -> Option<Micros> {
        self.adapters.as_ref()?.loaded_at()
    }

    /// The adapter that was being loaded between steps is loaded: its requests can be scheduled.
    pub(super) fn adapter_loaded(&mut self, now: Micros, observer: &mut impl Observer) {
        if let Some(slots) = &mut self.adapters {
            slots.finish_load(self.config.adapter_changes(now, observer));
        }
        if !(self.running.is_empty() && self.waiting.is_empty()) {
            self.step_at.get_or_insert(self.config.wakes_at(now, self.left_at));
        }
    }

    /// The adapters of the requests that are scheduled in the present step.
    pub(super) fn adapters_of_step(&self) -> AdapterMix {
        let scheduled = self.running.iter().filter(|live| live.num_new > 0);
        let adapters = scheduled.map(|live| live.request.tags.adapter);
        self.adapters.as_ref().map_or_else(AdapterMix::default, |slots| slots.mix_of(adapters))
    }

    /// `live` ends, which was waiting.
    pub(super) fn leaves_queue(&mut self, live: &PlainRequest) {
        if let Some(slots) = &mut self.adapters {
            slots.end_waiting(live.request.tags.adapter, live.scheduling_delay.is_some());
        }
    }

    pub(super) fn leaves_batch(&mut self, adapter: Name, ended: bool) {
        if let Some(slots) = &mut self.adapters {
            slots.leave(adapter, ended);
        }
    }
}
