//! Why a policy decided as it did.

use std::fmt::{self, Display};

use crate::request::Name;

/// The reason for a decision, for people. The text is built only when it is read.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The policy gave no reason.
    None,
    /// The number of the turn, from 0. The texts are those of BLIS, each with the number that decided.
    RoundRobin(u64),
    /// The load of the chosen instance, the smallest one.
    LeastLoaded(u64),
    /// The score of the chosen instance.
    Weighted(f64),
    /// The load of the chosen instance, the largest one.
    AlwaysBusiest(u64),
    /// Whether the same prompt was sent to the chosen instance before.
    PrefixAffinity {
        /// It was: the prompt is probably cached there.
        hit: bool,
    },
    /// The token bucket holds fewer tokens than the prompt has.
    InsufficientTokens,
    /// The policy rejects every request.
    RejectAll,
    /// The priority of the class is too low for the present load.
    TierShed {
        /// Service class of the request.
        class: Name,
        /// The priority of its class.
        priority: i32,
        /// The lowest priority that is admitted.
        min: i32,
        /// The largest effective load of an instance, requests.
        load: u64,
    },
    /// The service is saturated and the class may be shed.
    GaieSaturated {
        /// Service class of the request.
        class: Name,
        /// Mean saturation over the instances, at least 1.
        saturation: f64,
    },
    /// The class may be shed, and chance decided so.
    Probabilistic {
        /// Service class of the request.
        class: Name,
        /// The probability of its rejection, 0 to 1.
        probability: f64,
    },
    /// The class may be shed, and no instance is predicted to serve the request in time.
    LatencySlo {
        /// Service class of the request.
        class: Name,
        /// The shortest predicted TTFT of an instance, µs.
        predicted_us: f64,
    },
    /// The tenant has more requests in flight than its share.
    TenantBudget,
    /// A policy that was loaded as a plugin, with the score of the chosen instance if it has scores.
    Plugin(Option<f64>),
    /// A plugin failed; the least loaded instance was chosen instead.
    Fallback,
    /// A counterfactual forced this decision.
    Forced,
    /// Any other reason, in the words of the policy.
    Text(Box<str>),
}

impl Reason {
    /// The reason as text. `class_text` gives the name of a class.
    #[must_use]
    pub fn text<'a>(&self, class_text: &dyn Fn(Name) -> &'a str) -> String {
        match self {
            Self::TierShed { class, priority, min, load } => tier_shed(class_text(*class), *priority, *min, *load),
            Self::GaieSaturated { class, saturation } => gaie_saturated(class_text(*class), *saturation),
            Self::Probabilistic { class, probability } => probabilistic(class_text(*class), *probability),
            Self::LatencySlo { class, predicted_us } => latency_slo(class_text(*class), *predicted_us),
            _ => self.to_string(),
        }
    }
}

/// As [`Reason::text`], with the indices of classes instead of their names.
impl Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::RoundRobin(turn) => write!(f, "round-robin[{turn}]"),
            Self::LeastLoaded(load) => write!(f, "least-loaded (load={load})"),
            Self::Weighted(score) => write!(f, "weighted-scoring (score={score:.3})"),
            Self::AlwaysBusiest(load) => write!(f, "always-busiest (load={load})"),
            Self::PrefixAffinity { hit: true } => f.write_str("prefix-affinity (hit)"),
            Self::PrefixAffinity { hit: false } => f.write_str("prefix-affinity (miss)"),
            Self::InsufficientTokens => f.write_str("insufficient tokens"),
            Self::RejectAll => f.write_str("reject-all"),
            Self::TierShed { class, priority, min, load } => f.write_str(&tier_shed(class.0, *priority, *min, *load)),
            Self::GaieSaturated { class, saturation } => f.write_str(&gaie_saturated(class.0, *saturation)),
            Self::Probabilistic { class, probability } => f.write_str(&probabilistic(class.0, *probability)),
            Self::LatencySlo { class, predicted_us } => f.write_str(&latency_slo(class.0, *predicted_us)),
            Self::TenantBudget => f.write_str("tenant-budget-shed"),
            Self::Plugin(None) => f.write_str("plugin"),
            Self::Plugin(Some(score)) => write!(f, "plugin (score={score:.3})"),
            Self::Fallback => f.write_str("fallback (plugin failed)"),
            Self::Forced => f.write_str("forced"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

fn tier_shed(class: impl Display, priority: i32, min: i32, load: u64) -> String {
    format!("tier-shed: class={class} priority={priority} < min={min} load={load}")
}

fn gaie_saturated(class: impl Display, saturation: f64) -> String {
    format!("gaie-saturated: class={class} saturation={saturation:.2}")
}

fn probabilistic(class: impl Display, probability: f64) -> String {
    format!("probabilistic: class={class} probability={probability:.2}")
}

fn latency_slo(class: impl Display, predicted_us: f64) -> String {
    format!("latency-slo: class={class} ttft={:.1}ms", predicted_us / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_read_as_in_blis() {
        let class = Name(1);
        let reasons = [
            Reason::RoundRobin(240),
            Reason::LeastLoaded(7),
            Reason::Weighted(0.6875),
            Reason::AlwaysBusiest(9),
            Reason::PrefixAffinity { hit: true },
            Reason::PrefixAffinity { hit: false },
            Reason::InsufficientTokens,
            Reason::RejectAll,
            Reason::TierShed { class, priority: -3, min: 3, load: 15 },
            Reason::GaieSaturated { class, saturation: 1.256 },
            Reason::TenantBudget,
        ];
        let texts: Vec<_> =
            reasons.iter().map(|reason| reason.text(&|name| ["", "background"][name.index()])).collect();
        insta::assert_snapshot!(texts.join("\n"), @r"
        round-robin[240]
        least-loaded (load=7)
        weighted-scoring (score=0.688)
        always-busiest (load=9)
        prefix-affinity (hit)
        prefix-affinity (miss)
        insufficient tokens
        reject-all
        tier-shed: class=background priority=-3 < min=3 load=15
        gaie-saturated: class=background saturation=1.26
        tenant-budget-shed
        ");
        assert_eq!(Reason::None.to_string(), "");
        assert_eq!(reasons[8].to_string(), "tier-shed: class=1 priority=-3 < min=3 load=15", "without names");
    }
}
