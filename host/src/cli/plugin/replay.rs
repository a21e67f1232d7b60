//! `blis plugin replay`: the decisions of a recorded run, made again by a policy.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::super::bound::BoundArgs;
use super::super::one_of::OneOf;
use super::super::output::OutputForm;
use super::bounded::bounded;
use super::kind::{kind_parser, kinds, names};
use super::named::{PluginSearchArgs, find_any, usage_error};
use super::printed::print_either;
use blis_config::policy::PolicyUse;
use blis_eval::error::RunError;
use blis_eval::spec::parse::{self, PolicyParam};
use blis_eval::spec::{ExperimentSpec, TieBreakName};
use blis_plugin::find::Finder;
use blis_plugin::{Kind, LoadedPlugin};
use blis_report::decisions::{PolicyReplay, ReplayError, ReplayedParameters, ReplayedPolicy, is_replayable};

#[derive(Debug, Args)]
pub(super) struct PolicyReplayArgs {
    /// Name or file of a plugin, or name of a built-in policy (KIND/NAME where two kinds have it)
    #[arg(value_name = "PLUGIN")]
    plugin: String,
    /// Decision trace, written by `blis run --trace-level decisions --trace-path FILE`
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Kind of decision to replay, admission or routing; may be given several times [default: all that the policy has]
    #[arg(long, value_parser = kind_parser(), value_name = "KIND", hide_possible_values = true)]
    kind: Vec<Kind>,
    /// Parameter of the policy, as routing.cache=3; may be given several times
    #[arg(long, value_name = "KIND.NAME=VALUE", value_parser = parse::policy_param)]
    policy_param: Vec<PolicyParam>,
    /// Choice among equally good instances: as in the recorded run
    #[arg(long, value_parser = OneOf::<TieBreakName>::new(), value_name = "NAME", default_value_t = ExperimentSpec::default().tie_break())]
    tie_break: TieBreakName,
    /// Number of differences that are shown, ≥ 0
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = parse::count_or_zero)]
    limit: u32,
    /// Exit with code 1 if any decision differs
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    bound: BoundArgs,
    #[command(flatten)]
    search: PluginSearchArgs,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
}

/// Time that a replay may take, unless `--wall-s` is given.
const REPLAY_WALL: Duration = Duration::from_secs(600);

pub(super) fn replay(args: &PolicyReplayArgs) -> Result<(), RunError> {
    let replayed = bounded(&args.bound, REPLAY_WALL, &args.plugin, || replayed(args))??;
    let (document, text, differ, decisions) = replayed;
    print_either(args.output, || text, &document)?;
    if args.strict && differ > 0 {
        let message = format_args!("{differ} of {decisions} decisions differ");
        return Err(RunError::runtime(message).hint("without `--strict` that is no error"));
    }
    Ok(())
}

/// The replay as a document and as text, with the numbers of decisions that differ and of all.
fn replayed(args: &PolicyReplayArgs) -> Result<(Value, String, u64, u64), RunError> {
    let finder = args.search.finder();
    let loaded = find_any(&finder, &args.plugin)?.load(&finder).map_err(usage_error)?;
    let replay = PolicyReplay::read(&args.trace, &policy(args, &finder, &loaded)?, args.limit as usize);
    let replay = replay.map_err(|error| match error {
        ReplayError::Decision(diagnostic) => RunError::runtime(diagnostic),
        error => RunError::refused(error),
    })?;
    super::super::decisions::warn_of_cut(&args.trace)?;
    let mut document = serde_json::to_value(&replay).map_err(RunError::runtime)?;
    let mut text = replay.to_string();
    let left: Vec<Kind> =
        loaded.plugin.description().kinds.iter().copied().filter(|&kind| !is_replayable(kind)).collect();
    if let (false, Value::Object(fields)) = (left.is_empty(), &mut document) {
        let kinds = left.iter().map(|kind| kind.name().into()).collect();
        fields.insert("not_replayable".to_owned(), Value::Array(kinds));
        text += &format!("not replayed: {}; {REPLAYABLE}\n", names(&left));
    }
    Ok((document, text, replay.differ(), replay.decisions()))
}

/// Why other kinds are not replayed.
const REPLAYABLE: &str = "lines of a trace hold everything that a policy reads for admission and routing only";

/// The kinds of `loaded` that are to be replayed, with their parameters.
fn policy<'a>(
    args: &PolicyReplayArgs,
    finder: &Finder,
    loaded: &'a LoadedPlugin,
) -> Result<ReplayedPolicy<'a>, RunError> {
    let implemented = kinds(loaded, &args.kind)?;
    let (selected, left): (Vec<Kind>, Vec<Kind>) =
        Kind::ALL.into_iter().filter(|kind| implemented.contains(kind)).partition(|&kind| is_replayable(kind));
    let asks_for_more = !args.kind.is_empty() && !left.is_empty();
    if selected.is_empty() || asks_for_more {
        return Err(RunError::usage(format_args!("decisions of {} cannot be replayed", names(&left))).hint(REPLAYABLE));
    }
    if let Some(PolicyParam { kind, name, .. }) = args.policy_param.iter().find(|param| !selected.contains(&param.kind))
    {
        return Err(RunError::usage(format_args!("`{kind}.{name}`: no decisions of {kind} are replayed"))
            .hint(format_args!("replayed are those of {}", names(&selected))));
    }
    let values = |kind| Ok((kind, parameters(args, loaded, kind)?));
    Ok(ReplayedPolicy {
        loaded,
        kinds: selected.iter().map(|&kind| values(kind)).collect::<Result<_, RunError>>()?,
        lowest_index: args.tie_break == TieBreakName::LowestIndex,
        limits: finder.limits,
    })
}

/// The values of the parameters of `loaded` as `kind`: those given, and defaults.
fn parameters(args: &PolicyReplayArgs, loaded: &LoadedPlugin, kind: Kind) -> Result<ReplayedParameters, RunError> {
    let given = args.policy_param.iter().filter(|param| param.kind == kind);
    let given: Vec<_> = given.map(|PolicyParam { name, value, .. }| (name.clone(), value.clone())).collect();
    let used = PolicyUse::with(kind, loaded, &given).map_err(|(what, hint)| RunError::usage(what).hint(hint))?;
    Ok(ReplayedParameters {
        numbers: used.parameters.into_iter().map(|(_, value)| value.value).collect(),
        others: used.others.into_iter().map(|(_, value)| value.value).collect(),
    })
}
