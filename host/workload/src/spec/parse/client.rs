//! Parses clients and cohorts.

use blis_sim::units::Micros;

use super::super::client::{Client, ClientLoad, ClientNetwork, MultiTurn, Multimodal, Prefix, Timeout, Turns};
use super::super::cohort::{Cohort, Diurnal, DrainSpec, PrefixSharing, Spike};
use super::super::error::SpecFileError;
use super::super::lengths::LONGEST;
use super::super::raw::{
    RawClient, RawDiurnal, RawDrain, RawLengths, RawMultiTurn, RawMultimodal, RawSpike, RawWindow, Word,
};
use super::super::read::{FROM_0, NumberRange, SpecReader};
use super::super::window::{Window, WindowRate};
use super::super::{Arrival, ClientSampling, Lengths, PromptCycle};
use super::parser::{NAME_MAX, Parser, RATE, client_location};
use crate::MaxTokens;
use blis_diag::yaml::{Mark, Spanned};
use blis_diag::{name_hint, quoted};

const CLASSES: [&str; 6] = ["", "critical", "standard", "sheddable", "batch", "background"];

/// Prefix length of a group without any length, tokens.
const USUAL_PREFIX: u32 = 50;
const PREFIX_MAX: u32 = 1 << 24;
const ROUNDS_MAX: u32 = 1_000_000;

/// Parses clients and collects warnings.
pub(super) struct ClientParser<'a> {
    parser: &'a Parser<'a>,
    /// Whether the file has version 1, in which classes have other names.
    first_version: bool,
    /// Names of the parts, in order.
    parts: Vec<String>,
    pub warnings: Vec<(String, String)>,
}

impl<'a> ClientParser<'a> {
    pub fn new(parser: &'a Parser<'a>, version: &str, parts: Vec<String>) -> Self {
        Self { parser, first_version: version != "2", parts, warnings: Vec::new() }
    }

    fn reader(&self) -> &'a SpecReader<'a> {
        &self.parser.reader
    }

    pub fn client(&mut self, index: usize, raw: &Spanned<RawClient>) -> Result<Client, SpecFileError> {
        let value = &raw.value;
        let of_cohort = [
            (value.population.as_ref().map(|word| word.referenced), "population"),
            (value.prefix_sharing.as_ref().map(|word| word.referenced), "prefix_sharing"),
            (value.diurnal.as_ref().map(|section| section.referenced), "diurnal"),
            (value.spike.as_ref().map(|section| section.referenced), "spike"),
            (value.drain.as_ref().map(|section| section.referenced), "drain"),
        ];
        let subject = name("client", index, value);
        if let Some((at, key)) = of_cohort.into_iter().find_map(|(at, key)| Some((at?, key))) {
            let what = format!("{subject}: `{key}` belongs to a cohort");
            return Err(self.reader().wrong(at, what, "move it from `clients` to `cohorts`, or leave it out"));
        }
        let mut client = self.common(&subject, raw)?;
        for window in raw.value.lifecycle.iter().flat_map(|lifecycle| lifecycle.value.windows.iter().flatten()) {
            client.windows.push(self.window(&subject, window)?);
        }
        Ok(client)
    }

    pub fn cohort(&mut self, index: usize, raw: &Spanned<RawClient>) -> Result<Cohort, SpecFileError> {
        let (subject, reader) = (name("cohort", index, &raw.value), self.reader());
        if let Some(lifecycle) = &raw.value.lifecycle {
            let what = format!("{subject}: `lifecycle` belongs to a client");
            return Err(reader.wrong(lifecycle.referenced, what, "a cohort has `diurnal`, `spike` and `drain`"));
        }
        let population = reader.whole(&subject, "population", raw.value.population.as_ref(), 1..=100_000)?;
        let sharing = raw.value.prefix_sharing.as_ref();
        let sharing = sharing
            .map(|word| reader.one_of(&subject, "prefix_sharing", word, &["", "shared", "per_member"]))
            .transpose()?;
        Ok(Cohort {
            client: self.common(&subject, raw)?,
            population: reader.needs(&subject, "population", population, client_location(raw))?,
            prefix_sharing: if sharing == Some("per_member") {
                PrefixSharing::PerMember
            } else {
                PrefixSharing::Shared
            },
            diurnal: raw.value.diurnal.as_ref().map(|diurnal| self.diurnal(&subject, diurnal)).transpose()?,
            spike: raw.value.spike.as_ref().map(|spike| self.spike(&subject, spike)).transpose()?,
            drain: raw.value.drain.as_ref().map(|drain| self.drain(&subject, drain)).transpose()?,
        })
    }

    /// Parses the keys that clients and cohorts share.
    fn common(&mut self, subject: &str, raw: &Spanned<RawClient>) -> Result<Client, SpecFileError> {
        let (parser, reader, at, raw) = (self.parser, self.reader(), client_location(raw), &raw.value);
        let multimodal = raw.multimodal.as_ref().map(|parts| self.multimodal(subject, parts)).transpose()?;
        let input = match (&raw.input_distribution, &multimodal) {
            // It is not used: the prompt consists of several parts.
            (None, Some(_)) => Lengths::Constant(1),
            (given, _) => parser.needed_lengths(subject, "input_distribution", given.as_ref(), at)?,
        };
        let load = self.load(subject, raw, at)?;
        let arrival = match (&raw.arrival, load) {
            (Some(arrival), _) => parser.arrival(subject, arrival)?,
            (None, load) if load.is_concurrency() => Arrival::Poisson,
            (None, _) => reader.needs(subject, "arrival", None, at)?,
        };
        let reasoning = raw.reasoning.as_ref();
        let ratio = reasoning.and_then(|reasoning| reasoning.reason_ratio_distribution.as_ref());
        let turns = reasoning.and_then(|reasoning| reasoning.multi_turn.as_ref());
        let multi_turn = turns.map(|turns| self.multi_turn(subject, turns)).transpose()?;
        let micros = |key, word: &Option<Word>| {
            reader.whole(subject, key, word.as_ref(), 0..=Micros::MAX.0).map(|us| us.map(Micros))
        };
        Ok(Client {
            id: self.text(subject, "id", raw.id.as_ref())?,
            part: self.part(subject, raw.part.as_ref())?,
            tenant_id: self.text(subject, "tenant_id", raw.tenant_id.as_ref())?,
            slo_class: self.class(subject, raw.slo_class.as_ref())?,
            model: self.text(subject, "model", raw.model.as_ref())?,
            adapter: self.text(subject, "adapter", raw.adapter.as_ref())?,
            load,
            arrival,
            input,
            output: parser.needed_lengths(subject, "output_distribution", raw.output_distribution.as_ref(), at)?,
            max_tokens: self.max_tokens(subject, raw.max_tokens.as_ref())?,
            prefix: self.prefix(subject, raw)?,
            prompts: self.prompts(subject, raw)?,
            sampling: match &raw.sampling {
                Some(sampling) => ClientSampling::parse(reader, subject, sampling)?,
                None => ClientSampling::default(),
            },
            streaming: reader.switch(subject, "streaming", raw.streaming.as_ref())?.unwrap_or(false),
            network: self.network(subject, raw)?,
            windows: Vec::new(),
            multimodal,
            reason_ratio: parser.lengths(subject, "reason_ratio_distribution", ratio)?,
            turns: turns.map(|turns| self.turns(subject, &turns.value)).transpose()?.unwrap_or_default(),
            multi_turn,
            timeout: match micros("timeout", &raw.timeout)? {
                None => Timeout::Unsaid,
                Some(Micros::ZERO) => Timeout::Never,
                Some(timeout) => Timeout::After(timeout),
            },
            slo_target: micros("slo_target_us", &raw.slo_target_us)?.filter(|&target| target > Micros::ZERO),
            closed_loop: reader
                .switch(subject, "closed_loop", raw.closed_loop.as_ref())?
                .unwrap_or(multi_turn.is_some()),
        })
    }

    fn max_tokens(&self, subject: &str, word: Option<&Word>) -> Result<MaxTokens, SpecFileError> {
        const KEY: &str = "max_tokens";
        let Some(word) = word else { return Ok(MaxTokens::Drawn) };
        if word.value.starts_with(|first: char| first.is_ascii_digit()) {
            let limit = self.reader().whole(subject, KEY, Some(word), 1..=LONGEST)?;
            return Ok(limit.map_or(MaxTokens::Drawn, MaxTokens::Fixed));
        }
        Ok(match self.reader().one_of(subject, KEY, word, &["drawn", "none", "length"])? {
            "none" => MaxTokens::Unlimited,
            "length" => MaxTokens::Length,
            _ => MaxTokens::Drawn,
        })
    }

    fn text(&self, subject: &str, key: &str, word: Option<&Word>) -> Result<String, SpecFileError> {
        match word {
            Some(word) if word.value.len() > NAME_MAX => {
                let what = format!("{subject}: `{key}` is longer than {NAME_MAX} bytes");
                Err(self.reader().wrong(word.referenced, what, "is this the right file?"))
            }
            word => Ok(word.map_or_else(String::new, |word| word.value.clone())),
        }
    }

    fn part(&self, subject: &str, word: Option<&Word>) -> Result<Option<usize>, SpecFileError> {
        let Some(word) = word.filter(|word| !word.value.is_empty()) else { return Ok(None) };
        match self.parts.iter().position(|name| *name == word.value) {
            Some(part) => Ok(Some(part)),
            None => {
                let names: Vec<&str> = self.parts.iter().map(String::as_str).collect();
                let what = format!("{subject}: there is no part {}", quoted(word.value.as_bytes()));
                let hint =
                    if names.is_empty() { "name it under `parts`".to_owned() } else { name_hint(&word.value, &names) };
                Err(self.reader().wrong(word.referenced, what, hint))
            }
        }
    }

    fn class(&self, subject: &str, word: Option<&Word>) -> Result<String, SpecFileError> {
        let Some(word) = word else { return Ok(String::new()) };
        let name = match word.value.as_str() {
            "realtime" if self.first_version => "critical",
            "interactive" if self.first_version => "standard",
            _ => self.reader().one_of(subject, "slo_class", word, &CLASSES)?,
        };
        Ok(name.to_owned())
    }

    /// Parses a share of the rate, or a number of users or sessions.
    fn load(&self, subject: &str, raw: &RawClient, at: Mark) -> Result<ClientLoad, SpecFileError> {
        let reader = self.reader();
        let share =
            reader.number(subject, "rate_fraction", raw.rate_fraction.as_ref(), RATE)?.filter(|&share| share > 0.0);
        let users =
            reader.whole(subject, "concurrency", raw.concurrency.as_ref(), 0..=1_000_000_u32)?.filter(|&n| n > 0);
        let think_time = reader.whole(subject, "think_time_us", raw.think_time_us.as_ref(), 0..=Micros::MAX.0)?;
        if let Some(sessions) = self.concurrent_sessions(subject, raw)? {
            return Ok(sessions);
        }
        match (share, users) {
            (Some(_), Some(_)) => {
                let what = format!("{subject}: `rate_fraction` and `concurrency` both define how much it sends");
                Err(reader.wrong(at, what, "keep one of them"))
            }
            (None, Some(count)) => Ok(ClientLoad::Users { count, think_time: Micros(think_time.unwrap_or(0)) }),
            (Some(_), None) if think_time.is_some_and(|us| us > 0) => {
                let what = format!("{subject}: `think_time_us` without `concurrency`");
                Err(reader.wrong(at, what, "sessions have theirs under `reasoning`, `multi_turn`"))
            }
            (Some(share), None) => Ok(ClientLoad::Share(share)),
            (None, None) => {
                let word = raw.rate_fraction.as_ref().map_or(at, |word| word.referenced);
                let what = match &raw.rate_fraction {
                    Some(word) => format!("{subject}: `rate_fraction` is {}", quoted(word.value.as_bytes())),
                    None => format!("{subject}: `rate_fraction` is missing"),
                };
                Err(reader.wrong(word, what, "its share of the aggregate rate is a number above 0"))
            }
        }
    }

    /// Parses a number of concurrent sessions.
    fn concurrent_sessions(&self, subject: &str, raw: &RawClient) -> Result<Option<ClientLoad>, SpecFileError> {
        let reader = self.reader();
        let count = reader.whole(subject, "sessions", raw.sessions.as_ref(), 1..=1_000_000_u32)?;
        let (Some(count), Some(word)) = (count, &raw.sessions) else { return Ok(None) };
        let others = [
            (&raw.rate_fraction, "rate_fraction"),
            (&raw.concurrency, "concurrency"),
            (&raw.think_time_us, "think_time_us"),
        ];
        if let Some((other, key)) = others.into_iter().find_map(|(word, key)| Some((word.as_ref()?, key))) {
            let what = format!("{subject}: `{key}` cannot be used with `sessions`");
            let hint = if key == "think_time_us" {
                "the think time of sessions is under `reasoning`, `multi_turn`"
            } else {
                "keep the one that defines how much it sends"
            };
            return Err(reader.wrong(other.referenced, what, hint));
        }
        let turns = raw.reasoning.as_ref().and_then(|reasoning| reasoning.multi_turn.as_ref());
        let Some(turns) = turns else {
            let what = format!("{subject}: `sessions` without `multi_turn`");
            return Err(reader.wrong(
                word.referenced,
                what,
                "describe its rounds under `reasoning`, `multi_turn`; users with one request at a time are `concurrency`",
            ));
        };
        if let Some(single) = turns.value.single_session.as_ref().filter(|word| word.value == "true") {
            let what = format!("{subject}: `single_session` with `sessions`");
            return Err(reader.wrong(single.referenced, what, "leave it out: `sessions: 1` has one session at a time"));
        }
        if let Some(open) = raw.closed_loop.as_ref().filter(|_| {
            reader.switch(subject, "closed_loop", raw.closed_loop.as_ref()).is_ok_and(|closed| closed == Some(false))
        }) {
            let what = format!("{subject}: `sessions` with `closed_loop: false`");
            return Err(reader.wrong(open.referenced, what, "a session begins when another has ended: leave it out"));
        }
        Ok(Some(ClientLoad::Sessions(count)))
    }

    fn prefix(&mut self, subject: &str, raw: &RawClient) -> Result<Option<Prefix>, SpecFileError> {
        let tokens = self.reader().whole(subject, "prefix_length", raw.prefix_length.as_ref(), 0..=PREFIX_MAX)?;
        let group = self.text(subject, "prefix_group", raw.prefix_group.as_ref())?;
        if !group.is_empty() {
            let tokens = tokens.filter(|&tokens| tokens > 0).unwrap_or(USUAL_PREFIX);
            return Ok(Some(Prefix { group, tokens }));
        }
        if let (Some(word), Some(1..)) = (&raw.prefix_length, tokens) {
            let what = format!(
                "{}: {subject}: `prefix_length` without `prefix_group` has no effect",
                self.reader().location(word.referenced)
            );
            self.warnings
                .push((what, "name a group; a client alone in it shares the prefix among its own requests".to_owned()));
        }
        Ok(None)
    }

    /// Fixed prompts, which have neither sessions nor another prefix.
    fn prompts(&self, subject: &str, raw: &RawClient) -> Result<Option<PromptCycle>, SpecFileError> {
        let Some(cycle) = &raw.prompt_cycle else { return Ok(None) };
        let turns = raw.reasoning.as_ref().and_then(|reasoning| reasoning.multi_turn.as_ref());
        let others = [
            (turns.map(|turns| turns.referenced), "multi_turn"),
            (raw.concurrency.as_ref().map(|word| word.referenced), "concurrency"),
            (raw.prefix_group.as_ref().map(|word| word.referenced), "prefix_group"),
            (raw.multimodal.as_ref().map(|parts| parts.referenced), "multimodal"),
            (raw.population.as_ref().map(|word| word.referenced), "population"),
        ];
        if let Some((at, key)) = others.into_iter().find_map(|(at, key)| Some((at?, key))) {
            let what = format!("{subject}: `{key}` cannot be used with `prompt_cycle`");
            return Err(self.reader().wrong(at, what, "leave out one of them"));
        }
        PromptCycle::parse(self.reader(), subject, cycle).map(Some)
    }

    fn network(&self, subject: &str, raw: &RawClient) -> Result<Option<ClientNetwork>, SpecFileError> {
        let Some(raw) = &raw.network else { return Ok(None) };
        let number = |key, word: &Option<Word>| self.reader().number(subject, key, word.as_ref(), FROM_0);
        Ok(Some(ClientNetwork {
            rtt_ms: number("rtt_ms", &raw.rtt_ms)?.unwrap_or(0.0),
            bandwidth_mbps: number("bandwidth_mbps", &raw.bandwidth_mbps)?.unwrap_or(0.0),
        }))
    }

    fn multimodal(&self, subject: &str, raw: &Spanned<RawMultimodal>) -> Result<Multimodal, SpecFileError> {
        let (parser, parts) = (self.parser, &raw.value);
        let lengths = |key: &str, raw: &Option<Spanned<RawLengths>>| parser.lengths(subject, key, raw.as_ref());
        let item = |kind: &str, size: &Option<Spanned<RawLengths>>, count: &Option<Spanned<RawLengths>>| {
            let (size_key, count_key) = (format!("{kind}_distribution"), format!("{kind}_count_distribution"));
            match (lengths(&size_key, size)?, lengths(&count_key, count)?) {
                (Some(size), count) => Ok(Some((size, count.unwrap_or(Lengths::Constant(1))))),
                (None, None) => Ok(None),
                (None, Some(_)) => {
                    let what = format!("{subject}: multimodal: `{count_key}` without `{size_key}`");
                    Err(self.reader().wrong(raw.referenced, what, "give the number of tokens of one item"))
                }
            }
        };
        Ok(Multimodal {
            text: lengths("text_distribution", &parts.text_distribution)?,
            items: [
                item("image", &parts.image_distribution, &parts.image_count_distribution)?,
                item("audio", &parts.audio_distribution, &parts.audio_count_distribution)?,
                item("video", &parts.video_distribution, &parts.video_count_distribution)?,
            ],
        })
    }

    fn multi_turn(&self, subject: &str, raw: &Spanned<RawMultiTurn>) -> Result<MultiTurn, SpecFileError> {
        let (reader, subject, turns) = (self.reader(), format!("{subject}: multi_turn"), &raw.value);
        let max_rounds = reader.whole(&subject, "max_rounds", turns.max_rounds.as_ref(), 1..=ROUNDS_MAX)?;
        if let (Some(word), Some(_)) = (&turns.think_time_us, &turns.think_time_ms_distribution) {
            let what =
                format!("{subject}: `think_time_us` and `think_time_ms_distribution` both define the think time");
            return Err(reader.wrong(word.referenced, what, "keep one of them"));
        }
        let think_time = reader.whole(&subject, "think_time_us", turns.think_time_us.as_ref(), 0..=Micros::MAX.0)?;
        let growth = turns.context_growth.as_ref();
        let growth =
            growth.map(|word| reader.one_of(&subject, "context_growth", word, &["", "accumulate"])).transpose()?;
        Ok(MultiTurn {
            max_rounds: reader.needs(&subject, "max_rounds", max_rounds, raw.referenced)?,
            think_time: Micros(think_time.unwrap_or(0)),
            accumulate: growth == Some("accumulate"),
            single_session: reader.switch(&subject, "single_session", turns.single_session.as_ref())?.unwrap_or(false),
        })
    }

    /// Parses the properties that differ from session to session.
    fn turns(&self, subject: &str, raw: &RawMultiTurn) -> Result<Turns, SpecFileError> {
        let (parser, subject) = (self.parser, format!("{subject}: multi_turn"));
        let lengths = |key: &str, raw: &Option<Spanned<RawLengths>>| parser.lengths(&subject, key, raw.as_ref());
        Ok(Turns {
            rounds: lengths("rounds_distribution", &raw.rounds_distribution)?,
            think_time_ms: lengths("think_time_ms_distribution", &raw.think_time_ms_distribution)?,
            opening: lengths("opening_distribution", &raw.opening_distribution)?,
        })
    }

    fn window(&self, subject: &str, raw: &Spanned<RawWindow>) -> Result<Window, SpecFileError> {
        let (parser, reader, subject, window) = (self.parser, self.reader(), format!("{subject}: window"), &raw.value);
        let time = |key, word: &Option<Word>| reader.whole(&subject, key, word.as_ref(), 0..=Micros::MAX.0);
        let start = Micros(time("start_us", &window.start_us)?.unwrap_or(0));
        let end = reader.needs(&subject, "end_us", time("end_us", &window.end_us)?, raw.referenced)?;
        if end <= start.0 {
            let what = format!("{subject}: `end_us` {end} is not after `start_us` {}", start.0);
            return Err(reader.wrong(raw.referenced, what, "a window ends after it starts"));
        }
        Ok(Window {
            start,
            end: Micros(end),
            rate: self.window_rate(&subject, window, raw.referenced)?,
            arrival: window.arrival.as_ref().map(|arrival| parser.arrival(&subject, arrival)).transpose()?,
            input: parser.lengths(&subject, "input_distribution", window.input_distribution.as_ref())?,
            output: parser.lengths(&subject, "output_distribution", window.output_distribution.as_ref())?,
            reason_ratio: parser.lengths(
                &subject,
                "reason_ratio_distribution",
                window.reason_ratio_distribution.as_ref(),
            )?,
        })
    }

    /// Parses the rate of a window, which has one of three keys.
    fn window_rate(&self, subject: &str, raw: &RawWindow, at: Mark) -> Result<WindowRate, SpecFileError> {
        let weight = self.trace_rate(subject, raw.trace_rate.as_ref())?.map(WindowRate::Weight);
        let exact = self.reader().number(subject, "rate", raw.rate.as_ref(), RATE)?.map(WindowRate::Exact);
        let count = self.reader().whole(subject, "requests", raw.requests.as_ref(), 0..=u32::MAX)?;
        let count = count.map(|count| WindowRate::Count(count.into()));
        let mut given = [weight, exact, count].into_iter().flatten();
        match (given.next(), given.next()) {
            (_, Some(_)) => {
                let what = format!("{subject}: `trace_rate`, `rate` and `requests` all define how much it sends");
                Err(self.reader().wrong(at, what, "keep one of them"))
            }
            (rate, None) => Ok(rate.unwrap_or(WindowRate::Usual)),
        }
    }

    /// 0 is a valid rate: in absolute mode, a pause.
    fn trace_rate(&self, subject: &str, word: Option<&Word>) -> Result<Option<f64>, SpecFileError> {
        self.reader().number(subject, "trace_rate", word, RATE)
    }

    fn diurnal(&self, subject: &str, raw: &Spanned<RawDiurnal>) -> Result<Diurnal, SpecFileError> {
        const HOUR: NumberRange =
            NumberRange { fits: |hour| (0.0..24.0).contains(&hour), text: "a number from 0 to below 24" };
        const RATIO: NumberRange = NumberRange { fits: |ratio| ratio >= 1.0, text: "a number from 1 on" };
        let (reader, subject, at) = (self.reader(), format!("{subject}: diurnal"), raw.referenced);
        let hour = reader.number(&subject, "peak_hour", raw.value.peak_hour.as_ref(), HOUR)?;
        let ratio = reader.number(&subject, "peak_to_trough_ratio", raw.value.peak_to_trough_ratio.as_ref(), RATIO)?;
        Ok(Diurnal {
            peak_hour: hour.unwrap_or(0.0),
            peak_to_trough_ratio: reader.needs(&subject, "peak_to_trough_ratio", ratio, at)?,
        })
    }

    fn spike(&self, subject: &str, raw: &Spanned<RawSpike>) -> Result<Spike, SpecFileError> {
        let (reader, subject, spike) = (self.reader(), format!("{subject}: spike"), &raw.value);
        let start = reader.whole(&subject, "start_time_us", spike.start_time_us.as_ref(), 0..=Micros::MAX.0)?;
        let duration = reader.whole(&subject, "duration_us", spike.duration_us.as_ref(), 1..=Micros::MAX.0)?;
        Ok(Spike {
            start: Micros(start.unwrap_or(0)),
            duration: Micros(reader.needs(&subject, "duration_us", duration, raw.referenced)?),
            trace_rate: self.trace_rate(&subject, spike.trace_rate.as_ref())?,
        })
    }

    fn drain(&self, subject: &str, raw: &Spanned<RawDrain>) -> Result<DrainSpec, SpecFileError> {
        let (reader, subject, drain) = (self.reader(), format!("{subject}: drain"), &raw.value);
        let start = reader.whole(&subject, "start_time_us", drain.start_time_us.as_ref(), 0..=Micros::MAX.0)?;
        let ramp = reader.whole(&subject, "ramp_duration_us", drain.ramp_duration_us.as_ref(), 1..=Micros::MAX.0)?;
        Ok(DrainSpec {
            start: Micros(start.unwrap_or(0)),
            ramp: Micros(reader.needs(&subject, "ramp_duration_us", ramp, raw.referenced)?),
        })
    }
}

fn name(what: &str, index: usize, raw: &RawClient) -> String {
    match raw.id.as_ref().filter(|id| !id.value.is_empty()) {
        Some(id) => format!("{what} {}", quoted(id.value.as_bytes())),
        None => format!("{what} {}", index + 1),
    }
}
