//! The adapters that one instance holds.

use std::sync::Arc;

use super::ranked::{AdapterChoice, RankedAdapters};
use super::{AdapterCosts, AdapterMix, AdapterReport, AdapterSettings};
use crate::ids::RequestId;
use crate::outcome::AdapterChange;
use crate::policy::AdapterSlotUse;
use crate::policy::kv_cache::{CacheTier, KvCachePolicy};
use crate::request::{Name, Request};
use crate::units::Micros;

/// The adapters on the GPU and in the host's memory of one instance. Both engines use it.
#[derive(Clone, Debug)]
pub(crate) struct AdapterSlots {
    settings: Arc<AdapterSettings>,
    /// [`Semantics::adapters_load_ahead`](crate::semantics::Semantics::adapters_load_ahead).
    load_ahead: bool,
    /// The adapters in the host's memory, the least recently used first. Those on the GPU are among them.
    held: Vec<HeldAdapter>,
    /// Number of adapters on the GPU.
    on_gpu: u32,
    /// Number of adapters of running requests.
    in_use: u32,
    /// An adapter that is being loaded between steps, and when it is loaded.
    loading: Option<(Micros, Name)>,
    /// Which adapter makes room; `None`: the least recently used one.
    ranked: Option<Box<RankedAdapters>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeldAdapter {
    name: Name,
    on_gpu: bool,
    /// Requests in the batch that use it.
    running: u32,
    /// Requests that keep it from being evicted: those in the batch; in BLIS all that were in the batch and have not ended.
    pins: u32,
}

/// Whether a waiting request may enter the batch, as far as its adapter is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdapterGate {
    Open,
    /// It waits, and requests behind it may pass.
    Skip,
    /// It waits, and so do all requests behind it.
    Block,
}

impl AdapterSlots {
    /// Empty slots. Without a `policy` the least recently used adapter makes room, as in vLLM, and with `load_ahead`, as in BLIS, always.
    pub fn new(settings: Arc<AdapterSettings>, load_ahead: bool, policy: Option<Box<dyn KvCachePolicy>>) -> Self {
        let ranked = policy.filter(|_| !load_ahead).map(|policy| Box::new(RankedAdapters::new(policy)));
        Self { settings, load_ahead, held: Vec::new(), on_gpu: 0, in_use: 0, loading: None, ranked }
    }

    /// Whether a waiting request with `adapter` may enter the batch.
    pub fn gate(&self, adapter: Name) -> AdapterGate {
        if self.settings.costs(adapter).is_none() {
            return AdapterGate::Open;
        }
        let held = self.find(adapter).map(|index| &self.held[index]);
        match (self.load_ahead, held) {
            (true, Some(_)) => AdapterGate::Open,
            (true, None) => AdapterGate::Block,
            (false, Some(held)) if held.running > 0 => AdapterGate::Open,
            (false, _) if self.in_use < self.settings.slots => AdapterGate::Open,
            (false, _) => AdapterGate::Skip,
        }
    }

    /// `request`, for which the gate is open, enters the batch at `now`, `again` if it was there before. Returns the
    /// time that its step spends on loading. `report` receives the changes.
    pub fn enter(
        &mut self,
        request: &Request,
        now: Micros,
        again: bool,
        report: impl FnMut(Name, AdapterChange),
    ) -> Micros {
        let adapter = request.tags.adapter;
        if let Some(ranked) = &mut self.ranked {
            ranked.clear_choices();
        }
        let Some(&costs) = self.settings.costs(adapter) else { return Micros::ZERO };
        let loading = if self.load_ahead { Micros::ZERO } else { self.load(now, request, &costs, report) };
        if let Some(ranked) = &mut self.ranked {
            ranked.used(request, now);
        }
        let index = self.touch(adapter);
        let pins = !(self.load_ahead && again);
        let held = &mut self.held[index];
        held.pins += u32::from(pins);
        held.running += 1;
        self.in_use += u32::from(held.running == 1);
        loading
    }

    /// Decides in advance that `adapter` makes room when request `id` next needs some in `tier`, if it can then. Without a policy
    /// it has no effect.
    pub fn force_eviction(&mut self, id: RequestId, tier: CacheTier, adapter: Name) {
        if let Some(ranked) = &mut self.ranked {
            ranked.force(id, tier, adapter);
        }
    }

    /// The choices of a policy for the request that entered last.
    pub fn choices(&self) -> &[AdapterChoice] {
        self.ranked.as_ref().map_or(&[], |ranked| ranked.choices())
    }

    /// A request with `adapter` leaves the batch, and the instance too if it has `ended`.
    pub fn leave(&mut self, adapter: Name, ended: bool) {
        if self.settings.costs(adapter).is_none() {
            return;
        }
        // vLLM uses every adapter of the batch in each step, so that it was used last now; BLIS notes only the entry.
        let index = if self.load_ahead { self.find(adapter).expect("it is pinned") } else { self.touch(adapter) };
        let held = &mut self.held[index];
        held.running -= 1;
        held.pins -= u32::from(ended || !self.load_ahead);
        self.in_use -= u32::from(held.running == 0);
    }

    /// A waiting request with `adapter` ended; it `entered` the batch before and was preempted.
    pub fn end_waiting(&mut self, adapter: Name, entered: bool) {
        if entered
            && self.load_ahead
            && let Some(index) = self.find(adapter)
        {
            self.held[index].pins -= 1;
        }
    }

    /// Whether [`Self::start_load`] would start a load for `head`, the adapter of the head of the queue.
    pub fn would_load(&self, head: Name) -> bool {
        let is_absent = || self.settings.costs(head).is_some() && self.find(head).is_none();
        let has_room = || self.on_gpu < self.settings.slots || self.held.iter().any(|held| held.pins == 0);
        self.load_ahead && self.loading.is_none() && is_absent() && has_room()
    }

    /// Starts to load `head`, the adapter of the head of the queue, if it is absent, nothing is being loaded and an adapter
    /// can make room.
    pub fn start_load(&mut self, now: Micros, head: Name, mut report: impl FnMut(Name, AdapterChange)) {
        if !self.would_load(head) {
            return;
        }
        if self.on_gpu == self.settings.slots
            && let Some(index) = self.held.iter().position(|held| held.pins == 0)
        {
            self.on_gpu -= 1;
            report(self.held.remove(index).name, AdapterChange::Evicted);
        }
        if let Some(costs) = self.settings.costs(head) {
            self.loading = Some((now.saturating_add(costs.from_disk), head));
        }
    }

    /// When the adapter that is being loaded between steps is loaded.
    pub fn loaded_at(&self) -> Option<Micros> {
        self.loading.map(|(at, _)| at)
    }

    /// The adapter that is being loaded between steps is loaded.
    pub fn finish_load(&mut self, mut report: impl FnMut(Name, AdapterChange)) {
        if let Some((_, name)) = self.loading.take() {
            self.held.push(HeldAdapter { name, on_gpu: true, running: 0, pins: 0 });
            self.on_gpu += 1;
            report(name, AdapterChange::LoadedFromDisk);
        }
    }

    /// The adapters of all requests in the batch.
    pub fn mix_of_batch(&self) -> AdapterMix {
        let mut mix = AdapterMix::default();
        if self.in_use > 0 {
            let used = self.held.iter().filter(|held| held.running > 0);
            used.filter_map(|held| self.settings.costs(held.name)).for_each(|costs| mix.add(costs));
        }
        mix
    }

    /// The distinct ones among `adapters`.
    pub fn mix_of(&self, adapters: impl Iterator<Item = Name>) -> AdapterMix {
        let (mut mix, mut seen) = (AdapterMix::default(), Vec::new());
        for adapter in adapters {
            if let Some(costs) = self.settings.costs(adapter)
                && !seen.contains(&adapter)
            {
                seen.push(adapter);
                mix.add(costs);
            }
        }
        mix
    }

    /// Checks that no more adapters are held than fit, that those of running requests are on the GPU, and that each of the
    /// requests with the adapters `pinning` has one pin.
    pub fn check(&self, pinning: impl Iterator<Item = Name>) {
        let pins: u32 = self.held.iter().map(|held| held.pins).sum();
        let requests = pinning.filter(|&adapter| self.settings.costs(adapter).is_some()).count();
        assert_eq!(pins as usize, requests, "pins of adapters, and requests that hold one");
        let on_gpu = self.held.iter().filter(|held| held.on_gpu).count() + usize::from(self.loading.is_some());
        assert!(on_gpu <= self.settings.slots as usize, "{on_gpu} adapters on the GPU");
        assert!(self.held.len() <= self.settings.host_slots as usize, "{} adapters held", self.held.len());
        let used = self.held.iter().filter(|held| held.running > 0);
        assert_eq!(used.clone().count(), self.in_use as usize, "adapters of running requests");
        assert!(
            used.clone().all(|held| held.on_gpu && held.pins >= held.running),
            "a request runs without its adapter"
        );
    }

    /// What the instance reports, without the adapters of waiting requests.
    pub fn report(&self, report: &mut AdapterReport) {
        let active = self.held.iter().filter(|held| if self.load_ahead { held.on_gpu } else { held.running > 0 });
        report.active.extend(active.map(|held| held.name));
        report.slots = self.settings.slots;
        report.slots_in_use = if self.load_ahead { AdapterSlotUse::Loaded } else { AdapterSlotUse::Requested };
    }

    /// Loads the adapter of `request` into a slot, if it is not in one. Returns the time that it takes.
    fn load(
        &mut self,
        now: Micros,
        request: &Request,
        costs: &AdapterCosts,
        mut report: impl FnMut(Name, AdapterChange),
    ) -> Micros {
        let adapter = request.tags.adapter;
        let found = self.find(adapter);
        if found.is_some_and(|index| self.held[index].on_gpu) {
            return Micros::ZERO;
        }
        if found.is_none() {
            if self.held.len() >= self.settings.host_slots as usize {
                self.forget(now, request.id, &mut report);
            }
            self.held.push(HeldAdapter { name: adapter, on_gpu: false, running: 0, pins: 0 });
        }
        if self.on_gpu == self.settings.slots {
            self.free_slot(now, request.id, &mut report);
        }
        let index = self.find(adapter).expect("it is held");
        self.held[index].on_gpu = true;
        self.on_gpu += 1;
        let (change, time) = match found {
            Some(_) => (AdapterChange::LoadedFromHost, costs.from_host),
            None => (AdapterChange::LoadedFromDisk, costs.from_disk),
        };
        report(adapter, change);
        time
    }

    /// Removes an adapter without a running request from the host's memory, and from its slot.
    fn forget(&mut self, now: Micros, id: RequestId, report: &mut impl FnMut(Name, AdapterChange)) {
        let chosen = self.choose(now, id, CacheTier::AdapterMemory);
        let forgotten = self.held.remove(chosen);
        if let Some(ranked) = &mut self.ranked {
            ranked.forget(forgotten.name);
        }
        if forgotten.on_gpu {
            self.on_gpu -= 1;
            report(forgotten.name, AdapterChange::Evicted);
        }
    }

    /// Frees the slot of an adapter without a running request.
    fn free_slot(&mut self, now: Micros, id: RequestId, report: &mut impl FnMut(Name, AdapterChange)) {
        let chosen = self.choose(now, id, CacheTier::AdapterSlots);
        let freed = &mut self.held[chosen];
        freed.on_gpu = false;
        self.on_gpu -= 1;
        report(freed.name, AdapterChange::Evicted);
    }

    /// The index of the adapter in `tier` that makes room: of those without a running request the least recently used one, or the one
    /// that the policy chooses.
    fn choose(&mut self, now: Micros, id: RequestId, tier: CacheTier) -> usize {
        let may_go = |held: &HeldAdapter| held.pins == 0 && (held.on_gpu || tier != CacheTier::AdapterSlots);
        let oldest = self.held.iter().position(may_go).expect("fewer adapters run than there are slots");
        let Some(ranked) = &mut self.ranked else { return oldest };
        let candidates = || self.held.iter().enumerate().filter(|(_, held)| may_go(held));
        let names: Vec<Name> = candidates().map(|(_, held)| held.name).collect();
        let chosen = ranked.choose(now, id, tier, names);
        candidates().nth(chosen).map_or(oldest, |(index, _)| index)
    }

    /// Makes `adapter` the most recently used one. Returns its index.
    fn touch(&mut self, adapter: Name) -> usize {
        let index = self.find(adapter).expect("the adapter of a running request is held");
        let held = self.held.remove(index);
        self.held.push(held);
        self.held.len() - 1
    }

    fn find(&self, adapter: Name) -> Option<usize> {
        self.held.iter().position(|held| held.name == adapter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::kv_cache::{LeastRecent, Lfu, WorkloadAware};

    const COSTS: AdapterCosts = AdapterCosts { rank: 8, from_disk: Micros(100), from_host: Micros(10), overhead: 0.02 };

    fn slots(slots: u32, host_slots: u32, load_ahead: bool) -> AdapterSlots {
        let settings = AdapterSettings::new(slots, host_slots, (1..=5).map(|name| (Name(name), COSTS)));
        AdapterSlots::new(Arc::new(settings), load_ahead, None)
    }

    fn request(adapter: u32) -> Request {
        let mut request = Request::new(RequestId(0), Micros::ZERO, 1, 1);
        request.tags.adapter = Name(adapter);
        request
    }

    /// What happens when a request with each of these adapters runs alone, one after the other.
    fn in_turn(mut slots: AdapterSlots, adapters: &[u32]) -> (Vec<u64>, Vec<(u32, AdapterChange)>) {
        let (mut changes, mut now) = (Vec::new(), Micros::ZERO);
        let mut run = |&adapter: &u32| {
            now += Micros(1000);
            let took = slots.enter(&request(adapter), now, false, |name, change| changes.push((name.0, change)));
            slots.leave(Name(adapter), true);
            took.0
        };
        let times = adapters.iter().map(&mut run).collect();
        (times, changes)
    }

    #[test]
    fn an_adapter_is_read_once_and_copied_when_it_returns() {
        use AdapterChange::{Evicted, LoadedFromDisk, LoadedFromHost};
        let (times, changes) = in_turn(slots(1, 2, false), &[1, 1, 2, 1, 3, 2]);
        assert_eq!(times, [100, 0, 100, 10, 100, 100], "2 was forgotten when 3 came");
        assert_eq!(
            changes,
            [
                (1, LoadedFromDisk),
                (1, Evicted),
                (2, LoadedFromDisk),
                (2, Evicted),
                (1, LoadedFromHost),
                (1, Evicted),
                (3, LoadedFromDisk),
                (3, Evicted),
                (2, LoadedFromDisk),
            ]
        );
    }

    /// The adapters that lose their slots, of two slots, under `policy`.
    fn evicted(policy: Option<Box<dyn KvCachePolicy>>, adapters: &[u32]) -> Vec<u32> {
        let settings = AdapterSettings::new(2, 5, (1..=5).map(|name| (Name(name), COSTS)));
        let (_, changes) = in_turn(AdapterSlots::new(Arc::new(settings), false, policy), adapters);
        changes.into_iter().filter(|(_, change)| *change == AdapterChange::Evicted).map(|(name, _)| name).collect()
    }

    #[test]
    fn a_policy_decides_which_adapter_makes_room() {
        let order = [1, 1, 2, 3, 2, 3, 1];
        assert_eq!(evicted(None, &order), [1, 2], "least recently used");
        assert_eq!(evicted(Some(Box::new(LeastRecent)), &order), [1, 2]);
        // 1 was used twice when 3 came, 2 once; 3 once when 2 came back; of equal ones the least recently used goes.
        assert_eq!(evicted(Some(Box::new(Lfu)), &order), [2, 3, 1, 2]);
        assert_eq!(evicted(Some(Box::new(WorkloadAware::new(0.05))), &order), [1, 2], "it counts chunks only");
    }

    #[test]
    fn running_adapters_fill_the_slots() {
        let mut slots = slots(2, 2, false);
        for adapter in [1, 2, 1] {
            assert_eq!(slots.gate(Name(adapter)), AdapterGate::Open);
            slots.enter(&request(adapter), Micros::ZERO, false, |_, _| ());
        }
        assert_eq!(slots.gate(Name(3)), AdapterGate::Skip);
        assert_eq!([Name::NONE, Name(1), Name(99)].map(|name| slots.gate(name)), [AdapterGate::Open; 3]);
        assert_eq!(slots.mix_of_batch().factor(), 1.04);
        slots.leave(Name(1), true);
        assert_eq!(slots.gate(Name(3)), AdapterGate::Skip, "another request still uses 1");
        slots.leave(Name(1), false);
        assert_eq!(slots.gate(Name(3)), AdapterGate::Open, "a preempted request leaves the batch");
        assert_eq!(slots.mix_of_batch().distinct, 1);
    }

    #[test]
    fn blis_loads_for_the_head_and_pins_until_the_end() {
        let mut slots = slots(1, 1, true);
        assert_eq!(slots.gate(Name(1)), AdapterGate::Block);
        slots.start_load(Micros(5), Name(1), |_, _| ());
        assert_eq!(slots.loaded_at(), Some(Micros(105)));
        assert!(!slots.would_load(Name(2)), "one at a time");
        slots.finish_load(|name, change| assert_eq!((name, change), (Name(1), AdapterChange::LoadedFromDisk)));
        assert_eq!(slots.enter(&request(1), Micros::ZERO, false, |_, _| ()), Micros::ZERO);
        slots.leave(Name(1), false);
        assert!(!slots.would_load(Name(2)), "a preempted request keeps its adapter");
        slots.end_waiting(Name(1), true);
        let mut evicted = Vec::new();
        slots.start_load(Micros(200), Name(2), |name, change| evicted.push((name, change)));
        assert_eq!(evicted, [(Name(1), AdapterChange::Evicted)]);
    }

    #[test]
    fn the_largest_rank_sets_the_overhead() {
        let larger = AdapterCosts { rank: 32, overhead: 0.06, ..COSTS };
        let settings = AdapterSettings::new(2, 2, [(Name(1), COSTS), (Name(2), larger)]);
        let slots = AdapterSlots::new(Arc::new(settings), false, None);
        let factor = |adapters: &[u32]| slots.mix_of(adapters.iter().map(|&name| Name(name))).factor();
        assert_eq!([factor(&[]), factor(&[0, 7]), factor(&[1, 1])], [1.0, 1.0, 1.02]);
        assert_eq!(factor(&[1, 2, 1, 0]), 1.12);
        assert_eq!(super::super::lengthened(Micros(1001), 1.02), Micros(1021));
    }
}
