//! What a recommendation may cost, and which weights it may have.

use strum::{EnumString, IntoStaticStr, VariantNames};

/// The most that a deployment may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// No limit: the cheapest.
    Unlimited,
    /// Unit: GPUs.
    Gpus(u32),
    /// Needs prices. Unit: $/h.
    UsdPerHour(f64),
}

/// Formats of weights that are tried beside those of the model as it is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum Weights {
    /// None: as published.
    Published,
    /// Weights of 16 bits quantised to FP8 as they are loaded, on GPUs that compute in FP8.
    Fp8,
    /// The checkpoint in NVFP4 (the name with `-nvfp4`), on GPUs that compute in FP4.
    Nvfp4,
}

/// Rounding of sums of prices.
const ROUNDING: f64 = 1e-9;

impl Budget {
    /// `40$/h`, `$40`, `40`.
    ///
    /// # Errors
    /// If it is no amount above 0.
    pub fn parse_usd(text: &str) -> Result<f64, String> {
        let bare: String = text.chars().filter(|c| !c.is_whitespace() && *c != '$').collect();
        let bare = bare.to_lowercase();
        let bare = bare.strip_suffix("/hour").or_else(|| bare.strip_suffix("/h")).unwrap_or(&bare);
        let bare = bare.strip_suffix("usd").unwrap_or(bare);
        let amount: Option<f64> = bare.parse().ok().filter(|usd: &f64| usd.is_finite() && *usd > 0.0);
        amount.ok_or_else(|| format!("`{text}` must be dollars per hour above 0, like 40$/h"))
    }

    /// The most replicas of `gpus` GPUs each, of that price per GPU; 0 if one is too expensive, `most` without a limit.
    #[must_use]
    pub fn replicas(self, gpus: u32, usd_per_gpu_hour: Option<f64>, most: u32) -> u32 {
        let within = |limit: f64, each: f64| ((limit / each * (1.0 + ROUNDING)) as u32).min(most);
        match (self, usd_per_gpu_hour) {
            (Self::Unlimited, _) | (Self::UsdPerHour(_), None) => most,
            (Self::Gpus(limit), _) => within(f64::from(limit), f64::from(gpus)),
            (Self::UsdPerHour(limit), Some(usd)) => within(limit, usd * f64::from(gpus)),
        }
    }

    /// `8 GPUs`, `40 $/h`; empty without a limit.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Unlimited => String::new(),
            Self::Gpus(1) => "1 GPU".to_owned(),
            Self::Gpus(gpus) => format!("{gpus} GPUs"),
            Self::UsdPerHour(usd) => format!("{usd} $/h"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read_with_and_without_units() {
        for text in ["40$/h", "$40", "40", " 40 $/h", "40 USD/h", "40$/hour"] {
            assert_eq!(Budget::parse_usd(text), Ok(40.0), "{text}");
        }
        for text in ["", "-4", "0", "much", "nan", "inf", "40€/h"] {
            assert!(Budget::parse_usd(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_budget_allows_whole_replicas() {
        assert_eq!(Budget::Gpus(8).replicas(2, None, 100), 4);
        assert_eq!(Budget::Gpus(8).replicas(3, Some(2.0), 100), 2);
        assert_eq!(Budget::UsdPerHour(9.96).replicas(1, Some(2.49), 100), 4);
        assert_eq!(Budget::UsdPerHour(4.0).replicas(2, Some(2.49), 100), 0);
        assert_eq!(Budget::Unlimited.replicas(8, None, 100), 100);
    }
}
