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

const TEMPLATE: &str = include_str!("keda/template.yaml.in");

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
        let KedaSettings { deployment, namespace, min_replicas, max_replicas, tolerance, .. } = settings;
        let fills = [
            ("@name@", kubernetes_name(script.name())),
            ("@namespace@", namespace.clone().unwrap_or_default()),
            ("@deployment@", deployment.clone()),
            ("@minReplicas@", min_replicas.to_string()),
            ("@maxReplicas@", max_replicas.to_string()),
            ("@interval@", whole_seconds(settings.interval).to_string()),
            ("@cooldown@", whole_seconds(settings.cooldown).to_string()),
            ("@scaleUp@\n", rules(&settings.up, *tolerance)),
            ("@scaleDown@\n", rules(&settings.down, *tolerance)),
            ("@formula@", self.formula.clone()),
            ("@triggers@\n", self.triggers.iter().map(|trigger| trigger.text(settings)).collect()),
        ];
        let has = |flag: &str| match flag {
            "namespace" => namespace.is_some(),
            "tolerance" => tolerance.is_some(),
            "noTolerance" => tolerance.is_none(),
            _ => *min_replicas == 0,
        };
        script.fill(TEMPLATE, has, &fills)
    }
}

impl KedaTrigger {
    fn text(&self, settings: &KedaSettings) -> String {
        let Self { name, query, about } = self;
        format!(
            "    # {about}\n    - type: prometheus\n      name: {name}\n      metadata:\n        serverAddress: {:?}\n        \
             query: >-\n          {query}\n        # KEDA asks for a threshold; with a formula it has no effect.\n        \
             threshold: \"1\"\n        ignoreNullValues: \"false\"\n",
            settings.prometheus
        )
    }
}

/// `behavior` of a HorizontalPodAutoscaler in one direction.
fn rules(rules: &ScalingRules, tolerance: Option<f64>) -> String {
    let mut text = String::new();
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
