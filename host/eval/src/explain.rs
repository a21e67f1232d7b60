//! `--explain-config`: all settings that a run depends on, as YAML, each value with its source.
//!
//! Keys are the names of flags, and values have the form that the flags take, so `--config` reads the page. Values
//! that follow from other settings (the GPUs that a model needs, its KV blocks) are comments, so that they are
//! computed again when one of those settings changes. The policies come last, without indentation: from there to the
//! end the page is a bundle for `--policy-config`.

use std::fmt::Display;
use std::path::Path;

use blis_config::policy::{SettingSource, Sourced};
use blis_config::{Deployment, KvBlocksSource, LatencyKind};
use blis_diag::{YamlPage, text};
use blis_plugin::Kind;
use blis_plugin::incidents::OnError;
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;
use blis_workload::distribution::{ArrivalProcess, DistributionSpec, LengthSpec};
use blis_workload::trace_v2::{ThinkTime, recorded_seed};

use crate::experiment::{Experiment, SloTargetSettings};
use crate::fitness::FitnessWeights;
use crate::spec::text::{target_text, think_time_text};
use crate::spec::{ArrivalName, DtypeName, KvCacheDtypeName, ParityName, SessionMode, SettingKey, WorkloadName};
use crate::workload_config::{SpecConfig, SpecOrigin, SyntheticConfig, TraceConfig, TracePart, WorkloadConfig};

/// The page of all settings of `config` on `deployment`.
#[must_use]
pub fn explain(config: &Experiment, deployment: &Deployment) -> YamlPage {
    let mut page = YamlPage::default();
    let explanation = Explanation { config, deployment };
    page.section("model-and-hardware", |page| explanation.model_and_hardware(page));
    page.section("engine", |page| explanation.engine(page));
    page.section("cluster", |page| explanation.cluster(page));
    page.section("evaluation", |page| explanation.evaluation(page));
    page.section("workload", |page| explanation.workload(page));
    page.section("simulation", |page| explanation.simulation(page));
    page.comment("From here to the end: the policies, a bundle for --policy-config");
    config.cluster.policies.explain(&mut page);
    page
}

struct Explanation<'a> {
    config: &'a Experiment,
    deployment: &'a Deployment,
}

impl Explanation<'_> {
    /// Writes the value of the setting `key`, with its source or the default as source.
    fn flag(&self, page: &mut YamlPage, key: &str, value: impl Display) {
        self.or_else(page, key, value, SettingSource::Default);
    }

    /// Writes the value of the setting `key`, with its source or, if it is not set, `otherwise`.
    fn or_else(&self, page: &mut YamlPage, key: &str, value: impl Display, otherwise: SettingSource) {
        line(page, key, value, &self.config.spec.source(key, otherwise));
    }

    /// The reason in the note of the deployment that starts with `what`, or `usual`.
    fn noted(&self, what: &str, usual: &'static str) -> SettingSource {
        let note = self.deployment.notes.iter().find(|note| note.starts_with(what));
        let reason = note.map(|note| note.split_once(": ").map_or(note.as_str(), |(_, reason)| reason));
        SettingSource::Other(reason.map_or(usual.into(), |reason| reason.to_owned().into()))
    }

    fn model_and_hardware(&self, page: &mut YamlPage) {
        let (args, deployment) = (&self.config.deployment, self.deployment);
        self.flag(page, "model", text(&args.model));
        self.or_else(page, "hardware", text(&deployment.hardware), self.noted("hardware ", "the coefficients' own"));
        let tp = self.noted("tensor parallel size ", "the coefficients' own");
        self.or_else(page, "tp", deployment.tensor_parallel_size, tp);
        let pp = self.noted("pipeline parallel size ", "the default");
        self.or_else(page, "pp", deployment.pipeline_parallel_size, pp);
        self.flag(page, "dp", deployment.data_parallel_size);
        self.flag(page, "enable-expert-parallel", args.enable_expert_parallel);
        self.flag(page, "enforce-eager", args.enforce_eager);
        self.precision(page);
        self.flag(page, "moe-comm-backend", optional(args.moe_comm_backend.as_deref().map(text)));
        self.flag(page, "vllm-version", optional(args.vllm_version.as_deref().map(text)));
        let built_in = SettingSource::Other("built in".into());
        self.or_else(page, "model-config-folder", path(args.model_config_folder.as_deref()), built_in.clone());
        self.or_else(page, "hardware-config", path(args.hardware_config.as_deref()), built_in);
        self.latency_model(page);
        let trained = match deployment.latency_kind {
            LatencyKind::TrainedPhysics => SettingSource::Other("trained".into()),
            LatencyKind::Physics => self.noted("physics coefficients", "trained"),
            LatencyKind::Roofline => SettingSource::Other("roofline has none".into()),
            LatencyKind::Blackbox => self.noted("blackbox coefficients ", "trained"),
        };
        let trained = match args.latency_parameters.is_empty() {
            true => trained,
            false => SettingSource::Other(format!("{trained}; parameters of `latency` below").into()),
        };
        self.flag(page, "coefficients", path(args.coefficients.as_deref()));
        self.or_else(page, "alpha-coeffs", list(&deployment.alpha), trained.clone());
        self.or_else(page, "beta-coeffs", list(&deployment.beta), trained);
        let blocks = match deployment.kv_blocks_source {
            KvBlocksSource::Flag => self.config.spec.source("total-kv-blocks", SettingSource::Default),
            source => SettingSource::Other(source.to_string().into()),
        };
        line(page, "total-kv-blocks", deployment.total_kv_blocks, &blocks);
        self.flag(page, "block-size-in-tokens", args.block_size);
        let (length, context) = (optional(deployment.max_model_len), "the context length of ");
        let by_model = match deployment.max_model_len {
            Some(_) => self.noted("max_model_len ", "the model's configuration"),
            None => self.noted(context, "the model's configuration"),
        };
        let given = self.config.deployment.max_model_len.filter(|&given| Some(given) == deployment.max_model_len);
        let source = if given.is_some() { self.config.spec.source("max-model-len", by_model) } else { by_model };
        line(page, "max-model-len", length, &source);
        self.flag(page, "gpu-memory-utilization", args.gpu_memory_utilization);
    }

    /// Number formats; those that no setting names are the model's own.
    fn precision(&self, page: &mut YamlPage) {
        let (precision, spec) = (&self.deployment.precision, &self.config.spec);
        let own = || SettingSource::Other("the model's configuration".into());
        let name = |name: &Option<String>| optional(name.as_deref().map(text));
        let by = |key, is_auto| if is_auto { own() } else { spec.source(key, own()) };
        let is_auto = spec.dtype.is_none_or(|dtype| dtype == DtypeName::Auto);
        line(page, "dtype", name(&precision.dtype), &by("dtype", is_auto));
        self.or_else(page, "quantization", name(&precision.quantization), own());
        let is_auto = spec.kv_cache_dtype.is_none_or(|dtype| dtype == KvCacheDtypeName::Auto);
        line(page, "kv-cache-dtype", name(&precision.kv_cache_dtype), &by("kv-cache-dtype", is_auto));
    }

    /// A latency model that a setting names is that setting's; in all other cases the model is derived.
    fn latency_model(&self, page: &mut YamlPage) {
        let (kind, spec) = (self.deployment.latency_kind, &self.config.spec);
        let plugin = self.config.cluster.policies.plugin(Kind::Latency).is_some();
        let source = match spec.source("latency-model", SettingSource::Default) {
            _ if plugin => SettingSource::Other("fallback if the plugin fails".into()),
            SettingSource::Default => self.latency_source(),
            source => source,
        };
        line(page, "latency-model", kind, &source);
    }

    /// Why the deployment uses that model, if no setting names one.
    fn latency_source(&self) -> SettingSource {
        let by_flag = if self.config.spec.beta_coeffs.is_some() { "beta-coeffs" } else { "vllm-version" };
        match self.deployment.latency_kind {
            LatencyKind::Physics | LatencyKind::Roofline => SettingSource::Other("default".into()),
            _ => match self.config.spec.source(by_flag, SettingSource::Default) {
                SettingSource::Default => self.noted("blackbox latency model", "default"),
                source => SettingSource::Other(source.to_string().into()),
            },
        }
    }

    fn engine(&self, page: &mut YamlPage) {
        let engine = &self.config.engine;
        let limits = &self.deployment.batch_limits;
        let by_gpu = || match engine.profile {
            Some(_) => SettingSource::Other(self.deployment.batch_limits_source.into()),
            None => SettingSource::Default,
        };
        if let Some(profile) = engine.profile {
            self.flag(page, "engine", profile);
        }
        self.or_else(page, "max-num-seqs", limits.max_num_seqs, by_gpu());
        self.or_else(page, "max-num-batched-tokens", limits.max_num_batched_tokens, by_gpu());
        self.flag(page, "max-num-active-seqs", optional(engine.options.max_num_active_seqs));
        self.flag(page, "long-prefill-token-threshold", engine.long_prefill_token_threshold);
        self.flag(page, "long-prefill-token-threshold-adaptive", engine.options.adaptive_prefill_threshold);
        self.flag(page, "prefill-schedule-interval", engine.options.prefill_schedule_interval);
        self.flag(page, "watermark", engine.watermark);
        self.flag(page, "max-num-queued-reqs", optional(engine.options.max_num_queued_reqs));
        self.flag(page, "max-num-queued-tokens", optional(engine.options.max_num_queued_tokens));
        self.flag(page, "enable-prefix-caching", engine.enable_prefix_caching);
        self.flag(page, "enable-chunked-prefill", engine.enable_chunked_prefill);
        self.flag(page, "async-scheduling", engine.async_scheduling);
        let by_engine = match engine.profile {
            Some(profile) => SettingSource::Other(format!("{profile}").into()),
            None => SettingSource::Default,
        };
        self.or_else(page, "scheduler-reserve-full-isl", engine.reserve_full_prompt, by_engine);
        let parity = if engine.semantics == Semantics::BLIS { ParityName::Blis } else { ParityName::Vllm };
        self.flag(page, "parity", parity);
        self.flag(page, "simulation", engine.simulation);
    }

    fn cluster(&self, page: &mut YamlPage) {
        let cluster = &self.config.cluster;
        self.flag(page, "num-instances", cluster.num_instances);
        self.flag(page, "admission-latency", cluster.admission_latency.0);
        self.flag(page, "routing-latency", cluster.routing_latency.0);
        self.flag(page, "snapshot-refresh-interval", cluster.snapshot_refresh_interval.0);
        self.flag(page, "cache-signal-delay", cluster.cache_signal_delay.0);
        self.flag(page, "tie-break", cluster.tie_break);
        let catalog = &self.config.catalog;
        let dirs: Vec<String> = catalog.dirs().iter().map(|dir| text(&dir.display().to_string())).collect();
        self.flag(page, "policy-dir", format_args!("[{}]", dirs.join(", ")));
        self.flag(page, "allow-native", catalog.allows_native());
        self.flag(page, "allow-large-components", catalog.limits().large_components);
        let on_error = match self.config.on_plugin_error {
            OnError::Fail => "fail",
            OnError::Fallback => "fallback",
        };
        self.flag(page, "on-plugin-error", on_error);
    }

    fn evaluation(&self, page: &mut YamlPage) {
        let evaluation = &self.config.evaluation;
        self.flag(page, "slo-ttft", self.targets(|targets| &targets.ttft));
        self.flag(page, "slo-itl", self.targets(|targets| &targets.itl));
        self.flag(page, "slo-e2e", self.targets(|targets| &targets.e2e));
        self.flag(page, "fitness-weights", optional(evaluation.fitness.as_ref().map(|weights| text(weights.text()))));
        if let Some(scale) = evaluation.fitness.as_ref().map(FitnessWeights::scale) {
            self.flag(page, "fitness-scale", scale.name());
        }
        self.flag(page, "baseline", optional(evaluation.baseline.as_deref().map(text)));
        self.flag(page, "trace-level", evaluation.trace_level);
        self.flag(page, "trace-path", path(evaluation.trace_path.as_deref()));
        self.flag(page, "counterfactual-k", evaluation.counterfactual_k);
        self.flag(page, "summarize-trace", evaluation.summarize_trace);
        let regret = &evaluation.regret;
        self.flag(page, "regret", regret.kind);
        self.flag(page, "regret-samples", regret.samples);
        self.flag(page, "regret-alternatives", regret.alternatives);
        self.flag(page, "regret-window", optional(regret.window.map(Micros::as_secs_f64)));
        self.flag(page, "regret-path", path(regret.path.as_deref()));
    }

    /// SLO targets in the form that the flag takes.
    fn targets(&self, of: impl Fn(&SloTargetSettings) -> &Option<Sourced<Micros>>) -> String {
        let targets = &self.config.cluster.slo_targets;
        let given: Vec<String> = targets
            .iter()
            .filter_map(|(class, targets)| of(targets).as_ref().map(|target| target_text(class, target.value)))
            .collect();
        optional((!given.is_empty()).then(|| text(&given.join(","))))
    }

    fn workload(&self, page: &mut YamlPage) {
        match &self.config.workload {
            WorkloadConfig::Synthetic(synthetic) => self.synthetic(page, synthetic),
            WorkloadConfig::Trace(trace) => self.trace(page, trace),
            WorkloadConfig::Specified(specified) => self.specified(page, specified),
            WorkloadConfig::Recorded { header, data, skip_bad_lines, part, closed_loop } => {
                self.flag(page, "trace-header", path(Some(header)));
                self.flag(page, "trace-data", path(Some(data)));
                self.flag(page, "skip-bad-lines", skip_bad_lines);
                self.part(page, part);
                self.sessions(page, *closed_loop);
            }
        }
    }

    fn sessions(&self, page: &mut YamlPage, closed_loop: Option<Option<ThinkTime>>) {
        let mode = if closed_loop.is_some() { SessionMode::ClosedLoop } else { SessionMode::Fixed };
        self.flag(page, "session-mode", mode);
        match closed_loop.flatten() {
            Some(ThinkTime::Constant(time)) => self.flag(page, "think-time-ms", time.as_millis_f64()),
            Some(time @ ThinkTime::LogNormal { .. }) => {
                self.flag(page, "think-time-dist", text(&think_time_text(&time)));
            }
            None if closed_loop.is_some() => {
                self.or_else(page, "think-time-ms", "null", SettingSource::Other("think times of the trace".into()));
            }
            None => {}
        }
    }

    fn synthetic(&self, page: &mut YamlPage, SyntheticConfig { name: preset, spec, .. }: &SyntheticConfig) {
        self.flag(page, "workload", preset);
        self.flag(page, "rate", spec.rate);
        let arrivals = match spec.arrival {
            ArrivalProcess::Constant => "constant",
            ArrivalProcess::Poisson => "poisson",
        };
        self.flag(page, "arrival-process", arrivals);
        self.flag(page, "num-requests", spec.num_requests.unwrap_or(0));
        self.lengths(page, preset, spec);
    }

    fn lengths(&self, page: &mut YamlPage, preset: &str, spec: &DistributionSpec) {
        for (what, LengthSpec { mean, stdev, min, max }) in [("prompt", spec.prompt), ("output", spec.output)] {
            let usual = if preset == "distribution" {
                SettingSource::Default
            } else {
                SettingSource::Other(format!("preset {preset}").into())
            };
            for (figure, value) in [("", mean), ("-stdev", stdev), ("-min", min.into()), ("-max", max.into())] {
                self.or_else(page, &format!("{what}-tokens{figure}"), value, usual.clone());
            }
        }
        self.flag(page, "prefix-tokens", spec.prefix_tokens);
        self.flag(page, "timeout", timeout(spec.timeout));
    }

    fn specified(&self, page: &mut YamlPage, SpecConfig { origin, spec, num_requests, timeout: all }: &SpecConfig) {
        let (number, own) = (num_requests.unwrap_or(0), SettingSource::Other("specification".into()));
        match origin {
            SpecOrigin::File(file) => {
                self.flag(page, "workload-spec", path(Some(file)));
                self.or_else(page, "num-requests", number, own.clone());
                self.or_else(page, "timeout", optional(all.map(timeout)), own);
            }
            SpecOrigin::Named(preset) => {
                self.flag(page, "workload", preset.name());
                self.flag(page, "rate", spec.aggregate_rate);
                self.flag(page, "num-requests", number);
                self.flag(page, "timeout", timeout(all.flatten()));
            }
            SpecOrigin::Users { name, count, think_time, lengths } => {
                self.flag(page, "workload", name);
                self.flag(page, "concurrency", count);
                self.flag(page, "think-time-ms", think_time.as_millis_f64());
                let until = SettingSource::Other("until the horizon".into());
                self.or_else(page, "num-requests", number, until);
                self.lengths(page, name, lengths);
            }
        }
    }

    fn trace(&self, page: &mut YamlPage, trace: &TraceConfig) {
        let implied = SettingSource::Other("flag --workload-trace".into());
        self.or_else(page, "workload", WorkloadName::Traces, implied);
        self.flag(page, "workload-trace", path(Some(&trace.path)));
        self.flag(page, "trace-format", trace.format);
        let usual = SettingSource::Other("the format's own".into());
        self.or_else(page, "mooncake-block-size", optional(trace.mooncake_block_size), usual);
        self.flag(page, "skip-bad-lines", trace.skip_bad_lines);
        self.part(page, &trace.part);
        let mode = if trace.closed_loop { SessionMode::ClosedLoop } else { SessionMode::Fixed };
        self.flag(page, "session-mode", mode);
        if let Some((rate, process)) = trace.arrivals {
            self.flag(page, "rate", rate);
            self.flag(page, "arrival-process", ArrivalName::from(process));
        }
        self.flag(page, "timeout", timeout(trace.timeout));
    }

    fn part(&self, page: &mut YamlPage, TracePart { window, max_requests }: &TracePart) {
        self.flag(page, "start", window.start.as_secs_f64());
        self.flag(page, "duration", optional(window.duration.map(Micros::as_secs_f64)));
        self.flag(page, "time-scale", window.time_scale);
        self.flag(page, "repeat", window.repeat);
        self.flag(page, "spread-bins", optional(window.spread.map(Micros::as_millis_f64)));
        self.flag(page, "max-requests", optional(*max_requests));
    }

    fn simulation(&self, page: &mut YamlPage) {
        let Experiment { seed, horizon, workload, engine, .. } = self.config;
        let specified = match workload {
            WorkloadConfig::Specified(SpecConfig { spec, .. }) => (spec.seed.is_some(), spec.horizon.is_some()),
            _ => (false, false),
        };
        let own = || SettingSource::Other("specification".into());
        let of_header = matches!(workload, WorkloadConfig::Recorded { header, .. } if recorded_seed(header).is_some());
        let seed_is_from = if specified.0 {
            own()
        } else if of_header {
            SettingSource::Other("header of the trace".into())
        } else {
            SettingSource::Default
        };
        self.or_else(page, "seed", seed, seed_is_from);
        let replay_of_blis = matches!(workload, WorkloadConfig::Recorded { .. }) && engine.semantics == Semantics::BLIS;
        let usual = if replay_of_blis { "twice the last arrival" } else { "when every request has ended" };
        let end = optional(Some(horizon.0).filter(|_| *horizon != Micros::MAX));
        self.or_else(page, "horizon", end, if specified.1 { own() } else { SettingSource::Other(usual.into()) });
        self.flag(page, "warmup", self.config.warmup.as_secs_f64());
    }
}

/// The value, or `null` if there is none.
fn optional(value: Option<impl Display>) -> String {
    value.map_or("null".to_owned(), |value| value.to_string())
}

fn path(path: Option<&Path>) -> String {
    optional(path.map(|path| text(&path.display().to_string())))
}

fn list(numbers: &[f64]) -> String {
    format!("[{}]", numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(", "))
}

/// Seconds; −1 for no deadline.
fn timeout(timeout: Option<Micros>) -> f64 {
    timeout.map_or(-1.0, Micros::as_secs_f64)
}

/// An entry for a setting, or a comment if the value is derived from other settings.
fn line(page: &mut YamlPage, key: &str, value: impl Display, source: &SettingSource) {
    debug_assert!(SettingKey::find(key).is_ok(), "{key}");
    match source {
        SettingSource::Other(_) => page.comment(format_args!("{key}: {value}  ({source})")),
        _ => page.entry(key, value, source),
    }
}
