use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use blis_diag::Location;

use super::*;
use crate::Kind;
use crate::inputs::{GuestCall, GuestOutput, ties};
use crate::{Guest, Limits, check};
use blis_sim::policy::AdmissionDecision;

/// Results of functions that the generator of `blis search` made, a line each, with the name of the function in front.
const FOUND: &str = include_str!("found.txt");
/// The interfaces of the endpoint picker that a plugin uses, as far as it does.
const STUBS: &str = include_str!("stubs.txt");
/// What stands for a number that a request does not have.
const ABSENT: f64 = -1e300;
const INSTANCES: usize = 4;
const SITUATIONS: u64 = 12;

fn compiled(source: &str) -> ExportedScript {
    let limits = Limits::default();
    ExportedScript::read(Path::new("policy.rhai"), source, &[], &limits).unwrap_or_else(|fault| panic!("{fault}"))
}

fn exported_file(source: &str) -> Result<GoPlugin, Fault> {
    llm_d_plugin(&ExportedScript::read(Path::new("policy.rhai"), source, &[], &Limits::default())?)
}

fn script(line: &str) -> String {
    let (function, body) = line.split_once(": ").expect("function: body");
    format!("// @name found\nfn {function}(r, s) {{\n    {body}\n}}\n")
}

fn started(source: &str, kind: Kind) -> Box<dyn Guest> {
    let (plugin, limits) = (compiled(source).plugin, Limits::default());
    plugin.start(&check::setup(&plugin, kind, INSTANCES, &limits)).unwrap_or_else(|fault| panic!("{fault}\n{source}"))
}

/// What a script scores in situation number `item`; `None` after a fault.
fn scores(guest: &mut dyn Guest, item: u64) -> Option<Vec<f64>> {
    let call = GuestCall::plausible(Kind::Routing, INSTANCES, item);
    match call.run(guest, &ties()).ok()? {
        GuestOutput::Index(_, bits) => Some(bits.into_iter().map(f64::from_bits).collect()),
        other => panic!("{other:?}"),
    }
}

/// The values of a field in all situations, as the host gives it to scripts.
fn values_of(argument: &str, field: &str) -> Vec<Vec<f64>> {
    let value = match argument {
        "r" => format!("zeros(s.len) + (1.0 * (r.{field} ?? {ABSENT:?}))"),
        _ => format!("zeros(s.len) + 1.0 * s.{field}"),
    };
    let mut guest = started(&format!("fn route(r, s) {{ {value} }}"), Kind::Routing);
    (0..SITUATIONS).map(|item| scores(&mut *guest, item).unwrap_or_else(|| panic!("{argument}.{field}"))).collect()
}

/// What the script decides for each instance, as numbers, in all situations; `None` after a fault.
fn expected(source: &str, interface: &GoInterface) -> Vec<Option<Vec<f64>>> {
    let mut guest = started(source, interface.kind);
    let truth = |holds: bool| f64::from(u8::from(holds));
    let decided = |item| {
        let call = GuestCall::plausible(interface.kind, INSTANCES, item);
        Some(match call.run(&mut *guest, &ties()).ok()? {
            GuestOutput::Index(_, bits) => bits.into_iter().map(f64::from_bits).collect(),
            GuestOutput::Flags(kept) => kept.into_iter().map(truth).collect(),
            GuestOutput::Decision(decision) => vec![truth(decision == AdmissionDecision::Admit); INSTANCES],
            other => panic!("{other:?}"),
        })
    };
    (0..SITUATIONS).map(decided).collect()
}

fn go_number(value: f64) -> String {
    match value {
        ABSENT => "math.NaN()".to_owned(),
        f64::INFINITY => "math.Inf(1)".to_owned(),
        _ => format!("{value:?}"),
    }
}

/// A file beside the plugin that prints what it decides in all situations.
fn harness(package: &str, source: &str) -> String {
    let (interface, decision) = read(&compiled(source)).expect("exported before");
    let file = GoFile::of(&compiled(source), &decision, interface, &compiled(source).values().expect("defaults"));
    let split = |name: &String| match name.strip_prefix("service_") {
        Some(number) => ("s".to_owned(), number.to_owned(), camel(name)),
        None => ("r".to_owned(), name.clone(), camel(name)),
    };
    let request: Vec<_> = file.request.iter().map(split).collect();
    let request: Vec<_> = request.iter().map(|(of, name, go)| (go, values_of(of, name))).collect();
    let endpoint: Vec<_> = file.endpoint.iter().map(|name| (camel(name), values_of("s", name))).collect();
    let mut calls = String::new();
    for item in 0..SITUATIONS as usize {
        let r: Vec<String> = request.iter().map(|(go, all)| format!("{go}: {}", go_number(all[item][0]))).collect();
        let row = |at: usize| {
            let all: Vec<String> =
                endpoint.iter().map(|(go, all)| format!("{go}: {}", go_number(all[item][at]))).collect();
            format!("{{{}}}", all.join(", "))
        };
        let rows: Vec<String> = (0..INSTANCES).map(row).collect();
        let _ = writeln!(
            calls,
            "\tshow(decide(defaultParameters(), requestSignals{{{}}}, []endpointSignals{{{}}}))",
            r.join(", "),
            rows.join(", ")
        );
    }
    let checked = match interface.kind {
        Kind::Routing => "var _ fwksched.Scorer = &Plugin{}",
        Kind::RoutingFilter => "var _ fwksched.Filter = &Plugin{}",
        _ => "var _ requestcontrol.Admitter = &Plugin{}\nvar _ fwksched.Endpoint",
    };
    let control = match interface.kind {
        Kind::Admission => "\t\"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/requestcontrol\"\n",
        _ => "",
    };
    format!(
        "package {package}\n\nimport (\n\t\"fmt\"\n\t\"math\"\n\n\tfwkplugin \"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/plugin\"\n\
         \tfwksched \"github.com/llm-d/llm-d-router/pkg/epp/framework/interface/scheduling\"\n{control})\n\n{checked}\n\nfunc init() {{ \
         fwkplugin.Register(PluginType, Factory) }}\n\nfunc show(values []float64) {{\n\tfor _, value := range values {{\n\t\tfmt.Printf(\"%016x \", \
         math.Float64bits(value))\n\t}}\n\tfmt.Println()\n}}\n\n// Show prints what is decided.\nfunc Show() {{\n{calls}}}\n"
    )
}

/// A folder that is removed at the end.
struct GoModule(PathBuf);

impl Drop for GoModule {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl GoModule {
    fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        fs::write(path, text).expect("written");
    }

    /// An empty one with the interfaces; `None`, with a message, if there is no Go.
    fn new(name: &str) -> Option<Self> {
        if Command::new("go").arg("version").output().is_err() {
            println!("skipped: `go` is not there (apt-get install golang-go)");
            return None;
        }
        let module = Self(std::env::temp_dir().join(format!("blis-go-{name}-{}", std::process::id())));
        for part in STUBS.trim_start_matches("== ").split("\n== ") {
            let (file, text) = part.split_once('\n').expect("a name and a text");
            module.write(file, text);
        }
        Some(module)
    }

    /// The lines that a program of all `sources` prints.
    fn printed(&self, sources: &[String]) -> Vec<String> {
        let (mut imports, mut calls) = (String::new(), String::new());
        for (number, source) in sources.iter().enumerate() {
            let plugin = exported_file(source).unwrap_or_else(|fault| panic!("{fault}\n{source}"));
            let package = plugin.text.lines().find_map(|line| line.strip_prefix("package ")).expect("a package");
            self.write(&format!("p{number}/plugin.go"), &plugin.text);
            self.write(&format!("p{number}/harness.go"), &harness(package, source));
            let _ = writeln!(imports, "\tp{number} \"github.com/llm-d/llm-d-router/p{number}\"");
            let _ = writeln!(calls, "\tp{number}.Show()");
        }
        self.write("main/main.go", &format!("package main\n\nimport (\n{imports})\n\nfunc main() {{\n{calls}}}\n"));
        self.run()
    }

    /// The lines that the program in `main` prints.
    fn run(&self) -> Vec<String> {
        let mut command = Command::new("go");
        command.current_dir(&self.0).args(["run", "./main"]).env("GOPROXY", "off").env("GOFLAGS", "-mod=mod");
        let ended = command.output().expect("go runs");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8(ended.stdout).expect("text").lines().map(str::to_owned).collect()
    }
}

/// Scripts that people would write.
const WRITTEN: [&str; 6] = [
    "// @param weight 2.5 0 10 of the cache\nfn route(r, s) { let load = s.in_flight + s.queue_depth; weight * most_best(s.cached_blocks) - fewest_best(load) }\n",
    "fn route(r, s) { if r.input_tokens > 500 { return -s.in_flight_tokens; } select(s.kv_utilization > 0.5 & s.queue_depth > 2.0, -1.0, sqrt(s.free_kv_blocks)) }\n",
    "fn worth(x, y) { x / max(y, 1.0) }\nfn route(r, s) { worth(s.cached_tokens_gpu, s.effective_load) + (0.1 + 0.2) * s.batch_size }\n",
    "fn filter(r, s) { s.kv_utilization < 0.9 | s.queue_depth == min(s.queue_depth) }\n",
    "fn admit(r, s) { mean(s.kv_utilization) < 0.6 || r.class_priority >= 2 }\n",
    "const MOST = 40.0;\nfn admit(r, s) { sum(s.queue_depth) < MOST && s.len > 1 }\n",
];

#[test]
fn a_plugin_in_go_decides_as_the_script() {
    let Some(module) = GoModule::new("decisions") else { return };
    let found: Vec<String> = FOUND.lines().map(script).chain(WRITTEN.map(str::to_owned)).collect();
    let printed = module.printed(&found);
    assert_eq!(printed.len(), found.len() * SITUATIONS as usize);
    let mut compared = 0;
    for (source, lines) in found.iter().zip(printed.chunks(SITUATIONS as usize)) {
        let (interface, _) = read(&compiled(source)).expect("exported before");
        let exact = !["ln(", "exp(", "pow("].iter().any(|function| source.contains(function));
        for (expected, line) in expected(source, interface).into_iter().zip(lines) {
            let Some(expected) = expected else { continue };
            let words = line.split_whitespace().map(|word| u64::from_str_radix(word, 16).expect("bits"));
            let decided: Vec<f64> = words.map(f64::from_bits).collect();
            assert_eq!(decided.len(), expected.len());
            for (decided, expected) in decided.iter().zip(&expected) {
                let is_near = (decided - expected).abs() <= 1e-12 * expected.abs();
                assert!(decided == expected || (!exact && is_near), "{decided:?} is not {expected:?}\n{source}");
            }
            compared += 1;
        }
    }
    assert!(compared > found.len() * 10, "{compared} situations of {} scripts", found.len());
}

/// Endpoints, and what plugins of four scripts do with them.
const MAIN: &str = include_str!("main.go.in");

#[test]
fn a_plugin_reads_endpoints_and_does_what_the_endpoint_picker_expects() {
    let Some(module) = GoModule::new("interfaces") else { return };
    for (package, source) in [
        (
            "scorer",
            "// @param weight 2 0 10 of the cache\nfn route(r, s) { weight * s.cached_tokens_gpu - s.in_flight_tokens + (1.0 * r.class_priority + \
             r.prompt_blocks) * s.queue_depth + s.free_kv_blocks - s.effective_load }",
        ),
        ("filter", "fn filter(r, s) { s.queue_depth < 1.0 * r.class_priority }"),
        ("admitter", "fn admit(r, s) { r.input_tokens > 100 }"),
        ("missing", "fn route(r, s) { s.ttft_ewma }"),
        ("infinite", "fn route(r, s) { 1.0 / s.queue_depth }"),
    ] {
        let plugin =
            exported_file(&format!("// @name {package}\n{source}\n")).unwrap_or_else(|fault| panic!("{fault}"));
        module.write(&format!("{package}/plugin.go"), &plugin.text);
    }
    module.write("main/main.go", MAIN);
    // Scores of the script, for 50 / 16 = 3 blocks: 3 · 160 - 500 + (7 + 3) · 3 + 75 - 9 = 76, -100 + 50 - 2 = -52, 10 - 1 = 9.
    let third = 61.0 / 128.0;
    let expected = [
        &*format!("scores 1 0 {third}"),
        "weight of scorer is 11; it must be from 0 to 10",
        "parameters of scorer: json: unknown field \"speed\"",
        "kept [1 2]",
        "kept [0 1 2]",
        "50 tokens: admitter rejects the request",
        "200 tokens: <nil>",
        "missing: fill in fillRequest and fillEndpoint, and set filledIn to true",
        "infinite 0 1 6.666666666666667e-301",
    ];
    assert_eq!(module.run(), expected);
}

#[test]
fn a_plugin_is_a_file_in_go() {
    let scorer =
        exported_file(&format!("// @name prefix-weight\n{}", WRITTEN[0])).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(scorer.missing, [] as [&str; 0]);
    let (decision, _) = scorer.text.split_once("// What follows are the functions of scripts.").expect("helpers");
    insta::assert_snapshot!(decision);
    let source = "fn admit(r, s) { mean(s.ttft_ewma) < (r.slo_ttft ?? 1e12) - s.load_staleness }\n";
    let admitter = exported_file(source).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(admitter.missing, ["r.slo_ttft", "s.load_staleness", "s.ttft_ewma"]);
    let (decision, _) = admitter.text.split_once("// What follows are the functions of scripts.").expect("helpers");
    insta::assert_snapshot!("admitter", decision);
}

#[test]
fn what_has_no_form_in_go_is_refused_with_its_location() {
    let refused = [
        "fn init() { #{ m0: table() } }\nfn route(r, s) { this.m0.get(s.id, 0.0) }",
        "fn route(r, s) { for x in s { } s.queue_depth }",
        "fn route(r, s) { s.queue_depth + random() }",
        "fn route(r, s) { if r.tenant == \"a\" { s.queue_depth } else { s.batch_size } }",
        "fn route(r, s) { s.queue_depth[0] + s.batch_size }",
        "fn route(r, s) { s.queue_depth * (r.input_tokens / 16) }",
        "fn route(r, s) { s.queue_depth }\nfn filter(r, s) { s.queue_depth < 4 }",
        "fn scale(g) { g.replicas }",
    ];
    let messages = refused.map(|source| match exported_file(source) {
        Ok(plugin) => panic!("{}", plugin.text),
        Err(fault) => {
            let at = fault.diagnostic.location.as_ref().map(Location::to_string).unwrap_or_default();
            format!("{at}: {}", fault.diagnostic.what)
        }
    });
    insta::assert_snapshot!(messages.join("\n"));
}
