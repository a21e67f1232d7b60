//! Tables as Parquet: columns of whole numbers, numbers and texts, of which cells may be empty.
//!
//! This is a writer of our own, because the crate `parquet` writes far more than a table of numbers and takes longer to build than
//! all of `blis-report`. What is written is the simplest form that the format has and every reader supports
//! (<https://parquet.apache.org/docs/file-format/>): a page for each column of a group of rows, values `PLAIN`, empty cells as
//! definition levels, compressed by Snappy, and the metadata in Thrift's compact protocol at the end.

use std::io::{self, Write};

/// The begin and the end of a file.
const MAGIC: &[u8; 4] = b"PAR1";
/// Rows of a group: a column of them is a page of at most 0.5 MB, apart from texts.
const ROWS_OF_A_GROUP: usize = 1 << 16;

/// Numbers of the format.
const INT64: i32 = 2;
const DOUBLE: i32 = 5;
const BYTE_ARRAY: i32 = 6;
const UTF8: i32 = 0;
const REQUIRED: i32 = 0;
const OPTIONAL: i32 = 1;
const PLAIN: i32 = 0;
const RLE: i32 = 3;
const SNAPPY: i32 = 1;
const DATA_PAGE: i32 = 0;

/// What a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// Whole numbers below 2⁶³.
    Whole,
    Number,
    Text,
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParquetColumn {
    pub name: &'static str,
    pub kind: ColumnKind,
    /// Whether cells may be empty.
    pub is_optional: bool,
}

/// A cell of a table: of the kind of its column, or empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TableCell<'a> {
    Empty,
    Whole(u64),
    Number(f64),
    Text(&'a str),
}

/// A table that is written.
pub(crate) struct ParquetTable<'a> {
    out: &'a mut dyn Write,
    /// Bytes written so far.
    written: u64,
    columns: Vec<ColumnCells>,
    /// Rows of the present group.
    rows: usize,
    groups: Vec<RowGroup>,
    compressor: snap::raw::Encoder,
}

/// The cells of a column in the present group.
struct ColumnCells {
    column: ParquetColumn,
    /// The cells that are not empty, one after the other.
    values: Vec<u8>,
    /// A bit for each cell: whether it has a value.
    present: Vec<u8>,
}

/// What the metadata has of a group of rows.
struct RowGroup {
    rows: usize,
    chunks: Vec<ColumnChunk>,
}

/// A column of a group in the file.
struct ColumnChunk {
    /// The first byte of its page.
    offset: u64,
    /// Bytes with the header of the page, as they are and uncompressed.
    bytes: usize,
    uncompressed: usize,
}

impl<'a> ParquetTable<'a> {
    /// Begins a table with these columns.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: &'a mut dyn Write, columns: &[ParquetColumn]) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        let cells = |&column| ColumnCells { column, values: Vec::new(), present: Vec::new() };
        Ok(Self {
            out,
            written: MAGIC.len() as u64,
            columns: columns.iter().map(cells).collect(),
            rows: 0,
            groups: Vec::new(),
            compressor: snap::raw::Encoder::new(),
        })
    }

    /// Adds a row with a cell for each column.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn row(&mut self, cells: &[TableCell<'_>]) -> io::Result<()> {
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        for (column, &cell) in self.columns.iter_mut().zip(cells) {
            column.add(self.rows, cell);
        }
        self.rows += 1;
        if self.rows == ROWS_OF_A_GROUP { self.end_group() } else { Ok(()) }
    }

    /// Writes the rows that are left, and the metadata.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.end_group()?;
        }
        let metadata = self.metadata();
        self.out.write_all(&metadata)?;
        self.out.write_all(&(metadata.len() as u32).to_le_bytes())?;
        self.out.write_all(MAGIC)
    }

    fn end_group(&mut self) -> io::Result<()> {
        let mut chunks = Vec::with_capacity(self.columns.len());
        for column in &mut self.columns {
            let page = column.page();
            let compressed = self.compressor.compress_vec(&page).map_err(io::Error::other)?;
            let header = page_header(self.rows, page.len(), compressed.len());
            self.out.write_all(&header)?;
            self.out.write_all(&compressed)?;
            let chunk = ColumnChunk {
                offset: self.written,
                bytes: header.len() + compressed.len(),
                uncompressed: header.len() + page.len(),
            };
            self.written += chunk.bytes as u64;
            chunks.push(chunk);
        }
        self.groups.push(RowGroup { rows: self.rows, chunks });
        self.rows = 0;
        Ok(())
    }

    /// `FileMetaData` of the format.
    fn metadata(&self) -> Vec<u8> {
        let mut thrift = CompactThrift::new();
        thrift.i32(1, 1); // version
        thrift.list(2, CompactThrift::STRUCT, self.columns.len() + 1);
        thrift.begin();
        thrift.text(4, "table");
        thrift.i32(5, self.columns.len() as i32);
        thrift.end();
        for ColumnCells { column, .. } in &self.columns {
            thrift.begin();
            thrift.i32(1, column.kind.physical());
            thrift.i32(3, if column.is_optional { OPTIONAL } else { REQUIRED });
            thrift.text(4, column.name);
            if column.kind == ColumnKind::Text {
                thrift.i32(6, UTF8);
            }
            thrift.end();
        }
        thrift.i64(3, self.groups.iter().map(|group| group.rows as i64).sum());
        thrift.list(4, CompactThrift::STRUCT, self.groups.len());
        for group in &self.groups {
            self.group_metadata(group, &mut thrift);
        }
        thrift.text(6, concat!("blis ", env!("CARGO_PKG_VERSION")));
        thrift.end();
        thrift.bytes
    }

    /// `RowGroup` of the format, with a `ColumnChunk` for each column.
    fn group_metadata(&self, group: &RowGroup, thrift: &mut CompactThrift) {
        thrift.begin();
        thrift.list(1, CompactThrift::STRUCT, group.chunks.len());
        for (ColumnCells { column, .. }, chunk) in self.columns.iter().zip(&group.chunks) {
            thrift.begin();
            thrift.i64(2, chunk.offset as i64);
            thrift.begin_field(3);
            thrift.i32(1, column.kind.physical());
            thrift.list(2, CompactThrift::I32, 2);
            thrift.zigzag(PLAIN.into());
            thrift.zigzag(RLE.into());
            thrift.list(3, CompactThrift::BINARY, 1);
            thrift.bytes_of(column.name);
            thrift.i32(4, SNAPPY);
            thrift.i64(5, group.rows as i64);
            thrift.i64(6, chunk.uncompressed as i64);
            thrift.i64(7, chunk.bytes as i64);
            thrift.i64(9, chunk.offset as i64);
            thrift.end();
            thrift.end();
        }
        thrift.i64(2, group.chunks.iter().map(|chunk| chunk.uncompressed as i64).sum());
        thrift.i64(3, group.rows as i64);
        thrift.end();
    }
}

impl ColumnKind {
    /// The number of the type in the format.
    fn physical(self) -> i32 {
        match self {
            Self::Whole => INT64,
            Self::Number => DOUBLE,
            Self::Text => BYTE_ARRAY,
        }
    }
}

impl ColumnCells {
    /// Adds the cell of row `index` of the group.
    fn add(&mut self, index: usize, cell: TableCell<'_>) {
        match (cell, self.column.kind) {
            (TableCell::Whole(value), ColumnKind::Whole) => self.values.extend_from_slice(&value.to_le_bytes()),
            (TableCell::Number(value), ColumnKind::Number) => self.values.extend_from_slice(&value.to_le_bytes()),
            (TableCell::Text(text), ColumnKind::Text) => {
                self.values.extend_from_slice(&(text.len() as u32).to_le_bytes());
                self.values.extend_from_slice(text.as_bytes());
            }
            (TableCell::Empty, _) => {}
            (other, kind) => unreachable!("{other:?} in a column of {kind:?}"),
        }
        debug_assert!(self.column.is_optional || cell != TableCell::Empty, "an empty cell of `{}`", self.column.name);
        if self.column.is_optional {
            if index.is_multiple_of(8) {
                self.present.push(0);
            }
            let byte = self.present.last_mut().expect("just pushed, or before");
            *byte |= u8::from(cell != TableCell::Empty) << (index % 8);
        }
    }

    /// The page of the group, uncompressed. The column is empty afterwards.
    fn page(&mut self) -> Vec<u8> {
        let mut page = Vec::with_capacity(self.values.len() + self.present.len() + 16);
        if self.column.is_optional {
            // One run of levels with a bit each, in eights, behind the length of all.
            let mut run = Vec::with_capacity(self.present.len() + 5);
            put_varint(&mut run, (self.present.len() as u64) << 1 | 1);
            run.append(&mut self.present);
            page.extend_from_slice(&(run.len() as u32).to_le_bytes());
            page.append(&mut run);
        }
        page.append(&mut self.values);
        page
    }
}

/// `PageHeader` of the format.
fn page_header(rows: usize, uncompressed: usize, compressed: usize) -> Vec<u8> {
    let mut thrift = CompactThrift::new();
    thrift.i32(1, DATA_PAGE);
    thrift.i32(2, uncompressed as i32);
    thrift.i32(3, compressed as i32);
    thrift.begin_field(5);
    thrift.i32(1, rows as i32);
    thrift.i32(2, PLAIN);
    thrift.i32(3, RLE);
    thrift.i32(4, RLE);
    thrift.end();
    thrift.end();
    thrift.bytes
}

/// A struct in Thrift's compact protocol.
struct CompactThrift {
    bytes: Vec<u8>,
    /// The last field of each struct that has not ended.
    fields: Vec<u8>,
}

impl CompactThrift {
    const I32: u8 = 5;
    const I64: u8 = 6;
    const BINARY: u8 = 8;
    const LIST: u8 = 9;
    const STRUCT: u8 = 12;

    fn new() -> Self {
        Self { bytes: Vec::new(), fields: vec![0] }
    }

    /// The header of a field: its number is that of the field before and at most 15 more.
    fn field(&mut self, number: u8, kind: u8) {
        let last = self.fields.last_mut().expect("a struct that has not ended");
        self.bytes.push((number - *last) << 4 | kind);
        *last = number;
    }

    fn i32(&mut self, number: u8, value: i32) {
        self.field(number, Self::I32);
        self.zigzag(value.into());
    }

    fn i64(&mut self, number: u8, value: i64) {
        self.field(number, Self::I64);
        self.zigzag(value);
    }

    fn text(&mut self, number: u8, text: &str) {
        self.field(number, Self::BINARY);
        self.bytes_of(text);
    }

    fn list(&mut self, number: u8, kind: u8, length: usize) {
        self.field(number, Self::LIST);
        if length < 15 {
            self.bytes.push((length as u8) << 4 | kind);
        } else {
            self.bytes.push(0xf0 | kind);
            put_varint(&mut self.bytes, length as u64);
        }
    }

    /// Begins a struct as a field.
    fn begin_field(&mut self, number: u8) {
        self.field(number, Self::STRUCT);
        self.begin();
    }

    /// Begins a struct in a list.
    fn begin(&mut self) {
        self.fields.push(0);
    }

    fn end(&mut self) {
        self.bytes.push(0);
        self.fields.pop();
    }

    fn bytes_of(&mut self, text: &str) {
        put_varint(&mut self.bytes, text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn zigzag(&mut self, value: i64) {
        put_varint(&mut self.bytes, (value << 1 ^ value >> 63) as u64);
    }
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
pub(crate) mod tests;
