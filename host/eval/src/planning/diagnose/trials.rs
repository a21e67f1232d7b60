//! The knobs of a service as changed services, and their effects in order.

use blis_config::Deployment;

use crate::experiment::{Experiment, OutputFiles};
use crate::open;
use crate::service;

use super::super::variation::{VariedSetting, check_same_requests};
use super::cause::Cause;
use super::document::{KnobResult, TriedKnob};
use super::effect::Effect;
use super::knob::{KNOBS, Knob, KnobChange, KnobContext, KnobName, Turned};
use super::ranking::{self, RankedKnob};

/// A knob that is turned.
pub(super) struct KnobTrial {
    pub knob: &'static Knob,
    pub settings: Vec<VariedSetting>,
    pub serves_less: Option<&'static str>,
    /// Factor of the times of arrival.
    pub stretch: f64,
    /// The changed service, or why there is none.
    pub service: Result<ChangedService, String>,
}

/// A service with a knob turned.
pub(super) struct ChangedService {
    pub experiment: Experiment,
    pub deployment: Deployment,
}

/// A knob with its effect, or why there is none.
pub(super) struct Tried {
    pub knob: &'static Knob,
    pub settings: Vec<VariedSetting>,
    pub serves_less: Option<&'static str>,
    pub outcome: Result<TriedService, String>,
}

/// What a changed service does to the figure.
pub(super) struct TriedService {
    pub effect: Effect,
    pub gpus: f64,
    pub figure_ms: Option<f64>,
}

/// All knobs that the service has, turned.
pub(super) fn prepare(context: &KnobContext<'_>) -> Vec<KnobTrial> {
    KNOBS.iter().filter_map(|knob| trial(knob, context)).collect()
}

fn trial(knob: &'static Knob, context: &KnobContext<'_>) -> Option<KnobTrial> {
    let refused =
        |settings, reason| KnobTrial { knob, settings, serves_less: None, stretch: 1.0, service: Err(reason) };
    match (knob.turn)(context) {
        Turned::Pointless => None,
        Turned::Refused(reason) => Some(refused(Vec::new(), reason)),
        Turned::To(change) => {
            let service = changed(&change, context);
            let KnobChange { settings, stretch, serves_less, .. } = change;
            Some(KnobTrial { knob, settings, serves_less, stretch: stretch.unwrap_or(1.0), service })
        }
    }
}

/// # Errors
/// Why the deployment refuses the change.
fn changed(change: &KnobChange, context: &KnobContext<'_>) -> Result<ChangedService, String> {
    let headline = |error: crate::error::RunError| error.diagnostic().headline().to_string();
    let spec = change.of(context.spec)?;
    let experiment = Experiment::new(spec, OutputFiles::default()).map_err(headline)?;
    let deployment = open::resolve(&experiment).map_err(headline)?;
    if experiment.cluster.disaggregation.is_some() || !experiment.cluster.groups.is_empty() {
        experiment.further_deployments().map_err(headline)?;
        let roles = experiment.cluster.disaggregation.as_ref();
        roles.map(|roles| roles.deployments(&experiment.deployment)).transpose().map_err(headline)?;
    }
    service::try_scripts(&experiment).map_err(headline)?;
    let changes_requests =
        change.serves_less.is_some() || change.settings.iter().any(|setting| setting.name == "timeout");
    if !changes_requests {
        check_same_requests(context.base, "it", &experiment).map_err(headline)?;
    }
    Ok(ChangedService { experiment, deployment })
}

/// The knobs for the document, the best first, and the name of that one if it improves the figure. `gpus`: those of the service; `expected`: its largest
/// cause; `is_share`: the figure is no time.
pub(super) fn in_order(
    tried: Vec<Tried>,
    gpus: f64,
    expected: Cause,
    is_share: bool,
) -> (Vec<TriedKnob>, Option<KnobName>) {
    let (done, refused): (Vec<Tried>, Vec<Tried>) = tried.into_iter().partition(|tried| tried.outcome.is_ok());
    let ranked = done.iter().filter_map(|tried| {
        let service = tried.outcome.as_ref().ok()?;
        let gpu_factor = if gpus > 0.0 { service.gpus / gpus } else { 1.0 };
        let serves_less = tried.serves_less.is_some();
        Some(RankedKnob { name: tried.knob.name, effect: service.effect, gpu_factor, serves_less })
    });
    let ranked = ranking::in_order(ranked.collect(), expected);
    let best = ranked.first().filter(|knob| knob.effect.is_better() && !knob.serves_less).map(|knob| knob.name);
    let position = |name: KnobName| ranked.iter().position(|knob| knob.name == name);
    let mut done = done;
    done.sort_by_key(|tried| position(tried.knob.name));
    (done.into_iter().chain(refused).map(|tried| row(tried, is_share)).collect(), best)
}

fn row(tried: Tried, is_share: bool) -> TriedKnob {
    let Tried { knob, settings, serves_less, outcome } = tried;
    let relieves = Cause::relieved_by(knob.name);
    let percent = |share: f64| 100.0 * share;
    match outcome {
        Ok(TriedService { effect, gpus, figure_ms }) => TriedKnob {
            knob: knob.key,
            text: knob.text,
            settings,
            relieves,
            result: match (effect.is_better(), effect.is_worse()) {
                (true, _) => KnobResult::Better,
                (_, true) => KnobResult::Worse,
                (false, false) => KnobResult::Undecided,
            },
            refused: None,
            change_percent: Some(percent(effect.change)),
            low_percent: effect.interval.map(|interval| percent(interval.low)),
            high_percent: effect.interval.map(|interval| percent(interval.high)),
            figure_ms: figure_ms.filter(|_| !is_share),
            gpus: Some(gpus),
            serves_less,
        },
        Err(reason) => TriedKnob {
            knob: knob.key,
            text: knob.text,
            settings,
            relieves,
            result: KnobResult::Refused,
            refused: Some(reason),
            change_percent: None,
            low_percent: None,
            high_percent: None,
            figure_ms: None,
            gpus: None,
            serves_less,
        },
    }
}
