//! Parses the text of a specification. It is strict: everything unknown is an error that shows the line with carets
//! under the mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use blis_sim::units::Micros;

use super::client::{Client, ClientLoad};
use super::cohort::Cohort;
use super::error::SpecFileError;
use super::files::Files;
use super::inference_perf;
use super::raw::{Entries, RawClient, RawInferencePerf, RawPart, RawServeGen, RawSpec, RawTargets, Word};
use super::read::{ABOVE_0, FROM_0, SpecReader};
use super::servegen::{self, Senders, ServeGenReading};
use super::specification::{Part, Spec};
use super::window::WindowRate;
use crate::trace_v2::GoodputTargets;
use blis_diag::Location;
use blis_diag::quoted;
use blis_diag::yaml::Spanned;

mod client;
mod lengths;
mod parser;

use client::ClientParser;
use parser::{NAME_MAX, Parser, RATE, RATE_MAX, client_location};

/// Reads the file or the ServeGen folder at `path`; of a file, also its text and the locations in it. `files_of` gives access to the
/// files of a folder.
pub(super) fn load<F: Files>(
    path: &Path,
    servegen: ServeGenReading,
    files_of: impl FnOnce(PathBuf) -> F,
) -> Result<(Spec, String, SpecLocations), SpecFileError> {
    let file = path.display().to_string();
    if path.is_dir() {
        let options = servegen::ServeGenOptions { reading: servegen, ..servegen::ServeGenOptions::default() };
        let Senders { clients, cohorts, warnings } =
            servegen::load(&files_of(path.to_owned()), Path::new(""), &file, &options)?;
        let spec = Spec { seed: Some(options.seed), clients, cohorts, warnings, ..Spec::default() };
        return Ok((spec, String::new(), SpecLocations { servegen: true, ..SpecLocations::default() }));
    }
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let name = Path::new(path.file_name().unwrap_or(path.as_os_str()));
    let files = files_of(folder);
    let text = files.read(name).map_err(|error| SpecFileError::unreadable(&file, &error))?;
    let (spec, locations) = parse_placed(&file, &text, &files, servegen)?;
    Ok((spec, text, locations))
}

/// Parses `text`, the content of `file`.
pub(super) fn parse(file: &str, text: &str, files: &dyn Files) -> Result<Spec, SpecFileError> {
    parse_placed(file, text, files, ServeGenReading::Measured).map(|(spec, _)| spec)
}

/// Locations of the parts of a specification; empty if it does not list its clients.
#[derive(Clone, Debug, Default)]
pub(super) struct SpecLocations {
    /// Locations of the clients, then of the cohorts.
    pub senders: Vec<Location>,
    /// Locations of targets, by class.
    pub targets: BTreeMap<String, Location>,
    /// Whether the senders are those of a ServeGen folder, which have no locations.
    pub servegen: bool,
}

/// Parses `text`, and also returns the locations.
pub(super) fn parse_placed(
    file: &str,
    text: &str,
    files: &dyn Files,
    servegen: ServeGenReading,
) -> Result<(Spec, SpecLocations), SpecFileError> {
    let reader = SpecReader::new(file, text);
    if inference_perf::own::is_own(text) {
        return Ok((inference_perf::own::parse(&reader)?, SpecLocations::default()));
    }
    let Some(raw) = reader.yaml::<RawSpec>()? else {
        return Err(SpecFileError::whole(file, "the specification is empty", "name `clients`, at least one"));
    };
    let parser = Parser { reader, files, servegen };
    let spec = parser.spec(&raw)?;
    let senders = parser.all(&raw, &spec).map(|(at, ..)| parser.reader.location(client_location(at))).collect();
    let targets = raw.goodput_slo_targets.iter().flat_map(|targets| &targets.0);
    let targets = targets.map(|(class, _)| (class.value.clone(), parser.reader.location(class.referenced))).collect();
    Ok((spec, SpecLocations { senders, targets, servegen: raw.servegen_data.is_some() }))
}

impl Parser<'_> {
    fn spec(&self, raw: &RawSpec) -> Result<Spec, SpecFileError> {
        const SUBJECT: &str = "specification";
        let reader = &self.reader;
        let version = match &raw.version {
            Some(word) => known_version(reader, word)?,
            None => "1",
        };
        let category = raw.category.as_ref();
        let category = category
            .map(|word| reader.one_of(SUBJECT, "category", word, &["", "language", "multimodal", "reasoning"]))
            .transpose()?;
        let seed = reader.whole(SUBJECT, "seed", raw.seed.as_ref(), i128::from(i64::MIN)..=i128::from(u64::MAX))?;
        let (rate, number) = (raw.aggregate_rate.as_ref(), raw.num_requests.as_ref());
        let whole = self.part(SUBJECT, "", rate, number, raw.horizon.as_ref())?;
        let spec = Spec {
            // The two's complement of a negative seed, as in Go.
            seed: seed.map(|seed| seed as u64),
            category: category.unwrap_or_default().to_owned(),
            aggregate_rate: whole.aggregate_rate,
            num_requests: whole.num_requests,
            horizon: whole.horizon,
            goodput_slo_targets: self.targets(raw.goodput_slo_targets.as_ref())?,
            ..Spec::default()
        };
        self.one_source(raw)?;
        if let Some(section) = &raw.inference_perf {
            let section = self.inference_perf(section)?;
            let (aggregate_rate, clients) = section.clients();
            return Ok(Spec { aggregate_rate, clients, ..spec });
        }
        if let Some(data) = &raw.servegen_data {
            let Senders { clients, cohorts, mut warnings } = self.servegen(data, spec.seed)?;
            if let Some(rate) = raw.aggregate_rate.as_ref().filter(|_| spec.aggregate_rate > 0.0) {
                let what = format!("{}: `aggregate_rate` changes nothing", reader.location(rate.referenced));
                warnings.push((what, "the rates are those of the folder; leave it out".to_owned()));
            }
            return Ok(Spec { aggregate_rate: 0.0, clients, cohorts, warnings, ..spec });
        }
        self.members(raw, version, spec)
    }

    /// Rate, number of requests and horizon of all clients or of a part.
    fn part(
        &self,
        subject: &str,
        name: &str,
        rate: Option<&Word>,
        number: Option<&Word>,
        horizon: Option<&Word>,
    ) -> Result<Part, SpecFileError> {
        let reader = &self.reader;
        let number = reader.whole(subject, "num_requests", number, 0..=u32::MAX)?;
        let horizon = reader.whole(subject, "horizon", horizon, 0..=Micros::MAX.0)?;
        Ok(Part {
            name: name.to_owned(),
            aggregate_rate: reader.number(subject, "aggregate_rate", rate, RATE)?.unwrap_or(0.0),
            num_requests: number.filter(|&number| number > 0).map(u64::from),
            horizon: horizon.filter(|&us| us > 0).map(Micros),
        })
    }

    fn parts(&self, raw: &RawSpec) -> Result<Vec<Part>, SpecFileError> {
        let parts = raw.parts.iter().flat_map(|parts| &parts.0);
        let part = |(name, part): &(Word, RawPart)| {
            let subject = format!("part {}", quoted(name.value.as_bytes()));
            if name.value.is_empty() || name.value.len() > NAME_MAX {
                let what = format!("{subject}: the name has {} bytes", name.value.len());
                return Err(self.reader.wrong(name.referenced, what, format!("use 1 to {NAME_MAX}")));
            }
            let (rate, number) = (part.aggregate_rate.as_ref(), part.num_requests.as_ref());
            self.part(&subject, &name.value, rate, number, part.horizon.as_ref())
        };
        parts.map(part).collect()
    }

    fn members(&self, raw: &RawSpec, version: &str, spec: Spec) -> Result<Spec, SpecFileError> {
        let mut spec = Spec { parts: self.parts(raw)?, ..spec };
        let mut clients = ClientParser::new(self, version, spec.parts.iter().map(|part| part.name.clone()).collect());
        for (index, client) in raw.clients.iter().flatten().enumerate() {
            spec.clients.push(clients.client(index, client)?);
        }
        for (index, cohort) in raw.cohorts.iter().flatten().enumerate() {
            spec.cohorts.push(clients.cohort(index, cohort)?);
        }
        spec.warnings = clients.warnings;
        self.classes(raw, &spec)?;
        self.loops(raw, &spec)?;
        self.absolute(raw, &spec)?;
        self.prefixes(raw, &mut spec)?;
        Ok(spec)
    }

    /// Refuses more than one source of requests.
    fn one_source(&self, raw: &RawSpec) -> Result<(), SpecFileError> {
        let members = |members: &Option<Vec<Spanned<RawClient>>>| members.as_ref().is_some_and(|list| !list.is_empty());
        let given: Vec<&str> = [
            (members(&raw.clients) || members(&raw.cohorts), "clients"),
            (raw.servegen_data.is_some(), "servegen_data"),
            (raw.inference_perf.is_some(), "inference_perf"),
        ]
        .into_iter()
        .filter_map(|(given, name)| given.then_some(name))
        .collect();
        match given[..] {
            [source] if source != "clients" && raw.parts.is_some() => Err(SpecFileError::whole(
                self.reader.file(),
                format!("`parts` with `{source}`"),
                "parts are for `clients` and `cohorts`; leave them out",
            )),
            [_] => Ok(()),
            [] => Err(SpecFileError::whole(
                self.reader.file(),
                "no client sends requests",
                "name `clients`, at least one",
            )),
            [first, second, ..] => Err(SpecFileError::whole(
                self.reader.file(),
                format!("`{first}` and `{second}` both define the requests"),
                "keep one of them",
            )),
        }
    }

    /// Parses all clients or cohorts.
    fn all<'r, 's>(
        &self,
        raw: &'r RawSpec,
        spec: &'s Spec,
    ) -> impl Iterator<Item = (&'r Spanned<RawClient>, &'s Client, Option<&'s Cohort>)> {
        let clients = raw.clients.iter().flatten().zip(&spec.clients).map(|(raw, client)| (raw, client, None));
        let cohorts = raw.cohorts.iter().flatten().zip(&spec.cohorts);
        clients.chain(cohorts.map(|(raw, cohort)| (raw, &cohort.client, Some(cohort))))
    }

    /// Refuses a mixture of clients with and without a class: those without would get the class `default`.
    fn classes(&self, raw: &RawSpec, spec: &Spec) -> Result<(), SpecFileError> {
        let all = || self.all(raw, spec);
        let some = all().find(|(_, client, _)| !client.slo_class.is_empty());
        let (Some((_, with, _)), Some((at, without, _))) = (some, all().find(|(_, c, _)| c.slo_class.is_empty()))
        else {
            return Ok(());
        };
        let what = format!("client `{}` has no `slo_class`, client `{}` has one", without.id, with.id);
        Err(self.reader.wrong(client_location(at), what, "name a class for all clients and cohorts, or for none"))
    }

    /// Refuses a mixture of users and sessions in closed loop.
    fn loops(&self, raw: &RawSpec, spec: &Spec) -> Result<(), SpecFileError> {
        let users = self.all(raw, spec).find(|(_, client, _)| matches!(client.load, ClientLoad::Users { .. }));
        let turns = self.all(raw, spec).find(|(_, client, _)| client.multi_turn.is_some());
        let (Some((_, users, _)), Some((at, turns, _))) = (users, turns) else { return Ok(()) };
        let what = format!("client `{}` has `multi_turn`, client `{}` has `concurrency`", turns.id, users.id);
        Err(self.reader.wrong(client_location(at), what, "put them in specifications of their own"))
    }

    /// Without an aggregate rate, every window needs its own rate.
    fn absolute(&self, raw: &RawSpec, spec: &Spec) -> Result<(), SpecFileError> {
        for (at, client, cohort) in self.all(raw, spec) {
            let shared = client.part.map_or(spec.aggregate_rate, |part| spec.parts[part].aggregate_rate);
            if client.load.is_concurrency() || shared > 0.0 {
                continue;
            }
            let windows = cohort.map_or_else(|| client.windows.clone(), Cohort::windows);
            let has_rate = |rate: WindowRate| rate != WindowRate::Usual;
            let missing = if windows.is_empty() || windows.iter().any(|window| !has_rate(window.rate)) {
                match cohort {
                    Some(Cohort { diurnal: None, drain: None, .. }) => "its `spike` needs a `trace_rate`",
                    Some(_) => "`diurnal` and `drain` need an aggregate rate",
                    None => "each of its `lifecycle` windows needs a `trace_rate`",
                }
            } else {
                continue;
            };
            let of = client.part.map_or_else(String::new, |part| format!(" of part `{}`", spec.parts[part].name));
            let what = format!("client `{}` has no rate: `aggregate_rate`{of} is 0, and {missing}", client.id);
            return Err(self.reader.wrong(
                client_location(at),
                what,
                "set `aggregate_rate`, in requests per second, or give every rate",
            ));
        }
        Ok(())
    }

    /// Gives every prefix group one length.
    fn prefixes(&self, raw: &RawSpec, spec: &mut Spec) -> Result<(), SpecFileError> {
        let mut lengths: BTreeMap<&str, u32> = BTreeMap::new();
        let mut warned = BTreeSet::new();
        let mut warnings = Vec::new();
        for (at, client, _) in self.all(raw, spec) {
            let Some(prefix) = &client.prefix else { continue };
            let first = *lengths.entry(&prefix.group).or_insert(prefix.tokens);
            if first != prefix.tokens && at.value.prefix_length.is_some() && warned.insert(&prefix.group) {
                let what = format!(
                    "{}: the prefix of group `{}` has {first} tokens, by its first client, not {}",
                    self.reader.location(client_location(at)),
                    prefix.group,
                    prefix.tokens
                );
                warnings.push((what, "give clients with another prefix another group".to_owned()));
            }
        }
        spec.warnings.extend(warnings);
        Ok(())
    }

    fn targets(&self, raw: Option<&Entries<RawTargets>>) -> Result<BTreeMap<String, GoodputTargets>, SpecFileError> {
        let mut targets = BTreeMap::new();
        for (class, raw) in raw.iter().flat_map(|entries| &entries.0) {
            let subject = format!("target of class `{}`", class.value);
            let ms = |key, word| self.reader.number(&subject, key, word, FROM_0).map(|ms| ms.filter(|&ms| ms > 0.0));
            let of_class = GoodputTargets {
                ttft_ms: ms("ttft_ms", raw.ttft_ms.as_ref())?,
                itl_ms: ms("itl_ms", raw.itl_ms.as_ref())?,
                e2e_ms: ms("e2e_ms", raw.e2e_ms.as_ref())?,
            };
            targets.insert(class.value.clone(), of_class);
        }
        Ok(targets)
    }

    fn servegen(&self, raw: &Spanned<RawServeGen>, seed: Option<u64>) -> Result<Senders, SpecFileError> {
        const SUBJECT: &str = "servegen_data";
        let (reader, data) = (&self.reader, &raw.value);
        let path = reader.needs(SUBJECT, "path", data.path.as_ref(), raw.referenced)?;
        let usual = servegen::ServeGenOptions::default();
        let secs = |key, word: &Option<Word>, most| reader.whole(SUBJECT, key, word.as_ref(), 0..=most);
        let options = servegen::ServeGenOptions {
            reading: self.servegen,
            start_secs: secs("start_secs", &data.start_secs, 1_000_000_000)?.unwrap_or(0),
            duration_secs: secs("duration_secs", &data.duration_secs, 1_000_000_000)?.filter(|&secs| secs > 0),
            window_secs: secs("window_duration_secs", &data.window_duration_secs, 86_400_u32)?
                .filter(|&secs| secs > 0)
                .unwrap_or(usual.window_secs),
            drain_secs: secs("drain_timeout_secs", &data.drain_timeout_secs, 86_400)?.unwrap_or(usual.drain_secs),
            seed: seed.unwrap_or(usual.seed),
        };
        let mut senders = servegen::load(self.files, Path::new(&path.value), &path.value, &options)?;
        let (ignored, hint) = match self.servegen {
            ServeGenReading::Measured => (
                [
                    ("window_duration_secs", &data.window_duration_secs),
                    ("drain_timeout_secs", &data.drain_timeout_secs),
                ],
                "only BLIS's reading has it, `--parity blis`; `start_secs` and `duration_secs` choose a part",
            ),
            ServeGenReading::Blis => (
                [("start_secs", &data.start_secs), ("duration_secs", &data.duration_secs)],
                "BLIS takes ten minutes each of three parts of the day: leave it out, or `--parity blis`",
            ),
        };
        for (key, word) in ignored.into_iter().filter_map(|(key, word)| Some((key, word.as_ref()?))) {
            let what = format!("{}: {SUBJECT}: `{key}` changes nothing", reader.location(word.referenced));
            senders.warnings.push((what, hint.to_owned()));
        }
        Ok(senders)
    }

    fn inference_perf(&self, raw: &Spanned<RawInferencePerf>) -> Result<inference_perf::SharedPrefix, SpecFileError> {
        const SUBJECT: &str = "inference_perf";
        let (reader, section) = (&self.reader, &raw.value);
        let mut stages = Vec::new();
        for (index, stage) in section.stages.iter().flatten().enumerate() {
            let subject = format!("{SUBJECT}: stage {}", index + 1);
            let number = |key, word| {
                let number = reader.number(&subject, key, word, ABOVE_0)?;
                reader.needs(&subject, key, number, raw.referenced)
            };
            let stage = (number("rate", stage.rate.as_ref())?, number("duration", stage.duration.as_ref())?);
            if stage.0 > RATE_MAX || stage.0 * stage.1 > f64::from(u32::MAX) {
                let what = format!("{subject} has about {:.0} requests, more than 4294967295", stage.0 * stage.1);
                return Err(reader.wrong(raw.referenced, what, "lower its rate or its duration"));
            }
            stages.push(stage);
        }
        let shared = reader.needs(SUBJECT, "shared_prefix", section.shared_prefix.as_ref(), raw.referenced)?;
        let at = shared.referenced;
        let shared = &shared.value;
        let count = |key, word, least| {
            let count = reader.whole(SUBJECT, key, word, least..=1_000_000_u32)?;
            reader.needs(SUBJECT, key, count, at)
        };
        let section = inference_perf::SharedPrefix {
            stages,
            system_prompts: count("num_unique_system_prompts", shared.num_unique_system_prompts.as_ref(), 1)?,
            users: count("num_users_per_system_prompt", shared.num_users_per_system_prompt.as_ref(), 1)?,
            system_tokens: count("system_prompt_len", shared.system_prompt_len.as_ref(), 0)?,
            question_tokens: count("question_len", shared.question_len.as_ref(), 1)?,
            output_tokens: count("output_len", shared.output_len.as_ref(), 1)?,
            multi_turn: reader
                .switch(SUBJECT, "enable_multi_turn_chat", shared.enable_multi_turn_chat.as_ref())?
                .unwrap_or(false),
        };
        section.check().map_err(|(what, hint)| reader.wrong(raw.referenced, format!("{SUBJECT}: {what}"), hint))?;
        Ok(section)
    }
}

/// The version of a specification: 1, 2, or none.
fn known_version(reader: &SpecReader<'_>, word: &Word) -> Result<&'static str, SpecFileError> {
    let known = ["", "1", "2"].into_iter().find(|known| *known == word.value);
    known.ok_or_else(|| {
        let what = format!("specification: `version` is {}", quoted(word.value.as_bytes()));
        reader.wrong(word.referenced, what, "versions 1 and 2 are read")
    })
}
