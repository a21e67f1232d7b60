//! A reader of what is written, from the specification of the format and not from the writer. `sdk/python/test.sh` reads a file
//! with pyarrow, too.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A value in Thrift's compact protocol.
#[derive(Clone, Debug)]
enum Thrift {
    Number(i64),
    Text(String),
    List(Vec<Thrift>),
    Struct(BTreeMap<u8, Thrift>),
}

impl Thrift {
    fn at(&self, path: &[u8]) -> &Self {
        path.iter().fold(self, |found, number| match found {
            Self::Struct(fields) => &fields[number],
            Self::List(all) => &all[*number as usize],
            other => panic!("no field {number} in {other:?}"),
        })
    }

    fn number(&self, path: &[u8]) -> i64 {
        let Self::Number(value) = self.at(path) else { panic!("no number at {path:?}: {self:?}") };
        *value
    }

    fn list(&self, field: u8) -> &[Self] {
        let Self::List(all) = self.at(&[field]) else { panic!("no list at {field}: {self:?}") };
        all
    }
}

/// Bytes that are read.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take(&mut self, count: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn u32(&mut self) -> usize {
        u32::from_le_bytes(self.take(4).try_into().expect("four")) as usize
    }

    fn varint(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.take(1)[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
            shift += 7;
        }
    }

    fn value(&mut self, kind: u8) -> Thrift {
        match kind {
            5 | 6 => {
                let raw = self.varint();
                Thrift::Number((raw >> 1) as i64 ^ -((raw & 1) as i64))
            }
            8 => {
                let length = self.varint() as usize;
                Thrift::Text(String::from_utf8(self.take(length).to_vec()).expect("a text"))
            }
            9 => {
                let head = self.take(1)[0];
                let length = if head >> 4 == 15 { self.varint() } else { u64::from(head >> 4) };
                Thrift::List((0..length).map(|_| self.value(head & 15)).collect())
            }
            12 => {
                let (mut fields, mut number) = (BTreeMap::new(), 0);
                loop {
                    let head = self.take(1)[0];
                    if head == 0 {
                        return Thrift::Struct(fields);
                    }
                    assert_ne!(head >> 4, 0, "a field without a short header");
                    number += head >> 4;
                    fields.insert(number, self.value(head & 15));
                }
            }
            other => panic!("type {other}"),
        }
    }
}

/// The rows of a file, after one with the names: every cell as text, an empty one as "".
pub(crate) fn rows(file: &[u8]) -> Vec<Vec<String>> {
    assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"), "a Parquet file");
    let end = file.len() - 8;
    let length = Bytes(&file[end..]).u32();
    let metadata = Bytes(&file[end - length..end]).value(12);
    let schema = metadata.list(2);
    assert_eq!(schema[0].number(&[5]), schema.len() as i64 - 1, "columns below the root");
    let columns = &schema[1..];
    let name = |column: &Thrift| match column.at(&[4]) {
        Thrift::Text(name) => name.clone(),
        other => panic!("{other:?}"),
    };
    let mut rows = vec![columns.iter().map(name).collect::<Vec<_>>()];
    for group in metadata.list(4) {
        let count = group.number(&[3]) as usize;
        let cells: Vec<_> = columns
            .iter()
            .zip(group.list(1))
            .map(|(column, chunk)| column_of(file, column, chunk.at(&[3]), count))
            .collect();
        rows.extend((0..count).map(|row| cells.iter().map(|column| column[row].clone()).collect()));
    }
    assert_eq!(rows.len() as i64 - 1, metadata.number(&[3]), "rows of all groups");
    rows
}

fn column_of(file: &[u8], column: &Thrift, chunk: &Thrift, rows: usize) -> Vec<String> {
    assert_eq!((chunk.number(&[4]), chunk.number(&[5])), (1, rows as i64), "Snappy, all rows");
    assert_eq!(chunk.number(&[1]), column.number(&[1]), "the type of the column");
    let mut bytes = Bytes(&file[chunk.number(&[9]) as usize..][..chunk.number(&[7]) as usize]);
    let header = bytes.value(12);
    assert_eq!((header.number(&[1]), header.number(&[5, 1]), header.number(&[5, 2])), (0, rows as i64, 0));
    let page = snap::raw::Decoder::new().decompress_vec(bytes.take(header.number(&[3]) as usize)).expect("Snappy");
    assert!(bytes.0.is_empty(), "one page");
    assert_eq!(page.len() as i64, header.number(&[2]));
    let mut page = Bytes(&page);
    let is_present = if column.number(&[3]) == 1 { levels(&mut page, rows) } else { vec![true; rows] };
    let value = |is_present: bool| match (is_present, column.number(&[1])) {
        (false, _) => String::new(),
        (true, 2) => i64::from_le_bytes(page.take(8).try_into().expect("eight")).to_string(),
        (true, 5) => f64::from_le_bytes(page.take(8).try_into().expect("eight")).to_string(),
        (true, 6) => {
            let length = page.u32();
            String::from_utf8(page.take(length).to_vec()).expect("a text")
        }
        (_, other) => panic!("type {other}"),
    };
    let cells = is_present.into_iter().map(value).collect();
    assert!(page.0.is_empty(), "values without a row");
    cells
}

/// The definition levels of a page: runs of one level, and runs with a bit for each.
fn levels(page: &mut Bytes<'_>, rows: usize) -> Vec<bool> {
    let length = page.u32();
    let mut levels = Bytes(page.take(length));
    let mut all = Vec::new();
    while !levels.0.is_empty() {
        let head = levels.varint();
        if head & 1 == 1 {
            let bits = levels.take((head >> 1) as usize);
            all.extend(bits.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1)));
        } else {
            let level = levels.take(1)[0] == 1;
            all.extend(std::iter::repeat_n(level, (head >> 1) as usize));
        }
    }
    all.truncate(rows);
    assert_eq!(all.len(), rows, "a level for each row");
    all
}

const COLUMNS: [ParquetColumn; 4] = [
    ParquetColumn { name: "time_us", kind: ColumnKind::Whole, presence: CellPresence::Always },
    ParquetColumn { name: "name", kind: ColumnKind::Text, presence: CellPresence::Always },
    ParquetColumn { name: "share", kind: ColumnKind::Number, presence: CellPresence::Marked },
    ParquetColumn { name: "note", kind: ColumnKind::Text, presence: CellPresence::Marked },
];

fn file(rows: &[(u64, String, Option<f64>, Option<String>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut table = ParquetTable::new(&mut out, &COLUMNS, rows.len()).expect("memory");
    for (time, name, share, note) in rows {
        let [times, names, shares, notes] = table.columns();
        times.whole(*time);
        names.text(name);
        match share {
            Some(share) => shares.number(*share),
            None => shares.empty(),
        }
        match note {
            Some(note) => notes.text(note),
            None => notes.empty(),
        }
        table.end_row().expect("memory");
    }
    table.finish().expect("memory");
    out
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        cells in proptest::collection::vec((0..u64::MAX / 2, ".{0,9}", proptest::option::of(-1e9f64..1e9), proptest::option::of(".{0,3}")), 0..200),
    ) {
        let read = rows(&file(&cells));
        prop_assert_eq!(&read[0], &COLUMNS.map(|column| column.name.to_owned()));
        prop_assert_eq!(read.len(), cells.len() + 1);
        for (read, (time, name, share, note)) in read[1..].iter().zip(&cells) {
            let share = share.map_or(String::new(), |share| share.to_string());
            prop_assert_eq!(read, &[time.to_string(), name.clone(), share, note.clone().unwrap_or_default()]);
        }
    }
}

/// Beyond a group of rows another begins.
#[test]
fn long_tables_have_several_groups() {
    let cells: Vec<_> = (0..150_000_u64)
        .map(|number| (number, format!("name {}", number % 7), (number % 3 > 0).then_some(0.5), None))
        .collect();
    let file = file(&cells);
    assert!(file.len() < 2_000_000, "{} bytes", file.len());
    let read = rows(&file);
    assert_eq!(read.len(), 150_001);
    assert_eq!(read[100_001], ["100000", "name 5", "0.5", ""]);
}
