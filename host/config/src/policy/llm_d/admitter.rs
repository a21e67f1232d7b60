//! llm-d's plugins that admit requests: `probabilistic-admitter`, `latency-slo-admitter`. Declaring one turns it on.
//!
//! Parameters as the plugins read them: llm-d-router, `requestcontrol/admitter/{probabilisticadmitter,latencyslo}/plugin.go`.

use std::fmt::Write as _;

use super::Saturation;
use super::config::ConfigPage;
use super::plugins::{PluginType, Role};
use super::read::{DeclaredPlugin, Reader};
use crate::policy::error::{Contradiction, PolicyError};
use crate::policy::{BuiltIn, ParameterInput, PolicyUse, SettingSource, Sourced};
use blis_diag::{Diagnostic, quoted};
use blis_plugin::Kind;

impl Reader<'_> {
    /// The first admitter that is declared. The others are left out, and so is the `shedding` by the detector of saturation.
    pub(super) fn admitter(
        &mut self,
        plugins: &[DeclaredPlugin],
        shedding: &mut Option<Saturation>,
    ) -> Result<Option<PolicyUse>, PolicyError> {
        let mut admitter: Option<PolicyUse> = None;
        for plugin in plugins {
            let Some((row, Role::Admitter(name))) = plugin.row.map(|row| (row, row.role)) else { continue };
            let location = self.document.location(plugin.written.referenced);
            let left_out = |what: String| Diagnostic::new(what).at(location.clone());
            let policy = BuiltIn::find(Kind::Admission, name).expect("the tests look up all of them");
            let mut used = PolicyUse::built_in(policy, SettingSource::Default);
            self.parameters(plugin, row, |parameter, value| {
                let value = Sourced::default_value(ParameterInput::Number(value));
                used.set(&[(parameter.to_owned(), value)]).map_err(|Contradiction { what, hint, .. }| (what, hint))
            })?;
            if let Some(first) = &admitter {
                let what = format!("there is one admission policy: `{name}` is left out beside `{}`", first.name());
                self.remarks.left_out.push(left_out(what));
                continue;
            }
            self.differs(plugin, row);
            if shedding.take().is_some() {
                let what = format!(
                    "the detector of saturation has no counterpart beside {}: it would reject requests of a negative priority \
                     while the service is saturated",
                    quoted(plugin.written.value.as_bytes())
                );
                self.remarks.left_out.push(left_out(what).hint(
                    "llm-d's published configuration turns it off: `queueDepthThreshold: 999999999`, `kvCacheUtilThreshold: 1.0`",
                ));
            }
            admitter = Some(used);
        }
        Ok(admitter)
    }
}

/// The section of a bundle, with the parameters that llm-d has as well.
pub(super) fn to_bundle(admitter: &PolicyUse) -> String {
    let mut text = format!("admission:\n  policy: {}\n", admitter.name());
    let has_counterpart =
        |name: &str| type_of(admitter).is_some_and(|row| row.counterparts().any(|(_, ours)| ours == name));
    let known = admitter.parameters.iter().filter(|(name, _)| has_counterpart(name));
    let values: Vec<String> = known.map(|(name, value)| format!("{name}: {}", value.value)).collect();
    if !values.is_empty() {
        let _ = writeln!(text, "  parameters: {{{}}}", values.join(", "));
    }
    text
}

/// The type of llm-d that is the admission policy of a bundle, if there is one.
pub(super) fn type_of(used: &PolicyUse) -> Option<&'static PluginType> {
    PluginType::for_role(Role::Admitter(used.built_in?.name))
}

impl ConfigPage {
    pub(super) fn admitter(&mut self, admitter: &PolicyUse) {
        let row = type_of(admitter).expect("it was checked when the bundle was read");
        let value =
            |ours: &str| admitter.parameters.iter().find(|(name, _)| name == ours).map(|(_, value)| value.value);
        self.declare(row, None, &row.written(value));
    }
}
