//! The cost of a decision: CPU time per call under the same synthetic traffic, of plugins and of built-in policies.

use std::hint::black_box;
use std::time::Duration;

use blis_sim::policy::{Reads, StepMemory};

use blis_config::policy::BuiltIn;
use blis_eval::timer::Timer;
use blis_plugin::check::{setup, ties};
use blis_plugin::inputs::{self, GatewayState, GuestCall, SyntheticService};
use blis_plugin::{Fault, FaultKind, GuestSetup, Kind, Limits, Plugin, StartedGuest};

/// Minimum CPU time of a measurement. It is repeated, and the fastest repetition counts.
const LONG_ENOUGH: Duration = Duration::from_millis(4);
const REPEATS: usize = 5;

/// CPU time of a call, ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// As in a run: between two decisions few signals change, and the policy knows which.
    pub ns: f64,
    /// With a cold cache: every decision is about another service. `None` for decisions that depend neither on the instances nor
    /// on a list of the gateway, for which there is no difference.
    pub cold_ns: Option<f64>,
}

/// The cost of a call of `plugin` as `kind` with `n` instances.
pub(super) fn plugin(plugin: &dyn Plugin, kind: Kind, n: usize, limits: &Limits) -> Result<Cost, Fault> {
    measured(plugin, setup(plugin, kind, n, limits), n, plugin.description().reads)
}

/// The cost of a call of the guest of `setup`. The signals in `reads` change between decisions.
fn measured(plugin: &dyn Plugin, mut setup: GuestSetup, n: usize, reads: Reads) -> Result<Cost, Fault> {
    let kind = setup.kind;
    setup.explain = false;
    let mut guest = plugin.start(&setup)?;
    let (mut scores, mut memory) = (Vec::new(), StepMemory::default());
    // A call that fails must not be measured, so each is tried before.
    inputs::traffic(kind, n).iter().try_for_each(|input| call(&mut guest, input, &mut scores))?;
    let mut failed = None;
    let cost = cost(kind, n, reads, |input| {
        let result = match input {
            CallInput::Cold(input) => call(&mut guest, input, &mut scores),
            CallInput::Service(service) => match &mut guest {
                StartedGuest::Admission(guest) => guest.admit(&service.request(), &service.cluster()).map(drop_black),
                StartedGuest::Routing(guest) => {
                    scores.clear();
                    guest.route(&service.request(), &service.cluster(), &ties(), &mut scores).map(drop_black)
                }
                StartedGuest::RoutingFilter(guest) => {
                    scores.clear();
                    memory.begin();
                    let (request, cluster) = (service.request(), service.cluster());
                    guest.step_filter(&request, &cluster, &ties(), &mut memory, &mut scores).map(drop_black)
                }
                StartedGuest::Saturation(guest) => guest.saturation(&service.cluster()).map(drop_black),
                other => Err(other.mismatch()),
            },
            CallInput::Gateway(state) => match &mut guest {
                StartedGuest::Ceilings(guest) => {
                    scores.clear();
                    state.ceilings(guest.as_mut(), &mut scores).map(drop_black)
                }
                StartedGuest::Fairness(guest) => state.fair_pick(guest.as_mut()).map(drop_black),
                StartedGuest::Eviction(guest) => state.evict(guest.as_mut()).map(drop_black),
                other => Err(other.mismatch()),
            },
        };
        if let Err(fault) = result {
            failed.get_or_insert(fault);
        }
    });
    failed.map_or(Ok(cost), Err)
}

/// The input of a measured call.
enum CallInput<'a> {
    /// Another service in every call.
    Cold(&'a GuestCall),
    /// The same service, as in a run.
    Service(&'a SyntheticService),
    /// The same gateway, as in a run.
    Gateway(&'a GatewayState),
}

/// The cost of `call`, measured over many calls.
fn cost(kind: Kind, n: usize, reads: Reads, mut call: impl FnMut(CallInput<'_>)) -> Cost {
    let traffic = inputs::traffic(kind, n);
    let cold = per_call(traffic.len(), || traffic.iter().for_each(|input| call(CallInput::Cold(input))));
    let reads_gateway = matches!(kind, Kind::Ceilings | Kind::Fairness | Kind::Eviction);
    if !kind.reads_instances() && !reads_gateway {
        return Cost { ns: cold, cold_ns: None };
    }
    const DECISIONS: usize = 256;
    let run = |call: &mut dyn FnMut(CallInput<'_>)| {
        let mut service = SyntheticService::new(n);
        let mut gateway = GatewayState::plausible(n, 0);
        per_call(DECISIONS, || {
            for number in 0..DECISIONS {
                if reads_gateway {
                    gateway.advance(number);
                    call(CallInput::Gateway(&gateway));
                } else {
                    service.advance(reads);
                    call(CallInput::Service(&service));
                }
            }
        })
    };
    let all = run(&mut call);
    let without = run(&mut |input| match input {
        CallInput::Service(service) => drop_black((service.request(), service.cluster())),
        CallInput::Cold(_) | CallInput::Gateway(_) => drop_black(&input),
    });
    Cost { ns: (all - without).max(0.0), cold_ns: Some(cold) }
}

fn call(guest: &mut StartedGuest, input: &GuestCall, scores: &mut Vec<f64>) -> Result<(), Fault> {
    use StartedGuest::{
        Admission, Ceilings, Disaggregation, Drain, Eviction, Fairness, KvCache, Latency, Ordering, Placement,
        Preemption, Priority, Routing, RoutingFilter, Saturation, Scaling, Scheduling,
    };
    match (input, guest) {
        (GuestCall::Admit(scene), Admission(guest)) => guest.admit(&scene.request(), &scene.cluster()).map(drop_black),
        (GuestCall::Route(scene), Routing(guest)) => {
            scores.clear();
            guest.route(&scene.request(), &scene.cluster(), &ties(), scores).map(drop_black)
        }
        (GuestCall::Filter(scene), RoutingFilter(guest)) => {
            scores.clear();
            guest.filter(&scene.request(), &scene.cluster(), &ties(), scores).map(drop_black)
        }
        (GuestCall::Priority(scene), Priority(guest)) => {
            guest.priority(&scene.request(), scene.cluster().now).map(drop_black)
        }
        (GuestCall::Rank(..), Scheduling(guest)) => {
            input.queued().map_or(Ok(()), |queued| guest.rank(&queued).map(drop_black))
        }
        (GuestCall::Victim(batch), Preemption(guest)) => guest.victim(batch).map(drop_black),
        (GuestCall::Step(batch), Latency(guest)) => guest.step_time(batch).map(drop_black),
        (GuestCall::Queueing(tokens), Latency(guest)) => guest.queueing_time(*tokens).map(drop_black),
        (GuestCall::Saturation(scene), Saturation(guest)) => guest.saturation(&scene.cluster()).map(drop_black),
        (GuestCall::Ceilings(state), Ceilings(guest)) => {
            scores.clear();
            state.ceilings(guest.as_mut(), scores).map(drop_black)
        }
        (GuestCall::FairPick(state), Fairness(guest)) => state.fair_pick(guest.as_mut()).map(drop_black),
        (GuestCall::Order(scene, expires), Ordering(guest)) => {
            guest.order(&scene.request(), scene.cluster().now, *expires).map(drop_black)
        }
        (GuestCall::Evict(state), Eviction(guest)) => state.evict(guest.as_mut()).map(drop_black),
        (GuestCall::Scale(state), Scaling(guest)) => {
            scores.clear();
            state.scale(guest.as_mut(), scores).map(drop_black)
        }
        (GuestCall::Drain(state), Drain(guest)) => state.drain(guest.as_mut()).map(drop_black),
        (GuestCall::Placement(state), Placement(guest)) => state.placement(guest.as_mut()).map(drop_black),
        (GuestCall::Keep(state), KvCache(guest)) => {
            scores.clear();
            state.keep(guest.as_mut(), scores).map(drop_black)
        }
        (GuestCall::Store(state), KvCache(guest)) => {
            scores.clear();
            state.store(guest.as_mut(), scores).map(drop_black)
        }
        (GuestCall::Load(state), KvCache(guest)) => state.load(guest.as_mut()).map(drop_black),
        (GuestCall::Disaggregate(state), Disaggregation(guest)) => state.disaggregate(guest.as_mut()).map(drop_black),
        (GuestCall::Observe(event), guest) => guest.observe(event),
        (_, guest) => Err(guest.mismatch()),
    }
}

/// Drops an output that the compiler must not optimize away.
fn drop_black<T>(output: T) {
    black_box(output);
}

/// The built-in policy that plugins of `kind` are compared with; those that scale replicas read more than plugins do.
pub(super) fn built_in_name(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Admission => "tier-shed",
        Kind::Routing => "least-loaded",
        Kind::RoutingFilter => "saturation",
        Kind::Priority => "class",
        Kind::Scheduling => "priority-fcfs",
        Kind::Preemption => "priority",
        Kind::Latency => "blackbox",
        Kind::Saturation => "utilization",
        Kind::Ceilings => "priority-holdback",
        Kind::Fairness => "virtual-token-counter",
        Kind::Ordering => "edf",
        Kind::Eviction => "lowest-priority-newest",
        Kind::Drain => "emptiest",
        Kind::Placement => "best-fit",
        Kind::KvCache => "lfu",
        Kind::Disaggregation => "edpp",
        Kind::Scaling => return None,
    })
}

/// The cost of a call of that built-in policy, if there is one, with the same changes between two decisions.
pub(super) fn built_in(kind: Kind, n: usize, reads: Reads) -> Result<Option<Cost>, Fault> {
    let Some(name) = built_in_name(kind) else { return Ok(None) };
    let Some(row) = BuiltIn::find(kind, name) else {
        return Err(Fault::new(FaultKind::Unreadable, format!("{name}: it is not built in")));
    };
    let (plugin, limits) = (row.load().plugin, Limits::default());
    let mut setup = setup(&*plugin, kind, n, &limits);
    if kind == Kind::Admission {
        // With the defaults of tier-shed most requests are admitted without reading the instances.
        setup.parameters = vec![40.0, 3.0];
    }
    measured(&*plugin, setup, n, reads).map(Some)
}

/// CPU time of one of the `calls` that `round` makes, ns.
fn per_call(calls: usize, mut round: impl FnMut()) -> f64 {
    let mut rounds = 1_u32;
    let mut measure = |rounds: u32| {
        let timer = Timer::of_thread();
        (0..rounds).for_each(|_| round());
        timer.elapsed()
    };
    while rounds < 1 << 20 && measure(rounds) < LONG_ENOUGH {
        rounds *= 2;
    }
    let fastest = (0..REPEATS).map(|_| measure(rounds)).min().unwrap_or_default();
    fastest.as_nanos() as f64 / f64::from(rounds) / calls.max(1) as f64
}
