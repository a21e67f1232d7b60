//! What a decision costs: CPU time per call over the same made-up traffic, of plugins and of built-ins.

use std::hint::black_box;
use std::time::Duration;

use blis_sim::policy::Reads;

use blis_config::policy::BuiltIn;
use blis_eval::timer::Timer;
use blis_plugin::check::{setup, ties};
use blis_plugin::inputs::{self, GuestCall, SyntheticService};
use blis_plugin::{Fault, FaultKind, GuestSetup, Kind, Limits, Plugin, StartedGuest};

/// A measurement takes at least that much CPU time, and is repeated; the fastest counts.
const LONG_ENOUGH: Duration = Duration::from_millis(4);
const REPEATS: usize = 5;

/// Of a call, ns of CPU time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// As in a run: between two decisions few signals change, and which is known.
    pub ns: f64,
    /// About services that were not looked at lately, of which nothing is known; `None` for decisions that
    /// do not see the instances, for which there is no difference.
    pub cold_ns: Option<f64>,
}

/// Of a call of `plugin` as `kind` about `n` instances.
pub(super) fn plugin(plugin: &dyn Plugin, kind: Kind, n: usize, limits: &Limits) -> Result<Cost, Fault> {
    measured(plugin, setup(plugin, kind, n, limits), n, plugin.description().reads)
}

/// Of a call of the guest that `setup` says; of the signals, `reads` change.
fn measured(plugin: &dyn Plugin, mut setup: GuestSetup, n: usize, reads: Reads) -> Result<Cost, Fault> {
    let kind = setup.kind;
    setup.explain = false;
    let mut guest = plugin.start(&setup)?;
    let mut scores = Vec::new();
    // A call that fails is no measurement: found beforehand.
    inputs::traffic(kind, n).iter().try_for_each(|question| call(&mut guest, question, &mut scores))?;
    let mut failed = None;
    let cost = cost(kind, n, reads, |asked| {
        let answer = match asked {
            Asked::Question(question) => call(&mut guest, question, &mut scores),
            Asked::Service(service) => match &mut guest {
                StartedGuest::Admission(guest) => guest.admit(&service.request(), &service.cluster()).map(drop_black),
                StartedGuest::Routing(guest) => {
                    scores.clear();
                    guest.route(&service.request(), &service.cluster(), &ties(), &mut scores).map(drop_black)
                }
                other => Err(other.mismatch()),
            },
        };
        if let Err(fault) = answer {
            failed.get_or_insert(fault);
        }
    });
    failed.map_or(Ok(cost), Err)
}

/// What is asked about.
enum Asked<'a> {
    /// Cold.
    Question(&'a GuestCall),
    /// As in a run.
    Service(&'a SyntheticService),
}

/// Of `call`, made again and again.
fn cost(kind: Kind, n: usize, reads: Reads, mut call: impl FnMut(Asked<'_>)) -> Cost {
    let traffic = inputs::traffic(kind, n);
    let cold = per_call(traffic.len(), || traffic.iter().for_each(|question| call(Asked::Question(question))));
    if !matches!(kind, Kind::Admission | Kind::Routing) {
        return Cost { ns: cold, cold_ns: None };
    }
    const DECISIONS: usize = 256;
    let run = |call: &mut dyn FnMut(Asked<'_>)| {
        let mut service = SyntheticService::new(n);
        per_call(DECISIONS, || {
            for _ in 0..DECISIONS {
                service.advance(reads);
                call(Asked::Service(&service));
            }
        })
    };
    let all = run(&mut call);
    let without = run(&mut |asked| {
        let Asked::Service(service) = asked else { return };
        drop_black((service.request(), service.cluster()));
    });
    Cost { ns: (all - without).max(0.0), cold_ns: Some(cold) }
}

fn call(guest: &mut StartedGuest, question: &GuestCall, scores: &mut Vec<f64>) -> Result<(), Fault> {
    use StartedGuest::{Admission, Latency, Preemption, Priority, Routing, Scheduling};
    match (question, guest) {
        (GuestCall::Admit(scene), Admission(guest)) => guest.admit(&scene.request(), &scene.cluster()).map(drop_black),
        (GuestCall::Route(scene), Routing(guest)) => {
            scores.clear();
            guest.route(&scene.request(), &scene.cluster(), &ties(), scores).map(drop_black)
        }
        (GuestCall::Priority(scene), Priority(guest)) => {
            guest.priority(&scene.request(), scene.cluster().now).map(drop_black)
        }
        (GuestCall::Rank(..), Scheduling(guest)) => {
            question.queued().map_or(Ok(()), |queued| guest.rank(&queued).map(drop_black))
        }
        (GuestCall::Victim(batch), Preemption(guest)) => guest.victim(batch).map(drop_black),
        (GuestCall::Step(batch), Latency(guest)) => guest.step_time(batch).map(drop_black),
        (GuestCall::Queueing(tokens), Latency(guest)) => guest.queueing_time(*tokens).map(drop_black),
        (GuestCall::Observe(event), guest) => guest.observe(event),
        (_, guest) => Err(guest.mismatch()),
    }
}

/// An answer that the compiler must not think away.
fn drop_black<T>(answer: T) {
    black_box(answer);
}

/// The built-in that plugins of `kind` are compared with.
pub(super) fn built_in_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Admission => "tier-shed",
        Kind::Routing => "least-loaded",
        Kind::Priority => "class",
        Kind::Scheduling => "priority-fcfs",
        Kind::Preemption => "priority",
        Kind::Latency => "blackbox",
    }
}

/// Of a call of that built-in, where just as much changes between two decisions.
pub(super) fn built_in(kind: Kind, n: usize, reads: Reads) -> Result<Cost, Fault> {
    let Some(row) = BuiltIn::find(kind, built_in_name(kind)) else {
        return Err(Fault::new(FaultKind::Unreadable, format!("{}: it is not built in", built_in_name(kind))));
    };
    let (plugin, limits) = (row.load().plugin, Limits::default());
    let mut setup = setup(&*plugin, kind, n, &limits);
    if kind == Kind::Admission {
        // With the defaults of tier-shed most requests pass without a look at the instances.
        setup.parameters = vec![40.0, 3.0];
    }
    measured(&*plugin, setup, n, reads)
}

/// ns of CPU time of one of the `calls` that `round` makes.
fn per_call(calls: usize, mut round: impl FnMut()) -> f64 {
    let mut rounds = 1_u32;
    let mut measure = |rounds: u32| {
        let timer = Timer::start();
        (0..rounds).for_each(|_| round());
        timer.elapsed()
    };
    while rounds < 1 << 20 && measure(rounds) < LONG_ENOUGH {
        rounds *= 2;
    }
    let fastest = (0..REPEATS).map(|_| measure(rounds)).min().unwrap_or_default();
    fastest.as_nanos() as f64 / f64::from(rounds) / calls.max(1) as f64
}
