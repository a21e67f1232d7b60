//! How long a replica takes to start, as settings have it.

use blis_config::Deployment;
use blis_diag::name_hint;
use blis_sim::cluster::{PhaseTime, StartMode, StartTimes};
use blis_sim::units::Micros;

use crate::duration::{or_zero, time_text};
use crate::entries::entries;
use crate::error::RunError;
use crate::spec::parse::{above_0, instances};

/// The phases of a start: `process=14s,weights-bandwidth=2GB/s,compile=gaussian(35s,5s)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StartupSettings {
    /// The phases; that of the weights is not read if there is a bandwidth.
    pub times: StartTimes,
    /// Bandwidth at which each GPU reads its weights, bytes per second, > 0.
    pub bandwidth: Option<f64>,
}

impl StartupSettings {
    /// At once.
    pub const NONE: Self = {
        let none = PhaseTime::constant(Micros::ZERO);
        let times = StartTimes { process: none, weights: none, compile: none, warm_up: none, wake: none };
        Self { times, bandwidth: None }
    };

    /// The phases of a replica of `deployment`.
    ///
    /// # Errors
    /// If the weights are read at a bandwidth, and their size is unknown.
    pub(crate) fn times(&self, deployment: &Deployment) -> Result<StartTimes, RunError> {
        let Some(bandwidth) = self.bandwidth else { return Ok(self.times) };
        let Some(bytes) = deployment.weight_bytes else {
            let what = format!("the size of the weights of {} is unknown", deployment.model);
            return Err(RunError::usage(what)
                .hint("`weights-bandwidth` needs the model's config.json: name its folder with `--model-config-folder`, or set `weights=30s`"));
        };
        let weights = PhaseTime::constant(Micros::from_secs_f64(bytes / bandwidth));
        Ok(StartTimes { weights, ..self.times })
    }
}

/// How long a replica takes to start: `135s`, or phases that replace single ones of the default:
/// `process=14s,weights-bandwidth=2GB/s,compile=gaussian(35s,5s),warm-up=11s,wake=3s`.
pub(crate) fn start_times(text: &str) -> Result<StartupSettings, String> {
    const PHASES: [&str; 6] = ["process", "weights", "weights-bandwidth", "compile", "warm-up", "wake"];
    let usual = StartTimes::default();
    if !text.contains('=') {
        let none = PhaseTime::default();
        let times = StartTimes { process: phase(text)?, weights: none, compile: none, warm_up: none, ..usual };
        return Ok(StartupSettings { times, bandwidth: None });
    }
    let (mut times, mut bandwidth, mut weights) = (usual, None, None);
    entries(text, "a phase and a time, like compile=35s", |name, value| {
        let time = || phase(value).map_err(|message| format!("`{name}`: {message}"));
        match name {
            "process" => times.process = time()?,
            "weights" => weights = Some(time()?),
            "weights-bandwidth" => bandwidth = Some(bytes_per_second(value)?),
            "compile" => times.compile = time()?,
            "warm-up" => times.warm_up = time()?,
            "wake" => times.wake = time()?,
            _ => return Err(format!("there is no phase `{name}`: {}", name_hint(name, &PHASES))),
        }
        Ok(())
    })?;
    if weights.is_some() && bandwidth.is_some() {
        return Err("`weights` and `weights-bandwidth` are two forms of one phase: leave out one of them".to_owned());
    }
    times.weights = weights.unwrap_or(times.weights);
    Ok(StartupSettings { times, bandwidth })
}

/// The time of a phase: `30s`, or `gaussian(30s,5s)` with mean and standard deviation.
fn phase(text: &str) -> Result<PhaseTime, String> {
    let form = || format!("`{text}` must be a time, like 30s, or gaussian(30s,5s) with mean and standard deviation");
    let Some(arguments) = text.strip_prefix("gaussian(") else {
        return or_zero(text).map(PhaseTime::constant);
    };
    let (mean, deviation) = arguments.strip_suffix(')').and_then(|text| text.split_once(',')).ok_or_else(form)?;
    Ok(PhaseTime { mean: or_zero(mean.trim())?, deviation: or_zero(deviation.trim())? })
}

/// A bandwidth, bytes per second: `10GB/s`.
fn bytes_per_second(text: &str) -> Result<f64, String> {
    const UNITS: [(&str, f64); 7] = [
        ("TB/s", 1e12),
        ("GiB/s", 1_073_741_824.0),
        ("GB/s", 1e9),
        ("MiB/s", 1_048_576.0),
        ("MB/s", 1e6),
        ("kB/s", 1e3),
        ("B/s", 1.0),
    ];
    let found = UNITS.iter().find_map(|&(unit, bytes)| Some((text.strip_suffix(unit)?, bytes)));
    let bandwidth = found.and_then(|(number, bytes)| above_0(number).ok().map(|number| number * bytes));
    let message = || format!("`weights-bandwidth` is `{text}`: must be a number and a unit, like 10GB/s");
    bandwidth.filter(|bandwidth| (1.0..=1e18).contains(bandwidth)).ok_or_else(message)
}

/// `cold`, `warm` or `hot:N`.
pub(crate) fn start_mode(text: &str) -> Result<StartMode, String> {
    match text {
        "cold" => Ok(StartMode::Cold),
        "warm" => Ok(StartMode::Warm),
        _ => {
            let pool = text.strip_prefix("hot:").and_then(|pool| instances(pool).ok());
            pool.map(|pool| StartMode::Hot { pool })
                .ok_or_else(|| "must be cold, warm, or hot:N for N sleeping replicas, as hot:2".to_owned())
        }
    }
}

/// The phases in the form that the flag takes.
pub(crate) fn start_times_text(settings: &StartupSettings) -> String {
    let StartTimes { process, weights, compile, warm_up, wake } = settings.times;
    let weights = match settings.bandwidth {
        Some(bandwidth) => ("weights-bandwidth", bandwidth_text(bandwidth)),
        None => ("weights", phase_text(weights)),
    };
    let phases = [
        ("process", phase_text(process)),
        weights,
        ("compile", phase_text(compile)),
        ("warm-up", phase_text(warm_up)),
        ("wake", phase_text(wake)),
    ];
    phases.map(|(name, time)| format!("{name}={time}")).join(",")
}

fn phase_text(PhaseTime { mean, deviation }: PhaseTime) -> String {
    match deviation {
        Micros::ZERO => time_text(mean),
        _ => format!("gaussian({},{})", time_text(mean), time_text(deviation)),
    }
}

/// Whole GB/s or MB/s as such, others in bytes per second.
fn bandwidth_text(bandwidth: f64) -> String {
    let units = [(1e9, "GB/s"), (1e6, "MB/s")];
    let whole = units.into_iter().find(|(unit, _)| bandwidth % unit == 0.0);
    let (unit, name) = whole.unwrap_or((1.0, "B/s"));
    format!("{}{name}", bandwidth / unit)
}

/// The mode in the form that the flag takes.
pub(crate) fn start_mode_text(mode: &StartMode) -> String {
    match mode {
        StartMode::Cold => "cold".to_owned(),
        StartMode::Warm => "warm".to_owned(),
        StartMode::Hot { pool } => format!("hot:{pool}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_times_are_a_sum_or_phases() {
        let usual = StartTimes::default();
        let total = start_times("135s").expect("legal");
        let of = |seconds: u64| PhaseTime::constant(Micros(seconds * 1_000_000));
        assert_eq!((total.times.process, total.times.weights, total.times.wake), (of(135), of(0), usual.wake));
        let phases = start_times("weights=2s, warm-up=0").expect("legal");
        assert_eq!(phases.times, StartTimes { weights: of(2), warm_up: of(0), ..usual });
        let drawn = start_times("weights-bandwidth=2.5GB/s,compile=gaussian(30s, 1.5s)").expect("legal");
        let compile = PhaseTime { deviation: Micros(1_500_000), ..of(30) };
        assert_eq!(drawn, StartupSettings { times: StartTimes { compile, ..usual }, bandwidth: Some(2.5e9) });
        let any = start_times("gaussian(100s,10s)").expect("legal");
        assert_eq!(any.times.process, PhaseTime { deviation: Micros(10_000_000), ..of(100) });
        for times in [total, phases, drawn, any, StartupSettings::default()] {
            assert_eq!(start_times(&start_times_text(&times)), Ok(times));
        }
        for text in [
            "",
            "135",
            "weights=",
            "weights=1s,weights=1s",
            "weight=1s",
            "weights=1s,4s",
            "weights=1s,weights-bandwidth=1GB/s",
            "weights-bandwidth=1GB",
            "weights-bandwidth=0GB/s",
            "weights-bandwidth=infGB/s",
            "compile=gaussian(1s)",
            "compile=gaussian(1s,2s",
            "compile=normal(1s,2s)",
            "compile=gaussian(1s,2s,3s)",
        ] {
            assert!(start_times(text).is_err(), "{text}");
        }
        assert_eq!(start_mode("hot:2"), Ok(StartMode::Hot { pool: 2 }));
        assert!(["", "hot", "hot:0", "hot:x", "lukewarm"].into_iter().all(|text| start_mode(text).is_err()));
    }
}
