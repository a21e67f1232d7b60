//! The elements of a chart, through plotters: as SVG, or as the pixels of a PNG ([`Bitmap`]).
//!
//! A chart is laid out in points from its upper left corner. Backends of plotters take whole numbers, so a point is
//! [`UNITS`] of theirs: lines of a thousand points stay smooth.

use plotters::backend::DrawingBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, DashedPathElement, PathElement, Polygon, Text};
use plotters::prelude::SVGBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontTransform, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE};

use super::bitmap::{Bitmap, TEXT_FACTOR, UNITS};

/// Size of texts, points.
pub(super) const TEXT: f64 = 13.0;

pub(super) const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
pub(super) const AXIS: RGBColor = RGBColor(0x33, 0x33, 0x33);
pub(super) const GRID: RGBColor = RGBColor(0xe3, 0xe6, 0xea);
pub(super) const LIMIT: RGBColor = RGBColor(0x6b, 0x72, 0x80);

/// A position in a chart, x to the right and y down, points.
pub(super) type ChartPoint = (f64, f64);

/// What drawing returns: errors are those of the backend.
pub(super) type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// A chart that can be drawn on any backend.
pub(super) trait Drawable {
    /// Width and height, points.
    fn size(&self) -> (u32, u32);

    fn draw<B: DrawingBackend>(&self, drawing: &Drawing<B>) -> Drawn<B>;
}

/// `chart` as an SVG file. Its size is in points, so that texts have 13 pixels in a browser.
pub(super) fn svg(chart: &impl Drawable) -> String {
    let (width, height) = chart.size();
    let (full_width, full_height) = (width * UNITS, height * UNITS);
    let mut text = String::new();
    draw(chart, SVGBackend::with_string(&mut text, (full_width, full_height)));
    let [written, wanted] = [(full_width, full_height), (width, height)]
        .map(|(width, height)| format!("width=\"{width}\" height=\"{height}\""));
    text.replacen(&written, &wanted, 1)
}

/// `chart` as a PNG file.
pub(super) fn png(chart: &impl Drawable) -> Vec<u8> {
    let (width, height) = chart.size();
    let mut bitmap = Bitmap::new(width * UNITS, height * UNITS);
    draw(chart, &mut bitmap);
    bitmap.png()
}

fn draw<B: DrawingBackend>(chart: &impl Drawable, backend: B) {
    let drawing = Drawing(backend.into_drawing_area());
    let drawn = drawing.0.fill(&WHITE).and_then(|()| chart.draw(&drawing)).and_then(|()| drawing.0.present());
    // Both backends draw into memory, and neither looks for a font.
    drawn.expect("memory takes everything");
}

/// The area of a chart.
pub(super) struct Drawing<B: DrawingBackend>(DrawingArea<B, Shift>);

/// How a line is drawn: width and dashes in points.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineStyle {
    pub colour: RGBColor,
    pub width: f64,
    /// Lengths of a dash and of a gap; `None` for a line without gaps.
    pub dashes: Option<(f64, f64)>,
}

impl LineStyle {
    pub const fn thin(colour: RGBColor) -> Self {
        Self { colour, width: 1.0, dashes: None }
    }

    fn shape(self) -> ShapeStyle {
        self.colour.stroke_width(units(self.width).unsigned_abs())
    }
}

impl<B: DrawingBackend> Drawing<B> {
    /// A line through `points`.
    pub fn line(&self, points: &[ChartPoint], style: LineStyle) -> Drawn<B> {
        let points: Vec<(i32, i32)> = points.iter().map(|&point| at(point)).collect();
        match style.dashes {
            None => self.0.draw(&PathElement::new(points, style.shape())),
            Some((dash, gap)) => self.0.draw(&DashedPathElement::new(points, units(dash), units(gap), style.shape())),
        }
    }

    /// A disc, or a ring of that width.
    pub fn circle(&self, centre: ChartPoint, radius: f64, style: LineStyle, filled: bool) -> Drawn<B> {
        let shape = if filled { style.colour.filled() } else { style.shape() };
        self.0.draw(&Circle::new(at(centre), units(radius), shape))
    }

    pub fn polygon(&self, corners: &[ChartPoint], colour: RGBColor) -> Drawn<B> {
        self.0.draw(&Polygon::new(corners.iter().map(|&corner| at(corner)).collect::<Vec<_>>(), colour.filled()))
    }

    /// A text, its middle line at the height of `position`.
    pub fn text(&self, position: ChartPoint, align: HPos, text: &str) -> Drawn<B> {
        self.write(position, align, FontTransform::None, text)
    }

    /// A text from bottom to top with its middle at `position`.
    pub fn turned_text(&self, position: ChartPoint, text: &str) -> Drawn<B> {
        self.write(position, HPos::Center, FontTransform::Rotate270, text)
    }

    fn write(&self, position: ChartPoint, align: HPos, transform: FontTransform, text: &str) -> Drawn<B> {
        let size = TEXT * TEXT_FACTOR * f64::from(UNITS);
        let font = ("Helvetica, Arial, sans-serif", size).into_font().transform(transform);
        let style = TextStyle::from(font).color(&INK).pos(Pos::new(align, VPos::Center));
        self.0.draw(&Text::new(printable(text), at(position), style))
    }
}

fn at((x, y): ChartPoint) -> (i32, i32) {
    (units(x), units(y))
}

fn units(points: f64) -> i32 {
    (points * f64::from(UNITS)).round() as i32
}

/// The same text without the characters that XML cannot have: each is `\u{fffd}` instead.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') { '\u{fffd}' } else { c }).collect()
}
