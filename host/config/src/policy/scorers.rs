//! The scorers of a routing pipeline: built in, or plugins, with their weights.

use std::fmt::{self, Display};

use blis_diag::name_hint;
use blis_sim::policy::{DEFAULT_PROFILE, ScorerKind};

use super::llm_d::plugins::{PluginType, Role};
use super::parameter::ParameterInput;

/// A scorer and its weight.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedScorer {
    pub name: ScorerName,
    /// A finite number above 0; only the ratios of weights matter.
    pub weight: f64,
    /// Values for parameters of a plugin.
    pub given: Vec<(String, ParameterInput)>,
}

/// Which scorer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScorerName {
    BuiltIn(ScorerKind),
    /// A plugin, by the name or path as it was written.
    Plugin(String),
}

impl ScorerName {
    /// The scorer called `name`: a built-in one, else a plugin, which may not exist.
    ///
    /// # Errors
    /// If it is a scorer of llm-d that has another name here: the hint.
    pub fn named(name: &str) -> Result<Self, String> {
        match ScorerKind::find(name) {
            Some(kind) => Ok(Self::BuiltIn(kind)),
            None if name.is_empty() || scorer_of_llm_d(name).is_some() => Err(scorer_hint(name)),
            None => Ok(Self::Plugin(name.to_owned())),
        }
    }

    /// The name in flags and bundles.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::BuiltIn(kind) => kind.name(),
            Self::Plugin(name) => name,
        }
    }
}

impl Display for ScorerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// As in `--routing-scorers`: the name, the weight, and values of a plugin's parameters.
impl Display for WeightedScorer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name.name(), self.weight)?;
        self.given.iter().try_for_each(|(name, value)| write!(f, ":{name}={value}"))
    }
}

impl WeightedScorer {
    /// The scorers of `weighted` without any setting.
    pub const DEFAULT: [Self; 3] = [Self::default_at(0), Self::default_at(1), Self::default_at(2)];

    const fn default_at(index: usize) -> Self {
        let (kind, weight) = DEFAULT_PROFILE[index];
        Self::built_in(kind, weight)
    }

    /// A scorer of this program.
    #[must_use]
    pub const fn built_in(kind: ScorerKind, weight: f64) -> Self {
        Self { name: ScorerName::BuiltIn(kind), weight, given: Vec::new() }
    }

    /// The scorer, if it is one of this program.
    #[must_use]
    pub fn kind(&self) -> Option<ScorerKind> {
        match self.name {
            ScorerName::BuiltIn(kind) => Some(kind),
            ScorerName::Plugin(_) => None,
        }
    }

    /// Checks a list of scorers.
    ///
    /// # Errors
    /// If the list is empty, a scorer occurs twice, or a weight is out of range.
    pub fn check(scorers: &[Self]) -> Result<(), ScorerFault> {
        let fault = |index, in_weight, what, hint: &str| ScorerFault { index, in_weight, what, hint: hint.into() };
        if scorers.is_empty() {
            return Err(fault(0, false, "there is no scorer".into(), "name at least one, or leave out the list"));
        }
        for (index, Self { name, weight, .. }) in scorers.iter().enumerate() {
            let (number, text) = (index + 1, name.name());
            if !(weight.is_finite() && *weight > 0.0) {
                let what = format!("scorer {number}, `{text}`: the weight is {weight}");
                return Err(fault(index, true, what, "a weight is a number above 0"));
            }
            if let Some(first) = scorers[..index].iter().position(|other| other.name == *name) {
                let what = format!("scorer {number}, `{text}`: scorer {} is the same", first + 1);
                return Err(fault(index, false, what, "give it once, with the sum of the weights"));
            }
        }
        let sum: f64 = scorers.iter().map(|scorer| scorer.weight).sum();
        if sum.is_finite() { Ok(()) } else { Err(fault(0, true, "the weights add up to infinity".into(), TOO_LARGE)) }
    }
}

/// An error in a list of scorers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScorerFault {
    /// Index of the wrong scorer in the list, from 0.
    pub index: usize,
    /// Whether its weight is wrong, instead of its name.
    pub in_weight: bool,
    pub what: String,
    /// What the user can do about it.
    pub hint: String,
}

pub(super) const TOO_LARGE: &str = "only their ratios matter: divide them all by the largest";

/// The hint for an unknown scorer `name`.
#[must_use]
pub fn scorer_hint(name: &str) -> String {
    let known = ScorerKind::ALL.map(ScorerKind::name);
    let short = name.strip_suffix("-scorer").unwrap_or(name);
    match scorer_of_llm_d(name).or_else(|| known.into_iter().find(|known| known.starts_with(short))) {
        Some(scorer) if !short.is_empty() => format!("did you mean `{scorer}`?"),
        _ => name_hint(name, &known),
    }
}

/// The hint for an unknown routing policy that is a plugin of llm-d's scheduler: its scorers are those of `weighted`.
#[must_use]
pub fn llm_d_hint(name: &str) -> Option<String> {
    if name == "max-score-picker" {
        return Some("`weighted` picks the instance with the highest score".to_owned());
    }
    let scorer = scorer_of_llm_d(name)?;
    Some(format!("it is a scorer of `weighted`: `--routing-policy weighted --routing-scorers {scorer}:1`"))
}

/// The scorer that llm-d's endpoint picker calls `name`.
fn scorer_of_llm_d(name: &str) -> Option<&'static str> {
    match PluginType::find(name)?.role {
        Role::Scorer(kind) => Some(kind.name()),
        _ => None,
    }
}
