//! Sampling parameters, as far as they cost time: what a request sets, what an engine does for it, and how many requests
//! of a step need that.

/// A sampling parameter of a request, by vLLM's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SamplingParam {
    /// `temperature`; in effect above 0. At 0 the request is greedy: `top_k`, `top_p` and `min_p` have no effect.
    Temperature = 1,
    /// `top_k`; in effect from 1 on.
    TopK = 1 << 1,
    /// `top_p`; in effect below 1.
    TopP = 1 << 2,
    /// `min_p`; in effect above 0.
    MinP = 1 << 3,
    /// `repetition_penalty`; in effect unless 1.
    RepetitionPenalty = 1 << 4,
    /// `presence_penalty`; in effect unless 0.
    PresencePenalty = 1 << 5,
    /// `frequency_penalty`; in effect unless 0.
    FrequencyPenalty = 1 << 6,
}

use SamplingParam::{FrequencyPenalty, MinP, PresencePenalty, RepetitionPenalty, Temperature, TopK, TopP};

impl SamplingParam {
    /// All parameters.
    pub const ALL: [Self; 7] = [Temperature, TopK, TopP, MinP, RepetitionPenalty, PresencePenalty, FrequencyPenalty];

    /// The name in requests and in `generation_config.json`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Temperature => "temperature",
            TopK => "top_k",
            TopP => "top_p",
            MinP => "min_p",
            RepetitionPenalty => "repetition_penalty",
            PresencePenalty => "presence_penalty",
            FrequencyPenalty => "frequency_penalty",
        }
    }

    /// Whether `value` changes how tokens are chosen. Values that vLLM refuses are not in effect.
    #[must_use]
    pub fn is_in_effect(self, value: f64) -> bool {
        match self {
            Temperature | TopK | MinP => value > 0.0,
            TopP => value < 1.0,
            RepetitionPenalty => value != 1.0,
            PresencePenalty | FrequencyPenalty => value != 0.0,
        }
    }
}

/// Sampling parameters that are set, each with whether it is in effect: those of a request, or those that the model's
/// `generation_config.json` sets for requests that do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SamplingParams {
    /// Bits of the parameters that are set, and of those of them that are in effect.
    set: u8,
    on: u8,
}

impl SamplingParams {
    /// These parameters, with `param` set to `value`.
    #[must_use]
    pub fn with(self, param: SamplingParam, value: f64) -> Self {
        let bit = param as u8;
        let on = if param.is_in_effect(value) { self.on | bit } else { self.on & !bit };
        Self { set: self.set | bit, on }
    }

    /// Whether no parameter is set.
    #[must_use]
    pub fn is_unset(self) -> bool {
        self.set == 0
    }

    /// These parameters, and `default` where none is set, as in vLLM: field by field.
    #[must_use]
    pub fn over(self, default: Self) -> Self {
        Self { set: self.set | default.set, on: self.on | default.on & !self.set }
    }

    /// What the engine does for a request with these parameters.
    #[must_use]
    pub fn work(self) -> Sampling {
        let any = |params: &[SamplingParam]| params.iter().any(|&param| self.on & param as u8 != 0);
        let greedy = self.set & Temperature as u8 != 0 && !any(&[Temperature]);
        Sampling {
            truncates: !greedy && any(&[TopK, TopP]),
            min_p: !greedy && any(&[MinP]),
            penalizes: any(&[RepetitionPenalty, PresencePenalty, FrequencyPenalty]),
        }
    }

    /// The parameters in two bytes, set and in effect; [`Self::from_bits`] reads them.
    #[must_use]
    pub fn bits(self) -> (u8, u8) {
        (self.set, self.on)
    }

    /// The parameters of [`Self::bits`]; those in effect that are not set are ignored, as are unknown bits.
    #[must_use]
    pub fn from_bits(set: u8, on: u8) -> Self {
        let set = set & 0x7f;
        Self { set, on: on & set }
    }
}

/// What an engine does to choose the tokens of a request, beyond the largest of the logits or a draw among all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// Whether `top_k` or `top_p` restricts the tokens to choose from.
    pub truncates: bool,
    /// Whether `min_p` does.
    pub min_p: bool,
    /// Whether tokens are penalised for having occurred (repetition, presence, frequency).
    pub penalizes: bool,
}

/// Numbers of requests of a step whose sampling is not that of the model's default, and what they need. All are 0 in a
/// step of requests that set no parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampledRows {
    /// Requests whose sampling is their own.
    pub own: u32,
    /// Those of them that restrict the tokens by `top_k` or `top_p`.
    pub truncated: u32,
    /// Those of them that restrict the tokens by `min_p`.
    pub min_p: u32,
    /// Those of them with a penalty.
    pub penalized: u32,
}

impl SampledRows {
    /// Counts a request; `None`: its sampling is the model's default.
    #[inline]
    pub fn add(&mut self, sampling: Option<Sampling>) {
        if let Some(Sampling { truncates, min_p, penalizes }) = sampling {
            self.own += 1;
            self.truncated += u32::from(truncates);
            self.min_p += u32::from(min_p);
            self.penalized += u32::from(penalizes);
        }
    }

    /// Takes back [`Self::add`].
    #[inline]
    pub fn remove(&mut self, sampling: Option<Sampling>) {
        if let Some(Sampling { truncates, min_p, penalizes }) = sampling {
            self.own -= 1;
            self.truncated -= u32::from(truncates);
            self.min_p -= u32::from(min_p);
            self.penalized -= u32::from(penalizes);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOTHING: SamplingParams = SamplingParams { set: 0, on: 0 };

    #[test]
    fn a_request_wins_over_the_model_field_by_field() {
        let llama = NOTHING.with(Temperature, 0.6).with(TopP, 0.9);
        let qwen = llama.with(TopK, 20.0).with(RepetitionPenalty, 1.05);
        assert_eq!(NOTHING.over(llama).work(), Sampling { truncates: true, ..Sampling::default() });
        let whole = NOTHING.with(TopP, 1.0);
        assert_eq!(whole.over(llama).work(), Sampling::default(), "its top_p replaces the model's");
        assert!(whole.over(qwen).work().truncates, "the model's top_k stays");
        let greedy = NOTHING.with(Temperature, 0.0);
        assert_eq!(greedy.over(qwen).work(), Sampling { penalizes: true, ..Sampling::default() }, "penalties stay");
        let random = NOTHING.with(Temperature, 1.0).with(MinP, 0.05);
        assert_eq!(random.over(greedy).work(), Sampling { min_p: true, ..Sampling::default() });
    }

    #[test]
    fn neutral_values_are_not_in_effect() {
        let neutral = [1.0, -1.0, 1.0, 0.0, 1.0, 0.0, 0.0];
        let set =
            SamplingParam::ALL.into_iter().zip(neutral).fold(NOTHING, |all, (param, value)| all.with(param, value));
        assert_eq!(set.work(), Sampling::default());
        assert!(!set.is_unset() && NOTHING.is_unset());
    }

    proptest! {
        #[test]
        fn bits_come_back(values in prop::collection::vec(prop::option::of(-2.0f64..2.0), 7)) {
            let set = |all: SamplingParams, (param, value): (SamplingParam, &Option<f64>)| {
                value.map_or(all, |value| all.with(param, value))
            };
            let params = SamplingParam::ALL.into_iter().zip(&values).fold(NOTHING, set);
            let (set, on) = params.bits();
            prop_assert_eq!(SamplingParams::from_bits(set, on), params);
            prop_assert_eq!(params.is_unset(), values.iter().all(Option::is_none));
        }

        #[test]
        fn removing_takes_adding_back(works in prop::collection::vec(prop::option::of(any::<[bool; 3]>()), 0..9)) {
            let work = |bits: [bool; 3]| Sampling { truncates: bits[0], min_p: bits[1], penalizes: bits[2] };
            let mut rows = SampledRows::default();
            works.iter().for_each(|bits| rows.add(bits.map(work)));
            prop_assert_eq!(rows.own as usize, works.iter().flatten().count());
            works.iter().for_each(|bits| rows.remove(bits.map(work)));
            prop_assert_eq!(rows, SampledRows::default());
        }
    }
}
