//! The summary for people: setting, figures and warnings.

use std::fmt::{self, Display, Write as _};

use blis_sim::metrics::{Aggregate, Distribution, Report};
use blis_sim::request::Name;

use super::breakdown::shown;
use super::cpu_tier::CpuTierText;
use super::grouped::Grouped;
use super::load::LoadReport;
use super::replicas::ReplicasDocument;
use blis_workload::Names;
use unicode_width::UnicodeWidthStr as _;

/// Setting of the simulation, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    pub model: String,
    /// GPU and number of GPUs per instance: `H100 × 2 (TP 2)`.
    pub hardware: String,
    /// Latency model and origin of its coefficients.
    pub latency_model: String,
    /// Size of the KV cache of an instance, blocks.
    pub kv_blocks: u32,
    /// Tokens per KV block.
    pub block_size: u32,
    /// Origin of the number of KV blocks.
    pub kv_blocks_source: String,
    /// Maximum length of a request, input and output tokens together; `None` if unlimited.
    pub max_model_len: Option<u32>,
    pub workload: String,
    /// Defaults that were chosen for the user.
    pub notes: Vec<String>,
}

/// Setting, figures and warnings, to be printed with [`Display`].
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    pub setting: &'a Setting,
    /// Figures of the simulation.
    pub report: &'a Report,
    /// Time per output token, over requests.
    pub tpot: &'a Distribution,
    /// Offered and served load, if requests arrive over time.
    pub load: Option<&'a LoadReport>,
    /// Replicas, if they come and go.
    pub replicas: Option<&'a ReplicasDocument>,
    /// What the run cost, with a price list: [`ServiceCost::line`](super::ServiceCost::line).
    pub cost: Option<&'a str>,
    /// The energy of its GPUs, if it was computed: [`GpuEnergy::line`](super::GpuEnergy::line).
    pub energy: Option<&'a str>,
    /// Texts of the names in the report.
    pub names: &'a Names,
    /// Warnings, each with a hint.
    pub warnings: &'a [(String, String)],
    /// Whether to use colour and bold text. Colour alone carries no information.
    pub colour: bool,
}

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_setting(f)?;
        f.write_char('\n')?;
        self.write_figures(f)?;
        self.write_latencies(f)?;
        self.write_classes(f)?;
        self.write_tenants(f)?;
        self.write_sessions(f)?;
        self.write_anomalies(f)?;
        self.write_warnings(f)
    }
}

impl Summary<'_> {
    fn write_setting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { model, hardware, latency_model, kv_blocks, block_size, kv_blocks_source, workload, .. } =
            self.setting;
        let (several, each) = match self.report.instances.len() {
            _ if self.replicas.is_some() => ("replicas, each ".to_owned(), " per replica"),
            0 | 1 => (String::new(), ""),
            number => (format!("{number} instances, each "), " per instance"),
        };
        self.row(f, "Model", format_args!("{model} on {several}{hardware}"))?;
        self.row(f, "Latency model", latency_model)?;
        let blocks = Grouped(u64::from(*kv_blocks));
        self.row(f, "KV cache", format_args!("{blocks} blocks of {block_size} tokens{each} ({kv_blocks_source})"))?;
        match self.setting.max_model_len {
            Some(tokens) => self.row(f, "Max model len", format_args!("{} tokens", Grouped(u64::from(tokens))))?,
            None => self.row(f, "Max model len", "unlimited")?,
        }
        self.row(f, "Workload", workload)?;
        self.setting.notes.iter().try_for_each(|note| self.row(f, "Note", note))
    }

    fn write_figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = &self.report.cluster;
        let counts = &all.counts;
        self.row(f, "Requests", self.counts())?;
        self.write_instances(f)?;
        for (name, text) in self.replicas.map(ReplicasDocument::lines).into_iter().flatten() {
            self.row(f, name, text)?;
        }
        let (input, output) = (Grouped(all.counters.input_tokens), Grouped(counts.output_tokens));
        self.row(f, "Tokens", format_args!("{input} in, {output} out"))?;
        self.row(
            f,
            "Simulated time",
            format_args!("{:.3} s in {} steps", all.duration.as_secs_f64(), Grouped(all.counters.steps)),
        )?;
        let (requests, tokens) = (all.responses_per_second(), all.tokens_per_second());
        self.row(f, "Throughput", format_args!("{requests:.2} requests/s, {tokens:.1} output tokens/s"))?;
        if let Some(LoadReport { offered_rps, served_rps, state, .. }) = self.load {
            let state = state.map_or_else(String::new, |state| format!(": {state}"));
            self.row(f, "Load", format_args!("{offered_rps:.2} requests/s offered, {served_rps:.2} served{state}"))?;
        }
        if let Some(goodput) = &self.report.goodput {
            let (rps, share) = (goodput.goodput_rps, 100.0 * goodput.slo_attainment);
            let what = format_args!("{rps:.2} requests/s within their SLO, {share:.1} % of those with one");
            self.row(f, "Goodput", what)?;
        }
        if let Some(cost) = self.cost {
            self.row(f, "Cost", cost)?;
        }
        if let Some(energy) = self.energy {
            self.row(f, "Energy", energy)?;
        }
        self.write_flow_control(f)?;
        self.row(f, "Prefix cache", format_args!("{:.1} % hit rate", 100.0 * all.cache_hit_rate))?;
        if let Some(offload) = &self.report.offload {
            self.row(f, "CPU tier", CpuTierText(offload))?;
        }
        if let Some(rate) = all.kv_thrashing_rate {
            self.row(f, "KV tiers", format_args!("{:.1} % thrashing rate", 100.0 * rate))?;
        }
        let again = all.counters.recomputed_tokens;
        let again = Some(again)
            .filter(|&tokens| tokens > 0)
            .map(|tokens| format!(", {} tokens computed again", Grouped(tokens)));
        self.row(f, "Preemptions", format_args!("{}{}", Grouped(all.counters.preemptions), again.unwrap_or_default()))
    }

    /// What flow control did, if anything.
    fn write_flow_control(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (counts, wait) = (&self.report.cluster.counts, &self.report.gateway_wait);
        let mut parts: Vec<String> = [
            (wait.count, "dispatched"),
            (counts.rejected_gateway_full, "refused"),
            (counts.rejected_gateway_displaced, "displaced"),
            (counts.rejected_gateway_expired, "expired"),
            (counts.evicted, "evicted"),
            (counts.in_gateway, "still waiting"),
        ]
        .into_iter()
        .filter(|&(count, _)| count > 0)
        .map(|(count, what)| format!("{} {what}", Grouped(count)))
        .collect();
        if parts.is_empty() {
            return Ok(());
        }
        if wait.count > 0 {
            parts.push(format!("wait {} ms mean, {} ms p99", short_ms(wait.mean_ms), short_ms(wait.p99_ms)));
        }
        self.row(f, "Flow control", parts.join(", "))
    }

    /// Number of completed requests, and the other states that occur.
    fn counts(&self) -> String {
        let counts = &self.report.cluster.counts;
        let mut text = format!("{} completed", Grouped(counts.completed));
        let rest = [
            (counts.length_capped, "of them cut at the maximum model length"),
            (counts.timed_out, "timed out"),
            (counts.dropped(), "dropped as unservable"),
            (counts.rejected_by_admission, "rejected at admission"),
            (counts.rejected_by_routing, "rejected because their model is not served"),
            (counts.rejected_no_replica, "rejected because no replica was active"),
            (counts.rejected_by_server, "rejected by the API server of their instance"),
            (counts.rejected_by_gateway(), "rejected by the gateway"),
            (counts.evicted, "evicted by the gateway"),
            (counts.running, "still running"),
            (counts.queued, "still queued"),
            (counts.arriving, "still arriving"),
            (counts.in_gateway, "still in the gateway's queue"),
        ];
        for (count, what) in rest.into_iter().filter(|&(count, _)| count > 0) {
            text.push_str(&format!(", {} {what}", Grouped(count)));
        }
        text
    }

    /// The instances with the lowest and the highest load.
    fn write_instances(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instances = &self.report.instances;
        // The instances of an autoscaled service serve for different times.
        if instances.len() < 2 || self.replicas.is_some() {
            return Ok(());
        }
        let extremes = |load: &dyn Fn(&Aggregate) -> f64, digits| {
            let loads = || instances.iter().map(load).enumerate();
            // Of several equal ones, the first.
            let least = loads().min_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or_default();
            let most = loads().rev().max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or_default();
            let (low, high) = (format!("{:.digits$}", least.1), format!("{:.digits$}", most.1));
            format!("{low} (instance_{}) to {high} (instance_{})", least.0, most.0)
        };
        let requests = extremes(&|instance| instance.counts.arrived() as f64, 0);
        self.row(f, "Instances", format_args!("{}, with {requests} requests each", instances.len()))?;
        if self.report.cluster.mean_queue_length == 0.0 {
            return Ok(());
        }
        let waiting = extremes(&|instance| instance.mean_queue_length, 2);
        self.row(f, "Mean queue length", format_args!("{waiting} requests"))
    }

    fn write_latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.header(f, &LATENCY, &["Latency, ms", "mean", "p50", "p90", "p95", "p99", "samples"])?;
        let all = &self.report.cluster;
        latency(f, "TTFT", &all.ttft)?;
        latency(f, "TPOT", self.tpot)?;
        latency(f, "ITL", &all.itl)?;
        latency(f, "E2E", &all.e2e)?;
        latency(f, "Scheduling delay", &all.scheduling_delay)
    }

    fn write_classes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes = self.sorted(&self.report.classes);
        let targets = self.report.goodput.as_ref().map_or(&[][..], |goodput| &goodput.per_class);
        if classes.is_empty() {
            return Ok(());
        }
        let shares = if targets.is_empty() { "" } else { "in SLO" };
        self.header(f, &CLASS, &["", "", "", "TTFT", "", "ITL", "E2E", "", ""])?;
        let columns = ["SLO class, ms", "arrived", "completed", "mean", "p99", "mean", "mean", "p99", shares];
        self.heading(f, &CLASS, &columns)?;
        for (name, class) in classes {
            let (ttft, itl, e2e) = (&class.ttft, &class.itl, &class.e2e);
            let cell = |d: &Distribution, ms| or_dash(d.count, || short_ms(ms));
            let share = match targets.iter().find(|&&(other, _)| other == name) {
                Some((_, kept)) => format!("{:.1}%", 100.0 * kept.slo_attainment),
                None if targets.is_empty() => String::new(),
                None => "-".to_owned(),
            };
            let cells = [
                shown(name, self.names).to_string(),
                Grouped(class.counts.arrived()).to_string(),
                Grouped(class.counts.completed).to_string(),
                cell(ttft, ttft.mean_ms),
                cell(ttft, ttft.p99_ms),
                cell(itl, itl.mean_ms),
                cell(e2e, e2e.mean_ms),
                cell(e2e, e2e.p99_ms),
                share,
            ];
            row(f, &CLASS, &cells)?;
        }
        Ok(())
    }

    fn write_tenants(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        let Some(index) = self.report.jain_index else { return Ok(()) };
        let tenants = self.sorted(&self.report.tenants);
        self.header(f, &TENANT, &["Tenant", "arrived", "completed", "rejected", "output tokens"])?;
        for (name, tenant) in tenants.iter().take(SHOWN) {
            let counts = &tenant.counts;
            let numbers = [counts.arrived(), counts.completed, counts.rejected(), counts.output_tokens];
            let cells: Vec<String> = numbers.into_iter().map(|count| Grouped(count).to_string()).collect();
            row(f, &TENANT, &[&[shown(*name, self.names).to_string()], &cells[..]].concat())?;
        }
        if tenants.len() > SHOWN {
            writeln!(f, "and {} more; `--output json` lists all", Grouped((tenants.len() - SHOWN) as u64))?;
        }
        self.row(f, "Jain's index", format_args!("{index:.4} over output tokens (1 is even)"))
    }

    fn write_sessions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(sessions) = &self.report.sessions else { return Ok(()) };
        self.header(f, &LATENCY, &["Sessions, ms", "mean", "p50", "p90", "p95", "p99", "samples"])?;
        latency(f, "TTFT, round 0", &sessions.ttft_first_round)?;
        latency(f, "TTFT, later", &sessions.ttft_later_rounds)?;
        latency(f, "Duration", &sessions.duration)?;
        let mut text = Grouped(sessions.sessions).to_string();
        if let Some(states) = sessions.states {
            let states = [
                (states.completed, "completed"),
                (states.cancelled, "cancelled by a round that did not complete"),
                (states.horizon_interrupted, "cut off by the horizon"),
                (states.budget_exhausted, "ended with the number of requests"),
                (states.active, "with a request in flight at the end"),
            ];
            let states = states.into_iter().filter(|&(count, _)| count > 0);
            let states: Vec<String> = states.map(|(count, what)| format!("{} {what}", Grouped(count))).collect();
            text.push_str(&format!(": {}", states.join(", ")));
        }
        self.row(f, "Sessions", text)
    }

    /// The anomalies that [`Self::counts`] does not contain.
    fn write_anomalies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let anomalies = &self.report.anomalies;
        let inversions = anomalies.priority_inversions.unwrap_or(0);
        let by_class = self.sorted(&anomalies.shed);
        if inversions == 0 && anomalies.head_of_line_blocking.is_empty() && by_class.is_empty() {
            return Ok(());
        }
        f.write_char('\n')?;
        if inversions > 0 {
            let what = "requests entered a batch before an earlier one of at least their priority";
            self.row(f, "Inversions", format_args!("{} {what}", Grouped(inversions)))?;
        }
        for blocked in &anomalies.head_of_line_blocking {
            let (queue, others) = (blocked.mean_queue_length, blocked.others_mean_queue_length);
            let what = format_args!("instance_{}: mean queue {queue:.2}, the others' {others:.2}", blocked.instance);
            self.row(f, "Head-of-line", what)?;
        }
        if by_class.is_empty() {
            return Ok(());
        }
        let by_class = by_class.iter().map(|(name, count)| format!("{} {}", Grouped(*count), shown(*name, self.names)));
        self.row(f, "Rejected by class", by_class.collect::<Vec<_>>().join(", "))
    }

    /// The list in the order of the names as shown.
    fn sorted<T: Copy>(&self, list: &[(Name, T)]) -> Vec<(Name, T)> {
        let mut list = list.to_vec();
        list.sort_by_key(|&(name, _)| shown(name, self.names));
        list
    }

    /// The heading of a table, after an empty line.
    fn header(&self, f: &mut fmt::Formatter<'_>, widths: &[usize], columns: &[&str]) -> fmt::Result {
        f.write_char('\n')?;
        self.heading(f, widths, columns)
    }

    /// A line of a heading.
    fn heading(&self, f: &mut fmt::Formatter<'_>, widths: &[usize], columns: &[&str]) -> fmt::Result {
        let (bold, plain) = self.emphasis("\x1b[1m");
        writeln!(f, "{bold}{}{plain}", aligned(widths, columns))
    }

    fn write_warnings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (yellow, plain) = self.emphasis("\x1b[1;33m");
        for (what, hint) in self.warnings {
            write!(f, "\n{yellow}warning:{plain} {what}\n   hint: {hint}\n")?;
        }
        Ok(())
    }

    fn row(&self, f: &mut fmt::Formatter<'_>, name: &str, value: impl Display) -> fmt::Result {
        let (bold, plain) = self.emphasis("\x1b[1m");
        writeln!(f, "{bold}{name:<18}{plain}{value}")
    }

    fn emphasis(&self, start: &'static str) -> (&'static str, &'static str) {
        if self.colour { (start, "\x1b[0m") } else { ("", "") }
    }
}

/// Columns of the tables: the first is text, the others are numbers. Together at most 80.
const LATENCY: [usize; 7] = [18, 10, 10, 10, 10, 10, 12];
const CLASS: [usize; 9] = [14, 9, 10, 8, 8, 8, 8, 8, 7];
const TENANT: [usize; 5] = [24, 12, 12, 12, 16];

fn latency(f: &mut fmt::Formatter<'_>, name: &str, d: &Distribution) -> fmt::Result {
    let cells = [d.mean_ms, d.p50_ms, d.p90_ms, d.p95_ms, d.p99_ms].map(|ms| or_dash(d.count, || format!("{ms:.2}")));
    row(f, &LATENCY, &[&[name.to_owned()], &cells[..], &[Grouped(d.count).to_string()]].concat())
}

fn row(f: &mut fmt::Formatter<'_>, widths: &[usize], cells: &[String]) -> fmt::Result {
    writeln!(f, "{}", aligned(widths, cells))
}

/// Cells under each other. A name longer than its column pushes the numbers of its line to the right.
fn aligned(widths: &[usize], cells: &[impl AsRef<str>]) -> String {
    let mut line = String::new();
    let mut end = 0;
    for (cell, width) in cells.iter().map(AsRef::as_ref).zip(widths) {
        end += width;
        if line.is_empty() && end == *width {
            line.push_str(cell);
        } else {
            let room = end.saturating_sub(line.width()).max(cell.width() + 1);
            line.push_str(&" ".repeat(room - cell.width()));
            line.push_str(cell);
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// Without samples, a dash: no measurement is not the same as 0 ms.
fn or_dash(samples: u64, text: impl FnOnce() -> String) -> String {
    if samples == 0 { "-".to_owned() } else { text() }
}

/// Milliseconds in at most seven characters, below 10 000 s.
fn short_ms(ms: f64) -> String {
    let decimals = match ms {
        ms if ms < 9_999.995 => 2,
        ms if ms < 99_999.95 => 1,
        _ => 0,
    };
    format!("{ms:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::cluster::SessionStates;
    use blis_sim::ids::InstanceIndex;
    use blis_sim::metrics::{
        Anomalies, BlockedInstance, ClassGoodput, ClassReport, Counts, Goodput, SessionReport, TenantReport,
    };
    use blis_sim::outcome::{Counters, PrefixCacheCounters};
    use blis_sim::units::Micros;

    fn setting() -> Setting {
        Setting {
            model: "meta-llama/llama-3.1-8b-instruct".into(),
            hardware: "1 × H100 (TP 1)".into(),
            latency_model: "trained-physics".into(),
            kv_blocks: 26_312,
            block_size: 16,
            kv_blocks_source: "computed from the GPU's memory".into(),
            max_model_len: Some(131_072),
            workload: "chatbot: 1000 requests, 20 per second, poisson".into(),
            notes: vec!["the model's configuration has no `head_dim`: 128 = 4096 / 32".into()],
        }
    }

    fn d(base: f64) -> Distribution {
        Distribution {
            count: 1_234,
            mean_ms: base,
            min_ms: base / 2.0,
            max_ms: base * 10.0,
            p50_ms: base * 0.9,
            p90_ms: base * 2.0,
            p95_ms: base * 3.0,
            p99_ms: base * 9.87654,
        }
    }

    fn aggregate() -> Aggregate {
        Aggregate {
            counts: Counts {
                completed: 1_234,
                length_capped: 2,
                timed_out: 51,
                output_tokens: 315_904,
                ..Counts::default()
            },
            counters: Counters {
                steps: 4_096,
                preemptions: 7,
                prefix_cache: PrefixCacheCounters::of_blocks(688, 312),
                input_tokens: 1_263_616,
                ..Counters::default()
            },
            duration: Micros(61_700_000),
            cache_hit_rate: 0.688,
            kv_thrashing_rate: None,
            mean_queue_length: 0.0,
            ttft: d(27.5),
            itl: d(7.07),
            e2e: d(1_761.9),
            scheduling_delay: d(15.6),
        }
    }

    fn report() -> Report {
        Report { cluster: aggregate(), instances: vec![aggregate()], ..Report::default() }
    }

    /// A report in which every part of the summary occurs.
    fn cluster() -> (Report, Names) {
        let mut names = Names::default();
        let [gold, batch] = ["gold", "batch"].map(|text| names.intern(text));
        let tenants: Vec<Name> = (0..12).map(|number| names.intern(&format!("tenant-{number:02}"))).collect();
        let counts = Counts { completed: 1_000, rejected_by_admission: 234, output_tokens: 9_999, ..Counts::default() };
        let instance = |completed, mean_queue_length| Aggregate {
            counts: Counts { completed, ..Counts::default() },
            mean_queue_length,
            ..Aggregate::default()
        };
        let class = |base| ClassReport { counts, ttft: d(base), itl: d(base / 4.0), e2e: d(base * 50.0) };
        let empty_class =
            ClassReport { counts: Counts { rejected_by_routing: 3, ..Counts::default() }, ..ClassReport::default() };
        let report = Report {
            cluster: Aggregate {
                counts: Counts { rejected_by_admission: 468, rejected_by_routing: 3, ..aggregate().counts },
                mean_queue_length: 7.5,
                ..aggregate()
            },
            instances: vec![instance(350, 0.5), instance(300, 6.5), instance(350, 0.5)],
            classes: vec![(Name::NONE, class(20.0)), (gold, class(28.0)), (batch, empty_class)],
            tenants: tenants.iter().map(|&tenant| (tenant, TenantReport { counts })).collect(),
            jain_index: Some(0.987_65),
            sessions: Some(SessionReport {
                sessions: 1_012,
                ttft_first_round: d(30.0),
                ttft_later_rounds: d(24.0),
                duration: d(4_000.0),
                states: Some(SessionStates { completed: 1_000, cancelled: 7, active: 5, ..SessionStates::default() }),
            }),
            goodput: Some(Goodput {
                goodput_rps: 12.345,
                slo_attainment: 0.75,
                per_class: vec![(gold, ClassGoodput { slo_attainment: 0.75, ..ClassGoodput::default() })],
            }),
            anomalies: Anomalies {
                priority_inversions: Some(1_007),
                head_of_line_blocking: vec![BlockedInstance {
                    instance: InstanceIndex(1),
                    mean_queue_length: 6.5,
                    others_mean_queue_length: 0.5,
                }],
                shed: vec![(Name::NONE, 234), (gold, 234)],
                ..Anomalies::default()
            },
            ..Report::default()
        };
        (report, names)
    }

    #[test]
    fn a_cluster_in_trouble() {
        let (report, names) = cluster();
        let summary = Summary {
            setting: &setting(),
            report: &report,
            tpot: &d(12.0),
            load: None,
            replicas: None,
            cost: None,
            energy: None,
            names: &names,
            warnings: &[],
            colour: false,
        };
        insta::assert_snapshot!(summary);
    }

    #[test]
    fn a_finished_run() {
        let warnings = [(
            "51 requests timed out".to_owned(),
            "the deadline is 300 s by default; `--timeout -1` removes it".to_owned(),
        )];
        let (report, names) = (report(), Names::default());
        let summary = Summary {
            setting: &setting(),
            report: &report,
            tpot: &d(12.0),
            load: None,
            replicas: None,
            cost: None,
            energy: None,
            names: &names,
            warnings: &warnings,
            colour: false,
        };
        insta::assert_snapshot!(summary);
    }

    #[test]
    fn nothing_measured_is_not_zero() {
        let setting = Setting { max_model_len: None, ..setting() };
        let (report, names) = (Report::default(), Names::default());
        let summary = Summary {
            setting: &setting,
            report: &report,
            tpot: &Distribution::default(),
            load: None,
            replicas: None,
            cost: None,
            energy: None,
            names: &names,
            warnings: &[],
            colour: false,
        };
        insta::assert_snapshot!(summary);
    }

    #[test]
    fn colour_changes_nothing_but_colour() {
        let (setting, (report, names)) = (setting(), cluster());
        let warnings = [("what".to_owned(), "how".to_owned())];
        let plain = Summary {
            setting: &setting,
            report: &report,
            tpot: &d(12.0),
            load: None,
            replicas: None,
            cost: None,
            energy: None,
            names: &names,
            warnings: &warnings,
            colour: false,
        };
        let coloured = Summary { colour: true, ..plain.clone() }.to_string();
        assert!(coloured.contains("\x1b[1;33mwarning:\x1b[0m what"));
        let stripped = ["\x1b[1m", "\x1b[1;33m", "\x1b[0m"].iter().fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(stripped, plain.to_string());
    }

    #[test]
    fn thousands_stand_apart() {
        let texts = [0, 999, 1_000, 12_345, 1_000_000].map(|n| Grouped(n).to_string());
        assert_eq!(texts, ["0", "999", "1 000", "12 345", "1 000 000"]);
    }
}
