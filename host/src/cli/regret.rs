//! `blis regret`, and `--regret outcome` of `run` and `replay`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use blis_sim::cluster::{Listed, Timeline};
use blis_sim::instance::{Fast, Instance, InstanceConfig, Plain};
use blis_sim::metrics::{Metrics, Report};
use blis_sim::outcome::Outcome;
use blis_sim::policy::Reads;
use blis_sim::request::Name;
use blis_sim::units::Micros;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::args::{EngineName, RunArgs};
use super::config::RunConfig;
use super::error::Failure;
use super::{connect, parse, print, print_document, run, service, start_log, wants_text};
use blis_config::Deployment;
use blis_eval::regret::{
    Judged, Oracle, Regret, RegretOptions, Survey, Surveyor, Texts, judge as judge_samples, look_ahead,
};
use blis_eval::{Figure, Figures};
use blis_report::check_target;
use blis_workload::trace_v2::GoodputTargets;
use blis_workload::{Names, Workload};

const REGRET: &str = "Regret: what would have happened otherwise";

/// What to ask about the alternatives to decisions.
#[derive(Debug, Args)]
pub(super) struct RegretFlags {
    /// Run sampled decisions again with other answers, and compare what happens
    #[arg(long, value_enum, value_name = "KIND", default_value_t = RegretName::None, help_heading = REGRET)]
    pub regret: RegretName,
    /// Routing decisions to look at, ≥ 1: half of them at random, a quarter from requests that missed an SLO
    /// target (without targets: from the slowest), a quarter from those with the widest score margins. A
    /// quarter as many of admission, and of scheduling, each
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = parse::count, help_heading = REGRET)]
    pub regret_samples: u32,
    /// Other instances to try for each routing decision, ≥ 1: the one with most of the prompt in its cache,
    /// the one with least to do, then by score
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = parse::count, help_heading = REGRET)]
    pub regret_alternatives: u32,
    /// For how many seconds after a decision its consequences count [default: twice the mean end-to-end
    /// latency, at least 1]
    #[arg(long, value_name = "S", value_parser = parse::seconds_above_0, help_heading = REGRET)]
    pub regret_window: Option<Micros>,
    /// File for every decision that was looked at, with what was seen and all its worlds, a line of JSON each
    #[arg(long, value_name = "FILE", help_heading = REGRET)]
    pub regret_path: Option<PathBuf>,
}

/// `--regret`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RegretName {
    /// Nothing
    None,
    /// Against what really happens in the worlds of the alternatives
    Outcome,
}

#[derive(Debug, Args)]
pub(super) struct RegretArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Also run the workload with every routing decision the best that a look-ahead finds: how much a better
    /// policy could gain
    #[arg(long, help_heading = REGRET)]
    oracle: bool,
}

/// How regret is measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RegretSettings {
    pub kind: RegretName,
    pub samples: u32,
    pub alternatives: u32,
    pub window: Option<Micros>,
    pub path: Option<PathBuf>,
}

impl Default for RegretSettings {
    /// Nothing is asked.
    fn default() -> Self {
        Self { kind: RegretName::None, samples: 0, alternatives: 0, window: None, path: None }
    }
}

impl RegretSettings {
    /// A look at `samples` decisions and the likeliest alternatives.
    pub(super) fn brief(samples: u32) -> Self {
        Self { kind: RegretName::Outcome, samples, alternatives: 2, window: None, path: None }
    }

    /// Whether anything is asked about alternatives.
    pub(super) fn is_asked(&self) -> bool {
        self.kind != RegretName::None
    }
}

impl RegretFlags {
    pub(super) fn settings(&self) -> Result<RegretSettings, Failure> {
        if let Some(path) = &self.regret_path {
            if self.regret == RegretName::None {
                return Err(Failure::usage("`--regret-path` needs decisions that are looked at")
                    .hint("add `--regret outcome`, or use `blis regret`"));
            }
            check_target(path).map_err(|error| Failure::file(&error))?;
        }
        Ok(RegretSettings {
            kind: self.regret,
            samples: self.regret_samples,
            alternatives: self.regret_alternatives,
            window: self.regret_window,
            path: self.regret_path.clone(),
        })
    }
}

/// `blis regret`.
pub(super) fn dispatch(args: RegretArgs) -> Result<(), Failure> {
    let RegretArgs { run: mut run_args, oracle } = args;
    run_args.evaluation.regret.regret = RegretName::Outcome;
    let config = RunConfig::from_run(run_args)?;
    start_log(config.output.log);
    let deployment = connect::resolve(&config)?;
    let (workload, horizon) = run::open(&config)?;
    let config = RunConfig { horizon, ..config };
    let Workload { requests, follow_ups, names, slo_targets, .. } = workload;
    let named = (&names, &slo_targets);
    let measured =
        run::measure(&config, &deployment, named, (requests, follow_ups), surveyor(&config, &names, &slo_targets))?;
    for (what, hint) in run::plugin_warnings(&config, &measured.incidents) {
        tracing::warn!("{what} (hint: {hint})");
    }
    let survey = measured.observer.map(|surveyor| surveyor.survey).unwrap_or_default();
    let arrivals = survey.arrivals();
    let regret = judge(&config, &deployment, named, survey)?;
    let bound = oracle.then(|| {
        let window = Micros::from_f64(regret.window_s * 1e6);
        Bound::new(&config, &deployment, named, Listed::new(arrivals), window, &measured.report)
    });
    let bound = bound.transpose()?;
    if wants_text(&config) {
        print(&regret)?;
        bound.map_or(Ok(()), |bound| print(format_args!("\n{}", bound.text())))
    } else {
        print_document(&Printed { regret, oracle: bound })
    }
}

#[derive(Serialize)]
struct Printed {
    regret: Regret,
    #[serde(skip_serializing_if = "Option::is_none")]
    oracle: Option<Bound>,
}

/// Watches the run, if its regret is asked for.
pub(super) fn surveyor(
    config: &RunConfig,
    names: &Names,
    recorded: &BTreeMap<String, GoodputTargets>,
) -> Option<Surveyor<impl Fn(&Outcome) -> bool + use<>>> {
    if !config.evaluation.regret.is_asked() {
        return None;
    }
    let targets = run::slo_targets(config, names, recorded);
    let default = names.find("default");
    let missed = move |outcome: &Outcome| {
        let class = if Some(outcome.tags.slo_class) == default { Name::NONE } else { outcome.tags.slo_class };
        targets.iter().any(|(name, targets)| *name == class && !targets.kept(outcome))
    };
    Some(Surveyor { survey: Survey::default(), missed })
}

/// The regret of the run that `survey` has watched.
pub(super) fn judge(
    config: &RunConfig,
    deployment: &Deployment,
    named: (&Names, &BTreeMap<String, GoodputTargets>),
    mut survey: Survey,
) -> Result<Regret, Failure> {
    let settings = &config.evaluation.regret;
    let alternatives = settings.alternatives as usize;
    survey.with_targets(!run::slo_targets(config, named.0, named.1).is_empty());
    let options =
        RegretOptions { samples: settings.samples as usize, alternatives, window: settings.window, seed: config.seed };
    let window = survey.window(&options);
    let samples = survey.sample(&options);
    let settled = survey.settled();
    let worlds = Worlds { config, deployment, names: named.0, arrivals: Listed::new(survey.arrivals()) };
    let judged = match config.engine.engine {
        EngineName::Fast => worlds.judge(Fast::new, |timeline| {
            judge_samples(timeline, &samples, &settled, (window, alternatives), &ClassTexts(named.0))
        }),
        EngineName::Plain => worlds.judge(Plain::new, |timeline| {
            judge_samples(timeline, &samples, &settled, (window, alternatives), &ClassTexts(named.0))
        }),
    }?;
    if let Some(path) = &settings.path {
        write(path, &judged)
            .map_err(|error| Failure::runtime(format_args!("cannot write `{}`: {error}", path.display())))?;
    }
    Ok(Regret::new(judged, &survey, window))
}

fn write(path: &Path, judged: &[Judged]) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    for one in judged {
        serde_json::to_writer(&mut out, one)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// What all worlds have in common.
struct Worlds<'a> {
    config: &'a RunConfig,
    deployment: &'a Deployment,
    names: &'a Names,
    arrivals: Listed,
}

impl Worlds<'_> {
    /// What `work` makes of the run.
    fn judge<I: Instance, T>(
        self,
        engine: impl Fn(InstanceConfig) -> I,
        work: impl FnOnce(Timeline<I>) -> Result<T, blis_sim::cluster::Halt>,
    ) -> Result<T, Failure> {
        let (cluster, incidents) = service::cluster(self.config, self.deployment, self.names, engine)?;
        let reads = Reads { load: true, in_flight: true, cached_blocks: false };
        work(Timeline::new(cluster, self.arrivals, reads)).map_err(|halt| run::halted(halt, &incidents))
    }
}

struct ClassTexts<'a>(&'a Names);

impl Texts for ClassTexts<'_> {
    fn class(&self, name: Name) -> String {
        self.0.text(name).to_owned()
    }
}

/// The policy beside a look-ahead.
#[derive(Serialize)]
struct Bound {
    #[serde(flatten)]
    oracle: Oracle,
    window_s: f64,
    /// Smaller is better in all.
    figures: Vec<Gap>,
}

#[derive(Serialize)]
struct Gap {
    figure: &'static str,
    policy: Option<f64>,
    oracle: Option<f64>,
    /// By how much of the policy's figure the look-ahead's is smaller.
    gap: Option<f64>,
}

impl Bound {
    fn new(
        config: &RunConfig,
        deployment: &Deployment,
        (names, targets): (&Names, &BTreeMap<String, GoodputTargets>),
        arrivals: Listed,
        window: Micros,
        policy: &Report,
    ) -> Result<Self, Failure> {
        let mut metrics = Metrics::new(run::metrics_options(config, names, targets));
        let alternatives = config.evaluation.regret.alternatives as usize;
        let worlds = Worlds { config, deployment, names, arrivals };
        let (counters, oracle) = match config.engine.engine {
            EngineName::Fast => {
                worlds.judge(Fast::new, |timeline| look_ahead(timeline, window, alternatives, &mut metrics))
            }
            EngineName::Plain => {
                worlds.judge(Plain::new, |timeline| look_ahead(timeline, window, alternatives, &mut metrics))
            }
        }?;
        let found = metrics.report(&counters, config.horizon);
        let figures = gaps(policy, &found);
        Ok(Self { oracle, window_s: window.as_secs_f64(), figures })
    }

    fn text(&self) -> String {
        let Self { oracle: Oracle { decisions, changed }, window_s, figures } = self;
        let mut text = format!(
            "Look-ahead of {window_s:.1} s: {changed} of {decisions} routing decisions were others.\n{:<14}{:>12}{:>12}{:>9}\n",
            "ms", "policy", "look-ahead", "gap"
        );
        let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        for Gap { figure, policy, oracle, gap } in figures {
            let gap = gap.map_or_else(|| "-".to_owned(), |gap| format!("{:.1} %", 100.0 * gap));
            text.push_str(&format!("{figure:<14}{:>12}{:>12}{gap:>9}\n", ms(*policy), ms(*oracle)));
        }
        text
    }
}

/// What the look-ahead gains.
fn gaps(policy: &Report, found: &Report) -> Vec<Gap> {
    const COMPARED: [Figure; 6] =
        [Figure::MeanTtft, Figure::P95Ttft, Figure::P99Ttft, Figure::MeanE2e, Figure::P95E2e, Figure::P99E2e];
    let (policy, found) = (Figures::from(policy), Figures::from(found));
    let gap = |&figure: &Figure| {
        let (policy, oracle) = (policy.get(figure), found.get(figure));
        let gap = policy.zip(oracle).filter(|&(policy, _)| policy > 0.0);
        Gap { figure: figure.key(), policy, oracle, gap: gap.map(|(policy, oracle)| 1.0 - oracle / policy) }
    };
    COMPARED.iter().map(gap).collect()
}
