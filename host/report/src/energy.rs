//! The energy of GPUs in a run.

use blis_sim::energy::JOULES_PER_KWH;
use blis_sim::metrics::Report;
use serde::Serialize;

/// The energy of the GPUs; hosts, links and cooling are not in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuEnergy {
    /// Energy of the GPUs that were held. Unit: kWh.
    kwh: f64,
    /// The part of it while they computed steps. Unit: kWh.
    busy_kwh: f64,
    /// Mean power of a GPU that was held. Unit: W.
    mean_gpu_w: f64,
    /// Energy of the GPUs for an output token of completed requests; `null` without any. Unit: J.
    joules_per_output_token: Option<f64>,
    /// What the power was measured on.
    calibration: &'static str,
}

/// Of the GPU that was measured.
const MEASURED: &str = "calibrated on linear layers and decode attention of one H100; whole services are uncalibrated";
/// Of all others.
const SCALED: &str = "uncalibrated: shares of the power limit as measured on one H100";

impl GpuEnergy {
    /// The energy of `report` on this GPU; `None` if it was not computed.
    #[must_use]
    pub fn new(report: &Report, hardware: &str) -> Option<Self> {
        let (joules, used, gpu_hours) = (report.joules()?, report.energy?, report.gpu_hours()?);
        Some(Self {
            kwh: joules / JOULES_PER_KWH,
            busy_kwh: used.busy_joules / JOULES_PER_KWH,
            mean_gpu_w: if gpu_hours > 0.0 { joules / gpu_hours / 3600.0 } else { 0.0 },
            joules_per_output_token: report.joules_per_output_token(),
            calibration: if hardware == "H100" { MEASURED } else { SCALED },
        })
    }

    /// The text of the line in the summary.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { kwh, busy_kwh, mean_gpu_w, joules_per_output_token, calibration } = self;
        let per_token =
            joules_per_output_token.map_or(String::new(), |joules| format!(", {joules:.2} J per output token"));
        format!(
            "{kwh:.4} kWh of GPUs held, {busy_kwh:.4} while they compute, {mean_gpu_w:.0} W mean of each{per_token} ({calibration})"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::energy::EnergyUse;
    use blis_sim::metrics::{Aggregate, Counts, InstanceCost};
    use blis_sim::units::Micros;

    /// Two instances of two GPUs for an hour, one of which computes for half of it.
    #[test]
    fn gpus_that_are_held_draw_power_without_work() {
        let counts = Counts { output_tokens: 1000, ..Counts::default() };
        let cluster = Aggregate { duration: Micros(3_600_000_000), counts, ..Aggregate::default() };
        let report = Report {
            instances: vec![cluster; 2],
            cluster,
            cost: InstanceCost { gpus: 2, gpu_price: None },
            energy: Some(EnergyUse { busy_s: 1800.0, busy_joules: 1800.0 * 1000.0, idle_w: 200.0 }),
            ..Report::default()
        };
        let energy = GpuEnergy::new(&report, "H100").expect("computed");
        // 0.5 kWh of steps, and 1.5 instance-hours at 200 W.
        assert_eq!((energy.busy_kwh, energy.kwh), (0.5, 0.8));
        assert_eq!((energy.mean_gpu_w, energy.joules_per_output_token), (200.0, Some(2880.0)));
        assert_eq!(
            energy.line(),
            "0.8000 kWh of GPUs held, 0.5000 while they compute, 200 W mean of each, 2880.00 J per output token \
             (calibrated on linear layers and decode attention of one H100; whole services are uncalibrated)"
        );
        let other = GpuEnergy::new(&report, "L4").expect("computed");
        assert!(other.line().contains("(uncalibrated: "), "{other:?}");
        assert_eq!(GpuEnergy::new(&Report { energy: None, ..report }, "H100"), None);
    }
}
