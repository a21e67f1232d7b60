//! The cost of a decision: CPU time per call under the same synthetic traffic, of plugins and of built-in policies.

use std::hint::black_box;
use std::time::Duration;

use blis_sim::policy::{Reads, StepMemory};

use blis_config::policy::BuiltIn;
use blis_eval::timer::Timer;
use blis_plugin::check::setup;
use blis_plugin::inputs::{self, GatewayState, GuestCall, SyntheticService, ties};
use blis_plugin::{Fault, FaultKind, Guest, GuestSetup, Kind, Limits, Plugin};

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
    inputs::traffic(kind, n).iter().try_for_each(|input| call(&mut *guest, input, &mut scores))?;
    let mut failed = None;
    let cost = cost(kind, n, reads, |input| {
        let result = match input {
            CallInput::Cold(input) => call(&mut *guest, input, &mut scores),
            CallInput::Service(service) => {
                scores.clear();
                memory.begin();
                inputs::decide(&mut *guest, &service.request(), &service.cluster(), &mut memory, &mut scores)
                    .map(drop_black)
            }
            CallInput::Gateway(state) => {
                scores.clear();
                state.decide(&mut *guest, &mut scores).map(drop_black)
            }
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

fn call(guest: &mut dyn Guest, input: &GuestCall, scores: &mut Vec<f64>) -> Result<(), Fault> {
    scores.clear();
    input.make(guest, &ties(), scores).map(drop_black)
}

/// Drops an output that the compiler must not optimize away.
fn drop_black<T>(output: T) {
    black_box(output);
}

/// The cost of a call of the built-in policy that plugins of `kind` are compared with, if there is one, with the same changes between two decisions.
pub(super) fn built_in(kind: Kind, n: usize, reads: Reads) -> Result<Option<Cost>, Fault> {
    let Some(name) = kind.row().beside else { return Ok(None) };
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
