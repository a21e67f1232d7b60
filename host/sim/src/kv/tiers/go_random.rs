//! The random numbers of Go's `math/rand`, which BLIS draws for the jitter of transfer times.
//!
//! An additive lagged Fibonacci generator (Mitchell and Moore), y(n) = y(n − 607) + y(n − 273) mod 2⁶⁴. Its state is the exclusive or of
//! numbers from the seed and of a table: the state of the same generator with seed 1 after 7.8 · 10¹² steps. Steps are linear,
//! so the table is computed here: the coefficients of the state so many steps later are those of x^steps modulo x⁶⁰⁷ − x³³⁴ − 1. Normal
//! numbers come from the ziggurat of Marsaglia and Tsang, "The Ziggurat Method for Generating Random Variables", J. Stat. Softw. 5(8),
//! 2000, with 128 layers.

#![expect(clippy::cast_possible_truncation, reason = "draws and tables of Go's generator are cut off as there")]

use std::sync::LazyLock;

const LENGTH: usize = 607;
const LAG: usize = 273;
/// Steps between the seed and the table.
const WARM_UP: u64 = 7_800_000_000_000;
/// Start of the last layer of the ziggurat, and area of a layer.
const TAIL: f64 = 3.442619855899;
const AREA: f64 = 9.91256303526217e-3;
const LAYERS: usize = 128;

/// A generator, seeded at the first draw.
#[derive(Clone, Debug)]
pub(super) struct GoRandom {
    seed: u64,
    state: Option<Box<GoState>>,
}

#[derive(Clone, Debug)]
struct GoState {
    numbers: [u64; LENGTH],
    /// Index of the number drawn last.
    last: usize,
}

impl GoRandom {
    /// The generator with the bits of this (signed) seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, state: None }
    }

    /// A number of the standard normal distribution.
    pub fn normal(&mut self) -> f64 {
        loop {
            let draw = (self.next_63() >> 31) as u32 as i32;
            let layer = (draw & 0x7f) as usize;
            let x = f64::from(draw) * f64::from(ZIGGURAT.scale[layer]);
            if draw.unsigned_abs() < ZIGGURAT.inside[layer] {
                return x;
            }
            if layer == 0 {
                let beyond = TAIL + self.tail();
                return if draw > 0 { beyond } else { -beyond };
            }
            let (low, high) = (ZIGGURAT.density[layer], ZIGGURAT.density[layer - 1]);
            if low + self.uniform() as f32 * (high - low) < (-0.5 * x * x).exp() as f32 {
                return x;
            }
        }
    }

    /// How far a number of the tail lies beyond its start.
    fn tail(&mut self) -> f64 {
        loop {
            let x = -self.uniform().ln() * (1.0 / TAIL);
            let y = -self.uniform().ln();
            if y + y >= x * x {
                return x;
            }
        }
    }

    /// A number from 0 on, below 1.
    fn uniform(&mut self) -> f64 {
        loop {
            let number = self.next_63() as f64 / (1u64 << 63) as f64;
            if number < 1.0 {
                return number;
            }
        }
    }

    fn next_63(&mut self) -> u64 {
        let seed = self.seed;
        self.state.get_or_insert_with(|| Box::new(GoState::new(seed))).next() & (u64::MAX >> 1)
    }
}

impl GoState {
    fn new(seed: u64) -> Self {
        let mut numbers = seeded(seed, 40);
        numbers.iter_mut().zip(TABLE.iter()).for_each(|(number, mask)| *number ^= mask);
        Self { numbers, last: LENGTH - LAG }
    }

    fn next(&mut self) -> u64 {
        step(&mut self.numbers, &mut self.last)
    }
}

/// Draws the next number: the arrays are filled from their ends to their starts.
fn step(numbers: &mut [u64; LENGTH], last: &mut usize) -> u64 {
    *last = last.checked_sub(1).unwrap_or(LENGTH - 1);
    let lagged = numbers[(*last + LAG) % LENGTH];
    numbers[*last] = numbers[*last].wrapping_add(lagged);
    numbers[*last]
}

/// The first state from `seed`, by the generator of Lewis, Goodman and Miller: three of its numbers, the first shifted by `shift` bits,
/// the second by half of that, for each number here.
fn seeded(seed: u64, shift: u32) -> [u64; LENGTH] {
    const MODULUS: i64 = (1 << 31) - 1;
    let seed = (seed as i64).rem_euclid(MODULUS);
    let mut x = if seed == 0 { 89_482_311 } else { seed };
    let mut draw = || {
        x = x * 48_271 % MODULUS;
        x as u64
    };
    (0..20).for_each(|_| _ = draw());
    std::array::from_fn(|_| draw() << shift ^ draw() << (shift / 2) ^ draw())
}

/// The table that is combined with every seed.
static TABLE: LazyLock<[u64; LENGTH]> = LazyLock::new(|| {
    let numbers = seeded(1, 20);
    // The sequence in the order in which it is drawn, of which the state holds the last numbers.
    let index = |turn: usize| (2 * LENGTH - LAG - 1 - turn % LENGTH) % LENGTH;
    let mut sequence: Vec<u64> = (0..LENGTH).map(|turn| numbers[index(turn)]).collect();
    for n in LENGTH..2 * LENGTH {
        sequence.push(sequence[n - LENGTH].wrapping_add(sequence[n - LAG]));
    }
    let coefficients = power_of_x(WARM_UP);
    let later = |n: usize| {
        let terms = coefficients.iter().zip(&sequence[n..]);
        terms.fold(0u64, |sum, (a, b)| sum.wrapping_add(a.wrapping_mul(*b)))
    };
    let mut table = [0; LENGTH];
    (0..LENGTH).for_each(|turn| table[index((turn as u64 + WARM_UP) as usize % LENGTH)] = later(turn));
    table
});

/// The coefficients of x^`exponent` modulo x⁶⁰⁷ − x³³⁴ − 1, that of x⁰ first.
fn power_of_x(exponent: u64) -> [u64; LENGTH] {
    let mut power = [0u64; LENGTH];
    power[0] = 1;
    for bit in (0..u64::BITS - exponent.leading_zeros()).rev() {
        let mut product = [0u64; 2 * LENGTH];
        let shift = usize::from(exponent >> bit & 1 == 1);
        for (i, a) in power.iter().enumerate() {
            for (j, b) in power.iter().enumerate() {
                let term = &mut product[i + j + shift];
                *term = term.wrapping_add(a.wrapping_mul(*b));
            }
        }
        for degree in (LENGTH..2 * LENGTH).rev() {
            let high = std::mem::take(&mut product[degree]);
            for lower in [degree - LENGTH, degree - LAG] {
                product[lower] = product[lower].wrapping_add(high);
            }
        }
        power.copy_from_slice(&product[..LENGTH]);
    }
    power
}

/// The layers of the ziggurat.
struct Ziggurat {
    /// Draws below this are inside the layer.
    inside: [u32; LAYERS],
    /// Width of a layer by draw.
    scale: [f32; LAYERS],
    /// The density where a layer ends.
    density: [f32; LAYERS],
}

static ZIGGURAT: LazyLock<Ziggurat> = LazyLock::new(|| {
    const DRAWS: f64 = (1u64 << 31) as f64;
    let density = |x: f64| (-0.5 * x * x).exp();
    let mut ziggurat = Ziggurat { inside: [0; LAYERS], scale: [0.0; LAYERS], density: [1.0; LAYERS] };
    let base = AREA / density(TAIL);
    ziggurat.inside[0] = (TAIL / base * DRAWS) as u32;
    ziggurat.scale[0] = (base / DRAWS) as f32;
    let mut x = TAIL;
    for layer in (1..LAYERS).rev() {
        ziggurat.scale[layer] = (x / DRAWS) as f32;
        ziggurat.density[layer] = density(x) as f32;
        let narrower = (-2.0 * (AREA / x + density(x)).ln()).sqrt();
        ziggurat.inside[layer] = if layer == 1 { 0 } else { (narrower / x * DRAWS) as u32 };
        x = narrower;
    }
    ziggurat
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_go() {
        let mut go = GoRandom::new(1);
        let expected = [5577006791947779410, 8674665223082153551, 6129484611666145821, 4037200794235010051];
        assert_eq!(expected.map(|_| go.next_63()), expected);
        let mut go = GoRandom::new(1);
        let expected = [0.6046602879796196, 0.9405090880450124, 0.6645600532184904, 0.4377141871869802];
        assert_eq!(expected.map(|_| go.uniform()), expected);
    }

    #[test]
    fn normal_numbers_are_those_of_go() {
        let mut go = GoRandom::new(1);
        let expected = [
            -1.233758177597947,
            -0.12634751070237293,
            -0.5209945711531503,
            2.28571911769958,
            0.3228052526115799,
            0.5900672875996937,
            0.15880774017643562,
            0.9892020842955818,
            -0.731283016177479,
        ];
        assert_eq!(expected.map(|_| go.normal()), expected);
    }

    /// All layers and the tail are reached, and a negative seed is accepted.
    #[test]
    fn many_normal_numbers_have_the_moments_of_the_distribution() {
        let mut go = GoRandom::new(-7_i64 as u64);
        let draws: Vec<f64> = (0..200_000).map(|_| go.normal()).collect();
        let moment = |power: i32| draws.iter().map(|draw| draw.powi(power)).sum::<f64>() / draws.len() as f64;
        assert!(moment(1).abs() < 0.01, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.02, "{}", moment(2));
        assert!((moment(4) - 3.0).abs() < 0.15, "{}", moment(4));
        let tail = draws.iter().filter(|draw| draw.abs() > TAIL).count() as f64 / draws.len() as f64;
        assert!((0.0003..0.0009).contains(&tail), "{tail}, expected 0.000576");
    }
}
