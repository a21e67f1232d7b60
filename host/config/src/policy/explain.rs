//! Policies as a bundle again, each value with where it comes from.

use std::fmt::Display;

use super::{AdmissionSettings, Named, PolicySettings, RoutingSettings, Source, Sourced, Weights};
use blis_diag::{Page, text};
use blis_plugin::Kind;

impl PolicySettings {
    /// A legal bundle that says all of this. Reading it gives the same settings.
    pub fn explain(&self, page: &mut Page) {
        page.section("admission", |page| self.explain_admission(page));
        page.section("routing", |page| self.explain_routing(page));
        page.section("priority", |page| {
            self.plugin_or(page, Kind::Priority, |page| entry(page, "policy", &self.priority, |name| name.name()));
        });
        if self.plugin(Kind::Scheduling).is_some() {
            page.section("scheduling", |page| self.plugin_or(page, Kind::Scheduling, |_| ()));
        } else {
            entry(page, "scheduler", &self.scheduler, |name| name.name());
        }
        page.section("preemption", |page| {
            self.plugin_or(page, Kind::Preemption, |page| entry(page, "policy", &self.preemption, |name| name.name()));
        });
        if self.plugin(Kind::Latency).is_some() {
            page.section("latency", |page| self.plugin_or(page, Kind::Latency, |_| ()));
        }
        if self.tenant_budgets.is_empty() {
            page.entry("tenant_budgets", "{}", &Source::Default);
        } else {
            page.section("tenant_budgets", |page| {
                for (tenant, budget) in &self.tenant_budgets {
                    entry(page, &text(tenant), budget, |budget| *budget);
                }
            });
        }
    }

    /// The plugin used for `kind`, else what is built in.
    fn plugin_or(&self, page: &mut Page, kind: Kind, built_in: impl FnOnce(&mut Page)) {
        let Some(used) = self.plugin(kind) else { return built_in(page) };
        let told = Source::Told(format!("{}, SHA-256 {}", used.loaded.file, used.loaded.sha256).into());
        page.entry("policy", text(&used.loaded.name), &told);
        if !used.parameters.is_empty() {
            let declared = &used.loaded.plugin.description().parameters;
            page.section("parameters", |page| {
                for (parameter, value) in declared.iter().zip(&used.parameters) {
                    entry(page, &text(&parameter.name), value, |value| *value);
                }
            });
        }
    }

    fn explain_admission(&self, page: &mut Page) {
        self.plugin_or(page, Kind::Admission, |page| self.explain_built_in_admission(page));
        if self.slo_priorities.is_empty() {
            page.entry("slo_priorities", "{}", &Source::Default);
        } else {
            page.section("slo_priorities", |page| {
                for (class, priority) in &self.slo_priorities {
                    entry(page, &text(class), priority, |priority| *priority);
                }
            });
        }
    }

    fn explain_built_in_admission(&self, page: &mut Page) {
        entry(page, "policy", &self.admission, |settings| settings.name().name());
        match &*self.admission {
            AdmissionSettings::AlwaysAdmit | AdmissionSettings::RejectAll => {}
            AdmissionSettings::TokenBucket { capacity, refill_rate } => {
                entry(page, "token_bucket_capacity", capacity, |value| *value);
                entry(page, "token_bucket_refill_rate", refill_rate, |value| *value);
            }
            AdmissionSettings::TierShed { threshold, min_priority } => {
                entry(page, "tier_shed_threshold", threshold, |value| *value);
                entry(page, "tier_shed_min_priority", min_priority, |value| *value);
            }
            AdmissionSettings::GaieLegacy { queue_depth, kv_utilization } => {
                entry(page, "gaie_qd_threshold", queue_depth, |value| *value);
                entry(page, "gaie_kv_threshold", kv_utilization, |value| *value);
            }
        }
    }

    fn explain_routing(&self, page: &mut Page) {
        self.plugin_or(page, Kind::Routing, |page| self.explain_built_in_routing(page));
    }

    fn explain_built_in_routing(&self, page: &mut Page) {
        entry(page, "policy", &self.routing, |settings| settings.name().name());
        match &*self.routing {
            RoutingSettings::Weighted(Weights::Scorers(scorers)) => page.section("scorers", |page| {
                for scorer in scorers {
                    page.item(
                        format_args!("{{name: {}, weight: {}}}", scorer.name.name(), scorer.weight),
                        &scorer.source,
                    );
                }
            }),
            RoutingSettings::Weighted(Weights::CacheAndLoad { cache, load }) => {
                entry(page, "cache_weight", cache, |value| *value);
                entry(page, "load_weight", load, |value| *value);
            }
            RoutingSettings::RoundRobin
            | RoutingSettings::LeastLoaded
            | RoutingSettings::PrefixAffinity
            | RoutingSettings::AlwaysBusiest => {}
        }
    }
}

fn entry<T, V: Display>(page: &mut Page, key: &str, sourced: &Sourced<T>, value: impl FnOnce(&T) -> V) {
    page.entry(key, value(&sourced.value), &sourced.source);
}
