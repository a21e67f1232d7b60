//! The pages of `--help`: clap's, with examples at their end, short `-h` pages, and the commands of the first page in
//! groups.

use std::ffi::OsString;

use blis_eval::spec::SettingKey;
use clap::{Arg, Args as _, Command, CommandFactory as _};

use super::args::with_default;
use super::command::{Cli, GlobalFlags};
use super::run_args::{CompareArgs, ReplayArgs, RunArgs};

/// The command line with nothing but the simulating command that `words` start with, if they do: to make all commands
/// takes longer than the rest of a start. What it refuses, the whole command line refuses too, with a better message.
pub(super) fn only_simulating(words: &[OsString]) -> Option<Command> {
    let named = |name: &'static str| Command::new(name).args_override_self(true).allow_negative_numbers(true);
    let command = match words.get(1)?.to_str()? {
        "run" => RunArgs::augment_args(named("run")),
        "replay" => ReplayArgs::augment_args(named("replay")),
        "compare" => CompareArgs::augment_args(named("compare")),
        _ => return None,
    };
    let all = GlobalFlags::augment_args(Command::new("blis").args_override_self(true));
    Some(all.subcommand(command))
}

/// The whole command line, as it is printed, completed and documented.
pub(super) fn command() -> Command {
    let command = with_pages(Cli::command(), "blis");
    let groups = groups(&command);
    let examples = examples("blis");
    command
        .help_template("{about-with-newline}\n{usage-heading} {usage}{after-help}")
        .after_help(format!("{groups}\n{examples}"))
        .after_long_help(format!("{groups}\n{PLANNED_TEXT}\n{examples}"))
}

const PLANNED_TEXT: &str = "`blis help COMMAND` has everything about a command, `blis COMMAND -h` the usual flags.\n";

/// The commands of the first page, by what they are for.
const GROUPS: &[(&str, &[&str])] = &[
    ("Evolve policies", &["evaluate", "search", "tune", "serve", "suite", "plugin"]),
    ("Simulate", &["run", "replay", "compare", "regret", "decisions", "view", "plot"]),
    ("Plan capacity", &["advise", "capacity", "size", "sweep", "diagnose"]),
    ("Real servers", &["observe", "calibrate", "mock-server"]),
    ("Workloads", &["workload"]),
    ("Other programs", &["import", "export"]),
    ("Models, GPUs and their calibration", &["models", "hardware", "fit", "fit-memory", "validate"]),
    ("This program", &["help", "completions", "man", "version"]),
];

fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (number, (heading, names)) in GROUPS.iter().enumerate() {
        let between = if number > 0 { "\n" } else { "" };
        text.push_str(&format!("{between}{heading}:\n"));
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let about = about.unwrap_or_else(|| "Print the help of a command".to_owned());
            text.push_str(&row(name, &about));
        }
    }
    text
}

/// `  name  text`, the text in a column of its own.
fn row(name: &str, text: &str) -> String {
    const NAME: usize = 13;
    blis_diag::wrapped(&format!("  {name:<NAME$}{text}\n"))
}

/// Examples below the page of every command; rare flags on long pages only.
fn with_pages(command: Command, path: &str) -> Command {
    let examples = examples(path);
    let long = command.get_after_long_help().map(|text| format!("{text}\n")).unwrap_or_default();
    let mut command = command.after_help(examples.clone()).after_long_help(format!("{long}{examples}"));
    let long_page = command.get_arguments().count() > SHORT_PAGE;
    command = command.mut_args(|arg| {
        let arg = with_default(arg);
        if long_page && is_rare(&arg) { arg.hide_short_help(true) } else { arg }
    });
    let below: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    for name in below {
        command = command.mut_subcommand(&name, |below| with_pages(below, &format!("{path} {name}")));
    }
    command
}

/// Flags that fit on a screen with their descriptions.
const SHORT_PAGE: usize = 20;

/// The flags of `-h` where there are many, beside those of settings, which say it themselves.
const USUAL: &[&str] = &[
    "compared_policies",
    "candidates",
    "slo",
    "vary",
    "seeds",
    "config",
    "explain_config",
    "output",
    "metrics_path",
    "report",
];

fn is_rare(arg: &Arg) -> bool {
    let id = arg.get_id().as_str();
    SettingKey::get(id).map_or(!USUAL.contains(&id), |key| !key.usual || id == key.off_name)
}

/// The examples of the page of `path`, as they stand below it.
fn examples(path: &str) -> String {
    let mut text = "Examples:\n".to_owned();
    for (what, line) in examples_of(path) {
        text.push_str(&format!("  # {what}\n  {}\n", line.replace('\n', "\n      ")));
    }
    text.trim_end().to_owned()
}

/// What the examples of a page do, and their lines for a shell; they run in the folder of the repository.
pub(super) fn examples_of(path: &str) -> &'static [(&'static str, &'static str)] {
    EXAMPLES.iter().find(|(known, _)| *known == path).map_or(&[], |(_, examples)| examples)
}

type PageExamples = (&'static str, &'static [(&'static str, &'static str)]);

#[rustfmt::skip]
pub(super) static EXAMPLES: &[PageExamples] = &[
    ("blis", &[
        ("Is this policy better than the best built-in one?", "blis evaluate policies/prefix-then-load.rhai --suite chat"),
        ("100 requests to one server", "blis run --model qwen/qwen3-14b --rate 2"),
        ("Two routing policies under the same requests", "blis compare round-robin weighted --model qwen/qwen3-14b --num-instances 4 --rate 20"),
    ]),
    ("blis run", &[
        ("100 requests to one server", "blis run --model qwen/qwen3-14b --rate 2"),
        ("Four instances behind a router, under a chat workload", "blis run --model qwen/qwen3-14b --num-instances 4 --routing-policy weighted \\\n--workload chatbot --rate 20 --num-requests 400"),
        ("A recorded trace, results as JSON", "blis run --model qwen/qwen3-14b --workload-trace examples/replay-a-trace/chat.csv --output json"),
    ]),
    ("blis diagnose", &[
        ("What binds a service without limits", "blis diagnose --model qwen/qwen3-14b --rate 8 --num-requests 400"),
        ("What keeps it from its SLOs", "blis diagnose --model qwen/qwen3-14b --rate 8 --num-requests 400 \\\n--slo ttft_p95=200ms,tpot_p90=20ms"),
    ]),
    ("blis view", &[
        ("A page with a run", "blis run --model qwen/qwen3-14b --rate 2 --output json > run.json\nblis view run.json --report run.html"),
    ]),
    ("blis plot", &[
        ("The distribution of TTFT", "blis run --model qwen/qwen3-14b --rate 2 --metrics-path run.json\nblis plot run.json --out ttft.svg"),
        ("Cost against latency", "blis sweep --model qwen/qwen3-14b --vary rate=2,4 --num-requests 300 --seeds 1 \\\n--output json > sweep.json\nblis plot sweep.json --kind pareto --out cost.svg"),
    ]),
    ("blis replay", &[
        ("A trace of BLIS", "blis replay --model qwen/qwen3-14b --trace-header examples/priorities/trace.yaml \\\n--trace-data examples/priorities/trace.csv"),
        ("The same requests twice as fast", "blis replay --model qwen/qwen3-14b --trace-header examples/priorities/trace.yaml \\\n--trace-data examples/priorities/trace.csv --time-scale 0.5"),
    ]),
    ("blis compare", &[
        ("Two policies, five seeds each", "blis compare round-robin weighted --model qwen/qwen3-14b --num-instances 4 --rate 20"),
        ("One GPU against two, under the same requests", "blis compare --model qwen/qwen3-14b --rate 5 --vary tp=1,2"),
        ("A policy of your own against a bundle", "blis compare policies/prefix-then-load.rhai policies/chat-prefix.yaml \\\n--model qwen/qwen3-14b --num-instances 4 \\\n--workload-trace examples/cluster-routing/assistants.jsonl"),
    ]),
    ("blis regret", &[
        ("What the routing decisions of round-robin cost", "blis regret --model qwen/qwen3-14b --num-instances 4 --num-requests 200 --rate 20"),
        ("How much any better policy could gain at most", "blis regret --model qwen/qwen3-14b --num-instances 4 --num-requests 100 --rate 20 --bound"),
    ]),
    ("blis capacity", &[
        ("The highest rate of one server with TTFT p99 within 500 ms", "blis capacity --model qwen/qwen3-14b --slo ttft_p99=500ms"),
        ("What a routing policy gains, with a second SLO", "blis capacity --model qwen/qwen3-14b --num-instances 4 --workload chatbot \\\n--slo ttft_p90=300ms,tpot_p90=40ms --routing-policy round-robin,weighted"),
        ("How many users one server serves", "blis capacity --model qwen/qwen3-14b --concurrency 16 --slo tpot_p90=30ms"),
    ]),
    ("blis size", &[
        ("How many A100 pairs serve 50 requests per second", "blis size --model llama-3.1-8b-instruct --hardware A100-SXM --tp 2 --rate 50 --slo ttft_p99=500ms"),
        ("The same for a recorded trace", "blis size --model qwen/qwen3-14b --workload-trace examples/cluster-routing/assistants.jsonl \\\n--repeat 10 --slo ttft_p90=2s"),
        ("What replicas that follow the load would save at most", "blis size --elastic --model qwen/qwen3-32b --hardware H100 --tp 2 --seeds 1 \\\n--workload-spec examples/autoscaling/ramp.yaml --timeout -1 --slo ttft_p90=3s,tpot_p90=100ms"),
    ]),
    ("blis advise", &[
        ("The cheapest of eight GPUs at most", "blis advise --model qwen/qwen3-32b --hardware H100 --workload summarization --rate 6 \\\n--slo ttft_p95=1s,tpot_p90=40ms --max-gpus 8"),
        ("Two GPUs by price, with files to deploy it", "blis advise --model qwen/qwen3-14b --tp 1 --rate 10 --slo ttft_p95=1s,tpot_p90=50ms \\\n--hardware H100,A100-SXM --prices examples/autoscaling/prices.yaml \\\n--budget '20$/h' --out advice"),
    ]),
    ("blis sweep", &[
        ("Which tensor parallel size and batch limit", "blis sweep --model qwen/qwen3-14b --rate 5 --vary tp=1,2,4 --vary max-num-batched-tokens=2048,8192"),
        ("Autoscalers: cost against the share of requests in time", "blis sweep --model qwen/qwen3-32b --hardware H100 --tp 2 --seeds 1 --by-attainment \\\n--workload-spec examples/autoscaling/ramp.yaml --timeout -1 --slo ttft_p90=3s,tpot_p90=100ms \\\n--min-replicas 3 --vary autoscaler=slo-aware,queue-guard,saturation"),
        ("Two GPUs within an SLO", "blis sweep --model qwen/qwen3-14b --rate 5 --vary hardware=A100-SXM,H100 --slo ttft_p90=500ms"),
    ]),
    ("blis evaluate", &[
        ("A script against the best built-in policy of a suite", "blis evaluate policies/prefix-then-load.rhai --suite chat"),
        ("A first look only, as a document", "blis evaluate policies/prefix-then-load.rhai --stage smoke --output json"),
        ("A candidate on standard input", "blis evaluate - --lang rhai --stage smoke < policies/rhai-least-loaded.rhai"),
    ]),
    ("blis evaluate held-out", &[
        ("Scenarios that no search has seen", "blis evaluate held-out policies/prefix-then-load.rhai --suite chat"),
        ("The same as JSON", "blis evaluate held-out policies/prefix-then-load.rhai --suite chat --output json"),
    ]),
    ("blis evaluate merge", &[
        ("Two halves of an evaluation", "blis evaluate weighted --stage smoke --shard 0/2 --out part-0 && \\\nblis evaluate weighted --stage smoke --shard 1/2 --out part-1 && \\\nblis evaluate merge part-0 part-1"),
        ("One part alone", "blis evaluate weighted --stage smoke --shard 0/1 --out whole && blis evaluate merge whole"),
    ]),
    ("blis evaluate shinka-evaluate", &[
        ("What ShinkaEvolve starts for each candidate", "blis evaluate shinka-evaluate --program_path policies/rhai-least-loaded.rhai \\\n--results_dir results --stage smoke"),
        ("The same on another suite", "blis evaluate shinka-evaluate --program_path policies/rhai-least-loaded.rhai \\\n--results_dir results --stage smoke --suite slo-tiers"),
    ]),
    ("blis evaluate init", &[
        ("A project for OpenEvolve", "blis evaluate init openevolve my-search"),
        ("A project for GEPA on another suite", "blis evaluate init gepa my-search --suite long-context"),
    ]),
    ("blis search", &[
        ("A short search for a routing policy, written into a file", "blis search sdk/python/tests/small.yaml --evaluations 24 --out found.rhai"),
        ("One that goes on where it was interrupted", "blis search sdk/python/tests/small.yaml --evaluations 24 --archive found.sqlite --out found.rhai"),
    ]),
    ("blis tune", &[
        ("Better weights for a built-in policy", "blis tune weighted --suite chat --evals 10"),
        ("Better defaults, written into a copy of the script", "blis tune policies/prefix-then-load.rhai --evals 10 --write tuned.rhai"),
    ]),
    ("blis serve", &[
        ("One request, one reply", "echo '{\"candidate\": {\"path\": \"policies/rhai-least-loaded.rhai\"}, \"stage\": \"smoke\"}' | \\\nblis serve --stdio"),
        ("At most ten evaluations", "blis serve --stdio --budget 10 < /dev/null"),
    ]),
    ("blis observe", &[
        ("A server on this machine, and a record of it; here a simulated one", "blis mock-server --model qwen/qwen3-14b --listen 127.0.0.1:8431 --time-scale 0.1 \\\n--exit-after 9s > /dev/null & sleep 1; \\\nblis observe --model qwen/qwen3-14b --server-url http://127.0.0.1:8431 --rate 20 \\\n--num-requests 20 --trace-output observed"),
        ("Chats as words, with the time of every token", "blis mock-server --model qwen/qwen3-14b --listen 127.0.0.1:8432 --time-scale 0.1 \\\n--exit-after 9s > /dev/null & sleep 1; \\\nblis observe --model qwen/qwen3-14b --server-url http://127.0.0.1:8432 --api chat --rate 20 \\\n--num-requests 20 --record-itl --trace-output observed-chats"),
    ]),
    ("blis calibrate", &[
        ("A run beside its own trace: no error", "blis run --model qwen/qwen3-14b --rate 2 --trace-output own > /dev/null && \\\nblis calibrate --model qwen/qwen3-14b --trace-header own.yaml --trace-data own.csv"),
        ("Another GPU than the measured one", "blis run --model qwen/qwen3-14b --hardware H100 --rate 2 --trace-output h100 > /dev/null && \\\nblis calibrate --model qwen/qwen3-14b --hardware A100-SXM --trace-header h100.yaml \\\n--trace-data h100.csv --fit"),
    ]),
    ("blis mock-server", &[
        ("Four simulated instances behind a routing policy, for real clients", "blis mock-server --model qwen/qwen3-14b --num-instances 4 --routing-policy weighted \\\n--listen 127.0.0.1:0 --exit-after 2s"),
        ("On a free port, ten times as fast", "blis mock-server --model qwen/qwen3-14b --listen 127.0.0.1:0 --time-scale 0.1 --exit-after 1s"),
    ]),
    ("blis suite", &[
        ("Which built-in policy is the best, without writing it down", "blis suite rebase examples/suites/long-context.yaml --dry-run"),
        ("A suite of your own", "cp examples/suites/long-context.yaml mine.yaml && blis suite rebase mine.yaml"),
    ]),
    ("blis suite rebase", &[
        ("Which built-in policy is the best, without writing it down", "blis suite rebase examples/suites/long-context.yaml --dry-run"),
        ("A suite of your own", "cp examples/suites/long-context.yaml mine.yaml && blis suite rebase mine.yaml"),
    ]),
    ("blis plugin", &[
        ("All policies with their parameters", "blis plugin list"),
        ("A policy of your own", "blis plugin new my-router --kind routing --lang rhai --dir ."),
    ]),
    ("blis plugin list", &[
        ("All policies with their parameters", "blis plugin list"),
        ("With those of a folder of yours", "blis plugin list --policy-dir examples/policy-search --output json"),
    ]),
    ("blis plugin new", &[
        ("A script that routes", "blis plugin new my-router --kind routing --lang rhai --dir ."),
        ("A Rust crate that admits", "blis plugin new my-admission --kind admission --lang rust --dir ."),
    ]),
    ("blis plugin build", &[
        ("A C file", "blis plugin new my-c-router --kind routing --lang c --dir . && blis plugin build my-c-router"),
        ("Into the folder of the policies", "blis plugin new my-c-router --kind routing --lang c --dir . && \\\nblis plugin build my-c-router --out my-c-router/policy.wasm"),
    ]),
    ("blis plugin check", &[
        ("A shipped script", "blis plugin check policies/prefix-then-load.rhai"),
        ("A built-in policy, without the cost of its calls", "blis plugin check weighted --no-cost"),
    ]),
    ("blis plugin test", &[
        ("A shipped script, with the cases beside it", "blis plugin test policies/prefix-then-load.rhai"),
        ("A component, with the cases of another policy that decides the same", "blis plugin test rust-least-loaded policies/rhai-least-loaded.test.yaml"),
        ("A new policy, with the cases of its template", "blis plugin new my-tested --kind routing --lang rhai --dir . && blis plugin test my-tested.rhai"),
    ]),
    ("blis plugin bench", &[
        ("A built-in policy", "blis plugin bench round-robin"),
        ("A script, beside the built-in policy", "blis plugin bench policies/rhai-least-loaded.rhai"),
    ]),
    ("blis plugin replay", &[
        ("Does a script make the decisions of the built-in policy?", "blis run --model qwen/qwen3-14b --num-instances 2 --rate 10 --routing-policy weighted \\\n--trace-level decisions --trace-path run.jsonl.gz && \\\nblis plugin replay policies/prefix-then-load.rhai run.jsonl.gz"),
        ("With another weight, three differences", "blis plugin replay policies/prefix-then-load.rhai run.jsonl.gz \\\n--policy-param routing.cache=0 --limit 3"),
    ]),
    ("blis plugin pack", &[
        ("A core module of any compiler", "sdk/build-guest.sh plugins/c-least-loaded/policy.c core.wasm && \\\nblis plugin pack core.wasm --out component.wasm && blis plugin check component.wasm"),
    ]),
    ("blis decisions", &[
        ("Record a run, then look at its decisions", "blis run --model qwen/qwen3-14b --num-instances 2 --rate 10 --trace-level decisions \\\n--trace-path run.jsonl.gz && blis decisions top run.jsonl.gz"),
    ]),
    ("blis decisions show", &[
        ("One request from admission to its end", "blis run --model qwen/qwen3-14b --num-instances 2 --rate 10 --trace-level decisions \\\n--trace-path run.jsonl.gz && blis decisions show run.jsonl.gz --request 17"),
        ("The routing decisions of the first ten seconds", "blis decisions show run.jsonl.gz --kind routing --to 10s"),
    ]),
    ("blis decisions top", &[
        ("The requests that waited longest", "blis run --model qwen/qwen3-14b --num-instances 2 --rate 10 --trace-level decisions \\\n--trace-path run.jsonl.gz && blis decisions top run.jsonl.gz --by wait"),
        ("Three of them", "blis decisions top run.jsonl.gz --limit 3"),
    ]),
    ("blis decisions diff", &[
        ("Two policies under the same requests", "for policy in round-robin weighted; do \\\nblis run --model qwen/qwen3-14b --num-instances 2 --rate 10 --routing-policy $policy \\\n--trace-level decisions --trace-path $policy.jsonl; done; \\\nblis decisions diff round-robin.jsonl weighted.jsonl"),
    ]),
    ("blis workload", &[
        ("What is in a trace", "blis workload inspect examples/replay-a-trace/chat.csv"),
        ("One specification of two", "blis workload compose examples/workload-spec/mixed.yaml examples/fifty-clients.yaml"),
    ]),
    ("blis workload inspect", &[
        ("A trace", "blis workload inspect examples/replay-a-trace/chat.csv"),
        ("A specification, as JSON", "blis workload inspect examples/workload-spec/mixed.yaml --output json"),
        ("A built-in workload", "blis workload inspect --workload chatbot --rate 5"),
    ]),
    ("blis workload convert", &[
        ("Times and lengths only", "blis workload convert examples/cluster-routing/assistants.jsonl out.csv --to azure"),
        ("BLIS's format, two files", "blis workload convert examples/replay-a-trace/chat.csv out --to trace-v2"),
    ]),
    ("blis workload compose", &[
        ("One specification of two", "blis workload compose examples/workload-spec/mixed.yaml examples/fifty-clients.yaml"),
        ("Into a file", "blis workload compose examples/workload-spec/mixed.yaml --out composed.yaml"),
    ]),
    ("blis import", &[
        ("A bundle from llm-d's configuration", "blis import llm-d examples/router/epp.yaml"),
        ("What the router of llm-d would do under a load", "blis import llm-d examples/router/epp.yaml --out epp-bundle.yaml && \\\nblis run --model qwen/qwen3-14b --num-instances 4 --rate 20 --policy-config epp-bundle.yaml"),
    ]),
    ("blis import llm-d", &[
        ("A bundle on standard output, remarks on standard error", "blis import llm-d examples/router/epp.yaml"),
        ("Refuse a configuration of which anything is left out", "blis import llm-d examples/router/epp.yaml --strict --out epp-bundle.yaml"),
        ("Simulate what it decides", "blis import llm-d examples/router/epp.yaml --out epp-bundle.yaml && \\\nblis run --model qwen/qwen3-14b --num-instances 4 --rate 20 --policy-config epp-bundle.yaml"),
    ]),
    ("blis export", &[
        ("A bundle as llm-d's configuration", "blis export llm-d policies/chat-prefix.yaml"),
        ("And back", "blis export llm-d policies/chat-prefix.yaml --out chat-epp.yaml && blis import llm-d chat-epp.yaml"),
    ]),
    ("blis export keda", &[
        ("A scaling policy for a Deployment", "blis export keda examples/built-ins/queue.rhai --deployment vllm --max-replicas 16"),
        ("With a parameter, into a file", "blis export keda examples/built-ins/queue.rhai --deployment vllm --set running=8 --out keda.yaml"),
    ]),
    ("blis export llm-d-plugin", &[
        ("A router that a search found", "blis export llm-d-plugin examples/discoveries/shared-prefix/found.rhai --out plugin.go"),
        ("One of this repository, with a parameter", "blis export llm-d-plugin policies/prefix-then-load.rhai"),
    ]),
    ("blis export vllm-cache-policy", &[
        ("A script as a class for vLLM", "blis export vllm-cache-policy examples/built-ins/slru.rhai --out slru_policy.py"),
        ("With a parameter", "blis export vllm-cache-policy examples/built-ins/slru.rhai --set protected_uses=3"),
    ]),
    ("blis export llm-d", &[
        ("A bundle as llm-d's configuration", "blis export llm-d policies/chat-prefix.yaml"),
        ("And back", "blis export llm-d policies/chat-prefix.yaml --out chat-epp.yaml && blis import llm-d chat-epp.yaml"),
    ]),
    ("blis models", &[
        ("All models", "blis models"),
        ("Their names alone", "blis models --output json | grep '\"name\"'"),
    ]),
    ("blis models explain", &[
        ("What a model is and keeps", "blis models explain qwen3.5-35b-a3b"),
        ("One of your own, on each of two GPUs", "blis models explain acme/chat --model-config-folder model_configs/qwen3-32b --tp 2 --output json"),
    ]),
    ("blis hardware", &[
        ("All GPUs", "blis hardware"),
        ("As JSON", "blis hardware --output json"),
    ]),
    ("blis fit-memory", &[
        ("The memory of a server, measured and computed", "blis fit-memory examples/fit-a-server/start.log"),
        ("The same as JSON, of another GPU", "blis fit-memory examples/fit-a-server/start.log --hardware H200 --output json"),
    ]),
    ("blis fit", &[
        ("Coefficients for one server, from a file of its requests", "blis fit examples/fit-a-server/requests.csv --model qwen/qwen3-14b --hardware H100 --tp 1 \\\n--out coefficients.yaml"),
        ("Simulate with them", "blis run --model qwen/qwen3-14b --hardware H100 --tp 1 --coefficients coefficients.yaml --rate 6"),
    ]),
    ("blis validate", &[
        ("How far the built-in coefficients are off on a server", "blis validate examples/fit-a-server/requests.csv --model qwen/qwen3-14b --hardware H100 --tp 1"),
        ("Fail if the mean latency is off by more than 10 %", "blis validate examples/fit-a-server/requests.csv --model qwen/qwen3-14b --hardware H100 --tp 1 \\\n--fail-over 10"),
        ("Step times of a server, from its sampled scheduler steps", "blis validate tests/measured/steps/steps.csv"),
    ]),
    ("blis completions", &[
        ("For bash, in this shell", "eval \"$(blis completions bash)\""),
        ("For fish, for good", "blis completions fish > blis.fish"),
    ]),
    ("blis man", &[
        ("All pages into a folder", "blis man man1"),
        ("Read one", "blis man man1 && cat man1/blis-run.1"),
    ]),
    ("blis version", &[
        ("The version", "blis version"),
    ]),
];
