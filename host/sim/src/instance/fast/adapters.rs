//! The LoRA adapters of the fast engine.

use super::Fast;
use super::arena::RequestKey;
use super::deadlines::NEVER;
use super::live::RequestState;
use super::plan::StepPlan;
use crate::adapters::{AdapterGate, AdapterMix, AdapterReport, lengthened};
use crate::observer::Observer;
use crate::request::Name;
use crate::units::Micros;

impl Fast {
    /// The adapter of the head of the queue.
    fn head_adapter(&self) -> Name {
        self.waiting.head().map_or(Name::NONE, |(_, head)| self.live[head].request.tags.adapter)
    }

    /// Starts to load the adapter of the head of the queue, if adapters are loaded between steps.
    pub(super) fn load_for_head(&mut self, now: Micros, observer: &mut impl Observer) {
        let head = self.head_adapter();
        if let Some(slots) = &mut self.adapters {
            slots.start_load(now, head, self.config.adapter_changes(now, observer));
            self.next_load = slots.loaded_at().unwrap_or(NEVER);
        }
    }

    /// Whether the next step would start to load an adapter.
    pub(super) fn would_load(&self) -> bool {
        self.adapters.as_ref().is_some_and(|slots| slots.would_load(self.head_adapter()))
    }

    /// The adapter that was being loaded between steps is loaded: its requests can be scheduled.
    pub(super) fn adapter_loaded(&mut self, now: Micros, observer: &mut impl Observer) {
        self.next_load = NEVER;
        self.refused = None;
        if let Some(slots) = &mut self.adapters {
            slots.finish_load(self.config.adapter_changes(now, observer));
        }
        if self.step_at == NEVER && (self.running > 0 || !self.waiting.is_empty()) {
            self.step_at = self.config.wakes_at(now, self.left_at);
        }
    }

    /// Whether the waiting request `key` may enter the batch, as far as its adapter is concerned.
    #[inline]
    pub(super) fn gate(&self, key: RequestKey) -> AdapterGate {
        self.adapters.as_ref().map_or(AdapterGate::Open, |slots| slots.gate(self.live[key].request.tags.adapter))
    }

    /// The request `key` enters the batch, and with it its adapter.
    pub(super) fn enter_adapter(&mut self, key: RequestKey, now: Micros, observer: &mut impl Observer) {
        if let Some(slots) = &mut self.adapters {
            let live = &mut self.live[key];
            self.counters.slot_wait += self.rares.end_slot_wait(live).map_or(Micros::ZERO, |since| now - since);
            let again = live.scheduling_delay().is_some();
            let changes = self.config.adapter_changes(now, observer);
            self.adapter_loading += slots.enter(&live.request, now, again, changes);
            self.config.report_adapter_choices(slots, &live.request, now, observer);
        }
    }

    /// The waiting request `key` ends.
    pub(super) fn leaves_queue(&mut self, key: RequestKey) {
        if let Some(slots) = &mut self.adapters {
            let live = &self.live[key];
            slots.end_waiting(live.request.tags.adapter, live.scheduling_delay().is_some());
            self.refused = None;
        }
    }

    /// The duration of the step of `plan`, which takes `step_time` without its adapters and their loads.
    pub(super) fn with_adapters(&mut self, step_time: Micros, plan: &StepPlan) -> Micros {
        let adapters = self.adapters_of_step(plan);
        self.counters.adapter_uses += u64::from(adapters.distinct);
        lengthened(step_time, adapters.factor()) + std::mem::take(&mut self.adapter_loading)
    }

    /// The adapters of the requests that are scheduled in the step of `plan`.
    fn adapters_of_step(&self, plan: &StepPlan) -> AdapterMix {
        let Some(slots) = &self.adapters else { return AdapterMix::default() };
        let scheduled = |key: &RequestKey| match self.live[*key].state {
            RequestState::Prefilling => self.live[*key].num_new > 0,
            RequestState::Decoding => !plan.left_out.contains(key),
            RequestState::Draining | RequestState::Waiting | RequestState::Loading => false,
        };
        let adapters = self.order.iter().filter(scheduled).map(|key| self.live[key].request.tags.adapter);
        slots.mix_of(adapters)
    }

    pub(super) fn report_adapters(&self, report: &mut AdapterReport) {
        if let Some(slots) = &self.adapters {
            slots.report(report);
            self.waiting.requests().for_each(|key| report.waits(self.live[key].request.tags.adapter));
        }
    }
}
