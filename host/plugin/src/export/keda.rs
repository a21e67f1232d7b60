//! A script's `scale` as a `ScaledObject` of KEDA: a Prometheus trigger for each signal that it reads, and a formula of them.
//!
//! The formula is the number of replicas, so that the metric is of the type `AverageValue` with the target 1. What KEDA's formulas
//! do not have (`ln`, `exp`) is computed by Prometheus, in the query of a trigger of its own.

mod formula;
mod promql;
mod settings;
mod signals;
mod table;

use std::fmt::Write as _;

use blis_sim::scaling::{Change, ScalingRules, Select};
use blis_sim::units::Micros;

use self::formula::FormulaWriter;
pub use self::settings::KedaSettings;
use self::table::{KedaTrigger, SignalTable};
use super::source::ExportedScript;
use super::term::{DecisionTerm, ValueShape};
use crate::script::inputs;
use crate::{Fault, Kind};

/// Longest formula or query, bytes.
const LONGEST: usize = 65_536;

/// The `ScaledObject` (YAML) for `script`.
///
/// # Errors
/// If the script has no `scale`, or something in it that has no metric or no form in a formula; or if a parameter is not the
/// script's, or out of range.
pub fn keda_scaled_object(script: &ExportedScript, settings: &KedaSettings) -> Result<String, Fault> {
    Ok(ScaledObject::of(script, settings)?.text(script, settings))
}

/// The triggers and the formula.
#[derive(Clone, Debug, PartialEq)]
struct ScaledObject {
    triggers: Vec<KedaTrigger>,
    formula: String,
}

impl ScaledObject {
    fn of(script: &ExportedScript, settings: &KedaSettings) -> Result<Self, Fault> {
        script.needs("scale", "returns numbers of replicas", Kind::Scaling)?;
        let code = script.plugin.code(&script.values()?)?;
        let known = inputs(Kind::Scaling, "scale").map(|(_, fields)| fields).unwrap_or_default();
        let shape = |_: usize, name: &str| {
            let field = known.iter().find(|one| one.field == name && name != "model")?;
            Some(if field.is_column { ValueShape::Column } else { ValueShape::Whole })
        };
        let decision = DecisionTerm::read(script, &code, "scale", 1, &shape)?;
        let signals = SignalTable::of(script, &decision, settings)?;
        let (triggers, formula) = FormulaWriter::new(&signals, &decision).written()?;
        if let Some(long) = triggers.iter().map(|one| one.query.len()).chain([formula.len()]).max()
            && long > LONGEST
        {
            let text = format!(
                "written out, a formula or query has {long} bytes, more than {LONGEST}: use its variables less often"
            );
            return Err(script.refused(decision.value.at, &text));
        }
        Ok(Self { triggers, formula })
    }

    fn text(&self, script: &ExportedScript, settings: &KedaSettings) -> String {
        let name = kubernetes_name(script.name());
        let KedaSettings { deployment, min_replicas, max_replicas, .. } = settings;
        let mut text = heading(&script.file, settings);
        let _ = write!(
            text,
            "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata:\n  name: {name}\n{}spec:\n  scaleTargetRef:\n    \
             apiVersion: apps/v1\n    kind: Deployment\n    name: {deployment}\n  minReplicaCount: {min_replicas}\n  \
             maxReplicaCount: {max_replicas}\n  pollingInterval: {}\n  cooldownPeriod: {}\n  advanced:\n    \
             horizontalPodAutoscalerConfig:\n      behavior:\n",
            settings.namespace.as_ref().map(|namespace| format!("  namespace: {namespace}\n")).unwrap_or_default(),
            whole_seconds(settings.interval),
            whole_seconds(settings.cooldown),
        );
        text += &rules("scaleUp", &settings.up, settings.tolerance);
        text += &rules("scaleDown", &settings.down, settings.tolerance);
        let _ = write!(
            text,
            "    scalingModifiers:\n      # Whole numbers of replicas; the names are those of the triggers.\n      formula: >-\n        \
             {}\n      target: \"1\"\n      metricType: AverageValue\n  triggers:\n",
            self.formula
        );
        for KedaTrigger { name, query, about } in &self.triggers {
            let _ = write!(
                text,
                "    # {about}\n    - type: prometheus\n      name: {name}\n      metadata:\n        serverAddress: {:?}\n        \
                 query: >-\n          {query}\n        # KEDA asks for a threshold; with a formula it has no effect.\n        \
                 threshold: \"1\"\n        ignoreNullValues: \"false\"\n",
                settings.prometheus
            );
        }
        text
    }
}

/// What the object is, and where it differs from the simulation.
fn heading(file: &str, settings: &KedaSettings) -> String {
    let zero = match settings.min_replicas {
        0 => {
            "# * At zero replicas KEDA starts one when the formula is above 0, the simulation with the first request: a formula that\n\
             #   ignores the gateway's queue does not start any.\n"
        }
        _ => "",
    };
    let tolerance = match settings.tolerance {
        None => {
            "# * Kubernetes leaves the number of replicas as it is if the formula differs from it by 10 % or less; the simulation\n\
             #   takes every number of a script. `--tolerance 0` writes the field that changes it (Kubernetes 1.33 or later with\n\
             #   HPAConfigurableTolerance, and a version of KEDA that has it).\n"
        }
        Some(_) => {
            "# * `tolerance` needs Kubernetes 1.33 or later with HPAConfigurableTolerance, and a version of KEDA that has it.\n"
        }
    };
    format!(
        "# Written by `blis export keda {file}`: the decisions of its `scale` for one group of replicas, as a formula of KEDA.\n\
         #\n\
         # Where this and the simulation differ:\n\
         # * Metrics are as old as Prometheus's scrape, plus the time until KEDA and Kubernetes ask for them. Kubernetes asks every\n\
         #   15 s (--horizontal-pod-autoscaler-sync-period), whatever `pollingInterval` is, which counts at zero replicas.\n\
         {tolerance}\
         # * Series of replicas that start or end may be in the metrics of vLLM; the simulation counts ready replicas.\n\
         # * If a query fails, the number of replicas stays as it is.\n\
         {zero}"
    )
}

/// `behavior` of a HorizontalPodAutoscaler in one direction.
fn rules(name: &str, rules: &ScalingRules, tolerance: Option<f64>) -> String {
    let mut text = format!("        {name}:\n");
    if let Some(tolerance) = tolerance {
        let _ = writeln!(text, "          tolerance: \"{tolerance}\"");
    }
    let _ = writeln!(text, "          stabilizationWindowSeconds: {}", whole_seconds(rules.window));
    let select = match rules.select {
        Select::Max => "Max",
        Select::Min => "Min",
        Select::Disabled => "Disabled",
    };
    let _ = writeln!(text, "          selectPolicy: {select}");
    if !rules.policies.is_empty() {
        text += "          policies:\n";
    }
    for (change, period) in &rules.policies {
        let (kind, value) = match change {
            Change::Pods(pods) => ("Pods", pods),
            Change::Percent(percent) => ("Percent", percent),
        };
        let _ = writeln!(
            text,
            "            - type: {kind}\n              value: {value}\n              periodSeconds: {}",
            whole_seconds(*period)
        );
    }
    text
}

/// The time in seconds, rounded up.
fn whole_seconds(time: Micros) -> u64 {
    time.0.div_ceil(1_000_000)
}

/// A name as Kubernetes allows it.
fn kubernetes_name(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "policy".to_owned() } else { words.join("-") }
}

#[cfg(test)]
mod tests;
