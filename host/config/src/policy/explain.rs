//! The policy settings written as a bundle, each value with its source.

use std::fmt::Display;

use super::registry::{PREFIX_CAPACITY, WEIGHTED};
use super::{
    BuiltIn, FilterSetting, PipelineStep, PolicySettings, PolicyUse, ScorerKind, SettingSource, Sourced, StepRole,
};
use blis_diag::{YamlPage, text};
use blis_plugin::{Kind, OtherValue, ValueTable};

impl PolicySettings {
    /// Writes a valid bundle with all settings. Reading it gives the same settings.
    pub fn explain(&self, page: &mut YamlPage) {
        for kind in Kind::ALL {
            self.explain_section(page, kind);
        }
        if self.tenant_budgets.is_empty() {
            page.entry("tenant_budgets", "{}", &SettingSource::Default);
        } else {
            page.section("tenant_budgets", |page| {
                for (tenant, budget) in &self.tenant_budgets {
                    entry(page, &text(tenant), budget);
                }
            });
        }
    }

    /// The section of the policy for `kind`. Flow control and what a service has on demand only have one if it is used.
    fn explain_section(&self, page: &mut YamlPage, kind: Kind) {
        match (kind, self.used(kind)) {
            // Filters are a part of routing, and the autoscaler has a section with its settings.
            (Kind::RoutingFilter | Kind::Scaling, _) => {}
            (Kind::Admission, _) => page.section(kind.name(), |page| {
                self.explain_used(page, kind);
                self.explain_slo_priorities(page);
            }),
            (Kind::Scheduling, Some(used)) if used.built_in.is_some() => {
                page.entry("scheduler", used.name(), &used.source);
            }
            (Kind::Latency, None) if !self.latency_parameters.is_empty() => {
                page.section(kind.name(), |page| explain_parameters(page, &self.latency_parameters));
            }
            (Kind::Latency, None) => {}
            (_, None) if kind.row().on_demand || kind.is_flow_control() => {}
            _ => page.section(kind.name(), |page| self.explain_used(page, kind)),
        }
    }

    fn explain_used(&self, page: &mut YamlPage, kind: Kind) {
        let Some(used) = self.used(kind) else { return };
        match used.built_in {
            Some(row) => used.explain_built_in(row, page),
            None => used.explain_plugin(page),
        }
    }

    fn explain_slo_priorities(&self, page: &mut YamlPage) {
        if self.slo_priorities.is_empty() {
            page.entry("slo_priorities", "{}", &SettingSource::Default);
        } else {
            page.section("slo_priorities", |page| {
                for (class, priority) in &self.slo_priorities {
                    entry(page, &text(class), priority);
                }
            });
        }
    }
}

impl PolicyUse {
    fn explain_plugin(&self, page: &mut YamlPage) {
        let source = SettingSource::Other(format!("{}, SHA-256 {}", self.loaded.file, self.loaded.sha256).into());
        page.entry("policy", text(&self.loaded.name), &source);
        if !(self.parameters.is_empty() && self.others.is_empty()) {
            page.section("parameters", |page| {
                self.parameters.iter().for_each(|(name, value)| entry(page, &text(name), value));
                for (name, value) in &self.others {
                    page.entry(&text(name), other_text(&value.value), &value.source);
                }
            });
        }
    }

    /// Writes parameters under BLIS's keys, or under their names where BLIS has none; filters and scorers as lists.
    fn explain_built_in(&self, row: &BuiltIn, page: &mut YamlPage) {
        page.entry("policy", self.name(), &self.source);
        for (name, value) in &self.parameters {
            if let Some(key) = row.parameter(name).map(|parameter| parameter.key).filter(|key| !key.is_empty()) {
                entry(page, key, value);
            }
        }
        if row.name == WEIGHTED {
            if !self.filters.is_empty() {
                page.section("filters", |page| {
                    self.filters.iter().for_each(|filter| {
                        explain_filter(page, filter, self.step(StepRole::Filter, filter.name()));
                    });
                });
            }
            page.section("scorers", |page| {
                let weighed = |(name, weight): &&(String, Sourced<f64>)| name != PREFIX_CAPACITY && **weight > 0.0;
                for (name, weight) in self.parameters.iter().filter(weighed) {
                    let step = self.step(StepRole::Scorer, name);
                    let more = step.map_or_else(String::new, |step| format!(", {}", step.used.flow_parameters()));
                    let source = step.map_or_else(|| weight.source.clone(), PipelineStep::shown_source);
                    page.item(format_args!("{{name: {}, weight: {}{more}}}", text(name), weight.value), &source);
                }
            });
            let picker = self.steps.iter().find(|step| step.role == StepRole::Picker);
            if let Some(picker) = picker {
                page.entry("picker", text(&picker.name), &picker.shown_source());
            }
            self.explain_pipeline_parameters(page, picker);
            return;
        }
        let has_key = |name: &str| row.parameter(name).is_some_and(|parameter| !parameter.key.is_empty());
        let named: Vec<_> = self.parameters.iter().filter(|(name, _)| !has_key(name)).cloned().collect();
        if !named.is_empty() {
            explain_parameters(page, &named);
        }
    }
}

impl PolicyUse {
    /// The capacity of the scorer `prefix-affinity`, if it has a weight, and the parameters of a picker, which have its name in
    /// front: a bundle has no list for it.
    fn explain_pipeline_parameters(&self, page: &mut YamlPage, picker: Option<&PipelineStep>) {
        let value = |name: &str| self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        let has_record = value(ScorerKind::PrefixAffinity.name()).is_some_and(|weight| **weight > 0.0);
        let capacity = value(PREFIX_CAPACITY).filter(|_| has_record);
        let of_picker = picker.filter(|step| !(step.used.parameters.is_empty() && step.used.others.is_empty()));
        if capacity.is_none() && of_picker.is_none() {
            return;
        }
        page.section("parameters", |page| {
            capacity.into_iter().for_each(|value| entry(page, PREFIX_CAPACITY, value));
            if let Some(step) = of_picker {
                for (name, value) in &step.used.parameters {
                    entry(page, &text(&format!("{}.{name}", step.name)), value);
                }
                for (name, value) in &step.used.others {
                    page.entry(&text(&format!("{}.{name}", step.name)), other_text(&value.value), &value.source);
                }
            }
        });
    }

    /// `parameters: {a: 1, b: two}`, in one line.
    fn flow_parameters(&self) -> String {
        let numbers = self.parameters.iter().map(|(name, value)| format!("{}: {}", text(name), value.value));
        let others = self.others.iter().map(|(name, value)| format!("{}: {}", text(name), other_text(&value.value)));
        format!("parameters: {{{}}}", numbers.chain(others).collect::<Vec<_>>().join(", "))
    }
}

impl PipelineStep {
    /// The file and its SHA-256, as for policies.
    fn shown_source(&self) -> SettingSource {
        SettingSource::Other(format!("{}, SHA-256 {}", self.used.loaded.file, self.used.loaded.sha256).into())
    }
}

fn explain_filter(page: &mut YamlPage, filter: &Sourced<FilterSetting>, step: Option<&PipelineStep>) {
    let parameters = match (filter.built_in(), step) {
        (Some(built_in), _) => {
            let values: Vec<String> =
                built_in.parameters().map(|(parameter, value)| format!("{}: {value}", parameter.name)).collect();
            format!("parameters: {{{}}}", values.join(", "))
        }
        (None, Some(step)) => step.used.flow_parameters(),
        (None, None) => "parameters: {}".to_owned(),
    };
    let source = step.map_or_else(|| filter.source.clone(), PipelineStep::shown_source);
    page.item(format_args!("{{name: {}, {parameters}}}", text(filter.name())), &source);
}

/// A text or table in YAML.
fn other_text(value: &OtherValue) -> String {
    match value {
        OtherValue::Text(word) => text(word).to_string(),
        OtherValue::Table(ValueTable { columns, numbers }) => {
            let row = |row: &[f64]| format!("[{}]", row.iter().map(f64::to_string).collect::<Vec<_>>().join(", "));
            let rows: Vec<String> = numbers.chunks((*columns).max(1) as usize).map(row).collect();
            format!("[{}]", rows.join(", "))
        }
    }
}

fn explain_parameters(page: &mut YamlPage, parameters: &[(String, Sourced<f64>)]) {
    page.section("parameters", |page| {
        for (name, value) in parameters {
            entry(page, &text(name), value);
        }
    });
}

fn entry<T: Display>(page: &mut YamlPage, key: &str, sourced: &Sourced<T>) {
    page.entry(key, &sourced.value, &sourced.source);
}
