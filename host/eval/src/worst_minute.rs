//! The minute in which a candidate does worst beside another policy, as a small table.

use std::fmt::Write as _;
use std::ops::Range;

use blis_sim::units::Micros;

use super::regret::RequestTimes;

/// Rows of the table.
const ROWS: usize = 6;
/// Lengths of a row, the longest first: a shorter run has shorter rows.
const ROW_LENGTHS: [Micros; 4] = [Micros(10_000_000), Micros(5_000_000), Micros(2_000_000), Micros(1_000_000)];
/// Instances of which the requests are counted in each row; a service may have hundreds.
const INSTANCES: usize = 8;
/// What a request counts that did not complete: the time of the whole table.
const UNSERVED_ROWS: usize = ROWS;

/// The table of the `own` requests beside the `others` of the policy `name`, which served the same arrivals, from `warmup` on. Empty
/// if there are fewer than six rows of a second.
pub fn worst_minute(
    scenario: &str,
    own: &[RequestTimes],
    name: &str,
    others: &[RequestTimes],
    warmup: Micros,
) -> String {
    let Some(last) = own.last().map(|one| one.arrival) else { return String::new() };
    let span = last.saturating_sub(warmup);
    let Some(length) = ROW_LENGTHS.into_iter().find(|length| length.0 * ROWS as u64 <= span.0) else {
        return String::new();
    };
    let seconds = ROWS as u64 * length.0 / 1_000_000;
    let what = if seconds == 60 { "minute".to_owned() } else { format!("{seconds} s") };
    let rows = (span.0 / length.0) as usize;
    let start = |row: usize| Micros(warmup.0 + row as u64 * length.0);
    let measured = |times: &[RequestTimes]| -> Vec<TimeRow> {
        (0..rows).map(|row| TimeRow::new(times, start(row)..start(row + 1))).collect()
    };
    let (own, other) = (measured(own), measured(others));
    let excess = |from: &usize| -> f64 {
        let seconds = |rows: &[TimeRow]| rows[*from..from + ROWS].iter().map(|row| row.spent(length)).sum::<f64>();
        seconds(&own) - seconds(&other)
    };
    let all = 0..=rows - ROWS;
    let worst = all.max_by(|one, other| excess(one).total_cmp(&excess(other)).then(other.cmp(one)));
    let Some(from) = worst.filter(|from| excess(from) > 0.0) else {
        return format!("Worst {what} of {scenario}: in none its requests spend more time than with {name}\n");
    };
    let seconds = |at: Micros| at.0 / 1_000_000;
    let mut text = format!(
        "Worst {what} of {scenario}: from {} to {} s its requests spend {:.1} request-seconds more than with {name} (in brackets)\n\
         {:>6} {:>7} {:>15} {:>15} {:>11}  served by instance\n",
        seconds(start(from)),
        seconds(start(from + ROWS)),
        excess(&from),
        "from s",
        "arrived",
        "present",
        "mean TTFT, ms",
        "not served",
    );
    for row in from..from + ROWS {
        text.push_str(&line(seconds(start(row)), &own[row], &other[row], length));
    }
    text
}

/// The requests of one row.
#[derive(Clone, Debug, Default, PartialEq)]
struct TimeRow {
    arrived: usize,
    /// Time that requests were in the service within the row, s.
    present_s: f64,
    /// Mean of those that arrived in the row; `None` without one.
    ttft_ms: Option<f64>,
    /// Requests that arrived in the row and did not complete.
    unserved: usize,
    /// Requests that arrived in the row, by the instance that served them.
    by_instance: Vec<usize>,
}

impl TimeRow {
    fn new(times: &[RequestTimes], span: Range<Micros>) -> Self {
        let mut row = Self::default();
        let (mut first_tokens, mut ttft_us) = (0, 0);
        for one in times.iter().take_while(|one| one.arrival < span.end) {
            if let Some(e2e) = one.e2e {
                let within = one.arrival.saturating_add(e2e).min(span.end).saturating_sub(one.arrival.max(span.start));
                row.present_s += within.as_secs_f64();
            }
            if !span.contains(&one.arrival) {
                continue;
            }
            row.arrived += 1;
            row.unserved += usize::from(one.e2e.is_none());
            first_tokens += u64::from(one.ttft.is_some());
            ttft_us += one.ttft.map_or(0, |ttft| ttft.0);
            if let Some(instance) = one.instance {
                row.by_instance.resize(row.by_instance.len().max(instance.index() + 1), 0);
                row.by_instance[instance.index()] += 1;
            }
        }
        row.ttft_ms = (first_tokens > 0).then(|| ttft_us as f64 / first_tokens as f64 / 1e3);
        row
    }

    /// Request-seconds of the row, in which one that was not served counts as present during a whole table.
    fn spent(&self, length: Micros) -> f64 {
        self.present_s + (self.unserved * UNSERVED_ROWS) as f64 * length.as_secs_f64()
    }
}

fn line(from_s: u64, own: &TimeRow, other: &TimeRow, length: Micros) -> String {
    let present = |row: &TimeRow| format!("{:.1}", row.present_s / length.as_secs_f64());
    let ttft = |row: &TimeRow| row.ttft_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0}"));
    let pair = |of: &dyn Fn(&TimeRow) -> String| format!("{} ({})", of(own), of(other));
    let unserved =
        if own.unserved + other.unserved > 0 { pair(&|row| row.unserved.to_string()) } else { "0".to_owned() };
    let (arrived, present, ttft) = (own.arrived, pair(&present), pair(&ttft));
    let mut text = format!("{from_s:>6} {arrived:>7} {present:>15} {ttft:>15} {unserved:>11}  ");
    let counts: Vec<String> = own.by_instance.iter().take(INSTANCES).map(usize::to_string).collect();
    let more = if own.by_instance.len() > INSTANCES { " …" } else { "" };
    // Writing to a text does not fail.
    let _ = writeln!(text, "[{}{more}]", counts.join(" "));
    text
}

#[cfg(test)]
mod tests {
    use blis_sim::ids::InstanceIndex;

    use super::*;

    /// A request each second for two minutes; those from 70 s to 80 s take `slow`, the others a second.
    fn requests(slow: Micros, served: bool) -> Vec<RequestTimes> {
        let one = |second: u64| {
            let is_slow = (70..80).contains(&second);
            let e2e = if is_slow { slow } else { Micros(1_000_000) };
            RequestTimes {
                arrival: Micros(second * 1_000_000),
                ttft: Some(Micros(e2e.0 / 2)),
                e2e: Some(e2e).filter(|_| served || !is_slow),
                instance: Some(InstanceIndex((second % 2) as u32)),
            }
        };
        (0..121).map(one).collect()
    }

    #[test]
    fn the_minute_with_the_slow_requests_is_shown() {
        let (own, other) = (requests(Micros(4_000_000), true), requests(Micros(2_000_000), true));
        let text = worst_minute("bursts", &own, "token-aware", &other, Micros(10_000_000));
        insta::assert_snapshot!(text, @r"
        Worst minute of bursts: from 30 to 90 s its requests spend 20.0 request-seconds more than with token-aware (in brackets)
        from s arrived         present   mean TTFT, ms  not served  served by instance
            30      10       1.0 (1.0)       500 (500)           0  [5 5]
            40      10       1.0 (1.0)       500 (500)           0  [5 5]
            50      10       1.0 (1.0)       500 (500)           0  [5 5]
            60      10       1.0 (1.0)       500 (500)           0  [5 5]
            70      10       3.4 (1.9)     2000 (1000)           0  [5 5]
            80      10       1.6 (1.1)       500 (500)           0  [5 5]
        ");
    }

    #[test]
    fn requests_that_are_not_served_are_no_gain() {
        let (own, other) = (requests(Micros(4_000_000), false), requests(Micros(4_000_000), true));
        let text = worst_minute("overload", &own, "least-loaded", &other, Micros::ZERO);
        insta::assert_snapshot!(text, @r"
        Worst minute of overload: from 20 to 80 s its requests spend 566.0 request-seconds more than with least-loaded (in brackets)
        from s arrived         present   mean TTFT, ms  not served  served by instance
            20      10       1.0 (1.0)       500 (500)           0  [5 5]
            30      10       1.0 (1.0)       500 (500)           0  [5 5]
            40      10       1.0 (1.0)       500 (500)           0  [5 5]
            50      10       1.0 (1.0)       500 (500)           0  [5 5]
            60      10       1.0 (1.0)       500 (500)           0  [5 5]
            70      10       0.0 (3.4)     2000 (2000)      10 (0)  [5 5]
        ");
    }

    #[test]
    fn a_candidate_that_is_as_good_has_no_worst_minute() {
        let same = requests(Micros(1_000_000), true);
        let text = worst_minute("bursts", &same, "token-aware", &same, Micros::ZERO);
        assert_eq!(text, "Worst minute of bursts: in none its requests spend more time than with token-aware\n");
        assert_eq!(worst_minute("short", &same[..5], "token-aware", &same, Micros::ZERO), "", "too short for a table");
    }
}
