//! The summary a person reads: what was simulated, what came of it, and what to be wary of.

use std::fmt::{self, Display, Write as _};

use blis_sim::metrics::{Aggregate, Distribution};

/// What was simulated, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Model.
    pub model: String,
    /// GPU, and how many of them: `H100 × 2 (TP 2)`.
    pub hardware: String,
    /// Latency model and where its coefficients come from.
    pub latency_model: String,
    /// KV blocks of the instance.
    pub kv_blocks: u32,
    /// Tokens per KV block.
    pub block_size: u32,
    /// Where the number of KV blocks comes from.
    pub kv_blocks_source: String,
    /// Longest prompt and answer together, tokens; `None` if unlimited.
    pub max_model_len: Option<u32>,
    /// The requests.
    pub workload: String,
    /// Choices made on the user's behalf.
    pub notes: Vec<String>,
}

/// Setting, figures and warnings, ready to be shown with [`Display`].
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    /// What was simulated.
    pub setting: &'a Setting,
    /// What came of it.
    pub aggregate: &'a Aggregate,
    /// What to be wary of: (what, what to do).
    pub warnings: &'a [(String, String)],
    /// Whether to emphasise with colour and weight. Nothing is said by colour alone.
    pub colour: bool,
}

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_setting(f)?;
        f.write_char('\n')?;
        self.write_figures(f)?;
        f.write_char('\n')?;
        self.write_latencies(f)?;
        self.write_warnings(f)
    }
}

impl Summary<'_> {
    fn write_setting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { model, hardware, latency_model, kv_blocks, block_size, kv_blocks_source, workload, .. } =
            self.setting;
        self.row(f, "Model", format_args!("{model} on {hardware}"))?;
        self.row(f, "Latency model", latency_model)?;
        let blocks = Grouped(u64::from(*kv_blocks));
        self.row(f, "KV cache", format_args!("{blocks} blocks of {block_size} tokens ({kv_blocks_source})"))?;
        match self.setting.max_model_len {
            Some(tokens) => self.row(f, "Max model len", format_args!("{} tokens", Grouped(u64::from(tokens))))?,
            None => self.row(f, "Max model len", "unlimited")?,
        }
        self.row(f, "Workload", workload)?;
        self.setting.notes.iter().try_for_each(|note| self.row(f, "Note", note))
    }

    fn write_figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, counts) = (self.aggregate, &self.aggregate.counts);
        self.row(f, "Requests", self.counts())?;
        let (input, output) = (Grouped(all.counters.input_tokens), Grouped(counts.output_tokens));
        self.row(f, "Tokens", format_args!("{input} in, {output} out"))?;
        self.row(
            f,
            "Simulated time",
            format_args!("{:.3} s in {} steps", all.duration.as_secs_f64(), Grouped(all.counters.steps)),
        )?;
        let (requests, tokens) = (all.responses_per_second(), all.tokens_per_second());
        self.row(f, "Throughput", format_args!("{requests:.2} requests/s, {tokens:.1} output tokens/s"))?;
        self.row(f, "Prefix cache", format_args!("{:.1} % of block look-ups hit", 100.0 * all.cache_hit_rate()))?;
        self.row(f, "Preemptions", Grouped(all.counters.preemptions))
    }

    /// Completed always; the rest where it is not zero.
    fn counts(&self) -> String {
        let counts = &self.aggregate.counts;
        let mut text = format!("{} completed", Grouped(counts.completed));
        let rest = [
            (counts.length_capped, "of them cut at the maximum model length"),
            (counts.timed_out, "timed out"),
            (counts.dropped(), "dropped as unservable"),
            (counts.running, "still running"),
            (counts.queued, "still queued"),
            (counts.arriving, "still arriving"),
        ];
        for (count, what) in rest.into_iter().filter(|&(count, _)| count > 0) {
            text.push_str(&format!(", {} {what}", Grouped(count)));
        }
        text
    }

    fn write_latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bold, plain) = self.emphasis("\x1b[1m");
        writeln!(
            f,
            "{bold}{:<18}{:>11}{:>11}{:>11}{:>11}{:>11}{:>16}{plain}",
            "Latency, ms", "mean", "p50", "p90", "p95", "p99", "samples"
        )?;
        let all = self.aggregate;
        latency(f, "TTFT", &all.ttft)?;
        latency(f, "ITL", &all.itl)?;
        latency(f, "E2E", &all.e2e)?;
        latency(f, "Scheduling delay", &all.scheduling_delay)
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

fn latency(f: &mut fmt::Formatter<'_>, name: &str, d: &Distribution) -> fmt::Result {
    write!(f, "{name:<18}")?;
    for ms in [d.mean_ms, d.p50_ms, d.p90_ms, d.p95_ms, d.p99_ms] {
        // Nothing measured is not the same as 0 ms.
        if d.count == 0 { write!(f, "{:>11}", "-")? } else { write!(f, "{ms:>11.2}")? }
    }
    writeln!(f, "{:>16}", Grouped(d.count).to_string())
}

/// A number with its thousands apart: `1 234 567`.
struct Grouped(u64);

impl Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_char(' ')?;
            }
            f.write_char(digit)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::metrics::Counts;
    use blis_sim::outcome::Counters;
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

    fn aggregate() -> Aggregate {
        let d = |base: f64| Distribution {
            count: 1_234,
            mean_ms: base,
            min_ms: base / 2.0,
            max_ms: base * 10.0,
            p50_ms: base * 0.9,
            p90_ms: base * 2.0,
            p95_ms: base * 3.0,
            p99_ms: base * 9.87654,
        };
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
                cache_hits: 688,
                cache_misses: 312,
                input_tokens: 1_263_616,
                ..Counters::default()
            },
            duration: Micros(61_700_000),
            ttft: d(27.5),
            itl: d(7.07),
            e2e: d(1_761.9),
            scheduling_delay: d(15.6),
        }
    }

    #[test]
    fn a_finished_run() {
        let warnings = [(
            "51 requests timed out".to_owned(),
            "the deadline is 300 s by default; `--timeout -1` removes it".to_owned(),
        )];
        let summary = Summary { setting: &setting(), aggregate: &aggregate(), warnings: &warnings, colour: false };
        insta::assert_snapshot!(summary);
    }

    #[test]
    fn nothing_measured_is_not_zero() {
        let setting = Setting { max_model_len: None, ..setting() };
        let summary = Summary { setting: &setting, aggregate: &Aggregate::default(), warnings: &[], colour: false };
        insta::assert_snapshot!(summary);
    }

    #[test]
    fn colour_changes_nothing_but_colour() {
        let (setting, aggregate) = (setting(), aggregate());
        let warnings = [("what".to_owned(), "how".to_owned())];
        let plain = Summary { setting: &setting, aggregate: &aggregate, warnings: &warnings, colour: false };
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
