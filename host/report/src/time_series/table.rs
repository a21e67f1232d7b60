//! The table of a series, as CSV and as Parquet: at each moment a row for the cluster, then one for each instance that is there.

use std::io::{self, Write};

use blis_sim::instance::InstanceLoad;
use blis_sim::outcome::PrefixCacheCounters;
use blis_sim::units::Micros;

use super::{ClusterRow, InstanceSeries, LoadChange, MomentCounts, TimeSeries};
use crate::parquet::{CellPresence, ColumnCells, ColumnKind, ParquetColumn, ParquetTable};

/// The columns, in the order of [`CsvLines::cluster`] and of [`TableRow::cells`]; `docs/reports.md` has their meaning.
const COLUMNS: [ParquetColumn; 16] = [
    column("time_us", ColumnKind::Whole, CellPresence::Always),
    column("instance", ColumnKind::Text, CellPresence::Always),
    column("waiting", ColumnKind::Whole, CellPresence::Always),
    column("running", ColumnKind::Whole, CellPresence::Always),
    column("kv_utilization", ColumnKind::Number, CellPresence::Always),
    column("cache_hit_rate", ColumnKind::Number, CellPresence::Marked),
    column("preemptions", ColumnKind::Whole, CellPresence::Marked),
    column("arrivals", ColumnKind::Whole, CellPresence::Marked),
    column("completions", ColumnKind::Whole, OF_CLUSTER),
    column("rejections", ColumnKind::Whole, OF_CLUSTER),
    column("timeouts", ColumnKind::Whole, OF_CLUSTER),
    column("output_tokens", ColumnKind::Whole, OF_CLUSTER),
    column("gateway_queue", ColumnKind::Whole, CellPresence::Marked),
    column("replicas_starting", ColumnKind::Whole, OF_CLUSTER),
    column("replicas_active", ColumnKind::Whole, OF_CLUSTER),
    column("replicas_draining", ColumnKind::Whole, OF_CLUSTER),
];
/// Where `arrivals` has a cell.
const OF_CLUSTER: CellPresence = CellPresence::As(7);

const fn column(name: &'static str, kind: ColumnKind, presence: CellPresence) -> ParquetColumn {
    ParquetColumn { name, kind, presence }
}

/// A row of the table.
enum TableRow<'a> {
    /// The first row of a moment.
    Cluster(&'a ClusterRow, ClusterLoad),
    Instance(usize, &'a InstanceLoad, LoadChange),
}

/// The load of all instances together.
#[derive(Clone, Copy, Debug, Default)]
struct ClusterLoad {
    waiting: u64,
    running: u64,
    used_blocks: u64,
    blocks: u64,
}

impl TimeSeries {
    /// Writes the table as CSV.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(COLUMNS.map(|column| column.name).join(",").as_bytes())?;
        out.write_all(b"\n")?;
        let mut lines = CsvLines::new(self.instances().len());
        self.rows(|row| {
            match row {
                TableRow::Cluster(row, load) => lines.cluster(row, load),
                TableRow::Instance(number, load, since) => lines.instance(number, load, since),
            }
            if lines.length >= CsvLines::WRITTEN_AT_ONCE {
                out.write_all(&lines.text[..lines.length])?;
                lines.length = 0;
            }
            Ok(())
        })?;
        out.write_all(&lines.text[..lines.length])
    }

    /// Writes the table as Parquet: the same rows and columns, empty cells as null.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_parquet(&self, out: &mut dyn Write) -> io::Result<()> {
        let names: Vec<String> = (0..self.instances().len()).map(|number| format!("instance_{number}")).collect();
        let rows = self.moments().count() * (1 + self.instances().len());
        let mut table = ParquetTable::new(out, &COLUMNS, rows)?;
        let mut at = Micros::ZERO;
        self.rows(|row| {
            if let TableRow::Cluster(row, _) = row {
                at = row.at;
            }
            row.cells(at, &names, table.columns());
            table.end_row()
        })?;
        table.finish()
    }

    /// Passes on every row.
    fn rows(&self, mut take: impl FnMut(TableRow<'_>) -> io::Result<()>) -> io::Result<()> {
        let mut instances: Vec<LoadCursor<'_>> = self.instances().iter().map(LoadCursor::new).collect();
        for row in self.cluster() {
            let mut load = ClusterLoad::default();
            instances.iter_mut().filter_map(|cursor| cursor.go_to(row.at)).for_each(|one| load.add(one));
            take(TableRow::Cluster(&row, load))?;
            for (number, cursor) in instances.iter_mut().enumerate() {
                let Some(load) = cursor.load else { continue };
                take(TableRow::Instance(number, load, LoadChange::between(cursor.before, load)))?;
                cursor.before = load;
            }
        }
        Ok(())
    }
}

/// The load of an instance at one moment after the other.
struct LoadCursor<'a> {
    series: &'a InstanceSeries,
    /// Number of its loads that were reached.
    reached: usize,
    /// The load at the present moment; `None` where it is not there.
    load: Option<&'a InstanceLoad>,
    /// The load at the moment before.
    before: &'a InstanceLoad,
}

impl<'a> LoadCursor<'a> {
    fn new(series: &'a InstanceSeries) -> Self {
        static NOTHING: InstanceLoad = InstanceLoad {
            queue_depth: 0,
            batch_size: 0,
            used_kv_blocks: 0,
            total_kv_blocks: 0,
            preemptions: 0,
            prefix_cache: PrefixCacheCounters { queries: 0, hits: 0, preempted_queries: 0, preempted_hits: 0 },
        };
        Self { series, reached: 0, load: None, before: &NOTHING }
    }

    /// Goes to the moment `at`, which is later than those before.
    fn go_to(&mut self, at: Micros) -> Option<&'a InstanceLoad> {
        while self.series.loads.get(self.reached).is_some_and(|known| known.since <= at) {
            self.reached += 1;
        }
        let latest =
            self.reached.checked_sub(1).and_then(|latest| self.series.loads.get(latest)).map(|known| &known.load);
        self.load = latest.filter(|_| self.series.is_there(at));
        self.load
    }
}

impl ClusterLoad {
    fn add(&mut self, load: &InstanceLoad) {
        self.waiting += u64::from(load.queue_depth);
        self.running += u64::from(load.batch_size);
        self.used_blocks += u64::from(load.used_kv_blocks);
        self.blocks += u64::from(load.total_kv_blocks);
    }
}

impl TableRow<'_> {
    /// Adds the cells of the row at the moment `at` to the columns; `names` are those of instances.
    fn cells(&self, at: Micros, names: &[String], columns: &mut [ColumnCells; 16]) {
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let [time, name, waiting, running, kv, hit_rate, preemptions, counts @ ..] = columns;
        time.whole(at.0);
        match *self {
            Self::Cluster(row, load) => {
                name.text("cluster");
                waiting.whole(load.waiting);
                running.whole(load.running);
                kv.number(share(load.used_blocks, load.blocks));
                hit_rate.empty();
                preemptions.empty();
                row.counts(counts);
            }
            Self::Instance(number, load, since) => {
                name.text(&names[number]);
                waiting.whole(load.queue_depth.into());
                running.whole(load.batch_size.into());
                kv.number(share(load.used_kv_blocks.into(), load.total_kv_blocks.into()));
                match since.prefix_cache {
                    PrefixCacheCounters { queries: 0, .. } => hit_rate.empty(),
                    PrefixCacheCounters { queries, hits, .. } => hit_rate.number(share(hits, queries)),
                }
                preemptions.whole(since.preemptions);
                let [arrivals, _, _, _, _, gateway_queue, ..] = counts;
                arrivals.empty();
                gateway_queue.empty();
            }
        }
    }
}

impl ClusterRow {
    /// Adds the cells that only the cluster has.
    fn counts(&self, columns: &mut [ColumnCells; 9]) {
        let [arrivals, completions, rejections, timeouts, output_tokens, gateway_queue, starting, active, draining] =
            columns;
        arrivals.whole(self.since.arrivals.into());
        completions.whole(self.since.completions.into());
        rejections.whole(self.since.rejections.into());
        timeouts.whole(self.since.timeouts.into());
        output_tokens.whole(self.since.output_tokens);
        match self.gateway_queue {
            Some(waiting) => gateway_queue.whole(waiting.into()),
            None => gateway_queue.empty(),
        }
        for (column, replicas) in [starting, active, draining].into_iter().zip(self.replicas) {
            column.whole(replicas.into());
        }
    }
}

/// Lines of a table without the library's formatting, which takes most of the time of a long timeline.
#[derive(Debug)]
struct CsvLines {
    text: Box<[u8; CsvLines::WRITTEN_AT_ONCE + LONGEST_LINE + LONGEST_PART]>,
    /// Bytes of the text so far.
    length: usize,
    /// The time that begins the lines of a moment.
    time: ShortText,
    /// The column `instance` of each instance.
    names: Vec<ShortText>,
    shares: ShareTexts,
}

impl CsvLines {
    const WRITTEN_AT_ONCE: usize = 1 << 16;

    fn new(instances: usize) -> Self {
        let names = (0..instances).map(|number| ShortText::new(&format!(",instance_{number}"))).collect();
        let text = Box::new([0; Self::WRITTEN_AT_ONCE + LONGEST_LINE + LONGEST_PART]);
        Self { text, length: 0, time: ShortText::default(), names, shares: ShareTexts::new() }
    }

    /// The sums over instances, and the columns of the cluster alone: the first line of a moment.
    fn cluster(&mut self, row: &ClusterRow, load: ClusterLoad) {
        self.time = ShortText::new(itoa::Buffer::new().format(row.at.0));
        let MomentCounts { arrivals, completions, rejections, timeouts, output_tokens, .. } = row.since;
        let mut line = CsvLine::after(self.text.as_mut_slice(), self.length);
        line.short(&self.time);
        line.put(b",cluster");
        line.whole(load.waiting);
        line.whole(load.running);
        line.share(load.used_blocks, load.blocks, &mut self.shares);
        line.put(b",,");
        line.whole(arrivals.into());
        line.whole(completions.into());
        line.whole(rejections.into());
        line.whole(timeouts.into());
        line.whole(output_tokens);
        match row.gateway_queue {
            Some(waiting) => line.whole(waiting.into()),
            None => line.put(b","),
        }
        row.replicas.into_iter().for_each(|replicas| line.whole(replicas.into()));
        line.put(b"\n");
        self.length += line.length;
    }

    fn instance(&mut self, number: usize, load: &InstanceLoad, since: LoadChange) {
        let mut line = CsvLine::after(self.text.as_mut_slice(), self.length);
        line.short(&self.time);
        line.short(&self.names[number]);
        line.whole(load.queue_depth.into());
        line.whole(load.batch_size.into());
        line.share(load.used_kv_blocks.into(), load.total_kv_blocks.into(), &mut self.shares);
        match since.prefix_cache {
            PrefixCacheCounters { queries: 0, .. } => line.put(b","),
            PrefixCacheCounters { queries, hits, .. } => line.share(hits, queries, &mut self.shares),
        }
        line.whole(since.preemptions);
        line.put(b",,,,,,,,,\n");
        self.length += line.length;
    }
}

/// More than 16 columns of numbers and a name need: a power of two.
const LONGEST_LINE: usize = 512;
/// Bytes that are written at once, at most: those that belong to no column are overwritten by the next.
const LONGEST_PART: usize = 32;

/// A line in memory of fixed length, so that its columns are copied without calls.
struct CsvLine<'a> {
    bytes: &'a mut [u8; LONGEST_LINE + LONGEST_PART],
    length: usize,
}

impl<'a> CsvLine<'a> {
    /// The line behind `length` bytes of a text.
    #[inline(always)]
    fn after(text: &'a mut [u8], length: usize) -> Self {
        let bytes = text[length..].first_chunk_mut().expect("lines are written before there is no room");
        Self { bytes, length: 0 }
    }

    #[inline(always)]
    fn put<const N: usize>(&mut self, bytes: &[u8; N]) {
        const { assert!(N <= LONGEST_PART, "it fits behind the longest line") };
        debug_assert!(self.length < LONGEST_LINE, "a line is shorter");
        // The remainder changes nothing; with it the compiler knows that there is room, without a check for each column.
        let begin = self.length % LONGEST_LINE;
        let free = self.bytes[begin..].first_chunk_mut().expect("the longest part has room");
        *free = *bytes;
        self.length += N;
    }

    #[inline(always)]
    fn short(&mut self, text: &ShortText) {
        self.put(&text.bytes);
        self.length -= text.bytes.len() - text.length;
    }

    /// A column with a whole number.
    #[inline(always)]
    fn whole(&mut self, value: u64) {
        if value >= 1_000_000 {
            self.put(b",");
            return self.short(&ShortText::new(itoa::Buffer::new().format(value)));
        }
        let first = if value < 1000 { value } else { value / 1000 };
        self.put(&SMALL[first as usize]);
        self.length -= usize::from(first < 10) + usize::from(first < 100);
        if value >= 1000 {
            self.put(&three_digits((value % 1000) as u16));
        }
    }

    /// A column with `part` of `whole`, 0 to 1.
    #[inline(always)]
    fn share(&mut self, part: u64, whole: u64, shares: &mut ShareTexts) {
        match part {
            0 => self.put(b",0"),
            _ => self.short(shares.column(part, whole)),
        }
    }
}

/// Three digits of a number below 1000.
const fn three_digits(value: u16) -> [u8; 3] {
    [b'0' + (value / 100) as u8, b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8]
}

/// The column of each number below 1000: a comma and its digits.
static SMALL: [[u8; 4]; 1000] = {
    let mut all = [[b','; 4]; 1000];
    let mut value = 0;
    while value < 1000 {
        let [hundreds, tens, ones] = three_digits(value);
        all[value as usize] = match value {
            0..10 => [b',', ones, 0, 0],
            10..100 => [b',', tens, ones, 0],
            _ => [b',', hundreds, tens, ones],
        };
        value += 1;
    }
    all
};

/// A few letters.
#[derive(Clone, Copy, Debug, Default)]
struct ShortText {
    bytes: [u8; 24],
    length: usize,
}

impl ShortText {
    fn new(text: &str) -> Self {
        let mut bytes = [0; 24];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Self { bytes, length: text.len() }
    }
}

/// The columns of shares that were written lately. Loads come again, and a fraction takes ten times as long as all else of its
/// column.
#[derive(Debug)]
struct ShareTexts {
    known: Vec<ShareText>,
}

/// `part` of `whole` as a column.
#[derive(Clone, Copy, Debug, Default)]
struct ShareText {
    part: u64,
    whole: u64,
    column: ShortText,
}

impl ShareTexts {
    const KNOWN: usize = 1 << 10;

    fn new() -> Self {
        Self { known: vec![ShareText::default(); Self::KNOWN] }
    }

    /// The column with `part` of `whole`, of which `part` is more than 0.
    #[inline(always)]
    fn column(&mut self, part: u64, whole: u64) -> &ShortText {
        let index = (part ^ whole.rotate_left(5)) as usize % Self::KNOWN;
        let known = &mut self.known[index];
        if (known.part, known.whole) != (part, whole) {
            *known = ShareText::new(part, whole);
        }
        &known.column
    }
}

impl ShareText {
    #[inline(never)]
    fn new(part: u64, whole: u64) -> Self {
        let mut buffer = zmij::Buffer::new();
        let text = buffer.format(part as f64 / whole.max(1) as f64);
        let text = text.strip_suffix(".0").unwrap_or(text).as_bytes();
        let mut bytes = [b','; 24];
        bytes[1..=text.len()].copy_from_slice(text);
        Self { part, whole, column: ShortText { bytes, length: text.len() + 1 } }
    }
}
