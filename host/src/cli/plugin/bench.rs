//! `blis plugin bench`: what a decision costs, beside a built-in.

use clap::Args;
use serde_json::{Value, json};

use super::super::args::OutputForm;
use super::super::error::Failure;
use super::{KindName, Places, find, kinds, load, measure, print_either, table};
use crate::plugin::Kind;

/// Instances, or requests in a batch.
const SIZES: [usize; 5] = [4, 16, 64, 256, 1024];

#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    /// Name or file of a plugin
    #[arg(value_name = "PLUGIN")]
    plugin: String,
    /// Measure it for this kind of decision only; may be given more than once [default: all it is for]
    #[arg(long, value_enum, value_name = "KIND", hide_possible_values = true)]
    kind: Vec<KindName>,
    #[command(flatten)]
    places: Places,
    /// Form of the figures; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
}

struct Row {
    kind: Kind,
    n: usize,
    ns: f64,
    built_in_ns: f64,
}

pub(super) fn bench(args: &BenchArgs) -> Result<(), Failure> {
    let finder = args.places.finder();
    let loaded = load(&finder, &find(&finder, &args.plugin)?)?;
    let mut rows = Vec::new();
    for kind in kinds(&loaded, &args.kind)? {
        for n in SIZES {
            let ns = measure::plugin(&*loaded.plugin, kind, n, &finder.limits).map_err(Failure::runtime)?;
            rows.push(Row { kind, n, ns, built_in_ns: measure::built_in(kind, n) });
        }
    }
    let document: Vec<Value> = rows.iter().map(Row::document).collect();
    let text = || {
        let head = ["A CALL", "N", "CPU ns", "BUILT-IN", "CPU ns", "RATIO"];
        table(&head, &rows.iter().map(Row::cells).collect::<Vec<_>>())
    };
    print_either(args.output, text, &document.into())
}

impl Row {
    fn ratio(&self) -> f64 {
        self.ns / self.built_in_ns
    }

    fn document(&self) -> Value {
        json!({
            "kind": self.kind.name(),
            "n": self.n,
            "cpu_ns_per_call": self.ns.round(),
            "built_in": measure::built_in_name(self.kind),
            "built_in_cpu_ns_per_call": self.built_in_ns.round(),
        })
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.kind.name().into(),
            self.n.to_string(),
            format!("{:.0}", self.ns),
            measure::built_in_name(self.kind).into(),
            format!("{:.0}", self.built_in_ns),
            format!("{:.2}", self.ratio()),
        ]
    }
}
