//! How long a replica takes to start.

use rand::RngExt as _;

use crate::rng::Generator;
use crate::units::Micros;

/// The phases of a start, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartTimes {
    /// Image, process, imports.
    pub process: PhaseTime,
    /// Loading the weights: their size over the bandwidth.
    pub weights: PhaseTime,
    /// Compilation of the model (`torch.compile`).
    pub compile: PhaseTime,
    /// Capture of CUDA graphs and the like: the state [`ReplicaState::Warming`](crate::replica::ReplicaState).
    pub warm_up: PhaseTime,
    /// Instead of all of these, for a replica that sleeps ([`StartMode::Hot`]).
    pub wake: PhaseTime,
}

/// How long a phase takes: a normal distribution, of which negative times count as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTime {
    /// Mean.
    pub mean: Micros,
    /// Standard deviation; 0 if the phase always takes the mean.
    pub deviation: Micros,
}

/// What is ready before a replica starts (llm-d's Fast Model Actuation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// Nothing: all phases.
    Cold,
    /// The process runs and has imported its modules (a launcher): all phases but the first.
    Warm,
    /// So many replicas sleep, with their weights in host memory and without a GPU. Those that drain go to sleep if fewer
    /// do. Further ones start cold.
    Hot {
        /// Number of replicas that sleep at the start, and at most.
        pool: u32,
    },
}

impl Default for StartTimes {
    /// Qwen3-32B, TP1, H100 with vLLM: 90.7 s from process start to ready, of which the capture of CUDA graphs takes
    /// 11.4 s (llm-d blog of 26 August 2026). A compile cache saves 35 s (135 s → 100 s with TP2, llm-d's SLO-aware guide),
    /// and a rank reads its weights from NFS in 30.3 s (ModelExpress); the rest is the process. 3 s to wake: "seconds" in
    /// llm-d's Fast Model Actuation.
    fn default() -> Self {
        Self {
            process: PhaseTime::constant(Micros(14_000_000)),
            weights: PhaseTime::constant(Micros(30_300_000)),
            compile: PhaseTime::constant(Micros(35_000_000)),
            warm_up: PhaseTime::constant(Micros(11_400_000)),
            wake: PhaseTime::constant(Micros(3_000_000)),
        }
    }
}

impl StartTimes {
    /// The times in the states loading and warming of a replica that sleeps or not, by `time` of each phase.
    fn phases(&self, mode: StartMode, sleeps: bool, mut time: impl FnMut(PhaseTime) -> Micros) -> (Micros, Micros) {
        let Self { process, weights, compile, warm_up, wake } = *self;
        let [process, weights, compile, warm_up, wake] = [process, weights, compile, warm_up, wake].map(&mut time);
        match mode {
            _ if sleeps => (wake, Micros::ZERO),
            StartMode::Warm => (weights.saturating_add(compile), warm_up),
            StartMode::Cold | StartMode::Hot { .. } => {
                (process.saturating_add(weights).saturating_add(compile), warm_up)
            }
        }
    }

    /// The times in the states loading and warming, drawn from `generator`.
    pub(super) fn draw(&self, mode: StartMode, sleeps: bool, generator: &mut Generator) -> (Micros, Micros) {
        self.phases(mode, sleeps, |phase| phase.draw(generator))
    }

    /// The mean of both together, in the states loading and warming.
    #[must_use]
    pub fn mean(&self, mode: StartMode, sleeps: bool) -> Micros {
        let (loading, warm_up) = self.phases(mode, sleeps, |phase| phase.mean);
        loading.saturating_add(warm_up)
    }
}

impl PhaseTime {
    /// Always the same time.
    #[must_use]
    pub const fn constant(mean: Micros) -> Self {
        Self { mean, deviation: Micros::ZERO }
    }

    /// A time of the distribution. The same numbers are drawn whatever the distribution is.
    pub(super) fn draw(self, generator: &mut Generator) -> Micros {
        let (radius, angle): (f64, f64) = (generator.random(), generator.random());
        if self.deviation == Micros::ZERO {
            // Both numbers are drawn before, so that later phases get the same ones with and without deviation.
            return self.mean;
        }
        // Box and Muller, 1958; the first number is below 1.
        let normal = libm::sqrt(-2.0 * libm::log(1.0 - radius)) * libm::cos(std::f64::consts::TAU * angle);
        Micros::from_f64(libm::round(self.mean.0 as f64 + normal * self.deviation.0 as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    #[test]
    fn the_default_start_takes_as_long_as_published() {
        let start = StartTimes::default();
        let phases = |mode, sleeps| start.draw(mode, sleeps, &mut Stream::new(1, "starts").at(0));
        let (loading, warming) = phases(StartMode::Cold, false);
        assert_eq!((loading + warming, warming), (Micros(90_700_000), Micros(11_400_000)));
        assert_eq!(start.mean(StartMode::Cold, false), Micros(90_700_000));
        assert_eq!(phases(StartMode::Warm, false).0, Micros(65_300_000), "without the process");
        assert_eq!(phases(StartMode::Hot { pool: 1 }, false), (loading, warming), "nothing sleeps");
        assert_eq!(phases(StartMode::Hot { pool: 1 }, true), (Micros(3_000_000), Micros::ZERO));
    }

    #[test]
    fn random_times_have_their_mean_and_deviation_and_depend_on_the_replica_alone() {
        let phase = PhaseTime { mean: Micros(40_000_000), deviation: Micros(4_000_000) };
        let start = StartTimes { compile: phase, ..StartTimes::default() };
        let stream = Stream::new(7, "starts");
        let draw = |replica| start.draw(StartMode::Cold, false, &mut stream.at(replica));
        let times: Vec<f64> = (0..10_000).map(|replica| draw(replica).0.as_secs_f64() - 44.3).collect();
        let mean = times.iter().sum::<f64>() / 1e4;
        let deviation = (times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / 1e4).sqrt();
        // Three standard errors: 3 · 4 / √10 000, and 3 · 4 / √20 000.
        assert!((mean - 40.0).abs() < 0.12 && (deviation - 4.0).abs() < 0.085, "{mean} {deviation}");
        assert_eq!(draw(3), draw(3));
        assert_eq!(draw(3).1, Micros(11_400_000), "other phases are as they were");
        let wide = PhaseTime { mean: Micros(1), deviation: Micros(1_000_000) };
        assert!((0..100).any(|replica| wide.draw(&mut stream.at(replica)) == Micros::ZERO), "never negative");
    }
}
