//! Pixels for PNG: what plotters draws, with text from a font of the program, so that a picture depends on no font of the
//! machine.
//!
//! plotters draws lines without anti-aliasing if they are wider than a pixel. The bitmap therefore has more pixels than
//! the picture: each of its pixels is the mean of some.
//!
//! The font is DejaVu Sans with Latin, Greek and Cyrillic letters (`font/`, with its licence); any other letter is a box.

use std::convert::Infallible;
use std::io::Write as _;

use ab_glyph::{Font, FontRef, Glyph, PxScale, ScaleFont, point};
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind, rasterizer,
};

/// Units of plotters in a point.
pub(super) const UNITS: u32 = 6;
/// plotters writes text in an SVG smaller than its size by this factor.
pub(super) const TEXT_FACTOR: f64 = 1.24;

const FONT: &[u8] = include_bytes!("font/DejaVuSans-subset.ttf");
/// Pixels of the bitmap in a pixel of the picture, in each direction.
const SAMPLES: u32 = 2;
/// Pixels of the picture in a point, and points in a metre (72 in an inch): its size on paper is that of the SVG.
const PIXELS_PER_METRE: u32 = UNITS / SAMPLES * 2835;
/// The middle of small letters above the baseline, share of the size of the text; SVGs of plotters have it at `0.5ex`.
const MIDDLE: f32 = 0.27;

type Done = Result<(), DrawingErrorKind<Infallible>>;

/// A bitmap of red, green and blue.
pub(super) struct Bitmap {
    width: u32,
    height: u32,
    pixels: Vec<[u8; 3]>,
    font: FontRef<'static>,
}

impl Bitmap {
    pub fn new(width: u32, height: u32) -> Self {
        let font = FontRef::try_from_slice(FONT).expect("a font of ours");
        Self { width, height, pixels: vec![[255; 3]; width as usize * height as usize], font }
    }

    /// The picture as a PNG file: the header, its size on paper, and rows of bytes without a filter, compressed.
    pub fn png(&self) -> Vec<u8> {
        let (width, height) = (self.width / SAMPLES, self.height / SAMPLES);
        let mut rows = ZlibEncoder::new(Vec::new(), Compression::default());
        for y in 0..height {
            let row = std::iter::once(0).chain((0..width).flat_map(|x| self.mean(x, y)));
            rows.write_all(&row.collect::<Vec<u8>>()).expect("memory takes everything");
        }
        let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
        let per_metre = [PIXELS_PER_METRE.to_be_bytes(), PIXELS_PER_METRE.to_be_bytes()].concat();
        let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
        chunk(&mut file, *b"IHDR", &[&*size, &[8, 2, 0, 0, 0]].concat()); // 8 bits of red, green and blue
        chunk(&mut file, *b"pHYs", &[&*per_metre, &[1]].concat());
        chunk(&mut file, *b"IDAT", &rows.finish().expect("memory takes everything"));
        chunk(&mut file, *b"IEND", &[]);
        file
    }

    /// The pixel of the picture at `x`, `y`.
    fn mean(&self, x: u32, y: u32) -> [u8; 3] {
        let mut sums = [0_u32; 3];
        for row in y * SAMPLES..(y + 1) * SAMPLES {
            let first = (row * self.width + x * SAMPLES) as usize;
            for pixel in &self.pixels[first..first + SAMPLES as usize] {
                sums.iter_mut().zip(pixel).for_each(|(sum, &value)| *sum += u32::from(value));
            }
        }
        sums.map(|sum| ((sum + SAMPLES * SAMPLES / 2) / (SAMPLES * SAMPLES)) as u8)
    }

    /// Puts `share` (0 to 1) of `colour` over the pixel at `x`, `y`, if there is one.
    fn blend(&mut self, (x, y): BackendCoord, colour: BackendColor, share: f64) {
        let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else { return };
        if x >= self.width || y >= self.height {
            return;
        }
        let pixel = &mut self.pixels[(y * self.width + x) as usize];
        let share = (share * colour.alpha).clamp(0.0, 1.0);
        let (red, green, blue) = colour.rgb;
        if share >= 1.0 {
            *pixel = [red, green, blue];
            return;
        }
        for (under, over) in pixel.iter_mut().zip([red, green, blue]) {
            *under = (f64::from(*under) * (1.0 - share) + f64::from(over) * share).round() as u8;
        }
    }

    /// The glyphs of a text from x = 0 on, its middle line at y = 0, and its width.
    fn glyphs(&self, text: &str, size: f32) -> (Vec<Glyph>, f32) {
        let units = self.font.units_per_em().unwrap_or(1.0);
        let scale = PxScale::from(size * self.font.height_unscaled() / units);
        let scaled = self.font.as_scaled(scale);
        let mut x = 0.0;
        let mut glyphs = Vec::new();
        for c in text.chars() {
            let id = self.font.glyph_id(c);
            glyphs.push(id.with_scale_and_position(scale, point(x, size * MIDDLE)));
            x += scaled.h_advance(id);
        }
        (glyphs, x)
    }
}

/// Adds a part of a PNG file, with its length and checksum.
fn chunk(file: &mut Vec<u8>, kind: [u8; 4], content: &[u8]) {
    let mut sum = Crc::new();
    sum.update(&kind);
    sum.update(content);
    file.extend_from_slice(&(content.len() as u32).to_be_bytes());
    file.extend_from_slice(&kind);
    file.extend_from_slice(content);
    file.extend_from_slice(&sum.sum().to_be_bytes());
}

impl DrawingBackend for &mut Bitmap {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    fn ensure_prepared(&mut self) -> Done {
        Ok(())
    }

    fn present(&mut self) -> Done {
        Ok(())
    }

    fn draw_pixel(&mut self, at: BackendCoord, colour: BackendColor) -> Done {
        self.blend(at, colour, 1.0);
        Ok(())
    }

    /// Segment by segment, with round corners: a polygon around all of them would have holes where it crosses itself.
    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Done {
        let points: Vec<BackendCoord> = path.into_iter().collect();
        for pair in points.windows(2) {
            rasterizer::draw_line(self, pair[0], pair[1], style)?;
        }
        let corners = points.get(1..points.len().saturating_sub(1)).unwrap_or_default();
        for &corner in corners {
            rasterizer::draw_circle(self, corner, style.stroke_width() / 2, &style.color(), true)?;
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Done {
        let (glyphs, width) = self.glyphs(text, (style.size() / TEXT_FACTOR) as f32);
        let left = match style.anchor().h_pos {
            HPos::Left => 0.0,
            HPos::Center => -width / 2.0,
            HPos::Right => -width,
        };
        debug_assert!(matches!(style.anchor().v_pos, VPos::Center), "no text of ours is placed otherwise");
        let (turn, colour) = (style.transform(), style.color());
        for mut glyph in glyphs {
            glyph.position.x += left;
            let Some(outline) = self.font.outline_glyph(glyph) else { continue }; // a space
            let corner = outline.px_bounds().min;
            outline.draw(|x, y, share| {
                let (x, y) = turn.transform(corner.x as i32 + x as i32, corner.y as i32 + y as i32);
                self.blend((at.0 + x, at.1 + y), colour, share.into());
            });
        }
        Ok(())
    }
}
