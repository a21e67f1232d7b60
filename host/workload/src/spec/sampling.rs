//! `sampling` of a client: the sampling parameters that its requests set.

use blis_sim::sampling::{SamplingParam, SamplingParams};

use super::error::SpecFileError;
use super::raw::{RawSampling, Spanned, Word};
use super::read::{ABOVE_0, FROM_0, NumberRange, SpecReader};

/// The sampling parameters that a client sets; the model's `generation_config.json` has the others, as in vLLM.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClientSampling {
    /// The values in the order of [`SamplingParam::ALL`].
    values: [Option<f64>; 7],
}

impl ClientSampling {
    /// The parameters that are set, with their values.
    pub fn values(&self) -> impl Iterator<Item = (SamplingParam, f64)> + '_ {
        SamplingParam::ALL.into_iter().zip(self.values).filter_map(|(param, value)| Some((param, value?)))
    }

    /// The parameters as the simulator takes them.
    #[must_use]
    pub fn params(&self) -> SamplingParams {
        self.values().fold(SamplingParams::default(), |params, (param, value)| params.with(param, value))
    }

    /// Reads the section; the ranges are vLLM's.
    pub(super) fn parse(
        reader: &SpecReader<'_>,
        subject: &str,
        raw: &Spanned<RawSampling>,
    ) -> Result<Self, SpecFileError> {
        const SHARE: NumberRange =
            NumberRange { fits: |share| share > 0.0 && share <= 1.0, text: "a number above 0, up to 1" };
        const MIN_P: NumberRange =
            NumberRange { fits: |share| (0.0..=1.0).contains(&share), text: "a number from 0 to 1" };
        const PENALTY: NumberRange =
            NumberRange { fits: |penalty| (-2.0..=2.0).contains(&penalty), text: "a number from -2 to 2" };
        let (subject, raw) = (format!("{subject}: sampling"), &raw.value);
        let number = |param: SamplingParam, word: &Option<Word>, range| {
            reader.number(&subject, param.name(), word.as_ref(), range)
        };
        let top_k = reader.whole(&subject, SamplingParam::TopK.name(), raw.top_k.as_ref(), -1..=i64::from(u32::MAX))?;
        Ok(Self {
            values: [
                number(SamplingParam::Temperature, &raw.temperature, FROM_0)?,
                top_k.map(|k| k as f64),
                number(SamplingParam::TopP, &raw.top_p, SHARE)?,
                number(SamplingParam::MinP, &raw.min_p, MIN_P)?,
                number(SamplingParam::RepetitionPenalty, &raw.repetition_penalty, ABOVE_0)?,
                number(SamplingParam::PresencePenalty, &raw.presence_penalty, PENALTY)?,
                number(SamplingParam::FrequencyPenalty, &raw.frequency_penalty, PENALTY)?,
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use blis_sim::sampling::Sampling;

    use super::super::NoFiles;
    use super::super::specification::Spec;

    fn parse(sampling: &str) -> Result<Spec, super::SpecFileError> {
        let text = format!(
            "aggregate_rate: 1\nnum_requests: 2\nclients:\n  - id: a\n    rate_fraction: 1\n    arrival: {{ process: \
             poisson }}\n    input_distribution: {{ type: constant, params: {{ value: 8 }} }}\n    \
             output_distribution: {{ type: constant, params: {{ value: 8 }} }}\n    sampling: {{ {sampling} }}\n"
        );
        Spec::parse("s.yaml", &text, &NoFiles)
    }

    #[test]
    fn requests_carry_the_parameters_of_their_client() {
        let spec = parse("temperature: 0.7, top_k: -1, top_p: 0.9, min_p: 0, repetition_penalty: 1.1").unwrap();
        let params = spec.clients[0].sampling.params();
        assert_eq!(params.work(), Sampling { truncates: true, min_p: false, penalizes: true });
        let usual = super::super::tests::options();
        let options = super::super::GenerateOptions { num_requests: spec.num_requests, ..usual };
        let requests: Vec<_> = spec.generate(&options).unwrap().requests.collect();
        assert!(requests.len() == 2 && requests.iter().all(|request| request.sampling == params));
        assert!(parse("").unwrap().clients[0].sampling.params().is_unset());
        assert_eq!(Spec::parse("s.yaml", &spec.to_string(), &NoFiles).unwrap(), spec);
    }

    #[test]
    fn values_that_vllm_refuses_are_refused() {
        let error = |sampling: &str| parse(sampling).unwrap_err().to_string();
        insta::assert_snapshot!(error("top_p: 0"), @r"
        s.yaml:9:24: client `a`: sampling: `top_p` is `0`
          9 |     sampling: { top_p: 0 }
            |                        ^
        hint: it must be a number above 0, up to 1
        ");
        insta::assert_snapshot!(error("topp: 0.9"), @r"
        s.yaml:9:17: unknown key `topp`
          9 |     sampling: { topp: 0.9 }
            |                 ^^^^
        hint: did you mean `top_p`?
        ");
        for wrong in
            ["temperature: -1", "top_k: -2", "top_k: 1.5", "min_p: 2", "presence_penalty: 3", "repetition_penalty: 0"]
        {
            assert!(error(wrong).contains("sampling: `"), "{wrong}");
        }
    }
}
