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
    pub presence: CellPresence,
}

/// Which cells of a column have a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellPresence {
    Always,
    /// Those that are added with one; the others are added as empty.
    Marked,
    /// Those of the rows in which the column of this index, which is marked, has one. Empty ones are not added.
    As(usize),
}

impl CellPresence {
    fn is_optional(self) -> bool {
        self != Self::Always
    }
}

/// A table that is written.
pub(crate) struct ParquetTable<'a, const COLUMNS: usize> {
    out: &'a mut dyn Write,
    /// Bytes written so far.
    written: u64,
    columns: [ColumnCells; COLUMNS],
    /// Rows of the present group.
    rows: usize,
    groups: Vec<RowGroup>,
    compressor: snap::raw::Encoder,
    /// Memory for a page, as it is and compressed.
    page: Vec<u8>,
    compressed: Vec<u8>,
}

/// The cells of a column in the present group.
pub(crate) struct ColumnCells {
    column: ParquetColumn,
    /// The numbers of cells that are not empty, as 64 bits.
    numbers: Vec<u64>,
    /// The same of texts, each behind its length.
    texts: Vec<u8>,
    /// If cells are marked: a bit for each, whether it has a value; those of the last cells, and the number of cells.
    present: Vec<u64>,
    last: u64,
    cells: usize,
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

impl<'a, const COLUMNS: usize> ParquetTable<'a, COLUMNS> {
    /// Begins a table with these columns; `rows` is about their number.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: &'a mut dyn Write, columns: &[ParquetColumn; COLUMNS], rows: usize) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        Ok(Self {
            out,
            written: MAGIC.len() as u64,
            columns: columns.map(|column| ColumnCells::new(column, rows.min(ROWS_OF_A_GROUP))),
            rows: 0,
            groups: Vec::new(),
            compressor: snap::raw::Encoder::new(),
            page: Vec::new(),
            compressed: Vec::new(),
        })
    }

    /// The columns, each of which gets one cell of the next row.
    #[inline]
    pub fn columns(&mut self) -> &mut [ColumnCells; COLUMNS] {
        &mut self.columns
    }

    /// Ends the row.
    ///
    /// # Errors
    /// Those of `out`.
    #[inline]
    pub fn end_row(&mut self) -> io::Result<()> {
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
        let levels = self.columns.each_mut().map(ColumnCells::levels);
        for (index, column) in self.columns.iter_mut().enumerate() {
            let levels = match column.column.presence {
                CellPresence::As(other) => &levels[other],
                _ => &levels[index],
            };
            let length = column.page(levels, &mut self.page);
            let most = snap::raw::max_compress_len(length);
            if self.compressed.len() < most {
                self.compressed.resize(most, 0);
            }
            let compressed =
                self.compressor.compress(&self.page[..length], &mut self.compressed).map_err(io::Error::other)?;
            let header = page_header(self.rows, length, compressed);
            self.out.write_all(&header)?;
            self.out.write_all(&self.compressed[..compressed])?;
            let chunk = ColumnChunk {
                offset: self.written,
                bytes: header.len() + compressed,
                uncompressed: header.len() + length,
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
            thrift.i32(3, if column.presence.is_optional() { OPTIONAL } else { REQUIRED });
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
    fn new(column: ParquetColumn, rows: usize) -> Self {
        let numbers = Vec::with_capacity(if column.kind == ColumnKind::Text { 0 } else { rows });
        Self { column, numbers, texts: Vec::new(), present: Vec::new(), last: 0, cells: 0 }
    }

    /// Adds a cell with a whole number below 2⁶³.
    #[inline(always)]
    pub fn whole(&mut self, value: u64) {
        debug_assert_eq!(self.column.kind, ColumnKind::Whole, "`{}`", self.column.name);
        self.numbers.push(value);
        self.mark(true);
    }

    /// Adds a cell with a number.
    #[inline(always)]
    pub fn number(&mut self, value: f64) {
        debug_assert_eq!(self.column.kind, ColumnKind::Number, "`{}`", self.column.name);
        self.numbers.push(value.to_bits());
        self.mark(true);
    }

    /// Adds a cell with a text.
    #[inline(always)]
    pub fn text(&mut self, text: &str) {
        debug_assert_eq!(self.column.kind, ColumnKind::Text, "`{}`", self.column.name);
        self.texts.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.texts.extend_from_slice(text.as_bytes());
        self.mark(true);
    }

    /// Adds an empty cell.
    #[inline(always)]
    pub fn empty(&mut self) {
        debug_assert_eq!(self.column.presence, CellPresence::Marked, "an empty cell of `{}`", self.column.name);
        self.mark(false);
    }

    #[inline(always)]
    fn mark(&mut self, is_present: bool) {
        if self.column.presence != CellPresence::Marked {
            return;
        }
        self.last |= u64::from(is_present) << (self.cells % 64);
        self.cells += 1;
        if self.cells.is_multiple_of(64) {
            self.present.push(std::mem::take(&mut self.last));
        }
    }

    /// The definition levels of the group: one run with a bit each, in eights, behind the length of all. Nothing if cells are not
    /// marked. No cell is marked afterwards.
    fn levels(&mut self) -> Vec<u8> {
        if self.column.presence != CellPresence::Marked {
            return Vec::new();
        }
        let bytes = self.cells.div_ceil(8);
        self.cells = 0;
        self.present.push(std::mem::take(&mut self.last));
        let mut run = Vec::with_capacity(bytes + 16);
        put_varint(&mut run, (bytes as u64) << 1 | 1);
        let length = run.len() + bytes;
        run.extend(self.present.drain(..).flat_map(u64::to_le_bytes));
        run.truncate(length);
        [(length as u32).to_le_bytes().as_slice(), &run].concat()
    }

    /// Puts the page of the group, with these levels, at the begin of `page`; its length. The column is empty afterwards.
    fn page(&mut self, levels: &[u8], page: &mut Vec<u8>) -> usize {
        let numbers = levels.len() + self.numbers.len() * 8;
        let length = numbers + self.texts.len();
        if page.len() < length {
            page.resize(length, 0);
        }
        page[..levels.len()].copy_from_slice(levels);
        let eights = page[levels.len()..numbers].as_chunks_mut::<8>().0;
        eights.iter_mut().zip(self.numbers.drain(..)).for_each(|(bytes, number)| *bytes = number.to_le_bytes());
        page[numbers..length].copy_from_slice(&self.texts);
        self.texts.clear();
        length
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
