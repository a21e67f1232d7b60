//! Lists of filters and scorers as flags have them: `queue-depth:2,mine.rhai:1:cache=3`.

use blis_diag::quoted;

use super::{FilterSetting, ParameterInput, ScorerFault, ScorerName, WeightedScorer};

impl FilterSetting {
    /// Filters with their parameters: `prefix-cache-affinity:affinity=0.7,saturation,mine.rhai`.
    ///
    /// # Errors
    /// What is wrong with the first that is refused, and what to do.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        let filters: Vec<Self> = text.split(',').map(|part| filter(part.trim())).collect::<Result<_, String>>()?;
        Self::check(&filters).map_err(|(_, what, hint)| format!("{what}; {hint}"))?;
        Ok(filters)
    }
}

impl WeightedScorer {
    /// Scorers with their weights: `queue-depth:2,mine.rhai:1`.
    ///
    /// # Errors
    /// What is wrong with the first that is refused, and what to do.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        let scorers: Result<Vec<Self>, String> =
            text.split(',').enumerate().map(|(index, part)| scorer(part.trim(), index + 1)).collect();
        let scorers = scorers?;
        Self::check(&scorers).map_err(|ScorerFault { what, hint, .. }| format!("{what}; {hint}"))?;
        Ok(scorers)
    }
}

/// A name, and values of its parameters: `saturation:queue-depth=3`.
fn filter(text: &str) -> Result<FilterSetting, String> {
    let message = |(what, hint): (String, String)| format!("{what}; {hint}");
    let mut parts = text.split(':').map(str::trim);
    let mut filter = FilterSetting::named(parts.next().unwrap_or_default()).map_err(message)?;
    for part in parts {
        let Some((name, value)) = part.split_once('=').map(|(name, value)| (name.trim(), value.trim())) else {
            let parameters = filter.built_in().and_then(|filter| filter.parameters().next());
            let example = parameters.map(|(one, value)| format!(", like {}={value}", one.name)).unwrap_or_default();
            return Err(format!("`{part}`: must be a parameter of `{}` and its value{example}", filter.name()));
        };
        filter.set(name, ParameterInput::Word(value.to_owned())).map_err(message)?;
    }
    Ok(filter)
}

/// A name, a weight, and values of a plugin's parameters: `mine.rhai:2:cache=3`.
fn scorer(text: &str, number: usize) -> Result<WeightedScorer, String> {
    let mut parts = text.split(':').map(str::trim);
    let (Some(name), Some(weight)) = (parts.next(), parts.next()) else {
        return Err(format!("scorer {number}, `{text}`: must be a name and a weight, like queue-depth:1"));
    };
    let name = ScorerName::named(name)
        .map_err(|hint| format!("scorer {number}: unknown scorer {}; {hint}", quoted(name.as_bytes())))?;
    let weight = weight
        .parse()
        .map_err(|_| format!("scorer {number}, `{name}`: the weight is `{weight}`; it must be a number above 0"))?;
    let mut given = Vec::new();
    for part in parts {
        let assigned = part.split_once('=').filter(|_| matches!(name, ScorerName::Plugin(_)));
        let Some((parameter, value)) = assigned else {
            return Err(format!("scorer {number}, `{name}`: `{part}` must be a parameter of a plugin and its value"));
        };
        given.push((parameter.trim().to_owned(), ParameterInput::Word(value.trim().to_owned())));
    }
    Ok(WeightedScorer { name, weight, given })
}
