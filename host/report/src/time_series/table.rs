//! The table of a series, as CSV and as Parquet: at each moment a row for the cluster, then one for each instance that is there.

use std::io::{self, Write};

use blis_sim::instance::InstanceLoad;
use blis_sim::units::Micros;

use super::{ClusterRow, InstanceSeries, LoadChange, MomentCounts, TimeSeries};
use crate::parquet::{ColumnKind, ParquetColumn, ParquetTable, TableCell};

/// The columns, in the order of [`cells`]; `docs/reports.md` has their meaning.
const COLUMNS: [ParquetColumn; 16] = [
    column("time_us", ColumnKind::Whole),
    column("instance", ColumnKind::Text),
    column("waiting", ColumnKind::Whole),
    column("running", ColumnKind::Whole),
    column("kv_utilization", ColumnKind::Number),
    optional("cache_hit_rate", ColumnKind::Number),
    optional("preemptions", ColumnKind::Whole),
    optional("arrivals", ColumnKind::Whole),
    optional("completions", ColumnKind::Whole),
    optional("rejections", ColumnKind::Whole),
    optional("timeouts", ColumnKind::Whole),
    optional("output_tokens", ColumnKind::Whole),
    optional("gateway_queue", ColumnKind::Whole),
    optional("replicas_starting", ColumnKind::Whole),
    optional("replicas_active", ColumnKind::Whole),
    optional("replicas_draining", ColumnKind::Whole),
];

const fn column(name: &'static str, kind: ColumnKind) -> ParquetColumn {
    ParquetColumn { name, kind, is_optional: false }
}

const fn optional(name: &'static str, kind: ColumnKind) -> ParquetColumn {
    ParquetColumn { name, kind, is_optional: true }
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
        let mut table = ParquetTable::new(out, &COLUMNS)?;
        let mut at = Micros::ZERO;
        self.rows(|row| {
            if let TableRow::Cluster(row, _) = row {
                at = row.at;
            }
            table.row(&cells(at, &row, &names))
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
            cache_hits: 0,
            cache_misses: 0,
        };
        Self { series, reached: 0, load: None, before: &NOTHING }
    }

    /// Goes to the moment `at`, which is later than those before.
    fn go_to(&mut self, at: Micros) -> Option<&'a InstanceLoad> {
        while self.series.loads.get(self.reached).is_some_and(|(since, _)| *since <= at) {
            self.reached += 1;
        }
        let latest = self.reached.checked_sub(1).map(|latest| &self.series.loads[latest].1);
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

/// A row at the moment `at`, with the names of instances.
fn cells<'a>(at: Micros, row: &TableRow<'_>, names: &'a [String]) -> [TableCell<'a>; 16] {
    let share = |part: u64, whole: u64| TableCell::Number(part as f64 / whole.max(1) as f64);
    let whole = |value: u32| TableCell::Whole(value.into());
    let mut cells = [TableCell::Empty; 16];
    cells[0] = TableCell::Whole(at.0);
    match *row {
        TableRow::Cluster(row, load) => {
            cells[1] = TableCell::Text("cluster");
            cells[2..4].copy_from_slice(&[TableCell::Whole(load.waiting), TableCell::Whole(load.running)]);
            cells[4] = share(load.used_blocks, load.blocks);
            let MomentCounts { arrivals, completions, rejections, timeouts, output_tokens, .. } = row.since;
            cells[7..11].copy_from_slice(&[arrivals, completions, rejections, timeouts].map(whole));
            cells[11] = TableCell::Whole(output_tokens);
            cells[12] = row.gateway_queue.map_or(TableCell::Empty, whole);
            cells[13..16].copy_from_slice(&row.replicas.map(whole));
        }
        TableRow::Instance(number, load, since) => {
            cells[1] = TableCell::Text(&names[number]);
            cells[2..4].copy_from_slice(&[load.queue_depth, load.batch_size].map(whole));
            cells[4] = share(load.used_kv_blocks.into(), load.total_kv_blocks.into());
            cells[5] = since.hit_rate().map_or(TableCell::Empty, TableCell::Number);
            cells[6] = TableCell::Whole(since.preemptions);
        }
    }
    cells
}

/// Lines of a table without the library's formatting, which takes most of the time of a long timeline. A column is put
/// into a buffer of fixed length, so that its bytes are copied without calls.
#[derive(Debug)]
struct CsvLines {
    text: Box<[u8; CsvLines::WRITTEN_AT_ONCE + CsvLines::LONGEST]>,
    /// Bytes of the text so far.
    length: usize,
    /// The time that begins the lines of a moment.
    time: ShortText,
    /// The column `instance` of each instance.
    names: Vec<ShortText>,
    /// The latest share and its text: an instance that is alone has that of the cluster.
    latest: (u64, u64),
    share: ShortText,
}

/// The column of each number below 1000: a comma and its digits.
static SMALL: [[u8; 4]; 1000] = {
    let mut all = [[b','; 4]; 1000];
    let mut value = 0;
    while value < 1000 {
        let [hundreds, tens, ones] =
            [b'0' + (value / 100) as u8, b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8];
        all[value] = match value {
            0..10 => [b',', ones, 0, 0],
            10..100 => [b',', tens, ones, 0],
            _ => [b',', hundreds, tens, ones],
        };
        value += 1;
    }
    all
};

/// A number as text.
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

impl CsvLines {
    /// More than 16 columns of numbers and a name need.
    const LONGEST: usize = 512;
    const WRITTEN_AT_ONCE: usize = 1 << 16;

    fn new(instances: usize) -> Self {
        let names = (0..instances).map(|number| ShortText::new(&format!(",instance_{number}"))).collect();
        let text = Box::new([0; Self::WRITTEN_AT_ONCE + Self::LONGEST]);
        Self { text, length: 0, time: ShortText::default(), names, latest: (0, 0), share: ShortText::default() }
    }

    /// The next lines are those of the moment `at`.
    fn moment(&mut self, at: Micros) {
        self.time = ShortText::new(itoa::Buffer::new().format(at.0));
    }

    /// Begins a line with its time.
    fn begin(&mut self) -> &mut Self {
        let time = self.time;
        self.short(&time)
    }

    #[inline(always)]
    fn put<const N: usize>(&mut self, bytes: &[u8; N]) -> &mut Self {
        self.text[self.length..self.length + N].copy_from_slice(bytes);
        self.length += N;
        self
    }

    #[inline(always)]
    fn short(&mut self, text: &ShortText) -> &mut Self {
        self.put(&text.bytes);
        self.length -= text.bytes.len() - text.length;
        self
    }

    /// A column with a whole number.
    #[inline(always)]
    fn whole(&mut self, value: u64) -> &mut Self {
        if value >= SMALL.len() as u64 {
            return self.large(value);
        }
        self.put(&SMALL[value as usize]);
        self.length -= usize::from(value < 10) + usize::from(value < 100);
        self
    }

    #[cold]
    #[inline(never)]
    fn large(&mut self, value: u64) -> &mut Self {
        self.put(b",").short(&ShortText::new(itoa::Buffer::new().format(value)))
    }

    /// A column with `part` of `whole`, 0 to 1; empty for `None`.
    fn share(&mut self, part: Option<u64>, whole: u64) -> &mut Self {
        match part {
            None => self.put(b","),
            Some(0) => self.put(b",0"),
            Some(part) => {
                if self.latest != (part, whole) {
                    self.latest = (part, whole);
                    let mut buffer = zmij::Buffer::new();
                    let text = buffer.format(part as f64 / whole.max(1) as f64);
                    self.share = ShortText::new(text.strip_suffix(".0").unwrap_or(text));
                }
                let share = self.share;
                self.put(b",").short(&share)
            }
        }
    }

    /// The sums over instances, and the columns of the cluster alone.
    fn cluster(&mut self, row: &ClusterRow, load: ClusterLoad) {
        self.moment(row.at);
        let MomentCounts { arrivals, completions, rejections, timeouts, output_tokens, .. } = row.since;
        self.begin()
            .put(b",cluster")
            .whole(load.waiting)
            .whole(load.running)
            .share(Some(load.used_blocks), load.blocks);
        self.put(b",,").whole(arrivals.into()).whole(completions.into()).whole(rejections.into());
        self.whole(timeouts.into()).whole(output_tokens);
        match row.gateway_queue {
            Some(waiting) => self.whole(waiting.into()),
            None => self.put(b","),
        };
        let [starting, active, draining] = row.replicas;
        self.whole(starting.into()).whole(active.into()).whole(draining.into()).put(b"\n");
    }

    fn instance(&mut self, number: usize, load: &InstanceLoad, since: LoadChange) {
        let name = self.names[number];
        self.begin().short(&name);
        self.whole(load.queue_depth.into()).whole(load.batch_size.into());
        self.share(Some(load.used_kv_blocks.into()), load.total_kv_blocks.into());
        self.share((since.blocks() > 0).then_some(since.cache_hits), since.blocks());
        self.whole(since.preemptions).put(b",,,,,,,,,\n");
    }
}
