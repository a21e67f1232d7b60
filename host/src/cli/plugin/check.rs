//! `blis plugin check`: the conformance kit, in a table.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::super::bound::{BoundArgs, CommandBound};
use super::super::output::OutputForm;
use super::super::workers::default_worker_settings;
use super::bounded::PLUGIN_WALL;
use super::documents::{CallCost, CheckDocument, ConformanceDocument, PluginChecks, SkippedCheck, UsageDocument};
use super::kind::{kind_parser, kinds, names};
use super::measure;
use super::named::{PluginSearchArgs, find_any};
use super::printed::{print_either, table};
use blis_eval::error::RunError;
use blis_eval::worker::{self, TimeLimit};
use blis_plugin::check::{COST_SIZES, Check, Findings, Usage, check as conformance};
use blis_plugin::find::Finder;
use blis_plugin::{Kind, LoadedPlugin, Technology};

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Names or files of plugins, or names of built-in policies (KIND/NAME where two kinds have it)
    #[arg(value_name = "PLUGIN", required = true)]
    plugins: Vec<String>,
    /// Kind of decision to check; may be given several times [default: all that the policy has]
    #[arg(long, value_parser = kind_parser(), value_name = "KIND", hide_possible_values = true)]
    kind: Vec<Kind>,
    /// Skip the cost of calls
    #[arg(long)]
    no_cost: bool,
    #[command(flatten)]
    bound: BoundArgs,
    #[command(flatten)]
    search: PluginSearchArgs,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto)]
    output: OutputForm,
}

/// CPU time of the checks of one plugin, unless the command says how much, or allows large components: more than twice what the shipped
/// plugin with the most kinds takes. The limits of a call do not bound their sum.
const CHECK_CPU: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 6 });

/// The findings about one plugin.
struct Checked {
    plugin: String,
    file: String,
    technology: &'static str,
    loaded: Option<LoadedPlugin>,
    findings: Findings,
    costs: Vec<Cost>,
}

/// CPU time of a call.
struct Cost {
    kind: Kind,
    n: usize,
    ns: f64,
}

pub(super) fn check(args: &CheckArgs) -> Result<(), RunError> {
    let finder = args.search.finder();
    let bound = args.bound.start();
    let pages = args.plugins.iter().map(|name| page(&finder, name, args, &bound)).collect::<Result<Vec<_>, _>>()?;
    let document: PluginChecks = pages.iter().map(|page| page.document.clone()).collect();
    let text = || pages.iter().map(|page| page.text.clone()).collect::<Vec<_>>().join("\n");
    print_either(args.output, text, &document)?;
    let checks: usize = pages.iter().map(|page| page.checks).sum();
    let failed: usize = pages.iter().map(|page| page.failed).sum();
    if failed == 0 {
        return Ok(());
    }
    Err(RunError::runtime(format_args!("{failed} of {checks} checks failed")).hint("each failed check says what to do"))
}

/// What is printed about one plugin.
#[derive(Serialize, Deserialize)]
struct Page {
    document: ConformanceDocument,
    text: String,
    checks: usize,
    failed: usize,
}

/// Checks one plugin, in a process of its own.
fn page(finder: &Finder, name: &str, args: &CheckArgs, bound: &CommandBound) -> Result<Page, RunError> {
    let work = || check_one(finder, name, args).map(|checked| checked.page());
    let is_given = args.bound.wall_s.is_some() || args.bound.cpu_s.is_some();
    let usual = if is_given || args.search.allow_large_components {
        TimeLimit::Total(PLUGIN_WALL)
    } else {
        TimeLimit::Both { wall: PLUGIN_WALL, cpu: CHECK_CPU }
    };
    let limit = bound.left(usual)?;
    let worker = worker::start(&default_worker_settings(Some(NonZeroUsize::MIN)), limit, work)?;
    match worker.wait() {
        Ok(page) => page,
        Err(failure) => {
            if let Some(error) = bound.ended(&failure) {
                return Err(error);
            }
            let findings = Findings {
                checks: vec![Check {
                    kind: None,
                    what: "ends under the limits of a process",
                    outcome: Err(failure.to_string()),
                }],
                ..Findings::default()
            };
            let (plugin, file, technology) = find_any(finder, name)?.identity();
            Ok(Checked { plugin, file, technology: technology.name(), loaded: None, findings, costs: Vec::new() }
                .page())
        }
    }
}

fn check_one(finder: &Finder, name: &str, args: &CheckArgs) -> Result<Checked, RunError> {
    let found = find_any(finder, name)?;
    let (plugin, file, technology) = found.identity();
    let findings = Findings::default();
    let mut checked =
        Checked { plugin, file, technology: technology.name(), loaded: None, findings, costs: Vec::new() };
    let outcome = found.load(finder);
    let detail = outcome.as_ref().map(|loaded| format!("{} bytes, only imports of blis:policy", loaded.bytes));
    let detail = match (detail, technology) {
        (Ok(detail), Technology::Component) => Ok(detail),
        (Ok(_), Technology::BuiltIn) => Ok("part of the program".to_owned()),
        (Ok(_), _) => Ok(format!("{} bytes", outcome.as_ref().map_or(0, |loaded| loaded.bytes))),
        (Err(fault), _) => Err(fault.to_string()),
    };
    checked.findings.checks.push(Check { kind: None, what: "loads and describes itself", outcome: detail });
    let Ok(loaded) = outcome else { return Ok(checked) };
    let kinds = kinds(&loaded, &args.kind)?;
    let Findings { checks, usage, not_applicable } = conformance(&*loaded.plugin, &kinds, &finder.limits);
    checked.findings.checks.extend(checks);
    checked.findings.usage = usage;
    checked.findings.not_applicable = not_applicable;
    if checked.findings.passed() && !args.no_cost {
        checked.costs = costs(&loaded, &kinds, finder)?;
    }
    checked.loaded = Some(loaded);
    Ok(checked)
}

fn costs(loaded: &LoadedPlugin, kinds: &[Kind], finder: &Finder) -> Result<Vec<Cost>, RunError> {
    let cases = kinds.iter().flat_map(|&kind| COST_SIZES.map(|n| (kind, n)));
    let cost = |(kind, n)| {
        let ns = measure::plugin(&*loaded.plugin, kind, n, &finder.limits).map_err(RunError::runtime)?.ns;
        Ok(Cost { kind, n, ns })
    };
    cases.map(cost).collect()
}

impl Checked {
    fn page(&self) -> Page {
        let checks = &self.findings.checks;
        let failed = checks.iter().filter(|check| check.outcome.is_err()).count();
        Page { document: self.document(), text: self.text(), checks: checks.len(), failed }
    }

    fn document(&self) -> ConformanceDocument {
        let description = self.loaded.as_ref().map(|loaded| loaded.plugin.description());
        let name = |kind: Kind| kind.name().to_owned();
        let check = |check: &Check| {
            let (passed, detail) = match &check.outcome {
                Ok(detail) => (true, detail),
                Err(detail) => (false, detail),
            };
            CheckDocument { check: check.what.to_owned(), detail: detail.clone(), kind: check.kind.map(name), passed }
        };
        let skipped = |&(kind, what, why): &(Kind, &str, &str)| SkippedCheck {
            check: what.to_owned(),
            kind: name(kind),
            reason: why.to_owned(),
        };
        let usage =
            |usage: &Usage| UsageDocument { kind: name(usage.kind), limit: usage.limit, most: usage.most, n: usage.n };
        let cost = |cost: &Cost| CallCost { cpu_ns_per_call: cost.ns.round(), kind: name(cost.kind), n: cost.n };
        ConformanceDocument {
            checks: self.findings.checks.iter().map(check).collect(),
            costs: self.costs.iter().map(cost).collect(),
            file: self.file.clone(),
            kinds: description.map(|description| description.kinds.iter().copied().map(name).collect()),
            name: description.map(|description| description.name.clone()),
            not_applicable: self.findings.not_applicable.iter().map(skipped).collect(),
            passed: self.findings.passed(),
            plugin: self.plugin.clone(),
            sha256: self.loaded.as_ref().map(|loaded| loaded.sha256.clone()),
            technology: self.technology.to_owned(),
            usage: self.findings.usage.iter().map(usage).collect(),
            version: description.map(|description| description.version.clone()),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{}: {}", self.file, self.technology);
        if let Some(loaded) = &self.loaded {
            let description = loaded.plugin.description();
            let version =
                if description.version.is_empty() { String::new() } else { format!(" {}", description.version) };
            text += &format!(", for {}\n{}{version}", names(&description.kinds), description.name);
            if !description.about.is_empty() {
                text += &format!(": {}", description.about);
            }
            text += &format!("\nsha256 {}", loaded.sha256);
        }
        text += "\n\n";
        for Check { kind, what, outcome } in &self.findings.checks {
            let kind = kind.map_or_else(String::new, |kind| format!("{kind}: "));
            text += &match outcome {
                Ok(detail) if detail.is_empty() => format!("✓ {kind}{what}\n"),
                Ok(detail) => format!("✓ {kind}{what} ({detail})\n"),
                Err(detail) => format!("✗ {kind}{what}\n    {}\n", detail.replace('\n', "\n    ")),
            };
        }
        for (kind, what, why) in &self.findings.not_applicable {
            text += &format!("- {kind}: {what} (not applicable: {why})\n");
        }
        text.push_str(&self.cost_table());
        text
    }

    fn cost_table(&self) -> String {
        let kinds: Vec<Kind> = Kind::ALL
            .into_iter()
            .filter(|&kind| {
                self.costs.iter().any(|cost| cost.kind == kind)
                    || self.findings.usage.iter().any(|usage| usage.kind == kind)
            })
            .collect();
        let row = |kind: Kind, n: usize| {
            let usage = self.findings.usage.iter().find(|usage| usage.kind == kind && usage.n == n);
            let cost = self.costs.iter().find(|cost| cost.kind == kind && cost.n == n);
            let used = usage.map_or_else(|| "not counted".into(), |usage| format!("{} of {}", usage.most, usage.limit));
            vec![
                kind.name().into(),
                n.to_string(),
                used,
                cost.map_or_else(|| "-".into(), |cost| format!("{:.0}", cost.ns)),
            ]
        };
        let rows: Vec<_> = kinds.into_iter().flat_map(|kind| COST_SIZES.map(|n| row(kind, n))).collect();
        if rows.is_empty() {
            String::new()
        } else {
            format!("\n{}", table(&["A CALL", "N", "USES AT MOST", "CPU ns"], &rows))
        }
    }
}
