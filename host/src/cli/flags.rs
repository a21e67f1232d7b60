//! Flag names of vLLM, its benchmark and BLIS that are not ours: each is named as not simulated, so that a message never
//! suggests an unrelated neighbour. Other names of our settings are in their table.

use blis_diag::Diagnostic;
use blis_eval::spec::SettingKey;

/// What a flag of another program means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// Not simulated yet: what it is about.
    NotYet(&'static str),
    /// Nothing to simulate: what to do instead.
    Instead(&'static str),
}

use Foreign::{Instead, NotYet};

const WEIGHTS_ON_HOST: Foreign = NotYet("weights in the memory of the host");
const DETECTORS: Foreign = NotYet("the detectors of saturation");
const SPECULATION: Foreign = NotYet("speculative decoding");
const NO_TOKENS: Foreign = Instead("lengths are simulated, not texts: leave it out");
const NO_SERVER: Foreign = Instead("nothing is sent to a server: leave it out");
const WEIGHTS: Foreign =
    Instead("the model's `config.json` says it: edit a copy and name its folder with `--model-config-folder`");

/// The one table, by the name of the flag.
#[rustfmt::skip]
pub(super) const FOREIGN: &[(&str, Foreign)] = &[
    // vLLM's engine.
    ("speculative-config", SPECULATION),
    ("num-speculative-tokens", SPECULATION),
    ("speculative-model", SPECULATION),
    ("swap-space", Instead("vLLM V1 preempts by recomputation: leave it out")),
    ("cpu-offload-gb", WEIGHTS_ON_HOST),
    ("kv-transfer-config", Instead("`--prefill-instances N --decode-instances M`, or `--kv-offloading-size GIB`")),
    ("kv-offloading-backend", Instead("only vLLM's own CPU tier (`native`) is simulated: leave it out")),
    ("lora-modules", Instead("`--lora-config FILE` declares adapters with their ranks")),
    ("max-num-partial-prefills", NotYet("concurrent partial prefills")),
    ("max-long-partial-prefills", NotYet("concurrent partial prefills")),
    ("tokenizer", NO_TOKENS),
    ("tokenizer-mode", NO_TOKENS),
    ("trust-remote-code", NO_SERVER),
    ("compilation-config", NotYet("other compilation levels")),
    ("distributed-executor-backend", NO_SERVER),
    ("served-model-name", Instead("`--model` is the name that requests carry")),
    ("load-format", NO_SERVER),
    ("download-dir", NO_SERVER),
    ("hf-overrides", WEIGHTS),
    ("rope-scaling", WEIGHTS),
    ("num-scheduler-steps", Instead("vLLM V1 has no multi-step scheduling: leave it out")),
    ("device", Instead("`--hardware` names the GPU")),
    ("disable-log-stats", Instead("`--log off` prints no messages")),
    ("disable-log-requests", Instead("`--log off` prints no messages")),
    // vllm bench serve, SGLang's and GenAI-Perf's like it.
    ("burstiness", Instead("`--arrival-process poisson` is burstiness 1; a specification (`--workload-spec`) has gamma arrivals of any CV, 1/sqrt(burstiness)")),
    ("random-range-ratio", Instead("`--prompt-tokens-stdev`, `--prompt-tokens-min` and `--prompt-tokens-max` spread the lengths")),
    ("dataset-name", Instead("`--workload NAME` generates requests, `--workload-trace FILE` reads them")),
    ("dataset-path", Instead("`--workload-trace FILE` reads recorded requests")),
    ("goodput", Instead("`--slo-ttft`, `--slo-itl` and `--slo-e2e` set the targets")),
    ("percentile-metrics", Instead("`--output json` has all percentiles")),
    ("metric-percentiles", Instead("`--output json` has all percentiles")),
    ("save-result", Instead("`--metrics-path FILE` writes the results")),
    ("result-filename", Instead("`--metrics-path FILE` writes the results")),
    ("base-url", NO_SERVER),
    ("host", NO_SERVER),
    ("port", NO_SERVER),
    ("endpoint", NO_SERVER),
    ("backend", NO_SERVER),
    ("ignore-eos", Instead("simulated requests have the length that they are given: leave it out")),
    ("endpoint-type", NO_SERVER),
    ("api-key", NO_SERVER),
    ("header", NO_SERVER),
    ("url", NO_SERVER),
    ("streaming", NO_SERVER),
    ("temperature", NO_TOKENS),
    ("top-p", NO_TOKENS),
    ("top-k", NO_TOKENS),
    ("logprobs", NO_TOKENS),
    ("result-dir", Instead("`--metrics-path FILE` writes the results")),
    ("save-detailed", Instead("`--metrics-path FILE` writes the results, with every request")),
    ("disable-tqdm", Instead("`--no-progress` hides the progress bar")),
    ("num-warmups", Instead("`--warmup 30s` leaves out the requests of the first 30 s")),
    ("warmup-request-count", Instead("`--warmup 30s` leaves out the requests of the first 30 s")),
    ("measurement-interval", Instead("`--horizon 10s` ends a run after 10 s")),
    ("profile-export-file", Instead("`--metrics-path FILE` writes the results")),
    ("artifact-dir", Instead("`--metrics-path FILE` writes the results")),
    // GuideLLM.
    ("target", NO_SERVER),
    ("rate-type", Instead("`--arrival-process` names the process of open loop, `--concurrency N` sets a closed loop")),
    ("max-seconds", Instead("`--horizon 60s` ends a run after 60 s")),
    // BLIS.
    ("defaults-filepath", Instead("models, GPUs and coefficients are built in; `--model-config-folder`, `--hardware-config` and `--coefficients` replace them")),
    ("model-autoscaler-interval-us", Instead("`--scaling-interval` beside `--parity blis --autoscaler blis-v2`")),
    ("detectors", DETECTORS),
    ("saturation-config", DETECTORS),
    ("saturation-report", DETECTORS),
    ("saturation-final-window", DETECTORS),
    ("lazy-generation", Instead("requests are always generated as they are needed: leave it out")),
];

/// The message about `flag` (with its dashes), which the command does not have; `None` if the table does not have it.
pub(super) fn explain(flag: &str) -> Option<Diagnostic> {
    let name = flag.trim_start_matches('-').split('=').next()?.replace('_', "-");
    if let Some(key) = SettingKey::get(&name)
        && key.name != name
    {
        let what = format!("error: this command has no `--{name}`");
        return Some(Diagnostic::new(what).hint(format!("`blis run` has it, as another name of `--{}`", key.name)));
    }
    let (name, foreign) = FOREIGN.iter().find(|(known, _)| *known == name)?;
    Some(match foreign {
        NotYet(what) => Diagnostic::new(format!("error: `--{name}` is not simulated yet: {what}")).hint("leave it out"),
        Instead(hint) => Diagnostic::new(format!("error: `--{name}` has no meaning in a simulation")).hint(*hint),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::help;

    #[test]
    fn no_flag_is_ours_and_foreign() {
        let command = help::command();
        for below in ["run", "replay", "compare", "regret"] {
            let below = command.find_subcommand(below).expect("a command");
            for arg in below.get_arguments() {
                let long = arg.get_long().unwrap_or_default();
                assert!(FOREIGN.iter().all(|(name, _)| *name != long), "{long}");
            }
        }
    }
}
