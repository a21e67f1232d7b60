//! Flow control: llm-d's section `flowControl` and its plugins, and the section `gateway` of a bundle.

use std::fmt::Write as _;

use super::config::ConfigPage;
use super::plugins::{CONCURRENCY_DETECTOR, CONCURRENCY_MODES, PluginType, Role, UTILIZATION_DETECTOR};
use super::read::{DeclaredPlugin, Reader};
use super::value::AnyYaml;
use super::{GatewaySettings, Saturation};
use crate::policy::Sourced;
use crate::policy::error::PolicyError;
use blis_diag::yaml::Spanned;
use blis_diag::{Diagnostic, quoted};

/// Keys of the section, and of `defaultPriorityBand` in it, that have no counterpart, with what they would do.
const WITHOUT_COUNTERPART: [(&str, &str); 4] = [
    ("maxBytes", "limit the bytes of all queued requests"),
    ("priorityBands", "give single bands limits and policies of their own"),
    ("noEndpointRequestTTL", "keep requests for another time while there is no instance"),
    ("priorityBandGCTimeout", "remove bands that are empty"),
];

/// Settings that are the default of both: they are not written.
const DEFAULTS: [(&str, &str); 11] = [
    ("saturation-detector", "utilization"),
    ("queue-depth-threshold", "5"),
    ("kv-cache-util-threshold", "0.8"),
    ("metrics-staleness-threshold", "200ms"),
    ("max-concurrency", "100"),
    ("concurrency-mode", "requests"),
    ("max-token-concurrency", "1000000"),
    ("usage-limit-policy", "static"),
    ("usage-limit-threshold", "1"),
    ("fairness-policy", "global-strict"),
    ("dispatch-order", "fcfs"),
];

/// Parameters of the plugins of flow control: the type, llm-d's name, ours.
const PARAMETERS: [(&str, &str, &str); 8] = [
    (UTILIZATION_DETECTOR, "queueDepthThreshold", "queue-depth-threshold"),
    (UTILIZATION_DETECTOR, "kvCacheUtilThreshold", "kv-cache-util-threshold"),
    (UTILIZATION_DETECTOR, "metricsStalenessThreshold", "metrics-staleness-threshold"),
    (CONCURRENCY_DETECTOR, "maxConcurrency", "max-concurrency"),
    (CONCURRENCY_DETECTOR, "concurrencyMode", "concurrency-mode"),
    (CONCURRENCY_DETECTOR, "maxTokenConcurrency", "max-token-concurrency"),
    ("static-usage-limit-policy", "threshold", "usage-limit-threshold"),
    ("priority-holdback-policy", "minCeiling", "usage-limit-threshold"),
];

/// Keys of the section and of `defaultPriorityBand`, and ours.
const KEYS: [(&str, &str); 2] = [("maxRequests", "max-gateway-queue-depth"), ("defaultRequestTTL", "request-ttl")];
const BAND_KEYS: [(&str, &str); 2] = [("maxRequests", "per-band-capacity"), (MAX_BYTES, "per-band-bytes")];
const MAX_BYTES: &str = "maxBytes";

impl Reader<'_> {
    /// The settings of flow control, which is on.
    pub(super) fn gateway(
        &mut self,
        plugins: &[DeclaredPlugin],
        section: Option<&Spanned<AnyYaml>>,
        detector: Option<&DeclaredPlugin>,
        saturation: Option<Saturation>,
    ) -> Result<GatewaySettings, PolicyError> {
        let mut settings = GatewaySettings::new();
        match detector {
            Some(plugin) => self.policy(plugin, "saturation-detector", &mut settings)?,
            None => match saturation {
                None => settings.push(("saturation-detector", "never".into())),
                // Earlier versions had the thresholds in the section.
                Some(Saturation { queue_depth, kv_utilization }) => settings.extend([
                    ("queue-depth-threshold", queue_depth.to_string()),
                    ("kv-cache-util-threshold", kv_utilization.to_string()),
                ]),
            },
        }
        if saturation.is_none() && detector.is_some_and(|plugin| plugin.is(UTILIZATION_DETECTOR)) {
            // Thresholds that are never reached.
            settings = vec![("saturation-detector", "never".into())];
        }
        let AnyYaml::Map(entries) = section.map_or(&AnyYaml::Null, |section| &section.value) else {
            return Ok(ordered(&settings));
        };
        for (key, value) in entries {
            match key.value.as_str() {
                "saturationDetector" => {}
                "usageLimitPolicyPluginRef" => {
                    let plugin = self.referenced(plugins, &key.value, value)?;
                    self.policy(plugin, "usage-limit-policy", &mut settings)?;
                }
                "defaultPriorityBand" => self.band(plugins, value, &mut settings)?,
                other => self.number_or_time(other, value, &KEYS, &mut settings)?,
            }
        }
        Ok(ordered(&settings))
    }

    /// The settings of all bands.
    fn band(
        &mut self,
        plugins: &[DeclaredPlugin],
        band: &Spanned<AnyYaml>,
        settings: &mut GatewaySettings,
    ) -> Result<(), PolicyError> {
        let AnyYaml::Map(entries) = &band.value else { return Ok(()) };
        for (key, value) in entries {
            match key.value.as_str() {
                "fairnessPolicyRef" => {
                    let plugin = self.referenced(plugins, &key.value, value)?;
                    self.policy(plugin, "fairness-policy", settings)?;
                }
                "orderingPolicyRef" => {
                    let plugin = self.referenced(plugins, &key.value, value)?;
                    self.policy(plugin, "dispatch-order", settings)?;
                }
                other => self.number_or_time(other, value, &BAND_KEYS, settings)?,
            }
        }
        Ok(())
    }

    /// The plugin that the key `key` names.
    fn referenced<'p>(
        &self,
        plugins: &'p [DeclaredPlugin],
        key: &str,
        value: &Spanned<AnyYaml>,
    ) -> Result<&'p DeclaredPlugin, PolicyError> {
        match &value.value {
            AnyYaml::Text(name) => self.declared(plugins, name, value.referenced),
            other => {
                let what = format!("`{key}` is {}", other.describe());
                Err(self.wrong(value.referenced, what, "it must be the name of a plugin"))
            }
        }
    }

    /// Sets `flag` to what `plugin` is, with its parameters.
    fn policy(
        &mut self,
        plugin: &DeclaredPlugin,
        flag: &'static str,
        settings: &mut GatewaySettings,
    ) -> Result<(), PolicyError> {
        let role = plugin.row.map(|row| row.role);
        let (row, value) = match (plugin.row, role) {
            (Some(row), Some(Role::Flow(of, value, _))) if of == flag => (row, value),
            (Some(row), Some(Role::Filter("saturation"))) if flag == "saturation-detector" => (row, "utilization"),
            (Some(row), Some(Role::Filter("concurrency"))) if flag == "saturation-detector" => (row, "concurrency"),
            _ => {
                let written = quoted(plugin.written.value.as_bytes());
                let what = format!("{written} is no counterpart of `--{flag}`: the default is simulated");
                self.remarks.left_out.push(Diagnostic::new(what).at(self.document.location(plugin.written.referenced)));
                return Ok(());
            }
        };
        settings.push((flag, value.into()));
        for (key, given) in &plugin.parameters {
            let ours = PARAMETERS.iter().find(|(of, theirs, _)| *of == row.name && *theirs == key.value);
            match ours {
                Some((_, _, ours)) => settings.push((ours, self.text(&key.value, given)?)),
                None if key.value == "headroom" => {}
                None => self.without_counterpart(&key.value, given, "set it"),
            }
        }
        Ok(())
    }

    fn number_or_time(
        &mut self,
        key: &str,
        value: &Spanned<AnyYaml>,
        known: &[(&str, &'static str)],
        settings: &mut GatewaySettings,
    ) -> Result<(), PolicyError> {
        if let Some((_, ours)) = known.iter().find(|(theirs, _)| *theirs == key) {
            let text = self.text(key, value)?;
            let bytes = || quantity(&text).map(|bytes| bytes.to_string());
            let text = if key == MAX_BYTES { bytes() } else { Some(text.clone()) };
            let wrong =
                || self.wrong(value.referenced, format!("`{key}` is {}", value.value.describe()), "write it as 1Gi");
            settings.push((ours, text.ok_or_else(wrong)?));
            return Ok(());
        }
        let would = WITHOUT_COUNTERPART.iter().find(|(name, _)| *name == key).map_or("set it", |(_, would)| would);
        self.without_counterpart(key, value, would);
        Ok(())
    }

    fn without_counterpart(&mut self, key: &str, value: &Spanned<AnyYaml>, would: &str) {
        let what = format!("{} has no counterpart: it would {would}", quoted(key.as_bytes()));
        self.remarks.left_out.push(Diagnostic::new(what).at(self.document.location(value.referenced)));
    }

    /// A number, a time with its unit, or a word.
    fn text(&self, key: &str, value: &Spanned<AnyYaml>) -> Result<String, PolicyError> {
        let has_unit = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_digit())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
        };
        let hint = match (key, &value.value) {
            ("concurrencyMode", AnyYaml::Text(text)) if CONCURRENCY_MODES.contains(&text.as_str()) => {
                return Ok(text.clone());
            }
            ("concurrencyMode", _) => "it must be requests, tokens or hybrid",
            ("maxConcurrency" | "maxTokenConcurrency", AnyYaml::Number(number)) if *number <= 0.0 => {
                "it must be above 0"
            }
            (_, AnyYaml::Number(number)) if number.is_finite() && *number >= 0.0 => return Ok(number.to_string()),
            (_, AnyYaml::Text(text)) if has_unit(text) => return Ok(text.clone()),
            _ => "it must be a number from 0, or one with a unit, as in 30s",
        };
        let what = format!("`{key}` is {}", value.value.describe());
        Err(self.wrong(value.referenced, what, hint))
    }
}

/// The number of a quantity of Kubernetes, such as `1Gi`.
fn quantity(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// The settings in one order, without defaults and without values that a later one replaces.
fn ordered(settings: &GatewaySettings) -> GatewaySettings {
    let order = DEFAULTS.iter().map(|(flag, _)| *flag).chain(KEYS.iter().chain(&BAND_KEYS).map(|(_, flag)| *flag));
    order
        .filter_map(|flag| settings.iter().rfind(|(name, _)| *name == flag).cloned())
        .filter(|(flag, value)| !DEFAULTS.contains(&(*flag, value.as_str())))
        .collect()
}

/// The section of a bundle.
pub(super) fn to_bundle(settings: &GatewaySettings) -> String {
    if settings.is_empty() {
        return "gateway: {}\n".to_owned();
    }
    let line = |(flag, value): &(&str, String)| format!("  {}: {value}\n", flag.replace('-', "_"));
    format!("gateway:\n{}", settings.iter().map(line).collect::<String>())
}

/// The settings of a bundle.
///
/// # Errors
/// The first setting that llm-d does not have, with a hint.
pub(super) fn of_bundle(
    settings: &[(String, Sourced<String>)],
) -> Result<GatewaySettings, (Sourced<String>, String, &'static str)> {
    let value = |flag: &str| settings.iter().find(|(name, _)| *name == flag).map(|(_, value)| value.as_str());
    let detector = match value("saturation-detector") {
        Some("never") => "",
        Some("concurrency") => CONCURRENCY_DETECTOR,
        _ => UTILIZATION_DETECTOR,
    };
    let limit = PluginType::of_flow("usage-limit-policy", value("usage-limit-policy").unwrap_or("static"));
    let types = [detector, limit.map_or("", |row| row.name)];
    let mut known = GatewaySettings::new();
    for (flag, value) in settings {
        let is_policy =
            matches!((flag.as_str(), value.as_str()), ("saturation-detector", "never" | "utilization" | "concurrency"))
                || PluginType::of_flow(flag, value).is_some();
        let policy = DEFAULTS.iter().find(|(ours, _)| is_policy && ours == flag).map(|(ours, _)| *ours);
        let key = KEYS.iter().chain(&BAND_KEYS).find(|(_, ours)| ours == flag).map(|(_, ours)| *ours);
        let parameter = PARAMETERS.iter().find(|(of, _, ours)| ours == flag && types.contains(of));
        let Some(flag) = policy.or(key).or(parameter.map(|(_, _, ours)| *ours)) else {
            let what = format!("`{}: {}` has no counterpart in llm-d", flag.replace('-', "_"), value.value);
            return Err((value.clone(), what, "leave it out"));
        };
        known.push((flag, value.value.clone()));
    }
    Ok(ordered(&known))
}

impl ConfigPage {
    /// Flow control with `settings`.
    pub(super) fn gateway(&mut self, settings: &GatewaySettings) {
        let value = |flag: &str| settings.iter().find(|(name, _)| *name == flag).map(|(_, value)| value.as_str());
        let mut section = String::new();
        let mut band = String::new();
        let detector = value("saturation-detector");
        if detector == Some("never") {
            let off = [("queueDepthThreshold", "999999999".to_owned()), ("kvCacheUtilThreshold", "1".to_owned())];
            let row = PluginType::find(UTILIZATION_DETECTOR).expect("it is in the table");
            self.declare(row, None, &off);
        } else {
            let name = if detector == Some("concurrency") { CONCURRENCY_DETECTOR } else { UTILIZATION_DETECTOR };
            let parameters = parameters(name, settings);
            if detector.is_some() || !parameters.is_empty() {
                let row = PluginType::find(name).expect("it is in the table");
                self.declare(row, None, &parameters);
                let _ = writeln!(section, "  saturationDetector:\n    pluginRef: {name}");
            }
        }
        let static_limit = value("usage-limit-threshold").map(|_| "static");
        for (flag, key, usual) in [
            ("usage-limit-policy", "usageLimitPolicyPluginRef", static_limit),
            ("fairness-policy", "fairnessPolicyRef", None),
            ("dispatch-order", "orderingPolicyRef", None),
        ] {
            let Some(row) = value(flag).or(usual).and_then(|value| PluginType::of_flow(flag, value)) else { continue };
            self.declare(row, None, &parameters(row.name, settings));
            let _ = match flag {
                "usage-limit-policy" => writeln!(section, "  {key}: {}", row.name),
                _ => writeln!(band, "    {key}: {}", row.name),
            };
        }
        for (theirs, ours) in KEYS {
            let _ = value(ours).map(|value| writeln!(section, "  {theirs}: {}", with_unit(ours, value)));
        }
        for (theirs, ours) in BAND_KEYS {
            let _ = value(ours).map(|value| writeln!(band, "    {theirs}: {value}"));
        }
        if !band.is_empty() {
            let _ = write!(section, "  defaultPriorityBand:\n{band}");
        }
        self.detector.push_str("featureGates:\n- flowControl\n");
        if !section.is_empty() {
            let _ = write!(self.detector, "flowControl:\n{section}");
        }
    }
}

/// The parameters of the type `name`.
fn parameters(name: &str, settings: &GatewaySettings) -> Vec<(&'static str, String)> {
    let of = PARAMETERS.iter().filter(|(of, _, _)| *of == name);
    let given =
        |ours: &str| settings.iter().find(|(flag, _)| *flag == ours).map(|(flag, value)| with_unit(flag, value));
    of.filter_map(|(_, theirs, ours)| Some((*theirs, given(ours)?))).collect()
}

/// Times without a unit are µs here; llm-d needs one.
fn with_unit(flag: &str, value: &str) -> String {
    let is_time = ["metrics-staleness-threshold", "request-ttl"].contains(&flag);
    if is_time && value.chars().all(|c| c.is_ascii_digit()) { format!("{value}us") } else { value.to_owned() }
}
