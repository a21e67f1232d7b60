//! A script's `scale` as a `ScaledObject` of KEDA: a Prometheus trigger for each signal that it reads, and a formula of them.
//!
//! The formula is the number of replicas, so that the metric is of the type `AverageValue` with the target 1. What KEDA's formulas
//! do not have (`ln`, `exp`) is computed by Prometheus, in the query of a trigger of its own.

mod formula;
mod promql;
mod signals;

use std::fmt::Write as _;
use std::path::Path;

use blis_sim::scaling::{Change, ScalingRules, Select};
use blis_sim::units::Micros;
use rhai::Position;

use self::formula::FormulaWriter;
use self::signals::{FACTS, KedaSignal, NO_METRIC, SIGNALS};
use super::plugin::{ScriptPlugin, compile};
use super::term::{DecisionTerm, ScriptTerm, TermForm, TermOperation, ValueShape};
use super::vllm::values;
use super::{engine, inputs};
use crate::{Fault, FaultKind, Kind, Limits};

/// Longest formula or query, bytes.
const LONGEST: usize = 65_536;

/// What a `ScaledObject` has besides the formula.
#[derive(Clone, Debug, PartialEq)]
pub struct KedaSettings {
    /// Name of the Deployment that is scaled.
    pub deployment: String,
    /// Its namespace; `None` for that in which the object is created, and no label in the queries.
    pub namespace: Option<String>,
    /// The label `model_name` of the endpoint picker's metrics; `None` for those of all models.
    pub model: Option<String>,
    /// The label `inference_pool` of the endpoint picker's saturation; `None` for the largest of all pools.
    pub inference_pool: Option<String>,
    /// Address at which KEDA finds Prometheus.
    pub prometheus: String,
    /// The fewest replicas, 0 or more.
    pub min_replicas: u32,
    /// The most replicas, at least as many as `min_replicas`.
    pub max_replicas: u32,
    /// Time between two decisions; KEDA has whole seconds.
    pub interval: Micros,
    /// Time without requests after which a service with 0 as `min_replicas` goes to zero; KEDA has whole seconds.
    pub cooldown: Micros,
    /// Rules for more replicas.
    pub up: ScalingRules,
    /// Rules for fewer replicas.
    pub down: ScalingRules,
    /// Share by which the formula may differ from the present number without a change; `None` for that of the cluster (0.1).
    pub tolerance: Option<f64>,
    /// What is fixed about the deployment, by the name of its column, as `kv_tokens`.
    pub facts: Vec<(String, f64)>,
    /// Whether the service has one group of replicas, so that values over the groups are those of the group.
    pub one_group: bool,
}

/// The `ScaledObject` (YAML) for the script in `source`, which messages call `path`, with these values for its parameters; others
/// have their defaults.
///
/// # Errors
/// If the script is not valid, has no `scale`, or something in it that has no metric or no form in a formula; or if a parameter is
/// not the script's, or out of range.
pub fn keda_scaled_object(
    path: &Path,
    source: &str,
    parameters: &[(String, f64)],
    settings: &KedaSettings,
    limits: &Limits,
) -> Result<String, Fault> {
    let plugin = compile(path, source, limits, engine::kit(limits))?;
    let object = ScaledObject::of(&plugin, parameters, settings)?;
    let file = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    Ok(object.text(&file, &plugin, settings))
}

/// A trigger of the type `prometheus`.
#[derive(Clone, Debug, PartialEq)]
struct KedaTrigger {
    name: String,
    query: String,
    /// What it is, for the comment above it.
    about: String,
}

/// The triggers and the formula.
#[derive(Clone, Debug, PartialEq)]
struct ScaledObject {
    triggers: Vec<KedaTrigger>,
    formula: String,
}

impl ScaledObject {
    fn of(plugin: &ScriptPlugin, parameters: &[(String, f64)], settings: &KedaSettings) -> Result<Self, Fault> {
        let script = &plugin.script;
        if script.function("scale").is_none() {
            let text = format!(
                "it has no function `scale`, which returns numbers of replicas: only policies of the kind `{}` can be exported",
                Kind::Scaling
            );
            return Err(script.source.fault(FaultKind::MissingExport, None, &text));
        }
        let code = script.compile(&values(plugin, parameters)?)?;
        let known = inputs(Kind::Scaling, "scale").map(|(_, fields)| fields).unwrap_or_default();
        let shape = |_: usize, name: &str| {
            let field = known.iter().find(|one| one.field == name && name != "model")?;
            Some(if field.is_column { ValueShape::Column } else { ValueShape::Whole })
        };
        let decision = DecisionTerm::read(plugin, &code.ast, "scale", 1, &shape)?;
        let signals = SignalTable::of(plugin, &decision, settings)?;
        let (triggers, formula) = FormulaWriter::new(&signals, &decision).written()?;
        if let Some(long) = triggers.iter().map(|one| one.query.len()).chain([formula.len()]).max()
            && long > LONGEST
        {
            let text = format!(
                "written out, a formula or query has {long} bytes, more than {LONGEST}: use its variables less often"
            );
            return Err(script.source.fault_by(FaultKind::Refused, decision.value.at, &text));
        }
        Ok(Self { triggers, formula })
    }

    fn text(&self, file: &str, plugin: &ScriptPlugin, settings: &KedaSettings) -> String {
        let name = kubernetes_name(&plugin.script.description.name);
        let KedaSettings { deployment, min_replicas, max_replicas, .. } = settings;
        let mut text = heading(file, settings);
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

/// What the fields that a decision reads are in production.
struct SignalTable<'a> {
    plugin: &'a ScriptPlugin,
    settings: &'a KedaSettings,
    signals: Vec<(String, FieldMeaning)>,
}

/// What a field is in production.
#[derive(Clone, Debug, PartialEq)]
enum FieldMeaning {
    Metric(&'static KedaSignal),
    Constant(f64),
}

impl<'a> SignalTable<'a> {
    fn of(plugin: &'a ScriptPlugin, decision: &DecisionTerm, settings: &'a KedaSettings) -> Result<Self, Fault> {
        let mut table = Self { plugin, settings, signals: Vec::new() };
        table.check_facts()?;
        for (name, at) in decision.fields(0) {
            let meaning = table.meaning(&name, at)?;
            table.signals.push((name, meaning));
        }
        Ok(table)
    }

    fn check_facts(&self) -> Result<(), Fault> {
        match self.settings.facts.iter().find(|(name, _)| !FACTS.contains(&name.as_str())) {
            Some((name, _)) => {
                let text =
                    format!("`{name}` is nothing that is fixed about a deployment: there are {}", FACTS.join(", "));
                Err(self.plugin.script.source.fault(FaultKind::Refused, None, &text))
            }
            None => Ok(()),
        }
    }

    /// What the field `name` is, which is read at `at`.
    fn meaning(&self, name: &str, at: Position) -> Result<FieldMeaning, Fault> {
        let base = name.strip_suffix("_us").unwrap_or(name);
        if let Some(signal) = SIGNALS.iter().find(|signal| signal.field == base) {
            return Ok(FieldMeaning::Metric(signal));
        }
        match base {
            "min_replicas" => return Ok(FieldMeaning::Constant(self.settings.min_replicas.into())),
            "max_replicas" => return Ok(FieldMeaning::Constant(self.settings.max_replicas.into())),
            "len" | "n" | "count" if self.settings.one_group => return Ok(FieldMeaning::Constant(1.0)),
            "len" | "n" | "count" => return Err(self.refused(at, ONE_GROUP)),
            _ => {}
        }
        if let Some((_, value)) = self.settings.facts.iter().rev().find(|(known, _)| known == base) {
            return Ok(FieldMeaning::Constant(*value));
        }
        if FACTS.contains(&base) {
            let text = format!("`{name}` is fixed for a deployment, and no metric: give it, as in --fact {base}=VALUE");
            return Err(self.refused(at, &text));
        }
        let why = NO_METRIC.iter().find(|(known, _)| *known == base).map_or("", |(_, why)| why);
        let known: Vec<&str> = SIGNALS.iter().map(|signal| signal.field).collect();
        let text = format!("`{name}` has no metric in production{why}: decide by others ({})", known.join(", "));
        Err(self.refused(at, &text))
    }

    fn of_field(&self, name: &str) -> &FieldMeaning {
        // All fields of the decision are in the table.
        let found = self.signals.iter().find(|(known, _)| known == name);
        found.map_or(&FieldMeaning::Constant(0.0), |(_, meaning)| meaning)
    }

    fn refused(&self, at: Position, text: &str) -> Fault {
        self.plugin.script.source.fault_by(FaultKind::Refused, at, text)
    }

    /// `file:line:column` of a term.
    fn location(&self, at: Position) -> String {
        let path = Path::new(&*self.plugin.script.source.path);
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        format!("{file}:{}:{}", at.line().unwrap_or(1), at.position().unwrap_or(1))
    }
}

const ONE_GROUP: &str = "this is over all groups of replicas, and a ScaledObject scales one Deployment: if the service has one group, \
                         say --one-group; else decide by the columns of each group alone";

#[cfg(test)]
mod tests;
