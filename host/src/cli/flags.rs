//! Flag names of vLLM, its benchmark and BLIS that are not ours: each is an alias of one of ours, or is named as not
//! simulated, so that a message never suggests an unrelated neighbour.

use blis_diag::Diagnostic;
use clap::Command;

/// What a flag of another program means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// Another name of our flag.
    Alias(&'static str),
    /// Not simulated yet: what it is about.
    NotYet(&'static str),
    /// Nothing to simulate: what to do instead.
    Instead(&'static str),
}

use Foreign::{Alias, Instead, NotYet};

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
    ("num-gpu-blocks-override", Alias("total_kv_blocks")),
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
    ("request-rate", Alias("rate")),
    ("num-prompts", Alias("num_requests")),
    ("random-input-len", Alias("prompt_tokens")),
    ("input-len", Alias("prompt_tokens")),
    ("random-output-len", Alias("output_tokens")),
    ("output-len", Alias("output_tokens")),
    ("random-prefix-len", Alias("prefix_tokens")),
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
    ("request-timeout", Alias("timeout")),
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
    ("synthetic-input-tokens-mean", Alias("prompt_tokens")),
    ("synthetic-input-tokens-stddev", Alias("prompt_tokens_stdev")),
    ("output-tokens-mean", Alias("output_tokens")),
    ("output-tokens-stddev", Alias("output_tokens_stdev")),
    ("isl", Alias("prompt_tokens")),
    ("osl", Alias("output_tokens")),
    ("request-count", Alias("num_requests")),
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

/// Adds to the flags of `command`, and of those below it that are `wanted`, their other names.
pub(super) fn with_aliases(command: Command, wanted: &dyn Fn(&Command) -> bool) -> Command {
    let below = command.get_subcommands().filter(|below| wanted(below));
    let names: Vec<String> = below.map(|below| below.get_name().to_owned()).collect();
    let with = |command: Command, name: String| command.mut_subcommand(name, |below| with_aliases(below, wanted));
    let alias = |&(name, ref foreign): &(&'static str, Foreign)| match foreign {
        Alias(own) => Some((name, *own)),
        NotYet(_) | Instead(_) => None,
    };
    let aliases: Vec<(&str, &str)> = FOREIGN.iter().filter_map(alias).collect();
    names.into_iter().fold(command, with).mut_args(|arg| {
        let id = arg.get_id().as_str();
        if arg.get_long().is_none() || aliases.iter().all(|(_, own)| *own != id) {
            return arg;
        }
        let its = aliases.iter().filter(|(_, own)| *own == id).map(|(name, _)| *name).collect::<Vec<_>>();
        arg.visible_aliases(its)
    })
}

/// The message about `flag` (with its dashes), which the command does not have; `None` if the table does not have it.
pub(super) fn explain(flag: &str) -> Option<Diagnostic> {
    let name = flag.trim_start_matches('-').split('=').next()?.replace('_', "-");
    let (name, foreign) = FOREIGN.iter().find(|(known, _)| *known == name)?;
    Some(match foreign {
        NotYet(what) => Diagnostic::new(format!("error: `--{name}` is not simulated yet: {what}")).hint("leave it out"),
        Instead(hint) => Diagnostic::new(format!("error: `--{name}` has no meaning in a simulation")).hint(*hint),
        Alias(own) => {
            let own = own.replace('_', "-");
            Diagnostic::new(format!("error: this command has no `--{name}`"))
                .hint(format!("`blis run` has it, as another name of `--{own}`"))
        }
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

    #[test]
    fn every_alias_is_of_a_flag_and_every_name_is_there_once() {
        let command = help::command();
        let run = command.find_subcommand("run").expect("a command");
        for (number, (name, foreign)) in FOREIGN.iter().enumerate() {
            assert!(FOREIGN[..number].iter().all(|(other, _)| other != name), "{name} is there twice");
            if let Alias(own) = foreign {
                let arg = run.get_arguments().find(|arg| arg.get_id() == own).unwrap_or_else(|| panic!("{own}"));
                let aliases = arg.get_visible_aliases().unwrap_or_default();
                assert!(aliases.contains(name), "{own}: {aliases:?}");
            }
        }
    }
}
