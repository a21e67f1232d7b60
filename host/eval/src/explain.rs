//! `--explain-config`: all settings that a run depends on, as YAML, each value with its source.
//!
//! Keys are the names of flags, and values have the form that the flags take, so `--config` reads the page. Values
//! that follow from other settings (the GPUs that a model needs, its KV blocks) are comments, so that they are
//! computed again when one of those settings changes. The policies come last, without indentation: from there to the
//! end the page is a bundle for `--policy-config`.

use std::fmt::Display;

use blis_config::policy::{BuiltIn, SettingSource};
use blis_config::{Deployment, KvBlocksSource, LatencyKind};
use blis_diag::{YamlPage, text};
use blis_plugin::Kind;
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;
use blis_workload::distribution::{DistributionSpec, LengthSpec};
use blis_workload::trace_v2::recorded_seed;

use crate::error::RunError;
use crate::experiment::Experiment;
use crate::scaling_rules::scaling_rules_text;
use crate::spec::{
    DtypeName, ExperimentSpec, InlinePolicies, KEYS, KvCacheDtypeName, SettingKey, ValueForm, WorkloadName,
};
use crate::startup::start_times_text;
use crate::workload_config::{SpecConfig, SpecOrigin, SyntheticConfig, WorkloadConfig};

/// The page of all settings of `config` on `deployment`.
#[must_use]
pub fn explain(config: &Experiment, deployment: &Deployment) -> YamlPage {
    let mut page = YamlPage::default();
    let settings = (Explanation { config, deployment }).settings();
    for part in settings.chunk_by(|a, b| a.key.group.section == b.key.group.section) {
        page.section(part[0].key.group.section, |page| part.iter().for_each(|setting| setting.write(page)));
    }
    page.comment("From here to the end: the policies, a bundle for --policy-config");
    config.cluster.policies.explain(&mut page);
    page
}

/// The settings of that page: those that `--config` reads from it.
///
/// # Errors
/// If a setting does not take its resolved value, which is a defect of the program.
pub(crate) fn resolved(config: &Experiment, deployment: &Deployment) -> Result<ExperimentSpec, RunError> {
    let mut spec = ExperimentSpec::default();
    for ExplainedSetting { key, texts, source } in (Explanation { config, deployment }).settings() {
        // Others follow from these.
        for text in texts.iter().filter(|_| !matches!(source, SettingSource::Other(_))) {
            spec.set(key, text, source.clone()).map_err(|message| {
                RunError::runtime(format_args!("the setting `{}` does not take its own value `{text}`", key.name))
                    .hint(message)
            })?;
        }
    }
    let mut bundle = YamlPage::without_sources();
    config.cluster.policies.explain(&mut bundle);
    spec.policies =
        Some(InlinePolicies { file: "policies".into(), text: bundle.to_string().trim_end().to_owned().into() });
    Ok(spec)
}

/// A setting with the texts of the value that the experiment has, none for `null`, and where the value is from.
struct ExplainedSetting {
    key: &'static SettingKey,
    texts: Vec<String>,
    source: SettingSource,
}

impl ExplainedSetting {
    /// An entry, or a comment if the value follows from other settings.
    fn write(&self, page: &mut YamlPage) {
        let Self { key, texts, source } = self;
        let scalar = |value: &String| match key.form {
            ValueForm::Text | ValueForm::Texts => text(value),
            ValueForm::Number | ValueForm::Numbers | ValueForm::Switch => value.clone(),
        };
        let value = match texts.as_slice() {
            several if key.form.is_list() => format!("[{}]", several.iter().map(scalar).collect::<Vec<_>>().join(", ")),
            [] => "null".to_owned(),
            one => one.iter().map(scalar).collect(),
        };
        match source {
            SettingSource::Other(why) => page.comment(format_args!("{}: {value}  ({why})", key.name)),
            source => page.entry(key.name, value, source),
        }
    }
}

struct Explanation<'a> {
    config: &'a Experiment,
    deployment: &'a Deployment,
}

/// The texts of a value that follows from other settings unless it is set, and why.
type Resolved = Option<(Vec<String>, SettingSource)>;

fn because(value: impl Display, why: impl Into<String>) -> Resolved {
    Some((vec![value.to_string()], SettingSource::Other(why.into().into())))
}

fn default(value: impl Display) -> Resolved {
    Some((vec![value.to_string()], SettingSource::Default))
}

impl Explanation<'_> {
    /// The settings of the page, section by section.
    fn settings(&self) -> Vec<ExplainedSetting> {
        let mut settings: Vec<_> = KEYS.iter().filter(|key| self.shows(key)).map(|key| self.setting(key)).collect();
        let section = |name: &str| KEYS.iter().position(|key| key.group.section == name);
        settings.sort_by_cached_key(|setting| section(setting.key.group.section));
        settings
    }

    /// Whether `key` has an effect beside the other settings, and is not among the policies of the page.
    fn shows(&self, key: &SettingKey) -> bool {
        let Experiment { spec, cluster, .. } = self.config;
        let is_used = |kind| cluster.policies.used(kind).is_some();
        let is_here = match key.chooses {
            Some(Kind::Latency | Kind::Scaling) | None => !key.in_bundle,
            Some(kind) if kind.is_flow_control() => !is_used(kind) && cluster.flow_control.is_some(),
            Some(kind @ (Kind::Drain | Kind::Placement)) => !is_used(kind),
            Some(_) => false,
        };
        let has_value = match key.name {
            "enable-lora" => self.config.deployment.adapters.as_ref().is_some_and(|args| !args.as_in_blis),
            "policy-param" => cluster.scaling.is_some(),
            // Both names of the setting must not contradict each other.
            "kv-offloading-eviction-policy" => {
                let used = cluster.policies.used(Kind::KvCache);
                used.is_none_or(|used| used.name() == spec.kv_offloading_eviction_policy().to_string())
            }
            _ => key.permission.is_none() || spec.differs(key),
        };
        is_here && has_value && (spec.allows(key) || spec.differs(key))
    }

    fn setting(&self, key: &'static SettingKey) -> ExplainedSetting {
        let spec = &self.config.spec;
        let (texts, otherwise) = self.resolved(key).unwrap_or_else(|| (spec.texts_of(key), SettingSource::Default));
        let source = match key.permission {
            Some(_) => SettingSource::Other("granted by its flag only".into()),
            None if self.is_replaced(key) => otherwise,
            None => spec.source(key.name, otherwise),
        };
        ExplainedSetting { key, texts, source }
    }

    /// Whether the value of `key` does not follow from what is set: `auto` stands for another, and a length is cut.
    fn is_replaced(&self, key: &SettingKey) -> bool {
        let (spec, deployment) = (&self.config.spec, self.deployment);
        match key.name {
            "dtype" => spec.dtype() == DtypeName::Auto,
            "kv-cache-dtype" => spec.kv_cache_dtype() == KvCacheDtypeName::Auto,
            "max-model-len" => self.config.deployment.max_model_len != deployment.max_model_len,
            "total-kv-blocks" => deployment.kv_blocks_source != KvBlocksSource::Flag,
            "latency-model" => self.config.cluster.policies.plugin(Kind::Latency).is_some(),
            _ => false,
        }
    }

    /// The reason in the note of the deployment that starts with `what`, or `usual`.
    fn noted(&self, what: &str, usual: &str) -> String {
        let note = self.deployment.notes.iter().find(|note| note.starts_with(what));
        note.map_or(usual, |note| note.split_once(": ").map_or(note.as_str(), |(_, reason)| reason)).to_owned()
    }

    /// The value of a setting that follows from others; `None` if it is what is set, or the default.
    fn resolved(&self, key: &SettingKey) -> Resolved {
        let of_deployment = self.of_deployment(key.name).or_else(|| self.of_engine(key.name));
        of_deployment
            .or_else(|| self.flow_control(key))
            .or_else(|| self.scaling(key))
            .or_else(|| self.of_workload(key.name))
            .or_else(|| self.of_end(key.name))
    }

    fn of_deployment(&self, name: &str) -> Resolved {
        let Deployment { precision, .. } = self.deployment;
        let (deployment, args) = (self.deployment, &self.config.deployment);
        let numbers = |numbers: &[f64]| numbers.iter().map(f64::to_string).collect();
        let named = |name: &Option<String>| {
            Some((name.iter().cloned().collect(), SettingSource::Other("the model's configuration".into())))
        };
        let built_in = || Some((Vec::new(), SettingSource::Other("built in".into())));
        match name {
            "hardware" => because(&deployment.hardware, self.noted("hardware ", "the coefficients' own")),
            "tp" => {
                let why = self.noted("tensor parallel size ", "the coefficients' own");
                because(deployment.tensor_parallel_size, why)
            }
            "pp" => because(deployment.pipeline_parallel_size, self.noted("pipeline parallel size ", "the default")),
            "dtype" => named(&precision.dtype),
            "quantization" => named(&precision.quantization),
            "kv-cache-dtype" => named(&precision.kv_cache_dtype),
            "model-config-folder" if args.model_config_folder.is_none() => built_in(),
            "hardware-config" if args.hardware_config.is_none() => built_in(),
            "latency-model" => because(deployment.latency_kind, self.latency_source()),
            "alpha-coeffs" => Some((numbers(&deployment.alpha), self.trained())),
            "beta-coeffs" => Some((numbers(&deployment.beta), self.trained())),
            "total-kv-blocks" => because(deployment.total_kv_blocks, deployment.kv_blocks_source.to_string()),
            "max-model-len" => {
                let note = if deployment.max_model_len.is_some() { "max_model_len " } else { "the context length of " };
                let why = self.noted(note, "the model's configuration");
                Some((deployment.max_model_len.iter().map(u32::to_string).collect(), SettingSource::Other(why.into())))
            }
            _ => None,
        }
    }

    /// Where the coefficients are from.
    fn trained(&self) -> SettingSource {
        let trained = match self.deployment.latency_kind {
            LatencyKind::TrainedPhysics => "trained".to_owned(),
            LatencyKind::Physics => self.noted("physics coefficients", "trained"),
            LatencyKind::Roofline => "roofline has none".to_owned(),
            LatencyKind::Blackbox => self.noted("blackbox coefficients ", "trained"),
        };
        SettingSource::Other(match self.config.deployment.latency_parameters.is_empty() {
            true => trained.into(),
            false => format!("{trained}; parameters of `latency` below").into(),
        })
    }

    /// Why the deployment uses its latency model, if no setting names one.
    fn latency_source(&self) -> String {
        let by_flag = if self.config.spec.beta_coeffs.is_some() { "beta-coeffs" } else { "vllm-version" };
        match (self.deployment.latency_kind, self.config.spec.source(by_flag, SettingSource::Default)) {
            _ if self.config.cluster.policies.plugin(Kind::Latency).is_some() => {
                "fallback if the plugin fails".to_owned()
            }
            (LatencyKind::Physics | LatencyKind::Roofline, _) => "default".to_owned(),
            (_, SettingSource::Default) => self.noted("blackbox latency model", "default"),
            (_, source) => source.to_string(),
        }
    }

    fn of_engine(&self, name: &str) -> Resolved {
        let (engine, limits) = (&self.config.engine, &self.deployment.batch_limits);
        let by_gpu = |value: u32| match engine.profile {
            Some(_) => because(value, self.deployment.batch_limits_source),
            None => default(value),
        };
        match name {
            "max-num-seqs" => by_gpu(limits.max_num_seqs),
            "max-num-batched-tokens" => by_gpu(limits.max_num_batched_tokens),
            "gpu-memory-utilization" => default(self.deployment.gpu_memory_utilization),
            "engine-version" => default(self.config.deployment.version()),
            "async-scheduling" => default(engine.async_scheduling),
            "num-instances" => default(self.config.cluster.num_instances),
            "scheduler-reserve-full-isl" => match engine.profile {
                Some(profile) => because(engine.reserve_full_prompt, profile.to_string()),
                None => default(engine.reserve_full_prompt),
            },
            _ => self.adapters(name),
        }
    }

    /// LoRA adapters, if they are on.
    fn adapters(&self, name: &str) -> Resolved {
        let (args, adapters) = (self.config.deployment.adapters.as_ref()?, self.deployment.adapters.as_ref()?);
        let from_file = |value: f64, set: bool| match set {
            true => because(value, "the file of `--lora-config`"),
            false => default(value),
        };
        let (base, bandwidth) = adapters.load_from_disk();
        match name {
            "enable-lora" => because(true, "`--lora-config` turns it on"),
            "max-loras" => from_file(adapters.slots.into(), args.slots.is_some()),
            "max-cpu-loras" => from_file(adapters.host_slots.into(), args.host_slots.is_some()),
            "max-lora-rank" => from_file(adapters.max_rank.into(), args.max_rank.is_some()),
            "lora-load-base-latency-us" => from_file(base, args.load_base_us.is_some()),
            "lora-load-bandwidth-bytes-us" => from_file(bandwidth, args.load_bandwidth.is_some()),
            "lora-footprint-bytes-per-rank" if args.footprint.is_none() && !args.as_in_blis => {
                because(adapters.footprint, "the size of the model")
            }
            "lora-footprint-bytes-per-rank" => from_file(adapters.footprint, args.footprint.is_some()),
            _ => None,
        }
    }

    fn flow_control(&self, key: &SettingKey) -> Resolved {
        let flow = self.config.cluster.flow_control.as_ref()?;
        match key.chooses {
            Some(Kind::Saturation) => default(&flow.saturation_detector),
            Some(Kind::Ceilings) => default(&flow.usage_limit_policy),
            Some(Kind::Ordering) => default(&flow.dispatch_order),
            Some(Kind::Eviction) => default(&flow.eviction_policy),
            _ => match key.name {
                "metrics-staleness-threshold" => default(flow.metrics_staleness_threshold.unwrap_or_default().0),
                "request-ttl" => default(flow.request_ttl.0),
                "per-band-capacity" => default(flow.per_band_capacity),
                "per-band-bytes" => default(flow.per_band_bytes),
                _ => None,
            },
        }
    }

    fn scaling(&self, key: &SettingKey) -> Resolved {
        let Experiment { cluster, choices, .. } = self.config;
        let scaling = cluster.scaling.as_ref()?;
        let plugin = choices.policies.iter().find(|(kind, _)| *kind == Kind::Scaling);
        match (key.name, key.chooses) {
            ("autoscaler", _) => match (plugin, &scaling.built_in) {
                (Some((_, name)), _) => default(name.as_str()),
                (None, used) => default(used.as_ref()?.row.name),
            },
            ("policy-param", _) => {
                let parameter = |name: &str, value: &dyn Display| format!("scaling.{name}={value}");
                let own = choices.parameters.iter().filter(|one| one.kind == Kind::Scaling);
                let texts = match (plugin, &scaling.built_in) {
                    (None, Some(used)) => {
                        used.parameters.iter().map(|(name, value)| parameter(name, &value.value)).collect()
                    }
                    _ => own.map(|one| parameter(&one.name, &one.value.value)).collect(),
                };
                Some((texts, SettingSource::Default))
            }
            ("scale-up", _) => default(scaling_rules_text(&scaling.behaviour.up)),
            ("scale-down", _) => default(scaling_rules_text(&scaling.behaviour.down)),
            ("cooldown-period", _) => default(scaling.behaviour.cooldown.as_secs_f64()),
            ("startup-time", _) => default(start_times_text(&scaling.start)),
            (_, Some(kind @ (Kind::Drain | Kind::Placement))) => default(BuiltIn::default_of(kind).name),
            _ => None,
        }
    }

    fn of_workload(&self, name: &str) -> Resolved {
        match &self.config.workload {
            WorkloadConfig::Synthetic(SyntheticConfig { name: preset, spec, .. }) => match name {
                "workload" => default(preset),
                "rate" => default(spec.rate),
                "arrival-process" => default(spec.arrival),
                "num-requests" => default(spec.num_requests.unwrap_or(0)),
                "timeout" => default(timeout(spec.timeout)),
                _ => lengths(name, preset, spec),
            },
            WorkloadConfig::Specified(config) => specified(name, config),
            WorkloadConfig::Trace(trace) => match name {
                "workload" => because(WorkloadName::Traces, "flag --workload-trace"),
                "mooncake-block-size" => Some((Vec::new(), SettingSource::Other("the format's own".into())))
                    .filter(|_| trace.mooncake_block_size.is_none()),
                "timeout" => default(timeout(trace.timeout)),
                _ => None,
            },
            WorkloadConfig::Recorded { closed_loop: Some(None), .. } => {
                (name == "think-time-ms").then(|| (Vec::new(), SettingSource::Other("think times of the trace".into())))
            }
            WorkloadConfig::Recorded { .. } => None,
        }
    }

    /// The seed, and the end of the run.
    fn of_end(&self, name: &str) -> Resolved {
        let Experiment { seed, horizon, workload, engine, .. } = self.config;
        let (mut own_seed, mut own_horizon, mut usual) = (None, None, "when every request has ended");
        match workload {
            WorkloadConfig::Specified(SpecConfig { spec, .. }) => {
                own_seed = spec.seed.map(|_| "specification");
                own_horizon = spec.horizon.map(|_| "specification");
            }
            WorkloadConfig::Recorded { header, .. } => {
                own_seed = recorded_seed(header).map(|_| "header of the trace");
                if engine.semantics == Semantics::BLIS {
                    usual = "twice the last arrival";
                }
            }
            _ => {}
        }
        match name {
            "seed" => own_seed.and_then(|own| because(seed, own)),
            "horizon" if *horizon == Micros::MAX => Some((Vec::new(), SettingSource::Other(usual.into()))),
            "horizon" => because(horizon.0, own_horizon.unwrap_or(usual)),
            _ => None,
        }
    }
}

/// The value of a setting that a workload specification, or a preset of several clients, has.
fn specified(name: &str, SpecConfig { origin, spec, num_requests, timeout: all }: &SpecConfig) -> Resolved {
    let number = num_requests.unwrap_or(0);
    match (origin, name) {
        (SpecOrigin::File(_), "num-requests") => because(number, "specification"),
        (SpecOrigin::File(_), "timeout") => Some((
            all.map(|all| timeout(all).to_string()).into_iter().collect(),
            SettingSource::Other("specification".into()),
        )),
        (SpecOrigin::File(_), _) => None,
        (_, "timeout") => default(timeout(all.flatten())),
        (SpecOrigin::Named(preset), "workload") => default(preset.name()),
        (SpecOrigin::Named(_), "rate") => default(spec.aggregate_rate),
        (SpecOrigin::Named(_), "num-requests") => default(number),
        (SpecOrigin::Users { name, .. }, "workload") => default(name),
        (SpecOrigin::Users { think_time, .. }, "think-time-ms") => default(think_time.as_millis_f64()),
        (SpecOrigin::Users { .. }, "num-requests") => because(number, "until the horizon"),
        (SpecOrigin::Users { name: preset, lengths: own, .. }, _) => lengths(name, preset, own),
        (SpecOrigin::Named(_), _) => None,
    }
}

/// The length that the setting `name` sets, if it does; `preset` is the name of the workload.
fn lengths(name: &str, preset: &str, spec: &DistributionSpec) -> Resolved {
    let (what, figure) = name.split_once("-tokens")?;
    let LengthSpec { mean, stdev, min, max } = match what {
        "prompt" => spec.prompt,
        "output" => spec.output,
        "prefix" => return default(spec.prefix_tokens),
        _ => return None,
    };
    let value = match figure {
        "" => mean,
        "-stdev" => stdev,
        "-min" => min.into(),
        "-max" => max.into(),
        _ => return None,
    };
    if preset == "distribution" { default(value) } else { because(value, format!("preset {preset}")) }
}

/// Seconds; −1 for no deadline.
fn timeout(timeout: Option<Micros>) -> f64 {
    timeout.map_or(-1.0, Micros::as_secs_f64)
}
