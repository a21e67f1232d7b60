//! The filters of `weighted` routing: a row each, with parameters like those of policies, and how users write them.
//!
//! ```text
//! --routing-filters prefix-cache-affinity:affinity=0.7,saturation
//! filters: [{name: prefix-cache-affinity, parameters: {affinity: 0.7}}, {name: saturation}]
//! ```

use std::fmt::{self, Display};

use blis_sim::policy::{PrefixCacheFilter, RoutingFilter, SaturationFilter};

use super::llm_d::plugins::{PluginType, Role};
use super::parameter::{self, NumericParameter, ParameterValues, TOKENS};
use blis_diag::{name_hint, quoted};
use blis_plugin::PolicyParameter;

/// A filter: its name, its parameters, and how it is built.
#[derive(Debug)]
struct FilterRow {
    name: &'static str,
    about: &'static str,
    parameters: &'static [NumericParameter],
    build: fn(&ParameterValues) -> RoutingFilter,
}

static FILTERS: [FilterRow; 2] = [
    FilterRow {
        name: "prefix-cache-affinity",
        about: "Instances with the cached prefix, while their wait is short",
        parameters: &PREFIX_CACHE_PARAMETERS,
        build: |set| RoutingFilter::PrefixCache(prefix_cache(set)),
    },
    FilterRow {
        name: "saturation",
        about: "Instances that are not saturated",
        parameters: &[
            NumericParameter::new("queue-depth", 5.0, (0.1, 1e9), "Waiting requests of a saturated instance"),
            NumericParameter::new("kv-utilization", 0.8, (0.01, 1.0), "Used share of its KV blocks, 0 to 1"),
            NumericParameter::new("headroom", 0.0, (0.0, 100.0), "Share by which both may be exceeded"),
        ],
        build: |set| {
            RoutingFilter::Saturation(SaturationFilter {
                queue_depth: set.get("queue-depth"),
                kv_utilization: set.get("kv-utilization"),
                headroom: set.get("headroom"),
            })
        },
    },
];

/// The parameters of `prefix-cache-affinity`, with llm-d's defaults. The throughput is that of Qwen3-32B on two H100, one prompt
/// of 8192 tokens on an idle instance.
pub(super) static PREFIX_CACHE_PARAMETERS: [NumericParameter; 3] = [
    NumericParameter::new(
        "affinity",
        0.8,
        (0.0, 1.0),
        "Cached share of the prompt from which an instance has the prefix",
    ),
    NumericParameter::new(
        "peak-prefill",
        15_928.0,
        TOKENS,
        "Prefill throughput of an idle instance, tokens per second",
    ),
    NumericParameter::new(
        "max-penalty-ms",
        18_000.0,
        (0.0, 1e7),
        "Longest additional wait for a cached prefix, ms; 0 for any",
    ),
];

/// The filter that [`PREFIX_CACHE_PARAMETERS`] describe.
pub(super) fn prefix_cache(set: &ParameterValues) -> PrefixCacheFilter {
    PrefixCacheFilter {
        affinity: set.get("affinity"),
        peak_prefill: set.get("peak-prefill"),
        max_penalty_ms: set.get("max-penalty-ms"),
    }
}

/// A filter with the values of its parameters.
#[derive(Clone, Debug)]
pub struct FilterSetting {
    row: &'static FilterRow,
    /// In the order of the row.
    values: Vec<f64>,
}

impl FilterSetting {
    /// The filter `name` with its defaults.
    ///
    /// # Errors
    /// If there is no such filter: what is wrong, and the hint.
    pub fn named(name: &str) -> Result<Self, (String, String)> {
        let Some(row) = FILTERS.iter().find(|row| row.name == name) else {
            let known = FILTERS.each_ref().map(|row| row.name);
            let hint = match PluginType::find(name).map(|plugin| plugin.role) {
                Some(Role::Filter(ours)) => format!("did you mean `{ours}`?"),
                _ => name_hint(name, &known),
            };
            return Err((format!("unknown filter {}", quoted(name.as_bytes())), hint));
        };
        Ok(Self { row, values: row.parameters.iter().map(|parameter| parameter.default).collect() })
    }

    /// Sets the parameter `name`.
    ///
    /// # Errors
    /// If there is no such parameter or the value is out of its range: what is wrong, and the hint.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), (String, String)> {
        let declared: Vec<PolicyParameter> = self.row.parameters.iter().map(PolicyParameter::from).collect();
        let index = parameter::find(self.row.name, &declared, name, value)?;
        self.values[index] = value;
        Ok(())
    }

    /// Its name in flags and bundles.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.row.name
    }

    /// Names, defaults and ranges of its parameters with their values.
    pub fn parameters(&self) -> impl Iterator<Item = (PolicyParameter, f64)> {
        self.row.parameters.iter().map(PolicyParameter::from).zip(self.values.iter().copied())
    }

    /// The filter for a simulation.
    pub(super) fn build(&self) -> RoutingFilter {
        let values = self.parameters().map(|(parameter, value)| (parameter.name, value));
        (self.row.build)(&ParameterValues(values.collect()))
    }

    /// Checks a list of filters.
    ///
    /// # Errors
    /// If a filter occurs twice: its index, what is wrong, and the hint.
    pub fn check(list: &[Self]) -> Result<(), (usize, String, String)> {
        let again = |index: &usize| list[..*index].iter().any(|other| other.name() == list[*index].name());
        match (0..list.len()).find(again) {
            Some(index) => {
                let what = format!("filter {}, `{}`, is listed twice", index + 1, list[index].name());
                Err((index, what, "give it once".to_owned()))
            }
            None => Ok(()),
        }
    }

    /// Names and summaries of all filters, for lists.
    pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
        FILTERS.iter().map(|row| (row.name, row.about))
    }
}

impl PartialEq for FilterSetting {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.values == other.values
    }
}

/// As in `--routing-filters`: the name, and the values that are not the defaults.
impl Display for FilterSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row.name)?;
        let set =
            self.row.parameters.iter().zip(&self.values).filter(|(parameter, value)| parameter.default != **value);
        for (parameter, value) in set {
            write!(f, ":{}={value}", parameter.name)?;
        }
        Ok(())
    }
}
