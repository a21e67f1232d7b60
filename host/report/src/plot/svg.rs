//! The drawing: axes, lines, points and intervals. White ground and the colours of Okabe and Ito, for paper.

use std::fmt::Write as _;

/// Size of a chart and its margins, pixels.
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

const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c7a00", "#6b7280"];
/// Lines beyond the eighth repeat the colours, dashed.
const DASHES: [&str; 3] = ["", "6 4", "2 3"];

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
}

impl ChartLine {
    pub fn new(name: String, colour: usize, points: Vec<(f64, f64)>) -> Self {
        Self { name, colour, points, is_connected: true, marks: true, knee: None }
    }
}

impl Chart {
    pub fn csv(&self) -> String {
        let mut text = format!("line,{},{},knee\n", field(&self.x.label), field(&self.y.label));
        for line in &self.lines {
            for point in &line.points {
                let knee = if line.knee == Some(*point) { "knee" } else { "" };
                let _ = writeln!(text, "{},{},{},{knee}", field(&line.name), point.0, point.1);
            }
        }
        text
    }

    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = ChartScale::new(points().map(|point| point.0), &self.x, (LEFT, WIDTH - RIGHT));
        let limits = self.limits.iter().map(|(y, _)| *y);
        let y = ChartScale::new(points().map(|point| point.1).chain(limits), &self.y, (HEIGHT - BOTTOM, TOP));
        let mut drawing = Drawing::new(HEIGHT + ROW * self.lines.len() as f64);
        drawing.grid(&x, (TOP, HEIGHT - BOTTOM));
        for tick in y.ticks() {
            let at = y.at(tick);
            drawing.line((LEFT, at), (WIDTH - RIGHT, at), "#e3e6ea", "");
            drawing.text((LEFT - 6.0, at + 4.0), "end", &short(tick));
        }
        drawing.line((LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM), "#333333", "");
        drawing.line((LEFT, TOP), (LEFT, HEIGHT - BOTTOM), "#333333", "");
        drawing.text(((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 10.0), "middle", &self.x.label);
        drawing.turned_text((15.0, (TOP + HEIGHT - BOTTOM) / 2.0), &self.y.label);
        for (limit, name) in &self.limits {
            let at = y.at(*limit);
            drawing.line((LEFT, at), (WIDTH - RIGHT, at), "#6b7280", "5 4");
            // Below it if there is no room above.
            let text_at = if at < TOP + 20.0 { at + 16.0 } else { at - 5.0 };
            drawing.text((LEFT + 6.0, text_at), "start", name);
        }
        for (number, line) in self.lines.iter().enumerate() {
            drawing.chart_line(line, (&x, &y));
            drawing.legend(line, HEIGHT + ROW * (number as f64 + 0.5));
        }
        drawing.finish()
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

    pub fn svg(&self) -> String {
        let bottom = ROW * self.rows.len() as f64 + 8.0;
        let ends = self.rows.iter().flat_map(|row| {
            let (low, high) = row.interval.unwrap_or((row.mean, row.mean));
            [low, high, row.mean]
        });
        let axis = ChartAxis::linear(&self.label);
        let x = ChartScale::new(ends.chain([0.0]), &axis, (NAMES, WIDTH - RIGHT));
        let mut drawing = Drawing::new(bottom + BOTTOM);
        drawing.grid(&x, (4.0, bottom));
        drawing.line((x.at(0.0), 4.0), (x.at(0.0), bottom), "#333333", "");
        drawing.text(((NAMES + WIDTH - RIGHT) / 2.0, bottom + 38.0), "middle", &self.label);
        for (number, row) in self.rows.iter().enumerate() {
            drawing.interval(row, &x, ROW * (number as f64 + 0.5) + 4.0);
        }
        drawing.finish()
    }
}

/// From values to pixels.
struct ChartScale {
    is_log: bool,
    values: (f64, f64),
    pixels: (f64, f64),
}

impl ChartScale {
    fn new(values: impl Iterator<Item = f64>, axis: &ChartAxis, pixels: (f64, f64)) -> Self {
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
        Self { is_log, values: (low, high), pixels }
    }

    fn at(&self, value: f64) -> f64 {
        let of = |value: f64| if self.is_log { value.log10() } else { value };
        let (low, high) = (of(self.values.0), of(self.values.1));
        self.pixels.0 + (of(value) - low) / (high - low) * (self.pixels.1 - self.pixels.0)
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

struct Drawing(String);

impl Drawing {
    fn new(height: f64) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#222222\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        ))
    }

    fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    /// Vertical lines at the ticks of `x`, with their numbers below.
    fn grid(&mut self, x: &ChartScale, (top, bottom): (f64, f64)) {
        for tick in x.ticks() {
            let at = x.at(tick);
            self.line((at, top), (at, bottom), "#e3e6ea", "");
            self.text((at, bottom + 18.0), "middle", &short(tick));
        }
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, dashes: &str) {
        let dashes = if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            self.0,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"{dashes}/>"
        );
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: &str) {
        let _ = writeln!(self.0, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escaped(text));
    }

    fn turned_text(&mut self, (x, y): (f64, f64), text: &str) {
        let _ = writeln!(
            self.0,
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escaped(text)
        );
    }

    fn chart_line(&mut self, line: &ChartLine, (x, y): (&ChartScale, &ChartScale)) {
        let (colour, dashes) = style(line.colour);
        let shown = |&&(px, py): &&(f64, f64)| x.can_show(px) && y.can_show(py);
        let points: Vec<(f64, f64)> = line.points.iter().filter(shown).map(|&(px, py)| (x.at(px), y.at(py))).collect();
        if line.is_connected && points.len() > 1 {
            let path: Vec<String> = points.iter().map(|(px, py)| format!("{px:.1},{py:.1}")).collect();
            let _ = writeln!(
                self.0,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
                path.join(" ")
            );
        }
        for (px, py) in points.iter().filter(|_| line.marks) {
            let _ = writeln!(self.0, "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
        }
        if let Some((px, py)) = line.knee.map(|(px, py)| (x.at(px), y.at(py))) {
            let _ = writeln!(
                self.0,
                "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"7.5\" fill=\"none\" stroke=\"#222222\" stroke-width=\"1.6\"/>"
            );
            self.text((px, py - 12.0), "middle", "knee");
        }
    }

    fn legend(&mut self, line: &ChartLine, y: f64) {
        let (colour, dashes) = style(line.colour);
        if line.is_connected {
            let _ = writeln!(
                self.0,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
                LEFT + 24.0
            );
        } else {
            let _ = writeln!(self.0, "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>", LEFT + 12.0);
        }
        self.text((LEFT + 32.0, y + 4.0), "start", &cut(&line.name, 80));
    }

    fn interval(&mut self, row: &IntervalRow, x: &ChartScale, y: f64) {
        let colour = match row.result.as_str() {
            "better" => COLOURS[2],
            "worse" => COLOURS[1],
            _ => COLOURS[7],
        };
        self.text((NAMES - 10.0, y + 4.0), "end", &cut(&format!("{}: {}", row.candidate, row.name), 33));
        if let Some((low, high)) = row.interval.filter(|(low, high)| low.is_finite() && high.is_finite()) {
            let (low, high) = (x.at(low), x.at(high));
            let _ = writeln!(
                self.0,
                "<line x1=\"{low:.1}\" y1=\"{y:.1}\" x2=\"{high:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"2.5\"/>"
            );
        }
        let at = x.at(row.mean);
        let corners = match row.result.as_str() {
            "better" => Some([(at - 5.0, y + 4.5), (at + 5.0, y + 4.5), (at, y - 5.5)]),
            "worse" => Some([(at - 5.0, y - 4.5), (at + 5.0, y - 4.5), (at, y + 5.5)]),
            _ => None,
        };
        let _ = match corners {
            Some(corners) => {
                let corners = corners.map(|(px, py)| format!("{px:.1},{py:.1}")).join(" ");
                writeln!(self.0, "<polygon points=\"{corners}\" fill=\"{colour}\"/>")
            }
            None => writeln!(self.0, "<circle cx=\"{at:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"),
        };
    }
}

fn style(colour: usize) -> (&'static str, &'static str) {
    (COLOURS[colour % COLOURS.len()], DASHES[colour / COLOURS.len() % DASHES.len()])
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

/// A text in XML. Characters that XML cannot have become �.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A text as a field of CSV.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
