//! BurstGPT traces: CSV with arrival (s), model, lengths and kind of a request.
//!
//! ```text
//! Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
//! ```
//! The first release has neither session nor elapsed time. A request without response tokens failed: it is left out and
//! counted. `Model` and `Log Type` become the client, as in `GPT-4 API log`, because the simulated model is another
//! one. <https://github.com/HPMLL/BurstGPT>

use std::io::BufRead;
use std::sync::Arc;

use blis_sim::ids::RequestId;
use blis_sim::request::{Name, Tags};
use csv::ByteRecord;
use rustc_hash::FxHashMap;

use super::error::TraceError;
use super::json::{Number, SECOND};
use super::names::Names;
use super::prefix::ROOT;
use super::records::Records;
use super::row::{NamedMetadata, TraceRow};
use super::rows::{Intake, Origin, SharedContents, counted};
use super::{TraceOptions, Workload, field};
use blis_diag::{RowError, quoted};

/// Reads a BurstGPT trace.
///
/// # Errors
/// See [`TraceError`].
pub fn read(input: impl BufRead, file: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
    let file: Arc<str> = file.into();
    let mut intake = Intake::new(&file, options);
    let mut records = Records::new(input, &file);
    let (mut state, mut failed) = (BurstGptState::default(), 0_u64);
    if records.advance()? {
        let columns = BurstGptColumns::from_header(&records.record).map_err(|fault| records.locate(fault))?;
        while intake.wants_more() && records.advance()? {
            let id = intake.next_id()?;
            match columns.row(&records.record, id, &mut state) {
                Ok(Some(row)) => intake.add(row),
                Ok(None) => failed += 1,
                Err(fault) => intake.bad(records.locate(fault))?,
            }
        }
    }
    if failed > 0 {
        intake.notes.push(format!("{} (0 response tokens) left out", counted(failed, "failed request")));
    }
    intake.finish(Origin::FirstArrival, SharedContents::default(), state.names)
}

/// Names so far, and the number of rounds of each session.
#[derive(Default)]
struct BurstGptState {
    names: Names,
    turns: FxHashMap<Name, u32>,
}

const TIMESTAMP: &str = "Timestamp";
const REQUEST: &str = "Request tokens";
const RESPONSE: &str = "Response tokens";

/// Indices of the columns, and the number of all columns.
struct BurstGptColumns {
    timestamp: usize,
    request: usize,
    response: usize,
    session: Option<usize>,
    model: Option<usize>,
    kind: Option<usize>,
    all: usize,
}

impl BurstGptColumns {
    fn from_header(header: &ByteRecord) -> Result<Self, RowError> {
        let find = |name: &str| header.iter().position(|field| field.trim_ascii() == name.as_bytes());
        let must = |name: &str| {
            find(name).ok_or_else(|| {
                let names: Vec<&[u8]> = header.iter().collect();
                RowError::new(format!("there is no column `{name}` in {}", quoted(&names.join(&b','))))
                    .hint(format!("a BurstGPT trace has the columns {TIMESTAMP}, Model, {REQUEST}, {RESPONSE}"))
            })
        };
        Ok(Self {
            timestamp: must(TIMESTAMP)?,
            request: must(REQUEST)?,
            response: must(RESPONSE)?,
            session: find("Session ID"),
            model: find("Model"),
            kind: find("Log Type"),
            all: header.len(),
        })
    }

    /// The request of a record; `None` if it failed.
    fn row(
        &self,
        record: &ByteRecord,
        id: RequestId,
        state: &mut BurstGptState,
    ) -> Result<Option<TraceRow<NamedMetadata>>, RowError> {
        if record.len() != self.all {
            return Err(RowError::new(format!("{} fields where the header has {}", record.len(), self.all)));
        }
        let text = |at: Option<usize>| at.map_or(String::new(), |at| String::from_utf8_lossy(&record[at]).into_owned());
        let seconds = field::float(&record[self.timestamp], TIMESTAMP)?;
        let arrival = Number::Real(seconds).micros(TIMESTAMP, SECOND)?;
        let (input, output) = (
            field::count_of_table(&record[self.request], REQUEST)?,
            field::count_of_table(&record[self.response], RESPONSE)?,
        );
        if output == 0 {
            return Ok(None);
        }
        let input = field::prompt_tokens(input, REQUEST)?;
        let session = state.names.intern(text(self.session).trim());
        let client = state.names.intern(format!("{} {}", text(self.model).trim(), text(self.kind).trim()).trim());
        let mut tags = Tags { session, client, ..Tags::default() };
        if session != Name::NONE {
            let turn = state.turns.entry(session).or_default();
            tags.round_index = *turn;
            *turn += 1;
        }
        Ok(Some(TraceRow {
            arrival,
            id,
            input,
            output,
            prefix: ROOT,
            terms: NamedMetadata { tags, max_output_tokens: None },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::request::Request;
    use proptest::prelude::*;

    fn trace(text: &str) -> Result<Workload, TraceError> {
        read(text.as_bytes(), "b.csv", &TraceOptions::default())
    }

    #[test]
    fn failures_are_counted_and_left_out() {
        let text = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\r\n\
                    5,s1,1.5,ChatGPT,472,18,490,Conversation log\r\n45,s1,0,ChatGPT,0,0,0,Conversation log\r\n\
                    118.5,s1,2,GPT-4,1087,230.0,1317,API log\r\n";
        let workload = trace(text).unwrap();
        assert_eq!(workload.notes, ["1 failed request (0 response tokens) left out"]);
        let names = workload.names;
        let all: Vec<Request> = workload.requests.collect();
        let seen = all.iter().map(|r| (r.id.0, r.arrival.0, r.input_tokens, r.output_tokens, r.tags.round_index));
        assert_eq!(seen.collect::<Vec<_>>(), [(0, 0, 472, 18, 0), (2, 113_500_000, 1087, 230, 1)]);
        let tags = all[1].tags;
        assert_eq!([tags.client, tags.session].map(|name| names.text(name)), ["GPT-4 API log", "s1"]);
        assert_eq!(tags.model, Name::NONE);
    }

    #[test]
    fn the_first_release_has_fewer_columns() {
        let text =
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,API log\n";
        assert_eq!(trace(text).unwrap().count, Some(1));
        insta::assert_snapshot!(trace("Timestamp,Model\n").unwrap_err(), @r"
        b.csv:1: there is no column `Request tokens` in `Timestamp,Model`
        hint: a BurstGPT trace has the columns Timestamp, Model, Request tokens, Response tokens
        ");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, row in "[0-9.,\"a-z -]{0,60}") {
            let _ = read(bytes.as_slice(), "x", &TraceOptions::default());
            let _ = trace(&format!("Timestamp,Model,Request tokens,Response tokens\n{row}\n"));
        }
    }
}
