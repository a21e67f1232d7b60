//! Azure LLM inference traces: `TIMESTAMP,ContextTokens,GeneratedTokens`.
//!
//! The files of 2023 write `2023-11-16 18:15:46.6805900`, those of 2024 append `+00:00`, and the multimodal one of 2025
//! writes ISO 8601 with `T` and `Z` and has one more column. All of them can be read; the header gives the order of the
//! columns. <https://github.com/Azure/AzurePublicDataset>
//!
//! Time 0 is the first arrival. Prompts share no prefixes, because the traces contain none.

use std::io::BufRead;
use std::sync::Arc;

use blis_sim::ids::RequestId;

use super::error::TraceError;
use super::names::Names;
use super::prefix::ROOT;
use super::row::{NoMetadata, TraceRow};
use super::rows::{Intake, Origin, SharedContents};
use super::{TraceOptions, Workload, field};
use blis_diag::LineReader;
use blis_diag::{RowError, quoted};

/// Reads an Azure trace.
///
/// # Errors
/// See [`TraceError`].
pub fn read(input: impl BufRead, file: &str, options: &TraceOptions) -> Result<Workload, TraceError> {
    let file: Arc<str> = file.into();
    let mut intake = Intake::new(&file, options);
    let mut lines = LineReader::new(input, &file);
    if lines.advance()? {
        let (columns, unread) = AzureColumns::from_header(lines.text()).map_err(|fault| lines.locate(fault))?;
        intake.notes.extend(unread);
        while intake.wants_more() && lines.advance()? {
            let id = intake.next_id()?;
            let row = intake.valid(row(lines.text(), columns, id), |fault| lines.locate(fault))?;
            row.into_iter().for_each(|row| intake.add(row));
        }
    }
    intake.finish(Origin::FirstArrival, SharedContents::default(), Names::default())
}

const NAMES: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];

/// Indices of the three columns, and the number of all columns.
#[derive(Clone, Copy)]
struct AzureColumns {
    at: [usize; 3],
    all: usize,
}

impl AzureColumns {
    /// The columns of a header line, and a note about those that are not read.
    fn from_header(header: &[u8]) -> Result<(Self, Option<String>), RowError> {
        let names: Vec<&[u8]> = header.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).collect();
        let mut at = [0; 3];
        for (at, name) in at.iter_mut().zip(NAMES) {
            let found = names.iter().position(|known| *known == name.as_bytes());
            *at = found.ok_or_else(|| {
                RowError::new(format!("there is no column `{name}` in {}", quoted(header)))
                    .hint(format!("an Azure trace starts with the line `{}`", NAMES.join(",")))
            })?;
        }
        let unread: Vec<String> = names
            .iter()
            .enumerate()
            .filter(|(index, _)| !at.contains(index))
            .map(|(_, name)| String::from_utf8_lossy(name).into_owned())
            .collect();
        let note = (!unread.is_empty()).then(|| format!("columns not read: {}", unread.join(", ")));
        Ok((Self { at, all: names.len() }, note))
    }
}

fn row(line: &[u8], columns: AzureColumns, id: RequestId) -> Result<TraceRow, RowError> {
    let mut found: [(usize, &[u8]); 3] = [(0, &[]); 3];
    let (mut start, mut fields) = (0, 0);
    for text in line.split(|&byte| byte == b',') {
        if let Some(which) = columns.at.iter().position(|&at| at == fields) {
            found[which] = (start, text);
        }
        start += text.len() + 1;
        fields += 1;
    }
    if fields != columns.all {
        return Err(RowError::new(format!("{fields} fields where the header has {}", columns.all)));
    }
    let [(time_at, time), (input_at, input), (output_at, output)] = found;
    let prompt = |tokens| field::prompt_tokens(tokens, NAMES[1]);
    Ok(TraceRow {
        arrival: timestamp(time).map_err(|fault| fault.column_after(time_at))?,
        input: field::count(input, NAMES[1]).and_then(prompt).map_err(|fault| fault.column_after(input_at))?,
        output: field::count(output, NAMES[2]).map_err(|fault| fault.column_after(output_at))?,
        id,
        prefix: ROOT,
        terms: NoMetadata,
    })
}

/// µs from the start of year 1 to `YYYY-MM-DD HH:MM:SS[.f…][Z|±HH:MM]`; digits beyond 1 µs are cut off.
fn timestamp(bytes: &[u8]) -> Result<u64, RowError> {
    timestamp_of(bytes, "TIMESTAMP")
}

/// The same in a column of another `name`.
pub(super) fn timestamp_of(bytes: &[u8], name: &str) -> Result<u64, RowError> {
    let text = bytes.trim_ascii();
    parse_timestamp(text).ok_or_else(|| {
        RowError::new(format!("`{name}` is not a time: {}", quoted(text)))
            .hint("write it as `2023-11-16 18:15:46.6805900`")
    })
}

fn parse_timestamp(text: &[u8]) -> Option<u64> {
    let (main, rest) = text.split_at_checked(19)?;
    let separators = (main[4], main[7], main[13], main[16]);
    if separators != (b'-', b'-', b':', b':') || !matches!(main[10], b' ' | b'T') {
        return None;
    }
    let [century, years, month, day] = [digits2(main, 0)?, digits2(main, 2)?, digits2(main, 5)?, digits2(main, 8)?];
    let [hour, minute, second] = [digits2(main, 11)?, digits2(main, 14)?, digits2(main, 17)?];
    let days = days_from_civil(century * 100 + years, month, day)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    let (fraction_us, zone) = fraction(rest)?;
    // One day is added first, so that the offset of the time zone can be subtracted.
    let local_us = (seconds + 86_400) * 1_000_000 + fraction_us;
    local_us.checked_add_signed(-zone_offset_us(zone)?)
}

fn digits2(text: &[u8], at: usize) -> Option<u64> {
    let (tens, ones) = (text[at].wrapping_sub(b'0'), text[at + 1].wrapping_sub(b'0'));
    (tens <= 9 && ones <= 9).then(|| u64::from(tens) * 10 + u64::from(ones))
}

/// The fraction of a second in µs, and the rest of the text.
fn fraction(text: &[u8]) -> Option<(u64, &[u8])> {
    let Some(digits) = text.strip_prefix(b".") else {
        return Some((0, text));
    };
    let length = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(length);
    let padded = digits.iter().copied().chain(std::iter::repeat(b'0')).take(6);
    let micros = padded.fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
    (length > 0).then_some((micros, rest))
}

/// Offset of the local time from UTC, µs.
fn zone_offset_us(zone: &[u8]) -> Option<i64> {
    let (sign, digits) = match zone {
        [] | [b'Z'] => return Some(0),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits.len() {
        5 if digits[2] == b':' => (digits2(digits, 0)?, digits2(digits, 3)?),
        4 => (digits2(digits, 0)?, digits2(digits, 2)?),
        _ => return None,
    };
    if hours > 23 || minutes > 59 {
        return None;
    }
    Some(sign * i64::try_from((hours * 60 + minutes) * 60_000_000).ok()?)
}

/// Days from the first day of year 1 in the Gregorian calendar; `None` for a date that does not exist.
fn days_from_civil(year: u64, month: u64, day: u64) -> Option<u64> {
    const BEFORE_MONTH: [u64; 13] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365];
    if year == 0 || !(1..=12).contains(&month) {
        return None;
    }
    let leap = u64::from(year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)));
    let at = month as usize;
    let length = BEFORE_MONTH[at] - BEFORE_MONTH[at - 1] + if month == 2 { leap } else { 0 };
    if day == 0 || day > length {
        return None;
    }
    let past = year - 1;
    let before_year = past * 365 + past / 4 - past / 100 + past / 400;
    Some(before_year + BEFORE_MONTH[at - 1] + if month > 2 { leap } else { 0 } + day - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trace(text: &str) -> Result<Workload, TraceError> {
        read(text.as_bytes(), "t.csv", &TraceOptions::default())
    }

    #[test]
    fn rows_become_requests_from_the_first_arrival_on() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 23:59:59.6805909,374,44\r\n\
                    2023-11-17 00:00:00.9951690+00:00,396,0\r\n2023-11-17T01:00:01Z,1,2\r\n2023-11-17 02:00:02+01:00,5,6";
        let requests: Vec<_> = trace(text).unwrap().requests.collect();
        let seen: Vec<_> = requests.iter().map(|r| (r.id.0, r.arrival.0, r.input_tokens, r.output_tokens)).collect();
        assert_eq!(seen, [(0, 0, 374, 44), (1, 1_314_579, 396, 0), (2, 3_601_319_410, 1, 2), (3, 3_602_319_410, 5, 6)]);
        assert_eq!(
            (requests[0].max_output_tokens, requests[0].deadline, requests[0].client_priority),
            (None, None, None)
        );
    }

    #[test]
    fn other_columns_are_named_and_passed_over() {
        let text = "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15T00:00:00.001Z,3,10,20\n";
        let workload = trace(text).unwrap();
        assert_eq!(workload.notes, ["columns not read: NumImages"]);
        assert_eq!(workload.requests.map(|r| r.input_tokens).collect::<Vec<_>>(), [10]);
    }

    #[test]
    fn errors_say_where() {
        let start = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n";
        let error = |row: &str| trace(&format!("{start}{row}\n")).unwrap_err().to_string();
        insta::assert_snapshot!(error("2023-11-16 18:15:46.68,-5,1"), @"t.csv:3:24: `ContextTokens` is negative: `-5`");
        insta::assert_snapshot!(error("2023-11-16 18:15:46,5,4294967296"), @"t.csv:3:23: `GeneratedTokens` is 4294967296, more than 4294967295");
        insta::assert_snapshot!(error("2023-11-16 18:15:46,0,1"), @"t.csv:3:21: `ContextTokens` is 0: a prompt has at least one token");
        insta::assert_snapshot!(error("2023-11-16 18:15:46,5"), @"t.csv:3: 2 fields where the header has 3");
        insta::assert_snapshot!(error("2023-02-29 18:15:46,5,5"), @r"
        t.csv:3:1: `TIMESTAMP` is not a time: `2023-02-29 18:15:46`
        hint: write it as `2023-11-16 18:15:46.6805900`
        ");
        insta::assert_snapshot!(trace("TIME,ContextTokens\n").unwrap_err(), @r"
        t.csv:1: there is no column `TIMESTAMP` in `TIME,ContextTokens`
        hint: an Azure trace starts with the line `TIMESTAMP,ContextTokens,GeneratedTokens`
        ");
        insta::assert_snapshot!(trace("").unwrap_err(), @r"
        t.csv: no requests
        hint: a trace needs at least one request after its header
        ");
    }

    #[test]
    fn bad_rows_are_skipped_on_request_and_keep_their_number() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,1\n2023-11-16 18:15:46,1,1\n";
        let options = TraceOptions { skip_bad_lines: true, ..TraceOptions::default() };
        let workload = read(text.as_bytes(), "t.csv", &options).unwrap();
        let line = workload.skipped.first[0].location.as_ref().and_then(|location| location.line);
        assert_eq!((workload.skipped.count, line), (1, Some(2)));
        assert_eq!(workload.requests.map(|r| r.id.0).collect::<Vec<_>>(), [1]);
    }

    /// Seconds of the Unix epoch, and of a leap day, from `date -u -d … +%s`.
    #[test]
    fn the_calendar_is_the_gregorian_one() {
        let seconds = |text: &str| parse_timestamp(text.as_bytes()).unwrap() / 1_000_000;
        let epoch = seconds("1970-01-01 00:00:00");
        assert_eq!(seconds("2023-11-16 18:15:46") - epoch, 1_700_158_546);
        assert_eq!(seconds("2024-02-29 12:00:00") - epoch, 1_709_208_000);
        assert_eq!(seconds("2000-03-01 00:00:00") - epoch, 951_868_800);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, line in ".{0,60}") {
            let header = b"TIMESTAMP,ContextTokens,GeneratedTokens\n".as_slice();
            let _ = read(bytes.as_slice(), "x", &TraceOptions::default());
            let _ = read([header, line.as_bytes()].concat().as_slice(), "x", &TraceOptions::default());
        }

        #[test]
        fn times_like_ours_never_panic(text in "[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{0,12})?(Z|[+-][0-9:]{0,5})?") {
            let _ = parse_timestamp(text.as_bytes());
        }
    }
}
