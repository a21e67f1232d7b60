//! What a decision costs: CPU time per call over the same made-up traffic, of plugins and of built-ins.

use std::hint::black_box;
use std::time::Duration;

use blis_sim::instance::{Preemption, Scheduler};
use blis_sim::latency::{Blackbox, LatencyModel};
use blis_sim::policy::{
    AdmissionPolicy, ClassPriority, Classes, LeastLoaded, PreemptionPolicy, PriorityPolicy, RoutingPolicy,
    SchedulingPolicy, TierShed,
};

use super::super::timer::Timer;
use crate::plugin::check::{setup, ties};
use crate::plugin::inputs::{self, NAMES, Question};
use crate::plugin::{Fault, Guest, Kind, Limits, Plugin};

/// A measurement takes at least that much CPU time, and is repeated; the fastest counts.
const LONG_ENOUGH: Duration = Duration::from_millis(4);
const REPEATS: usize = 5;

/// Of a call of `plugin` as `kind` about `n` instances, ns of CPU time.
pub(super) fn plugin(plugin: &dyn Plugin, kind: Kind, n: usize, limits: &Limits) -> Result<f64, Fault> {
    let mut setup = setup(plugin, kind, n, limits);
    setup.explain = false;
    let mut guest = plugin.start(&setup)?;
    let traffic = inputs::traffic(kind, n);
    let mut scores = Vec::new();
    // A call that fails is no measurement: found beforehand.
    traffic.iter().try_for_each(|question| call(&mut *guest, question, &mut scores))?;
    let mut failed = None;
    let ns = per_call(traffic.len(), || {
        for question in &traffic {
            if let Err(fault) = call(&mut *guest, question, &mut scores) {
                failed.get_or_insert(fault);
            }
        }
    });
    failed.map_or(Ok(ns), Err)
}

fn call(guest: &mut dyn Guest, question: &Question, scores: &mut Vec<f64>) -> Result<(), Fault> {
    match question {
        Question::Admit(scene) => guest.admit(&scene.request(), &scene.cluster()).map(drop_black),
        Question::Route(scene) => {
            scores.clear();
            guest.route(&scene.request(), &scene.cluster(), &ties(), scores).map(drop_black)
        }
        Question::Priority(scene) => guest.priority(&scene.request(), scene.cluster().now).map(drop_black),
        Question::Rank(..) => question.queued().map_or(Ok(()), |queued| guest.rank(&queued).map(drop_black)),
        Question::Victim(batch) => guest.victim(batch).map(drop_black),
        Question::Step(batch) => guest.step_time(batch).map(drop_black),
        Question::Queueing(tokens) => guest.queueing_time(*tokens).map(drop_black),
        Question::Notice(event) => guest.notice(event),
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

/// Of a call of that built-in, ns of CPU time.
pub(super) fn built_in(kind: Kind, n: usize) -> f64 {
    let mut policies = BuiltIns::default();
    let traffic = inputs::traffic(kind, n);
    per_call(traffic.len(), || traffic.iter().for_each(|question| policies.call(question)))
}

#[derive(Debug)]
struct BuiltIns {
    admission: Box<dyn AdmissionPolicy>,
    routing: Box<dyn RoutingPolicy>,
    priority: Box<dyn PriorityPolicy>,
    scheduling: Box<dyn SchedulingPolicy>,
    preemption: Box<dyn PreemptionPolicy>,
    latency: Box<dyn LatencyModel>,
    scores: Vec<f64>,
}

impl Default for BuiltIns {
    fn default() -> Self {
        let latency = Blackbox::new(&[1000.0, 1.0, 1.0], &[5000.0, 20.0, 30.0]).expect("three of each");
        Self {
            admission: Box::new(TierShed::new(40, 3)),
            routing: Box::new(LeastLoaded::default()),
            priority: Box::new(ClassPriority::new(&Classes::new(NAMES, &[]))),
            scheduling: Box::new(Scheduler::PriorityFcfs),
            preemption: Box::new(Preemption::Priority),
            latency: Box::new(latency),
            scores: Vec::new(),
        }
    }
}

impl BuiltIns {
    fn call(&mut self, question: &Question) {
        match question {
            Question::Admit(scene) => drop_black(self.admission.admit(&scene.request(), &scene.cluster())),
            Question::Route(scene) => {
                self.scores.clear();
                drop_black(self.routing.route(&scene.request(), &scene.cluster(), &ties(), &mut self.scores));
            }
            Question::Priority(scene) => drop_black(self.priority.priority(&scene.request(), scene.cluster().now)),
            Question::Rank(..) => drop_black(question.queued().map(|queued| self.scheduling.rank(&queued))),
            Question::Victim(batch) => drop_black(self.preemption.victim(batch)),
            Question::Step(batch) => drop_black(self.latency.step_time(batch)),
            Question::Queueing(tokens) => drop_black(self.latency.queueing_time(*tokens)),
            Question::Notice(_) => {}
        }
    }
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
