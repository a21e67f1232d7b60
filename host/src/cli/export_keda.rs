//! `blis export keda`: a scaling policy for Kubernetes.

use std::path::PathBuf;

use blis_eval::error::RunError;
use blis_eval::spec::parse;
use blis_plugin::Limits;
use blis_plugin::export::{self, ExportedScript};
use blis_sim::scaling::ScalingRules;
use blis_sim::units::Micros;
use clap::Args;

use super::exported_file::{check_output, parameter, write};

/// Arguments of `blis export keda`.
#[derive(Debug, Args)]
pub(super) struct ExportKedaArgs {
    /// Script (Rhai) with a function `scale`
    #[arg(value_name = "SCRIPT")]
    script: PathBuf,
    /// Name of the Deployment that is scaled
    #[arg(long, value_name = "NAME", value_parser = kubernetes_name)]
    deployment: String,
    /// Its namespace, also as a label in the queries [default: none]
    #[arg(long, value_name = "NAME", value_parser = kubernetes_name)]
    namespace: Option<String>,
    /// The label `model_name` of the endpoint picker's metrics [default: all models]
    #[arg(long, value_name = "NAME", value_parser = label)]
    model: Option<String>,
    /// The label `inference_pool` of the endpoint picker's saturation [default: the largest of all pools]
    #[arg(long, value_name = "NAME", value_parser = label)]
    inference_pool: Option<String>,
    /// Address at which KEDA finds Prometheus
    #[arg(long, value_name = "URL", default_value = PROMETHEUS, value_parser = address)]
    prometheus: String,
    /// Value of a parameter of the script
    #[arg(long, value_name = "NAME=VALUE", value_parser = parameter)]
    set: Vec<(String, f64)>,
    /// What is fixed about a replica and no metric: kv_tokens, gpus, price, max_num_seqs or max_num_batched_tokens
    #[arg(long, value_name = "NAME=VALUE", value_parser = parameter)]
    fact: Vec<(String, f64)>,
    /// The service has one group of replicas: sums and the like over the groups are the values of this one
    #[arg(long)]
    one_group: bool,
    /// Fewest replicas, 0 to 65536
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse::instances_or_zero)]
    min_replicas: u32,
    /// Most replicas, 1 to 65536
    #[arg(long, value_name = "N", default_value = "8", value_parser = parse::instances)]
    max_replicas: u32,
    /// Time between two decisions, s or with a unit
    #[arg(long, value_name = "S", default_value = "15", value_parser = parse::seconds_above_0)]
    scaling_interval: Micros,
    /// Time without requests after which a service with --min-replicas 0 goes to zero, s or with a unit
    #[arg(long, value_name = "S", default_value = "300", value_parser = parse::seconds_from_0)]
    cooldown_period: Micros,
    /// Rules for more replicas, as --scale-up of blis run
    #[arg(long, value_name = "RULES", default_value = "window=0,100%/15s,4/15s", value_parser = parse::scaling_rules)]
    scale_up: ScalingRules,
    /// Rules for fewer replicas, as --scale-down of blis run
    #[arg(long, value_name = "RULES", default_value = "window=300s,100%/15s", value_parser = parse::scaling_rules)]
    scale_down: ScalingRules,
    /// Share by which the formula may differ from the present number of replicas without a change [default: the cluster's, 0.1]
    #[arg(long, value_name = "SHARE", value_parser = parse::share_or_zero)]
    tolerance: Option<f64>,
    /// File for the ScaledObject [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// That of llm-d's guides.
const PROMETHEUS: &str = "http://llmd-kube-prometheus-stack-prometheus.llm-d-monitoring.svc.cluster.local:9090";

/// `blis export keda`: writes the ScaledObject.
pub(super) fn export_keda(args: &ExportKedaArgs) -> Result<(), RunError> {
    check_output(args.out.as_deref(), &args.script)?;
    if args.min_replicas > args.max_replicas {
        let what =
            format_args!("--min-replicas {} is more than --max-replicas {}", args.min_replicas, args.max_replicas);
        return Err(RunError::usage(what).hint("give the smaller number first"));
    }
    let settings = export::KedaSettings {
        deployment: args.deployment.clone(),
        namespace: args.namespace.clone(),
        model: args.model.clone(),
        inference_pool: args.inference_pool.clone(),
        prometheus: args.prometheus.clone(),
        min_replicas: args.min_replicas,
        max_replicas: args.max_replicas,
        interval: args.scaling_interval,
        cooldown: args.cooldown_period,
        up: args.scale_up.clone(),
        down: args.scale_down.clone(),
        tolerance: args.tolerance,
        facts: args.fact.clone(),
        one_group: args.one_group,
    };
    let script = ExportedScript::open(&args.script, &args.set, &Limits::default());
    let exported = script.and_then(|script| export::keda_scaled_object(&script, &settings));
    write(args.out.as_deref(), &exported.map_err(RunError::refused)?)
}

/// A name of a Kubernetes object.
fn kubernetes_name(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let is_name = text.len() <= 253 && text.chars().all(is_allowed);
    if is_name && ends(text.chars().next()) && ends(text.chars().last()) {
        return Ok(text.to_owned());
    }
    Err("a name in Kubernetes has lower-case letters, digits, `-` and `.`, as in vllm-decode".to_owned())
}

/// The value of a label in a query.
fn label(text: &str) -> Result<String, String> {
    match text.chars().find(|&c| c == '"' || c == '\\' || c.is_control()) {
        Some(c) => Err(format!("a label cannot have {c:?} here")),
        None => Ok(text.to_owned()),
    }
}

fn address(text: &str) -> Result<String, String> {
    let has_scheme = text.starts_with("http://") || text.starts_with("https://");
    if has_scheme && text.chars().all(|c| c.is_ascii_graphic() && c != '"' && c != '\\') {
        return Ok(text.to_owned());
    }
    Err("write an address, as in http://prometheus.monitoring:9090".to_owned())
}
