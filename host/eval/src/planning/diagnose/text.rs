//! A diagnosis as text of 80 columns, its sentence, and its table.

use std::fmt::{self, Display};

use blis_report::{in_columns, latency_in_words};

use crate::workload_config::plural;

use super::document::{Diagnosis, KnobResult, TriedKnob};
use super::figure::TargetFigure;
use super::target::Infeasible;

/// Characters of a conclusion at most.
const LONGEST: usize = 160;
/// Causes with a smaller share are left out of the text.
const SHOWN: f64 = 0.005;

/// The sentence of `diagnosis`.
pub(super) fn conclusion(diagnosis: &Diagnosis, figure: &TargetFigure, infeasible: Option<Infeasible>) -> String {
    let first = diagnosis.knobs.first().filter(|knob| knob.result == KnobResult::Better);
    let and = if diagnosis.confirmed { "; " } else { "; unconfirmed: " };
    let effect = match first {
        Some(knob) => format!("{and}{} gives {} {}", knob.text, figure.words(), change(knob)),
        None => "; no knob improves it".to_owned(),
    };
    let without_interval = match first {
        Some(knob) => format!("{and}{} gives {}", knob.text, percent(knob.change_percent)),
        None => String::new(),
    };
    let start = beginning(diagnosis, figure, infeasible);
    [&effect, &without_interval]
        .into_iter()
        .map(|effect| format!("{start}{effect}"))
        .find(|sentence| sentence.chars().count() <= LONGEST)
        .unwrap_or_else(|| start.chars().take(LONGEST).collect())
}

/// The sentence without the effect of the best knob.
fn beginning(diagnosis: &Diagnosis, figure: &TargetFigure, infeasible: Option<Infeasible>) -> String {
    let share = diagnosis.causes.iter().find(|share| share.cause == diagnosis.cause).map_or(0.0, |share| share.share);
    let share = 100.0 * share;
    let row = diagnosis.cause.row();
    match infeasible {
        Some(Infeasible::Deadline { share, .. }) => {
            return format!(
                "Infeasible: {:.0} % of the requests cannot end before their deadline even alone",
                100.0 * share
            );
        }
        Some(Infeasible::Slo) => {
            let (alone, limit) = (time(diagnosis.alone_ms), time(diagnosis.limit_ms));
            return format!("Infeasible: {} is {alone} for requests that are alone, the limit {limit}", figure.words());
        }
        None => {}
    }
    if diagnosis.meets_slos && !diagnosis.overloaded {
        let (value, limit) = (time(diagnosis.figure_ms), time(diagnosis.limit_ms));
        let words = figure.words();
        return format!(
            "Nothing binds: all SLOs are met, {words} {value} of {limit} is closest; {share:.0} % of it: {}",
            row.text
        );
    }
    if diagnosis.overloaded {
        return format!("Overloaded: {}, {share:.0} % of the time is {}", lower(row.binds), row.is);
    }
    format!("{}: {share:.0} % of the time of requests is {}", row.binds, row.is)
}

/// `text` with a small first letter, unless the first word is an abbreviation.
fn lower(text: &str) -> String {
    let mut letters = text.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

/// The change with its interval, as `−81 % [−85, −77]`.
fn change(knob: &TriedKnob) -> String {
    let interval = knob.low_percent.zip(knob.high_percent);
    let interval = interval.map_or(String::new(), |(low, high)| format!(" [{}, {}]", signed(low), signed(high)));
    format!("{}{interval}", percent(knob.change_percent))
}

fn percent(change: Option<f64>) -> String {
    change.map_or("–".to_owned(), |change| format!("{} %", signed(change)))
}

/// A whole number, or one digit more near 0, with its sign.
fn signed(percent: f64) -> String {
    let digits = usize::from(percent.abs() < 9.95);
    let text = format!("{:.digits$}", percent.abs());
    let is_zero = text.trim_matches(['0', '.']).is_empty();
    match () {
        () if is_zero => "0".to_owned(),
        () if percent < 0.0 => format!("−{text}"),
        () => format!("+{text}"),
    }
}

/// `310 ms`, `1.31 s`; a dash without one.
fn time(ms: Option<f64>) -> String {
    ms.map_or("–".to_owned(), latency_in_words)
}

impl Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.of_what(f)?;
        let mut lines = vec![["share".to_owned(), "mean".into(), "of the time".into()]];
        lines.extend(
            self.causes.iter().filter(|share| share.share >= SHOWN).map(|share| {
                [format!("{:.1} %", 100.0 * share.share), time(Some(share.mean_ms)), share.text.to_owned()]
            }),
        );
        write!(f, "{}", in_columns(&lines, usize::MAX, |column| column == 2))?;
        if self.preemptions > 0 {
            let (count, tokens) = (plural(self.preemptions, "preemption"), plural(self.recomputed_tokens, "token"));
            writeln!(f, "{count}: {tokens} computed again")?;
        }
        if self.cold_tokens > 0 {
            writeln!(f, "{} of prompts computed again that the service had known", plural(self.cold_tokens, "token"))?;
        }
        self.knob_table(f)?;
        self.notes.iter().try_for_each(|note| write!(f, "{}", blis_diag::wrapped(&format!("note: {note}\n"))))
    }
}

impl Diagnosis {
    fn of_what(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds = match &self.seeds[..] {
            [first, .., last] => format!("seeds {first} to {last}"),
            [only] => format!("seed {only}"),
            [] => String::new(),
        };
        let confirmed = if self.confirmed { "confirmed" } else { "not confirmed" };
        let limit = self.limit_ms.map_or(String::new(), |limit| format!(" of {}", time(Some(limit))));
        let alone = self.alone_ms.map_or(String::new(), |alone| format!(", alone {}", time(Some(alone))));
        match self.figure_ms {
            Some(value) => writeln!(f, "{} {}{limit}{alone}", self.figure, time(Some(value)))?,
            None => writeln!(f, "lost {:.1} % of the requests", 100.0 * self.lost_share)?,
        }
        writeln!(f, "cause {} ({confirmed} by the first knob); {seeds}", self.cause.name())?;
        writeln!(f, "{}, {:.1} s of their time\n", plural(self.requests, "request"), self.time_s)
    }

    fn knob_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tried: Vec<&TriedKnob> = self.knobs.iter().filter(|knob| knob.refused.is_none()).collect();
        if tried.is_empty() {
            return writeln!(f, "\nno knob could be tried");
        }
        let level = format!("{:.0}% interval", 100.0 * self.confidence);
        let mut lines = vec![["change".to_owned(), level, self.figure.clone(), "GPUs".into(), "knob".into()]];
        lines.extend(tried.into_iter().map(|knob| {
            let interval = knob.low_percent.zip(knob.high_percent);
            let interval =
                interval.map_or("–".to_owned(), |(low, high)| format!("{} – {}", signed(low), signed(high)));
            let serves_less = knob.serves_less.map_or(String::new(), |what| format!(" (without {what})"));
            let mark = match knob.result {
                KnobResult::Better if knob.relieves.contains(&self.cause) => "* ",
                _ => "  ",
            };
            let gpus =
                knob.gpus.map_or("–".to_owned(), |gpus| format!("{gpus:.1}").trim_end_matches(".0").to_owned());
            [
                percent(knob.change_percent),
                interval,
                time(knob.figure_ms),
                gpus,
                format!("{mark}{}{serves_less}", knob.text),
            ]
        }));
        write!(f, "\n{}", in_columns(&lines, 80, |column| column == 4))?;
        writeln!(f, "*: improves the figure, and relieves {}", self.cause.name())?;
        for knob in &self.knobs {
            if let Some(reason) = &knob.refused {
                write!(f, "{}", blis_diag::wrapped(&format!("refused: {}: {reason}\n", knob.text)))?;
            }
        }
        Ok(())
    }
}
