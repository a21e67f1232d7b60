//! The SLO targets of the classes of a workload.

use std::collections::{BTreeMap, BTreeSet};

use blis_sim::metrics::SloTargets;
use blis_sim::request::Name;
use blis_sim::units::Micros;

use crate::experiment::{Experiment, SloTargetSettings};
use crate::spec::parse::EVERY_CLASS;
use blis_config::policy::Sourced;
use blis_workload::Names;
use blis_workload::trace_v2::GoodputTargets;

/// What the requests of a workload name, and the targets that it records for them.
#[derive(Clone, Copy, Debug)]
pub struct NamedWorkload<'a> {
    /// Texts of the classes, tenants, models and adapters that requests name.
    pub names: &'a Names,
    /// SLO targets that a trace records, by class; those of flags precede them.
    pub slo_targets: &'a BTreeMap<String, GoodputTargets>,
}

/// The targets of flags, then those of the trace, latency by latency, for the classes that occur.
pub(crate) fn slo_targets(
    config: &Experiment,
    names: &Names,
    recorded: &BTreeMap<String, GoodputTargets>,
) -> Vec<(Name, SloTargets)> {
    let set = &config.cluster.slo_targets;
    let every = set.get(EVERY_CLASS);
    // A name may be that of a class, a tenant or a model: targets of what is no class are never looked up.
    let named = names.texts().iter().filter(|text| every.is_some() && !text.is_empty()).map(|text| &**text);
    let default = every.map(|_| "default");
    let classes = set.keys().chain(recorded.keys()).map(String::as_str).filter(|class| *class != EVERY_CLASS);
    let classes: BTreeSet<&str> = classes.chain(named).chain(default).collect();
    let targets = classes.into_iter().filter_map(|class| {
        let name = if class == "default" { Name::NONE } else { names.find(class)? };
        let (flags, trace) = (set.get(class), recorded.get(class));
        let ms = |ms: Option<f64>| ms.map(|ms| Micros::from_f64(ms * 1e3));
        let flag = |of: fn(&SloTargetSettings) -> Option<&Sourced<Micros>>| {
            let target = flags.and_then(of).or(every.and_then(of));
            target.map(|target| target.value)
        };
        let targets = SloTargets {
            ttft: flag(|targets| targets.ttft.as_ref()).or(ms(trace.and_then(|targets| targets.ttft_ms))),
            itl: flag(|targets| targets.itl.as_ref()).or(ms(trace.and_then(|targets| targets.itl_ms))),
            e2e: flag(|targets| targets.e2e.as_ref()).or(ms(trace.and_then(|targets| targets.e2e_ms))),
        };
        Some((name, targets))
    });
    targets.collect()
}
