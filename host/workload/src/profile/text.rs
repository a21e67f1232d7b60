//! A profile as text: figures first, then bars for arrivals and lengths.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use super::{LengthFigures, WorkloadProfile};

/// A profile as text.
#[derive(Clone, Copy, Debug)]
pub struct ProfileText<'a> {
    pub profile: &'a WorkloadProfile,
    /// Columns of the terminal.
    pub width: usize,
    /// Whether bars have a colour, which carries no information of its own.
    pub colour: bool,
}

/// Maximum number of columns: longer bars are hard to read.
const WIDTH_MAX: usize = 100;
const WIDTH_MIN: usize = 40;

impl Display for ProfileText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profile = self.profile;
        writeln!(f, "requests           {}", profile.requests)?;
        writeln!(f, "span               {:.3} s", profile.span_s)?;
        match (profile.requests_per_s, profile.interarrival_cv) {
            (Some(rate), Some(cv)) => {
                writeln!(f, "rate               {rate:.3}/s, at most {} in a second", profile.peak_requests_per_s)?;
                writeln!(f, "interval CV        {cv:.2} (0 even, 1 Poisson, above 1 bursts)")?;
            }
            _ => writeln!(f, "rate               all at once")?,
        }
        let (hit, block) = (profile.ideal_prefix_hit * 100.0, profile.block_size);
        writeln!(f, "ideal prefix hit   {hit:.1} % of input tokens, in blocks of {block}")?;
        let sessions = &profile.sessions;
        if sessions.count > 0 {
            let mean = sessions.requests as f64 / sessions.count as f64;
            write!(f, "sessions           {} with {mean:.2} rounds on average", sessions.count)?;
            writeln!(f, " ({} at most)", sessions.turns_max)?;
        }
        for (what, counts) in [
            ("classes", &profile.classes),
            ("tenants", &profile.tenants),
            ("models", &profile.models),
            ("clients", &profile.clients),
        ] {
            self.counts(f, what, counts)?;
        }
        writeln!(f, "\n{:18} {:>10} {:>9} {:>9} {:>9} {:>9}", "tokens", "mean", "p50", "p90", "p99", "max")?;
        for (what, lengths) in [("input", &profile.input_tokens), ("output", &profile.output_tokens)] {
            let LengthFigures { mean, p50, p90, p99, max, .. } = lengths;
            writeln!(f, "{what:18} {mean:>10.1} {p50:>9} {p90:>9} {p99:>9} {max:>9}")?;
        }
        self.arrivals(f)?;
        self.lengths(f, "input tokens", &profile.input_tokens)?;
        self.lengths(f, "output tokens", &profile.output_tokens)
    }
}

impl ProfileText<'_> {
    fn columns(&self) -> usize {
        self.width.clamp(WIDTH_MIN, WIDTH_MAX)
    }

    fn paint(&self, bar: &str) -> String {
        if self.colour && !bar.is_empty() { format!("\x1b[36m{bar}\x1b[0m") } else { bar.to_owned() }
    }

    /// The largest counts, with their names.
    fn counts(&self, f: &mut fmt::Formatter<'_>, what: &str, counts: &BTreeMap<String, u64>) -> fmt::Result {
        const SHOWN: usize = 6;
        if counts.is_empty() {
            return Ok(());
        }
        let mut largest: Vec<(&String, &u64)> = counts.iter().collect();
        largest.sort_by_key(|&(name, &count)| (std::cmp::Reverse(count), name));
        let name = |name: &str| if name.is_empty() { "(none)".to_owned() } else { name.escape_debug().to_string() };
        let shown = largest.iter().take(SHOWN).map(|&(text, count)| format!("{} {count}", name(text)));
        let shown = shown.collect::<Vec<_>>().join(", ");
        let more = largest.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(", {more} more") } else { String::new() };
        writeln!(f, "{what:18} {} ({shown}{more})", counts.len())
    }

    /// A chart in one line: one column per part of the span.
    fn arrivals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let (parts, columns) = (&self.profile.arrivals, self.columns());
        if self.profile.requests_per_s.is_none() {
            return Ok(());
        }
        let column = |n: usize| parts[n * parts.len() / columns..((n + 1) * parts.len() / columns).max(1)].iter();
        let heights: Vec<f64> =
            (0..columns).map(|n| column(n).sum::<u64>() as f64 / column(n).count().max(1) as f64).collect();
        let top = heights.iter().copied().fold(0.0, f64::max);
        // Every part with arrivals is visible.
        let level =
            |height: f64| if height > 0.0 { LEVELS[((height / top * 8.0).round() as usize).max(1)] } else { ' ' };
        let line: String = heights.into_iter().map(level).collect();
        writeln!(f, "\narrivals over time\n{}", self.paint(line.trim_end()))
    }

    /// One line per power of two; the longest bar uses the available width.
    fn lengths(&self, f: &mut fmt::Formatter<'_>, what: &str, lengths: &LengthFigures) -> fmt::Result {
        const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        const LABEL: usize = 17;
        const COUNT: usize = 10;
        let bins = &lengths.by_power_of_2;
        let first = bins.iter().position(|&count| count > 0).unwrap_or(0);
        let most = bins.iter().copied().max().unwrap_or(0).max(1);
        let room = self.columns() - LABEL - COUNT - 2;
        writeln!(f, "\n{what}")?;
        for (bin, &count) in bins.iter().enumerate().skip(first) {
            let (low, high) = if bin == 0 { (0, 0) } else { (1_u64 << (bin - 1), (1_u64 << bin) - 1) };
            let label = if low == high { low.to_string() } else { format!("{low}–{high}") };
            let eighths = (u128::from(count) * room as u128 * 8).div_ceil(u128::from(most)) as usize;
            let bar = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
            writeln!(f, "{label:>LABEL$} {count:>COUNT$} {}", self.paint(&bar))?;
        }
        Ok(())
    }
}
