//! Plain CSV of arrivals and lengths, with or without other columns: `arrival,input,output`, Vidur's
//! `arrived_at,num_prefill_tokens,num_decode_tokens`, and the names that people give such columns.
//!
//! Arrivals are in seconds unless the name ends in `_ms`, `_us` or `_ns`; dates and times as in Azure's traces are read
//! too. Without a column of arrivals they are drawn at a rate ([`TraceOptions::arrivals`]).
//! Vidur: <https://github.com/microsoft/vidur/tree/main/data/processed_traces>

use std::io::BufRead;
use std::sync::Arc;

use blis_sim::ids::RequestId;
use csv::ByteRecord;

use super::drawn_arrivals::ArrivalClock;
use super::error::TraceError;
use super::format::TraceFormat;
use super::json::{MICROSECOND, MILLISECOND, NANOSECOND, Number, SECOND};
use super::names::Names;
use super::prefix::ROOT;
use super::records::Records;
use super::row::{NoMetadata, TraceRow};
use super::rows::{Intake, Origin, SharedContents};
use super::{TraceOptions, Workload, azure, field};
use blis_diag::{RowError, quoted};

/// Reads a plain CSV.
///
/// # Errors
/// See [`TraceError`].
pub fn read(input: impl BufRead, file: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
    let file: Arc<str> = file.into();
    let mut intake = Intake::new(&file, options);
    let mut records = Records::new(input, &file);
    let mut origin = Origin::FirstArrival;
    if records.advance()? {
        let columns = PlainColumns::from_header(&records.record).map_err(|fault| records.locate(fault))?;
        let mut clock = columns.clock(&file, options)?;
        let mut dates = None;
        while intake.wants_more() && records.advance()? {
            let id = intake.next_id()?;
            let row = columns.row(&records.record, id, &mut dates);
            let Some(row) = intake.valid(row, |fault| records.locate(fault))? else { continue };
            let arrival = clock.as_mut().map_or(row.arrival, ArrivalClock::tick);
            intake.add(TraceRow { arrival, ..row });
        }
        intake.notes.push(columns.note());
        if let Some(clock) = clock {
            origin = Origin::Zero;
            intake.notes.push(clock.note());
        }
    }
    intake.finish(origin, SharedContents::default(), Names::default())
}

/// Whether this is the header of such a file: it has columns of both lengths.
pub(super) fn is_header(line: &[u8]) -> bool {
    let names: Vec<String> = line.split(|&byte| byte == b',').map(normal).collect();
    let has = |known: &[&str]| names.iter().any(|name| known.contains(&name.as_str()));
    has(&INPUTS) && has(&OUTPUTS)
}

/// Names of arrivals, without their unit.
const ARRIVALS: [&str; 8] = [
    "arrival",
    "arrived_at",
    "arrival_time",
    "arrival_timestamp",
    "timestamp",
    "relative_timestamp",
    "request_time",
    "time",
];
const INPUTS: [&str; 12] = [
    "input",
    "inputs",
    "input_tokens",
    "input_length",
    "input_len",
    "prompt",
    "prompt_tokens",
    "prompt_length",
    "prompt_len",
    "num_prefill_tokens",
    "prefill_tokens",
    "context_tokens",
];
const OUTPUTS: [&str; 13] = [
    "output",
    "outputs",
    "output_tokens",
    "output_length",
    "output_len",
    "completion_tokens",
    "completion_length",
    "generated_tokens",
    "response_tokens",
    "num_decode_tokens",
    "decode_tokens",
    "decode_length",
    "generation_length",
];

/// The name of a column in lower case, with `_` between its words.
fn normal(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let name = name.trim_start_matches('\u{feff}').trim().trim_matches('"').trim();
    name.to_lowercase().replace([' ', '-'], "_")
}

/// The unit of an arrival column of that name, in ns, and its text; `None` if the name is no arrival.
fn unit(name: &str) -> Option<(u64, &'static str)> {
    const UNITS: [(&str, u64, &str); 8] = [
        ("_ms", MILLISECOND, "ms"),
        ("_us", MICROSECOND, "µs"),
        ("_ns", NANOSECOND, "ns"),
        ("_s", SECOND, "s"),
        ("_sec", SECOND, "s"),
        ("_secs", SECOND, "s"),
        ("_seconds", SECOND, "s"),
        ("", SECOND, "s"),
    ];
    let of = |&(end, ns, text): &(&'static str, u64, &'static str)| {
        name.strip_suffix(end).filter(|stem| ARRIVALS.contains(stem)).map(|_| (ns, text))
    };
    UNITS.iter().find_map(of)
}

/// A column that is read.
struct ReadColumn {
    index: usize,
    /// Its name as the file has it.
    name: String,
}

struct PlainColumns {
    arrival: Option<(ReadColumn, u64, &'static str)>,
    input: ReadColumn,
    output: ReadColumn,
    /// Names of columns that are not read.
    others: Vec<String>,
    all: usize,
}

impl PlainColumns {
    fn from_header(header: &ByteRecord) -> Result<Self, RowError> {
        let names: Vec<String> = header.iter().map(normal).collect();
        let arrival = one_of(header, &names, "arrivals", |name| unit(name).is_some())?;
        let input = one_of(header, &names, "input lengths", |name| INPUTS.contains(&name))?;
        let output = one_of(header, &names, "output lengths", |name| OUTPUTS.contains(&name))?;
        let must = |column: Option<ReadColumn>, what: &str| {
            column.ok_or_else(|| {
                let header: Vec<&[u8]> = header.iter().collect();
                RowError::new(format!("there is no column of {what} in {}", quoted(&header.join(&b',')))).hint(
                    "name the columns `arrival,input,output`, arrivals in s (`arrival_ms` in ms), lengths in tokens",
                )
            })
        };
        let (input, output) = (must(input, "input lengths")?, must(output, "output lengths")?);
        let arrival = arrival.and_then(|column| unit(&names[column.index]).map(|(ns, text)| (column, ns, text)));
        let read = [arrival.as_ref().map(|(column, ..)| column.index), Some(input.index), Some(output.index)];
        let others = (0..header.len()).filter(|&index| !read.contains(&Some(index)));
        let others = others.map(|index| String::from_utf8_lossy(&header[index]).trim().to_owned()).collect();
        Ok(Self { arrival, input, output, others, all: header.len() })
    }

    /// The clock that replaces a missing column of arrivals.
    fn clock(&self, file: &Arc<str>, options: &TraceOptions) -> Result<Option<ArrivalClock>, TraceError> {
        match (&self.arrival, options.arrivals) {
            (None, _) => ArrivalClock::new(options.arrivals, file, TraceFormat::Csv).map(Some),
            (Some(_), None) => Ok(None),
            (Some((column, ..)), Some(_)) => {
                Err(TraceError::HasArrivals { file: Arc::clone(file), format: format!("column `{}`", column.name) })
            }
        }
    }

    fn row(
        &self,
        record: &ByteRecord,
        id: RequestId,
        dates: &mut Option<bool>,
    ) -> Result<TraceRow<NoMetadata>, RowError> {
        if record.len() != self.all {
            return Err(RowError::new(format!("{} fields where the header has {}", record.len(), self.all)));
        }
        let count = |column: &ReadColumn| field::count_of_table(&record[column.index], &column.name);
        let arrival = match &self.arrival {
            Some((column, ns, unit)) => arrival(&record[column.index], &column.name, *ns, unit, dates)?,
            None => 0,
        };
        let input = field::prompt_tokens(count(&self.input)?, &self.input.name)?;
        Ok(TraceRow { arrival, id, input, output: count(&self.output)?, prefix: ROOT, terms: NoMetadata })
    }

    /// A note about the columns that are read, and those that are not.
    fn note(&self) -> String {
        let arrival = self.arrival.as_ref();
        let arrival =
            arrival.map_or(String::new(), |(column, _, unit)| format!("arrivals `{}` in {unit}, ", column.name));
        let lengths = format!("input `{}` and output `{}` in tokens", self.input.name, self.output.name);
        let others =
            if self.others.is_empty() { String::new() } else { format!("; not read: {}", self.others.join(", ")) };
        format!("columns: {arrival}{lengths}{others}")
    }
}

/// The only column that `fits`.
fn one_of(
    header: &ByteRecord,
    names: &[String],
    what: &str,
    fits: impl Fn(&str) -> bool,
) -> Result<Option<ReadColumn>, RowError> {
    let text = |index: usize| String::from_utf8_lossy(&header[index]).trim().to_owned();
    let mut found = (0..names.len()).filter(|&index| fits(&names[index]));
    match (found.next(), found.next()) {
        (Some(first), Some(second)) => {
            let what = format!("two columns of {what}: `{}` and `{}`", text(first), text(second));
            Err(RowError::new(what).hint("rename or remove the one that is not meant"))
        }
        (first, _) => Ok(first.map(|index| ReadColumn { index, name: text(index) })),
    }
}

/// A time, µs. Numbers are in `unit`, which has `ns` nanoseconds. `dates`: whether the rows before have dates.
fn arrival(text: &[u8], name: &str, ns: u64, unit: &str, dates: &mut Option<bool>) -> Result<u64, RowError> {
    /// The year 5138: later seconds are other units.
    const LATEST_S: f64 = 1e11;
    let date = text.contains(&b':');
    if *dates.get_or_insert(date) != date {
        let (this, others) = if date { ("a date", "numbers") } else { ("a number", "dates") };
        return Err(RowError::new(format!("`{name}` is {this}, but the rows before have {others}: {}", quoted(text))));
    }
    if date {
        return azure::timestamp_of(text, name);
    }
    let number = match field::unsigned(text, name) {
        Ok(whole) => Number::Whole(whole),
        Err(_) => Number::Real(field::float(text, name)?),
    };
    if unit == "s" && number.real() >= LATEST_S {
        return Err(RowError::new(format!("`{name}` is {} s, after the year 5000", quoted(text)))
            .hint(format!("name another unit in the header: `{name}_ms`, `{name}_us` or `{name}_ns`")));
    }
    number.micros(name, ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DrawnArrivals;
    use crate::distribution::ArrivalProcess;
    use proptest::prelude::*;

    fn trace(text: &str) -> Result<Workload, TraceError> {
        read(text.as_bytes(), "t.csv", &TraceOptions::default())
    }

    fn figures(workload: Workload) -> Vec<(u64, u32, u32)> {
        workload.requests.map(|request| (request.arrival.0, request.input_tokens, request.output_tokens)).collect()
    }

    #[test]
    fn columns_have_many_names_and_units() {
        let expected = [(0, 10, 3), (1_500_000, 20, 4)];
        for text in [
            "arrival,input,output\n0,10,3\n1.5,20,4\n",
            "\u{feff}Arrival-Time , Prompt Tokens,completion_tokens\r\n7,10,3\r\n8.5,20.0,4\r\n",
            "arrived_at,num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n1,10,3,13,3.3\n2.5,20,4,24,5\n",
            "output_len,timestamp_ms,input_len\n3,100,10\n4,1600,20\n",
            "arrival_us,input,output\n5,10,3\n1500005,20,4\n",
            "arrival_ns,input,output\n1700000000000000000,10,3\n1700000001500000000,20,4\n",
            "timestamp,\"input\",\"output\"\n2023-11-16 18:15:46.5,10,3\n2023-11-16 18:15:48,20,4\n",
        ] {
            assert_eq!(figures(trace(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn columns_and_units_are_noted() {
        let notes = trace("arrived_at,num_prefill_tokens,num_decode_tokens,pd_ratio\n1,10,3,3.3\n").unwrap().notes;
        let expected = "columns: arrivals `arrived_at` in s, input `num_prefill_tokens` and output `num_decode_tokens` in \
                    tokens; not read: pd_ratio";
        assert_eq!(notes, [expected]);
    }

    #[test]
    fn lengths_alone_need_a_rate() {
        let text = "input,output\n10,3\n20,4\n";
        insta::assert_snapshot!(trace(text).unwrap_err(), @r"
        t.csv: no arrivals in this file (format csv)
        hint: set a rate with `--rate R`, requests per second; `--arrival-process` is poisson by default
        ");
        let arrivals = Some(DrawnArrivals { rate: 2.0, process: ArrivalProcess::Constant, seed: 1 });
        let options = TraceOptions { arrivals, ..TraceOptions::default() };
        let workload = read(text.as_bytes(), "t.csv", &options).unwrap();
        assert!(workload.notes[1].contains("2 requests per second"), "{:?}", workload.notes);
        assert_eq!(figures(workload), [(500_000, 10, 3), (1_000_000, 20, 4)]);
        let both = read(b"time,input,output\n0,1,1\n".as_slice(), "t.csv", &options).unwrap_err();
        insta::assert_snapshot!(both, @r"
        t.csv: `--rate` is set, but the file has arrivals (column `time`)
        hint: leave `--rate` out; `--time-scale 2` halves the rate of a trace
        ");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(rows in prop::collection::vec((0..1_000_000_000u64, 1..5000u32, 0..5000u32), 1..30)) {
            let lines: String = rows.iter().map(|(at, input, output)| format!("{output},{at},{input}\n")).collect();
            let read = figures(trace(&format!("output_tokens,arrival_us,input_tokens\n{lines}")).unwrap());
            let mut expected = rows;
            expected.sort_by_key(|row| row.0);
            let first = expected[0].0;
            expected.iter_mut().for_each(|row| row.0 -= first);
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, row in "[0-9.,\"a-z: -]{0,60}") {
            let _ = read(bytes.as_slice(), "x", &TraceOptions::default());
            let _ = trace(&format!("arrival,input,output\n{row}\n"));
        }
    }
}
