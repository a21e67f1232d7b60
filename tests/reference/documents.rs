//! The schemas, and the types of their documents.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::schema::Schemas;
use super::sources::TypeSources;
use super::writer::written;

/// A schema in `docs`.
pub(super) struct DocumentSchema {
    /// The name of its file, without `.schema.json`; its `$id` has it, too.
    pub name: &'static str,
    /// The heading of its section in docs/json.md.
    pub heading: &'static str,
    title: &'static str,
    /// Documents on standard output: the name of the part, and the type.
    printed: &'static [(&'static str, &'static str)],
    /// Files and what other schemas use, likewise.
    others: &'static [(&'static str, &'static str)],
}

/// A part that several schemas use belongs to the first of them.
pub(super) const DOCUMENTS: [DocumentSchema; 15] = [
    DocumentSchema {
        name: "run",
        heading: "`blis run`, `blis replay`",
        title: "JSON of blis run and blis replay: the document on standard output, the file of --metrics-path, and that of --results-path",
        printed: &[("run", "RunDocument")],
        others: &[("metrics_file", "MetricsFile"), ("results_file", "Results"), ("grants", "Grants")],
    },
    DocumentSchema {
        name: "evaluation",
        heading: "`blis evaluate`",
        title: "Evaluation result of blis evaluate, schema 2",
        printed: &[("evaluation", "Document<ResultLine>")],
        others: &[],
    },
    DocumentSchema {
        name: "held-out",
        heading: "`blis evaluate held-out`",
        title: "JSON of blis evaluate held-out: the document on standard output",
        printed: &[("held_out", "Document<HeldOutReport>")],
        others: &[],
    },
    DocumentSchema {
        name: "record",
        heading: "`blis evaluate --record`",
        title: "JSON of blis evaluate --record: the document on standard output",
        printed: &[("record", "Document<RecordResult>")],
        others: &[],
    },
    DocumentSchema {
        name: "search",
        heading: "`blis search`",
        title: "JSON of blis search: the document on standard output",
        printed: &[("search", "Document<SearchResult>")],
        others: &[],
    },
    DocumentSchema {
        name: "tune",
        heading: "`blis tune`",
        title: "JSON of blis tune: the document on standard output",
        printed: &[("tune", "Document<TuningResult>")],
        others: &[],
    },
    DocumentSchema {
        name: "compare",
        heading: "`blis compare`",
        title: "JSON of blis compare: the document on standard output",
        printed: &[("compare", "Document<ComparisonDocument>")],
        others: &[],
    },
    DocumentSchema {
        name: "planning",
        heading: "`blis advise`, `blis capacity`, `blis size`, `blis sweep`, `blis diagnose`",
        title: "JSON of blis advise, blis capacity, blis size, blis sweep and blis diagnose: the document on standard output",
        printed: &[
            ("capacity", "Document<Capacity>"),
            ("size", "Document<ServiceSize>"),
            ("elastic", "Document<ElasticCurve>"),
            ("advise", "Document<DeploymentAdvice>"),
            ("sweep", "Document<Sweep>"),
            ("diagnose", "Document<Diagnosis>"),
            ("diagnose_metrics", "Document<ScrapeDiagnosis>"),
        ],
        others: &[],
    },
    DocumentSchema {
        name: "regret",
        heading: "`blis regret`",
        title: "JSON of blis regret: the document on standard output",
        printed: &[("regret_document", "Document<RegretDocument>")],
        others: &[],
    },
    DocumentSchema {
        name: "decision-trace",
        heading: "`--trace-path`",
        title: "A line of a decision trace of BLIS, version 1: a header, then decisions, signals and outcomes, then an end",
        printed: &[("header_line", "HeaderLine"), ("trace_line", "TraceLine"), ("end_line", "EndLine")],
        others: &[],
    },
    DocumentSchema {
        name: "decisions",
        heading: "`blis decisions`",
        title: "JSON of blis decisions: the documents on standard output. Without --request, `blis decisions show` prints the lines of the trace, which decision-trace.schema.json describes",
        printed: &[
            ("decisions_show", "Document<RequestHistory>"),
            ("decisions_top", "Document<Top>"),
            ("decisions_diff", "Document<Diff>"),
        ],
        others: &[],
    },
    DocumentSchema {
        name: "plugin",
        heading: "`blis plugin`",
        title: "JSON of blis plugin list, check and bench: the documents on standard output",
        printed: &[
            ("plugin_list", "PluginList"),
            ("plugin_check", "PluginChecks"),
            ("plugin_bench", "PluginBenchmarks"),
        ],
        others: &[],
    },
    DocumentSchema {
        name: "real-time",
        heading: "`blis observe`, `blis calibrate`",
        title: "JSON of blis observe and blis calibrate: the document on standard output",
        printed: &[("observe", "Document<ObserveReport>"), ("calibrate", "Document<Calibration>")],
        others: &[],
    },
    DocumentSchema {
        name: "workload",
        heading: "`blis workload`",
        title: "JSON of blis workload inspect: the document on standard output",
        printed: &[("workload_inspect", "Document<WorkloadProfile>")],
        others: &[],
    },
    DocumentSchema {
        name: "models",
        heading: "`blis models`, `blis hardware`, `blis validate`, `blis fit`, `blis fit-memory`",
        title: "JSON of blis models, hardware, validate, fit and fit-memory: the documents on standard output",
        printed: &[
            ("models", "ModelList"),
            ("models_explain", "ModelFactsDocument"),
            ("hardware", "GpuList"),
            ("validate", "ValidatedRuns"),
            ("validate_kernels", "KernelErrors"),
            ("validate_steps", "StepsOfRuns"),
            ("fit", "FitParts"),
            ("fit_memory", "MemoryOfLogs"),
        ],
        others: &[],
    },
];

/// How the schemas are written anew.
const COMMENT: &str = "Generated from the types that are serialised, and from their doc comments: BLIS_RECORD=1 cargo test --workspace --test tests -- reference";

/// The texts of all schemas by their names. `made_by_macros` has the values of types that the sources do not show.
pub(super) fn generated(
    root: &Path,
    made_by_macros: &BTreeMap<&'static str, Vec<&'static str>>,
) -> BTreeMap<String, String> {
    let sources = TypeSources::read(root);
    let mut schemas = Schemas::new(&sources, made_by_macros);
    for document in &DOCUMENTS {
        schemas.add(document.name, &[document.printed, document.others].concat());
    }
    DOCUMENTS.iter().map(|document| (document.name.to_owned(), written(&document.schema(&schemas)))).collect()
}

impl DocumentSchema {
    fn schema(&self, schemas: &Schemas) -> Value {
        let mut schema = json!({
            "$comment": COMMENT,
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": format!("urn:blis:{}:1", self.name),
            "title": self.title,
            "$defs": schemas.parts(self.name),
        });
        let references: Vec<Value> =
            self.printed.iter().map(|(name, _)| json!({"$ref": format!("#/$defs/{name}")})).collect();
        match &*references {
            [one] => schema["$ref"] = one["$ref"].clone(),
            several => schema["anyOf"] = several.into(),
        }
        schema
    }
}
