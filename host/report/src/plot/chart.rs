//! Charts: axes, lines, points and intervals. White ground and the colours of Okabe and Ito, for paper.

use std::fmt::Write as _;

use plotters::backend::DrawingBackend;
use plotters::style::RGBColor;
use plotters::style::text_anchor::HPos;

use super::drawing::{AXIS, ChartPoint, Drawable, Drawing, Drawn, GRID, INK, LIMIT, LineStyle};

/// Size of a chart and its margins, points.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 48.0;
/// Height of a line of the legend, and of an interval.
const ROW: f64 = 20.0;
/// Left margin of intervals, for their names.
const NAMES: f64 = 250.0;

const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x8c, 0x7a, 0x00),
    RGBColor(0x6b, 0x72, 0x80),
];
/// Lines beyond the eighth repeat the colours, dashed.
const DASHES: [Option<(f64, f64)>; 3] = [None, Some((6.0, 4.0)), Some((2.0, 3.0))];

/// A chart of x against y.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub x: ChartAxis,
    pub y: ChartAxis,
    pub lines: Vec<ChartLine>,
    /// Horizontal limits with their names.
    pub limits: Vec<(f64, String)>,
}

#[derive(Clone, Debug)]
pub(super) struct ChartAxis {
    pub label: String,
    /// Logarithmic; from 0 on otherwise, if all values are above.
    pub is_log: bool,
}

impl ChartAxis {
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), is_log: false }
    }
}

#[derive(Clone, Debug)]
pub(super) struct ChartLine {
    pub name: String,
    /// Number of its colour.
    pub colour: usize,
    pub points: Vec<(f64, f64)>,
    /// Whether its points are connected, and drawn.
    pub is_connected: bool,
    pub marks: bool,
    /// The last point within all limits.
    pub knee: Option<(f64, f64)>,
    /// By point: the lowest and the highest y of its runs; empty if no point has several runs.
    pub ranges: Vec<Option<(f64, f64)>>,
}

impl ChartLine {
    pub fn new(name: String, colour: usize, points: Vec<(f64, f64)>) -> Self {
        Self { name, colour, points, is_connected: true, marks: true, knee: None, ranges: Vec::new() }
    }
}

impl Chart {
    pub fn csv(&self) -> String {
        let has_ranges = self.lines.iter().any(|line| !line.ranges.is_empty());
        let further = if has_ranges { ",low,high" } else { "" };
        let mut text = format!("line,{},{},knee{further}\n", field(&self.x.label), field(&self.y.label));
        for line in &self.lines {
            for (number, point) in line.points.iter().enumerate() {
                let knee = if line.knee == Some(*point) { "knee" } else { "" };
                let _ = write!(text, "{},{},{},{knee}", field(&line.name), point.0, point.1);
                match line.ranges.get(number).copied().flatten() {
                    Some((low, high)) => text.push_str(&format!(",{low},{high}\n")),
                    None => text.push_str(if has_ranges { ",,\n" } else { "\n" }),
                }
            }
        }
        text
    }
}

impl Drawable for Chart {
    fn size(&self) -> (u32, u32) {
        (WIDTH as u32, (HEIGHT + ROW * self.lines.len() as f64) as u32)
    }

    fn draw<B: DrawingBackend>(&self, drawing: &Drawing<B>) -> Drawn<B> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = ChartScale::new(points().map(|point| point.0), &self.x, LEFT, WIDTH - RIGHT);
        let limits = self.limits.iter().map(|(y, _)| *y);
        let ranges =
            self.lines.iter().flat_map(|line| line.ranges.iter().flatten()).flat_map(|&(low, high)| [low, high]);
        let values = points().map(|point| point.1).chain(limits).chain(ranges);
        let y = ChartScale::new(values, &self.y, HEIGHT - BOTTOM, TOP);
        self.axes(drawing, &x, &y)?;
        for (limit, name) in &self.limits {
            let at = y.at(*limit);
            let style = LineStyle { dashes: Some((5.0, 4.0)), ..LineStyle::thin(LIMIT) };
            drawing.line(&[(LEFT, at), (WIDTH - RIGHT, at)], style)?;
            // Below it if there is no room above.
            let text_at = if at < TOP + 20.0 { at + 12.0 } else { at - 9.0 };
            drawing.text((LEFT + 6.0, text_at), HPos::Left, name)?;
        }
        for (number, line) in self.lines.iter().enumerate() {
            line.draw(drawing, &x, &y)?;
            line.draw_legend(drawing, HEIGHT + ROW * (number as f64 + 0.5))?;
        }
        Ok(())
    }
}

impl Chart {
    fn axes<B: DrawingBackend>(&self, drawing: &Drawing<B>, x: &ChartScale, y: &ChartScale) -> Drawn<B> {
        x.draw_ticks(drawing, TOP, HEIGHT - BOTTOM)?;
        for tick in y.ticks() {
            let at = y.at(tick);
            drawing.line(&[(LEFT, at), (WIDTH - RIGHT, at)], LineStyle::thin(GRID))?;
            drawing.text((LEFT - 6.0, at), HPos::Right, &short(tick))?;
        }
        drawing
            .line(&[(LEFT, TOP), (LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM)], LineStyle::thin(AXIS))?;
        drawing.text(((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 14.0), HPos::Center, &self.x.label)?;
        drawing.turned_text((11.0, (TOP + HEIGHT - BOTTOM) / 2.0), &self.y.label)
    }
}

impl ChartLine {
    fn draw<B: DrawingBackend>(&self, drawing: &Drawing<B>, x: &ChartScale, y: &ChartScale) -> Drawn<B> {
        let style = self.style();
        let shown = |&&(px, py): &&ChartPoint| x.can_show(px) && y.can_show(py);
        let points: Vec<ChartPoint> = self.points.iter().filter(shown).map(|&(px, py)| (x.at(px), y.at(py))).collect();
        if self.is_connected && points.len() > 1 {
            drawing.line(&points, style)?;
        }
        for &point in points.iter().filter(|_| self.marks) {
            drawing.circle(point, 3.5, style, true)?;
        }
        self.draw_ranges(drawing, x, y)?;
        let Some(knee) = self.knee.map(|(px, py)| (x.at(px), y.at(py))) else { return Ok(()) };
        drawing.circle(knee, 7.5, LineStyle { width: 1.5, ..LineStyle::thin(INK) }, false)?;
        drawing.text((knee.0, knee.1 - 16.0), HPos::Center, "knee")
    }

    /// A bar with ends at each point that has a range.
    fn draw_ranges<B: DrawingBackend>(&self, drawing: &Drawing<B>, x: &ChartScale, y: &ChartScale) -> Drawn<B> {
        let style = LineStyle { width: 1.0, dashes: None, ..self.style() };
        for (&(at, _), range) in self.points.iter().zip(&self.ranges) {
            let Some((low, high)) = range.filter(|&(low, high)| y.can_show(low) && y.can_show(high)) else { continue };
            let (at, low, high) = (x.at(at), y.at(low), y.at(high));
            drawing.line(&[(at, low), (at, high)], style)?;
            for end in [low, high] {
                drawing.line(&[(at - 4.0, end), (at + 4.0, end)], style)?;
            }
        }
        Ok(())
    }

    fn draw_legend<B: DrawingBackend>(&self, drawing: &Drawing<B>, y: f64) -> Drawn<B> {
        if self.is_connected {
            drawing.line(&[(LEFT, y), (LEFT + 24.0, y)], self.style())?;
        } else {
            drawing.circle((LEFT + 12.0, y), 3.5, self.style(), true)?;
        }
        drawing.text((LEFT + 32.0, y), HPos::Left, &cut(&self.name, 80))
    }

    fn style(&self) -> LineStyle {
        let dashes = DASHES[self.colour / COLOURS.len() % DASHES.len()];
        LineStyle { colour: COLOURS[self.colour % COLOURS.len()], width: 2.0, dashes }
    }
}

/// Intervals around means, beside 0.
#[derive(Clone, Debug)]
pub(super) struct IntervalChart {
    pub label: String,
    pub rows: Vec<IntervalRow>,
}

#[derive(Clone, Debug)]
pub(super) struct IntervalRow {
    pub name: String,
    pub candidate: String,
    pub mean: f64,
    pub interval: Option<(f64, f64)>,
    /// `better`, `worse`, or another word.
    pub result: String,
}

impl IntervalChart {
    pub fn csv(&self) -> String {
        let mut text = format!("figure,candidate,\"{}\",low,high,result\n", self.label.replace('"', "\"\""));
        for row in &self.rows {
            let (low, high) =
                row.interval.map_or((String::new(), String::new()), |(low, high)| (low.to_string(), high.to_string()));
            let (name, candidate) = (field(&row.name), field(&row.candidate));
            let _ = writeln!(text, "{name},{candidate},{},{low},{high},{}", row.mean, field(&row.result));
        }
        text
    }

    /// The lower end of the rows, points.
    fn bottom(&self) -> f64 {
        ROW * self.rows.len() as f64 + 8.0
    }
}

impl Drawable for IntervalChart {
    fn size(&self) -> (u32, u32) {
        (WIDTH as u32, (self.bottom() + BOTTOM) as u32)
    }

    fn draw<B: DrawingBackend>(&self, drawing: &Drawing<B>) -> Drawn<B> {
        let bottom = self.bottom();
        let ends = self.rows.iter().flat_map(|row| {
            let (low, high) = row.interval.unwrap_or((row.mean, row.mean));
            [low, high, row.mean]
        });
        let axis = ChartAxis::linear(&self.label);
        let x = ChartScale::new(ends.chain([0.0]), &axis, NAMES, WIDTH - RIGHT);
        x.draw_ticks(drawing, 4.0, bottom)?;
        drawing.line(&[(x.at(0.0), 4.0), (x.at(0.0), bottom)], LineStyle::thin(AXIS))?;
        drawing.text(((NAMES + WIDTH - RIGHT) / 2.0, bottom + 34.0), HPos::Center, &self.label)?;
        for (number, row) in self.rows.iter().enumerate() {
            row.draw(drawing, &x, ROW * (number as f64 + 0.5) + 4.0)?;
        }
        Ok(())
    }
}

impl IntervalRow {
    fn draw<B: DrawingBackend>(&self, drawing: &Drawing<B>, x: &ChartScale, y: f64) -> Drawn<B> {
        let colour = match self.result.as_str() {
            "better" => COLOURS[2],
            "worse" => COLOURS[1],
            _ => COLOURS[7],
        };
        drawing.text((NAMES - 10.0, y), HPos::Right, &cut(&format!("{}: {}", self.candidate, self.name), 33))?;
        let style = LineStyle { width: 2.5, ..LineStyle::thin(colour) };
        if let Some((low, high)) = self.interval.filter(|(low, high)| low.is_finite() && high.is_finite()) {
            drawing.line(&[(x.at(low), y), (x.at(high), y)], style)?;
        }
        let at = x.at(self.mean);
        match self.result.as_str() {
            "better" => drawing.polygon(&[(at - 5.0, y + 4.5), (at + 5.0, y + 4.5), (at, y - 5.5)], colour),
            "worse" => drawing.polygon(&[(at - 5.0, y - 4.5), (at + 5.0, y - 4.5), (at, y + 5.5)], colour),
            _ => drawing.circle((at, y), 4.0, style, true),
        }
    }
}

/// From values to points of the picture.
struct ChartScale {
    is_log: bool,
    values: (f64, f64),
    points: (f64, f64),
}

impl ChartScale {
    /// The lowest value is `begin` points from the edge, the highest `end`.
    fn new(values: impl Iterator<Item = f64>, axis: &ChartAxis, begin: f64, end: f64) -> Self {
        let is_log = axis.is_log;
        let known = values.filter(|value| value.is_finite() && (!is_log || *value > 0.0));
        let (mut low, mut high) =
            known.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        if is_log {
            (low, high) = (low * 0.9, high * 1.1);
        } else {
            (low, high) = (low.min(0.0), high.max(0.0));
            let space = if high > low { (high - low) * 0.04 } else { 1.0 };
            (low, high) = (if low < 0.0 { low - space } else { low }, if high > 0.0 { high + space } else { high });
        }
        Self { is_log, values: (low, high), points: (begin, end) }
    }

    fn at(&self, value: f64) -> f64 {
        let of = |value: f64| if self.is_log { value.log10() } else { value };
        let (low, high) = (of(self.values.0), of(self.values.1));
        self.points.0 + (of(value) - low) / (high - low) * (self.points.1 - self.points.0)
    }

    /// Vertical lines at the ticks, with their numbers below.
    fn draw_ticks<B: DrawingBackend>(&self, drawing: &Drawing<B>, top: f64, bottom: f64) -> Drawn<B> {
        for tick in self.ticks() {
            let at = self.at(tick);
            drawing.line(&[(at, top), (at, bottom)], LineStyle::thin(GRID))?;
            drawing.text((at, bottom + 14.0), HPos::Center, &short(tick))?;
        }
        Ok(())
    }

    fn can_show(&self, value: f64) -> bool {
        value.is_finite() && (!self.is_log || value > 0.0)
    }

    fn ticks(&self) -> Vec<f64> {
        let (low, high) = self.values;
        if self.is_log {
            let decades = (high / low).log10();
            let steps: &[f64] = match decades {
                wide if wide > 4.0 => &[1.0],
                some if some > 2.0 => &[1.0, 3.0],
                few if few > 0.9 => &[1.0, 2.0, 5.0],
                _ => &[1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
            };
            let range = low.log10().floor() as i32..=high.log10().ceil() as i32;
            let all = range.flat_map(|exponent| steps.iter().map(move |step| step * 10_f64.powi(exponent)));
            return all.filter(|tick| (low..=high).contains(tick)).collect();
        }
        let rough = (high - low) / 6.0;
        let size = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * size).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * size);
        let range = (low / step - 1e-9).ceil() as i64..=(high / step + 1e-9).floor() as i64;
        range.map(|number| number as f64 * step).collect()
    }
}

/// A number with four digits that count.
fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let before = value.abs().log10().floor() as i32;
    if !(-4..7).contains(&before) {
        return format!("{value:e}");
    }
    let text = format!("{value:.*}", usize::try_from(3 - before).unwrap_or(0));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.to_owned() } else { text.chars().take(most - 1).chain(['…']).collect() }
}

/// A text as a field of CSV.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
