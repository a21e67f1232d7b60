//! Composes several specifications to one that sends the requests of all of them.
//!
//! Without windows the rates add up, and every fraction is converted to one of the sum, as in BLIS. Windows, numbers of
//! requests and horizons do not add up: in that case every specification becomes a [`Part`] with its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blis_sim::units::Micros;

use super::Beside;
use super::client::{Client, ClientLoad};
use super::cohort::{Cohort, PrefixSharing};
use super::error::SpecFileError;
use super::parse::{self, SpecLocations};
use super::servegen::ServeGenReading;
use super::specification::{Part, Spec};

/// One specification composed of several.
#[derive(Clone, Debug, PartialEq)]
pub struct Composed {
    pub spec: Spec,
    /// Notes about everything that had to be changed.
    pub notes: Vec<String>,
}

/// One of the specifications that are composed.
pub(super) struct SpecSource {
    file: Arc<str>,
    text: String,
    spec: Spec,
    locations: SpecLocations,
    /// Name of its part, and suffix for names that are already used.
    name: String,
}

/// Composes the specifications, ServeGen folders and inference-perf files at `paths`.
///
/// # Errors
/// If a file is invalid, or if one specification cannot express the contents of all of them.
pub fn compose(paths: &[PathBuf]) -> Result<Composed, SpecFileError> {
    let mut sources = Vec::new();
    let mut notes = Vec::new();
    for path in paths {
        let (spec, text, locations) = parse::load(path, ServeGenReading::Blis, Beside)?;
        let source = SpecSource::new(path, spec, text, locations);
        if source.locations.servegen {
            // Measured lengths of every window would be written out: a file too long to be read.
            notes.push(format!(
                "{}: of ServeGen's clients, average rates and lognormal lengths are written, at three times of the day, \
                 as BLIS has it; the folder itself, as `--workload-spec`, has them as they were measured",
                source.file
            ));
        }
        sources.push(source);
    }
    let mut composed = merge(sources)?;
    composed.notes.splice(0..0, notes);
    Ok(composed)
}

/// The name of a file without its extension.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().chars().take(64).collect::<String>());
    stem.filter(|stem| !stem.is_empty()).unwrap_or_else(|| "part".to_owned())
}

/// `name`, with a number appended if it is already used; marks it as used.
fn unlike(name: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2_u32..).map(|number| format!("{name}-{number}"));
    let free = std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken.contains(name));
    let free = free.unwrap_or_default();
    taken.insert(free.clone());
    free
}

/// One specification with the contents of `sources`.
pub(super) fn merge(mut sources: Vec<SpecSource>) -> Result<Composed, SpecFileError> {
    check(&sources)?;
    let mut names = BTreeSet::new();
    sources.iter_mut().for_each(|source| source.name = unlike(&source.name, &mut names));
    let mut notes = Vec::new();
    let mut merged = Spec { seed: seed(&sources, &mut notes), category: category(&sources), ..Spec::default() };
    for source in &sources {
        merged.goodput_slo_targets.extend(source.spec.goodput_slo_targets.clone());
        merged.warnings.extend(source.spec.warnings.iter().cloned());
    }
    rename(&mut sources, &mut notes);
    if sources.iter().all(|source| adds_up(&source.spec, &sources[0].spec)) {
        add_up(sources, &mut merged);
    } else {
        as_parts(sources, &mut merged)?;
    }
    Ok(Composed { spec: merged, notes })
}

impl Spec {
    /// Its clients, and the common properties of its cohorts.
    fn senders(&self) -> impl Iterator<Item = &Client> {
        self.clients.iter().chain(self.cohorts.iter().map(|cohort| &cohort.client))
    }

    fn senders_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        self.clients.iter_mut().chain(self.cohorts.iter_mut().map(|cohort| &mut cohort.client))
    }
}

impl SpecSource {
    /// The content of the file at `path`.
    pub fn new(path: &Path, spec: Spec, text: String, locations: SpecLocations) -> Self {
        Self { file: path.display().to_string().into(), text, spec, locations, name: stem(path) }
    }

    /// A mistake in the client or cohort number `index`.
    fn wrong(&self, index: usize, what: String, hint: &str) -> SpecFileError {
        match self.locations.senders.get(index) {
            Some(location) => SpecFileError::at(location.clone(), &self.text, what, hint),
            None => SpecFileError::whole(&self.file, what, hint),
        }
    }

    /// The first client of its kind, with its index.
    fn find(&self, kind: impl Fn(&Client) -> bool) -> Option<(usize, &Client)> {
        self.spec.senders().enumerate().find(|(_, client)| kind(client))
    }
}

/// Refuses contents that one specification cannot express.
fn check(sources: &[SpecSource]) -> Result<(), SpecFileError> {
    let first = |kind: fn(&Client) -> bool| {
        sources.iter().find_map(|source| source.find(kind).map(|(index, client)| (source, index, client)))
    };
    let in_loop = (first(|c| matches!(c.load, ClientLoad::Users { .. })), first(|c| c.multi_turn.is_some()));
    if let (Some((of, _, users)), Some((source, index, turns))) = in_loop {
        let what =
            format!("client `{}` has `multi_turn`, client `{}` of {} has `concurrency`", turns.id, users.id, of.file);
        return Err(source.wrong(index, what, "one specification cannot have both"));
    }
    let classes = (first(|c| !c.slo_class.is_empty()), first(|c| c.slo_class.is_empty()));
    if let (Some((of, _, with)), Some((source, index, without))) = classes {
        let what = format!("client `{}` has no `slo_class`, client `{}` of {} has one", without.id, with.id, of.file);
        return Err(source.wrong(index, what, "name a class for all clients and cohorts, or for none"));
    }
    for (number, source) in sources.iter().enumerate() {
        for (class, targets) in &source.spec.goodput_slo_targets {
            let other = |other: &&SpecSource| other.spec.goodput_slo_targets.get(class).is_some_and(|t| t != targets);
            let Some(other) = sources[..number].iter().find(other) else { continue };
            let what = format!("class `{class}` has other targets in {}", other.file);
            let hint = "make the targets equal, or give the clients of one file another class";
            return Err(match source.locations.targets.get(class) {
                Some(location) => SpecFileError::at(location.clone(), &source.text, what, hint),
                None => SpecFileError::whole(&source.file, what, hint),
            });
        }
    }
    Ok(())
}

/// The seed of the first source that has one.
fn seed(sources: &[SpecSource], notes: &mut Vec<String>) -> Option<u64> {
    let first = sources.iter().find(|source| source.spec.seed.is_some())?;
    for other in sources.iter().filter(|other| other.spec.seed.is_some_and(|seed| Some(seed) != first.spec.seed)) {
        let (seed, not) = (first.spec.seed.unwrap_or_default(), other.spec.seed.unwrap_or_default());
        notes.push(format!("seed {seed} of {} holds for all, not {not} of {}", first.file, other.file));
    }
    first.spec.seed
}

/// The common category of all sources.
fn category(sources: &[SpecSource]) -> String {
    let category = sources.first().map(|source| source.spec.category.clone()).unwrap_or_default();
    if sources.iter().all(|source| source.spec.category == category) { category } else { String::new() }
}

/// Renames clients and prefix groups so that those of different files stay different.
fn rename(sources: &mut [SpecSource], notes: &mut Vec<String>) {
    let (mut ids, mut groups) = (BTreeSet::new(), BTreeSet::new());
    for source in sources {
        let SpecSource { spec, name, file, .. } = source;
        let mut note = |what: &str, old: &str, new: &str| {
            notes.push(format!("{what} `{old}` of {file} is called `{new}`: the name is taken"));
        };
        let own_ids: BTreeSet<String> = spec
            .clients
            .iter()
            .flat_map(|c| ids_of(&c.id, None))
            .chain(spec.cohorts.iter().flat_map(|c| ids_of(&c.client.id, Some(c.population))))
            .collect();
        let mut renamed = Vec::new();
        let populations: Vec<Option<u32>> = spec
            .clients
            .iter()
            .map(|_| None)
            .chain(spec.cohorts.iter().map(|cohort| Some(cohort.population)))
            .collect();
        for (client, population) in spec.senders_mut().zip(populations) {
            if ids_of(&client.id, population).any(|id| ids.contains(&id)) {
                let new = free_name(&client.id, name, |new| {
                    ids_of(new, population).any(|id| ids.contains(&id) || own_ids.contains(&id))
                });
                note("client", &client.id, &new);
                client.id = new;
            }
            renamed.extend(ids_of(&client.id, population));
        }
        ids.extend(renamed);
        let own_groups: BTreeSet<String> = groups_of(spec).into_iter().flat_map(|(_, names)| names).collect();
        for (group, all) in groups_of(spec) {
            if all.iter().any(|name| groups.contains(name)) {
                let new = free_name(&group, name, |new| {
                    let begins = |taken: &String| taken == new || taken.starts_with(&format!("{new}-"));
                    groups.iter().any(begins) || own_groups.iter().any(begins)
                });
                note("prefix group", &group, &new);
                for prefix in
                    spec.senders_mut().filter_map(|client| client.prefix.as_mut()).filter(|p| p.group == group)
                {
                    prefix.group.clone_from(&new);
                }
            }
        }
        groups.extend(groups_of(spec).into_iter().flat_map(|(_, names)| names));
    }
}

/// `old@part`, with a number appended if necessary.
fn free_name(old: &str, part: &str, is_taken: impl Fn(&str) -> bool) -> String {
    // Names may have 256 bytes.
    let old: String = old.chars().take(150 / old.chars().map(char::len_utf8).max().unwrap_or(1)).collect();
    let numbered = (2_u32..).map(|number| format!("{old}@{part}-{number}"));
    std::iter::once(format!("{old}@{part}")).chain(numbered).find(|new| !is_taken(new)).unwrap_or_default()
}

/// The ids of a client, or of the members of a cohort. A client without id has none.
fn ids_of(id: &str, population: Option<u32>) -> impl Iterator<Item = String> {
    let alone = population.is_none() && !id.is_empty();
    let members = (0..population.unwrap_or(0)).map(move |member| format!("{id}-{member}"));
    let id = id.to_owned();
    alone.then_some(id).into_iter().chain(members.collect::<Vec<_>>())
}

/// The prefix groups of `spec`, each with the names of its members' groups.
fn groups_of(spec: &Spec) -> Vec<(String, BTreeSet<String>)> {
    let mut groups: Vec<(String, BTreeSet<String>)> = Vec::new();
    let cohorts = spec.cohorts.iter().map(|cohort| (&cohort.client, Some(cohort)));
    for (client, cohort) in spec.clients.iter().map(|client| (client, None)).chain(cohorts) {
        let Some(prefix) = &client.prefix else { continue };
        let own = cohort.filter(|cohort: &&Cohort| cohort.prefix_sharing == PrefixSharing::PerMember);
        let names = match own {
            Some(cohort) => ids_of(&prefix.group, Some(cohort.population)).collect(),
            None => BTreeSet::from([prefix.group.clone()]),
        };
        match groups.iter_mut().find(|(group, _)| *group == prefix.group) {
            Some((_, all)) => all.extend(names),
            None => groups.push((prefix.group.clone(), names)),
        }
    }
    groups
}

/// Whether the rates of `spec` can be added to those of `first`: both must end alike.
fn adds_up(spec: &Spec, first: &Spec) -> bool {
    let always = spec.clients.iter().all(|client| client.windows.is_empty())
        && spec.cohorts.iter().all(|c| c.diurnal.is_none() && c.spike.is_none() && c.drain.is_none());
    always && spec.parts.is_empty() && spec.num_requests.is_none() && spec.horizon == first.horizon
}

/// The sum of the rates, and the share of each client in it. BLIS multiplies fractions by the share of their
/// specification, which is right only if they add up to 1; so they are normalised.
fn add_up(sources: Vec<SpecSource>, merged: &mut Spec) {
    let share = |client: &Client| client.load.share();
    let rate = |spec: &Spec| if spec.senders().any(|client| share(client) > 0.0) { spec.aggregate_rate } else { 0.0 };
    let total: f64 = sources.iter().map(|source| rate(&source.spec)).sum();
    let alone = sources.len() == 1;
    merged.aggregate_rate = total;
    merged.horizon = sources.first().and_then(|source| source.spec.horizon);
    for mut source in sources {
        let all: f64 = source.spec.senders().map(share).sum();
        let of_all = rate(&source.spec) / total;
        for client in source.spec.senders_mut().filter(|_| !alone) {
            if let ClientLoad::Share(share) = &mut client.load {
                *share = *share / all * of_all;
            }
        }
        merged.clients.extend(source.spec.clients);
        merged.cohorts.extend(source.spec.cohorts);
    }
}

/// Every specification keeps its rate, its number of requests and its horizon; existing parts are kept.
fn as_parts(sources: Vec<SpecSource>, merged: &mut Spec) -> Result<(), SpecFileError> {
    let mut names = BTreeSet::new();
    let ends: Vec<Option<Micros>> = sources.iter().map(|source| end_of(&source.spec)).collect();
    merged.horizon = ends.into_iter().collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().max());
    for mut source in sources {
        let (spec, before) = (&mut source.spec, merged.parts.len());
        if let (Some(number), false) = (spec.num_requests, spec.parts.is_empty()) {
            let what = format!("`num_requests` {number} of all its parts together");
            return Err(SpecFileError::whole(
                &source.file,
                what,
                "give the number of requests of each part, under `parts`",
            ));
        }
        for part in &spec.parts {
            let horizon = [part.horizon, spec.horizon].into_iter().flatten().min();
            merged.parts.push(Part { name: unlike(&part.name, &mut names), horizon, ..part.clone() });
        }
        let own = merged.parts.len();
        if spec.senders().any(|client| client.part.is_none()) {
            merged.parts.push(Part {
                name: unlike(&source.name, &mut names),
                aggregate_rate: spec.aggregate_rate,
                num_requests: spec.num_requests,
                horizon: spec.horizon,
            });
        }
        for client in spec.senders_mut() {
            client.part = Some(client.part.map_or(own, |part| before + part));
        }
        merged.clients.append(&mut spec.clients);
        merged.cohorts.append(&mut spec.cohorts);
    }
    Ok(())
}

/// The horizon of `spec`, after which nothing arrives.
fn end_of(spec: &Spec) -> Option<Micros> {
    let parts = spec.parts.iter().map(|part| part.horizon).collect::<Option<Vec<_>>>();
    let alone = spec.senders().all(|client| client.part.is_some());
    spec.horizon.or_else(|| parts.filter(|_| alone).and_then(|ends| ends.into_iter().max()))
}
