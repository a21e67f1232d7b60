//! `blis plugin bench`: what a decision costs, beside a built-in: as in a run, where between two decisions
//! few signals change; and cold, about one service after the other.

use clap::Args;

use super::super::bound::BoundArgs;
use super::super::output::OutputForm;
use super::bounded::{PLUGIN_WALL, bounded};
use super::documents::{BenchmarkDocument, PluginBenchmarks};
use super::kind::{kind_parser, kinds};
use super::measure;
use super::measure::Cost;
use super::named::{PluginSearchArgs, find_any, usage_error};
use super::printed::{print_either, table};
use blis_eval::error::RunError;
use blis_plugin::Kind;

/// Instances, or requests in a batch.
const SIZES: [usize; 5] = [4, 16, 64, 256, 1024];

#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    /// Name or file of a plugin, or name of a built-in policy (KIND/NAME where two kinds have it)
    #[arg(value_name = "PLUGIN")]
    plugin: String,
    /// Kind of decision to benchmark; may be given several times [default: all that the policy has]
    #[arg(long, value_parser = kind_parser(), value_name = "KIND", hide_possible_values = true)]
    kind: Vec<Kind>,
    #[command(flatten)]
    bound: BoundArgs,
    #[command(flatten)]
    search: PluginSearchArgs,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
}

struct Row {
    kind: Kind,
    n: usize,
    cost: Cost,
    /// Cost of the built-in policy that it is compared with; `None` for a kind without one.
    built_in: Option<Cost>,
}

pub(super) fn bench(args: &BenchArgs) -> Result<(), RunError> {
    let (document, text) = bounded(&args.bound, PLUGIN_WALL, &args.plugin, || measured(args))??;
    print_either(args.output, || text, &document)
}

/// The costs as a document and as a table.
fn measured(args: &BenchArgs) -> Result<(PluginBenchmarks, String), RunError> {
    let finder = args.search.finder();
    let loaded = find_any(&finder, &args.plugin)?.load(&finder).map_err(usage_error)?;
    let mut rows = Vec::new();
    for kind in kinds(&loaded, &args.kind)? {
        for n in SIZES {
            let cost = measure::plugin(&*loaded.plugin, kind, n, &finder.limits).map_err(RunError::runtime)?;
            let built_in = measure::built_in(kind, n, loaded.plugin.description().reads).map_err(RunError::runtime)?;
            rows.push(Row { kind, n, cost, built_in });
        }
    }
    let document = rows.iter().map(Row::document).collect();
    let head = ["CALL", "N", "CPU ns", "COLD ns", "BUILT-IN", "CPU ns", "COLD ns", "RATIO"];
    Ok((document, table(&head, &rows.iter().map(Row::cells).collect::<Vec<_>>())))
}

impl Row {
    fn document(&self) -> BenchmarkDocument {
        BenchmarkDocument {
            built_in: self.kind.row().beside.map(str::to_owned),
            built_in_cold_cpu_ns_per_call: self.built_in.and_then(|cost| cost.cold_ns).map(f64::round),
            built_in_cpu_ns_per_call: self.built_in.map(|cost| cost.ns.round()),
            cold_cpu_ns_per_call: self.cost.cold_ns.map(f64::round),
            cpu_ns_per_call: self.cost.ns.round(),
            kind: self.kind.name().to_owned(),
            n: self.n,
        }
    }

    fn cells(&self) -> Vec<String> {
        let nanos = |ns: Option<f64>| ns.map_or_else(|| "-".into(), |ns| format!("{ns:.0}"));
        let ratio = self.built_in.map(|built_in| self.cost.ns / built_in.ns);
        vec![
            self.kind.name().into(),
            self.n.to_string(),
            format!("{:.0}", self.cost.ns),
            nanos(self.cost.cold_ns),
            self.kind.row().beside.unwrap_or("-").into(),
            nanos(self.built_in.map(|cost| cost.ns)),
            nanos(self.built_in.and_then(|cost| cost.cold_ns)),
            ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
        ]
    }
}
