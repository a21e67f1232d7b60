//! Cohorts: the times in which their members send requests.

use blis_sim::units::Micros;

use super::client::Client;
use super::window::{Window, WindowRate};

/// Clients that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Cohort {
    /// Their common properties. The share is that of all members together; the windows are not used.
    pub client: Client,
    /// Number of members, 1 to 100 000.
    pub population: u32,
    /// Whether members share their prefix.
    pub prefix_sharing: PrefixSharing,
    /// Load by the hour of the day.
    pub diurnal: Option<Diurnal>,
    /// A phase with its own rate.
    pub spike: Option<Spike>,
    /// A gradual end of the load.
    pub drain: Option<DrainSpec>,
}

impl Cohort {
    /// The windows in which its members send; always, if there is none. Rates are those of all members together.
    #[must_use]
    pub fn windows(&self) -> Vec<Window> {
        let mut windows: Vec<Window> = Vec::new();
        windows.extend(self.diurnal.into_iter().flat_map(Diurnal::windows));
        windows.extend(self.spike.and_then(|spike| {
            let rate = spike.trace_rate.map_or(WindowRate::Usual, WindowRate::Weight);
            window(spike.start, spike.duration).map(|window| Window { rate, ..window })
        }));
        windows.extend(self.drain.into_iter().flat_map(DrainSpec::windows));
        windows
    }
}

const HOUR_US: f64 = 3.6e9;

/// Whether the members of a cohort share their prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefixSharing {
    /// All members have the same prefix.
    #[default]
    Shared,
    /// Each member has its own: the group `system` becomes `system-0`, `system-1`, …
    PerMember,
}

/// Load by the hour of the day: in each of 24 hours, members send for a share of the hour, from its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Diurnal {
    /// The hour in which they send all the time, 0 to 23.
    pub peak_hour: f64,
    /// Ratio of the load in that hour to the load in the quietest one, at least 1.
    pub peak_to_trough_ratio: f64,
}

/// A phase in which members send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spike {
    /// Start of the phase.
    pub start: Micros,
    /// Duration of the phase, above 0.
    pub duration: Micros,
    /// Rate of all members together, as in a window.
    pub trace_rate: Option<f64>,
}

/// Members send until `start`, then in ten steps for less and less of each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainSpec {
    /// Start of the decrease.
    pub start: Micros,
    /// Duration of the decrease to 0, above 0.
    pub ramp: Micros,
}

impl Diurnal {
    /// The share of hour `hour` in which members send.
    fn share(&self, hour: u32) -> f64 {
        let angle = std::f64::consts::TAU * (f64::from(hour) - self.peak_hour) / 24.0;
        let least = 1.0 / self.peak_to_trough_ratio;
        (1.0 + libm::cos(angle)) / 2.0 * (1.0 - least) + least
    }

    fn windows(self) -> impl Iterator<Item = Window> {
        (0..24).filter_map(move |hour| {
            let start = Micros::from_f64(f64::from(hour) * HOUR_US);
            window(start, Micros::from_f64(HOUR_US * self.share(hour)))
        })
    }
}

impl DrainSpec {
    fn windows(self) -> impl Iterator<Item = Window> {
        const STEPS: u64 = 10;
        let step = self.ramp.0 / STEPS;
        let steps = (0..STEPS).filter_map(move |i| {
            let start = self.start.saturating_add(Micros(step.saturating_mul(i)));
            let active = u128::from(step) * u128::from(STEPS - i) / u128::from(STEPS);
            window(start, Micros(u64::try_from(active).unwrap_or(u64::MAX)))
        });
        window(Micros::ZERO, self.start).into_iter().chain(steps)
    }
}

/// A window; `None` if it would be empty.
fn window(start: Micros, length: Micros) -> Option<Window> {
    let end = start.saturating_add(length);
    (end > start).then(|| Window::usual(start, end))
}

#[cfg(test)]
mod tests {
    use super::super::Lengths;
    use super::super::client::Client;
    use super::*;

    fn cohort() -> Cohort {
        let client = Client::new("c", 1.0, Lengths::Constant(1), Lengths::Constant(1));
        let prefix_sharing = PrefixSharing::Shared;
        Cohort { client, population: 4, prefix_sharing, diurnal: None, spike: None, drain: None }
    }

    #[test]
    fn the_day_has_a_peak_and_a_trough() {
        let windows =
            Cohort { diurnal: Some(Diurnal { peak_hour: 14.0, peak_to_trough_ratio: 4.0 }), ..cohort() }.windows();
        let share = |hour: usize| (windows[hour].end - windows[hour].start).0 as f64 / HOUR_US;
        assert_eq!(windows.len(), 24);
        assert!((share(14) - 1.0).abs() < 1e-9 && (share(2) - 0.25).abs() < 1e-9);
        assert!((share(8) - 0.625).abs() < 1e-9, "half way: the mean of both");
    }

    #[test]
    fn a_drain_takes_ten_steps() {
        let drain = DrainSpec { start: Micros(500), ramp: Micros(1000) };
        let windows = Cohort { drain: Some(drain), ..cohort() }.windows();
        let spans: Vec<_> = windows.iter().map(|w| (w.start.0, w.end.0)).collect();
        assert_eq!(spans[..4], [(0, 500), (500, 600), (600, 690), (700, 780)]);
        assert_eq!((spans.len(), spans[10]), (11, (1400, 1410)));
        let at_once = Cohort { drain: Some(DrainSpec { start: Micros::ZERO, ramp: Micros(9) }), ..cohort() };
        assert!(at_once.windows().is_empty(), "no whole µs in any step");
    }
}
