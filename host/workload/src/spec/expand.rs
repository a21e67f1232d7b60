//! Expands a specification to one plan per sender: distributes rates, turns windows into segments and names into
//! numbers, and allocates the block keys of prefixes.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use blis_sim::request::{BlockKey, Name, Span, Tags};
use blis_sim::rng::Stream;
use blis_sim::units::Micros;
use rustc_hash::FxHashMap;

use super::Lengths;
use super::arrival::Intervals;
use super::client::{Client, Timeout};
use super::cohort::PrefixSharing;
use super::error::ExpandError;
use super::options::GenerateOptions;
use super::prompts::{FixedPrompt, PromptLengths, PromptStreams};
use super::specification::Spec;
use super::window::{Window, WindowRate};
use crate::{MaxTokens, Names};

pub(super) struct Expanded {
    pub plans: Vec<SenderPlan>,
    pub names: Names,
    /// The first block key that no prefix has.
    pub first_key: BlockKey,
}

/// The plan of one sender.
#[derive(Clone, Debug)]
pub(super) struct SenderPlan {
    pub client: Arc<Client>,
    pub tags: Tags,
    /// Length of the prefix, tokens.
    pub prefix_tokens: u32,
    /// The prefix, as far as it fills whole blocks.
    pub prefix: Span,
    /// Segments in order, without overlap.
    pub segments: Arc<[Segment]>,
    pub timeout: Option<Micros>,
    /// Index of its part in [`RequestNumbers`](super::numbers::Numbers); the first entry stands for no part.
    pub part: usize,
    /// Nothing arrives at this time or later.
    pub end: Micros,
    pub streams: Streams,
    /// The limits of output tokens that its requests announce.
    pub max_tokens: MaxTokens,
    /// As in BLIS: rounds of open sessions depend on the outputs before them, which may still be generated. They contain
    /// them, and arrive later by an estimate of their time.
    pub as_in_blis: bool,
    /// The prompts that are sent in turn, if they are fixed.
    pub prompts: Option<Arc<[FixedPrompt]>>,
}

/// A time span with one pace.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub start: Micros,
    /// End of the span, exclusive; [`Micros::MAX`] = unlimited.
    pub end: Micros,
    pub pace: Pace,
    pub input: Option<Lengths>,
    pub output: Option<Lengths>,
    pub reason_ratio: Option<Lengths>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// Arrivals with independent inter-arrival times.
    Steady(Intervals),
    /// Fills the segment with as many requests as `rate` per second yields. A fractional number is rounded at random,
    /// with the right mean.
    Filled { rate: f64, intervals: Intervals },
    /// Fills the segment with a fixed number of requests.
    Counted { count: u64, intervals: Intervals },
    /// The concurrent users or sessions of a closed loop.
    Users,
}

impl Segment {
    /// The mean number of requests that start in it.
    pub fn expected(&self) -> f64 {
        let length = (self.end - self.start).0 as f64;
        match self.pace {
            Pace::Steady(intervals) => length / intervals.mean_us.max(1.0),
            Pace::Filled { rate, .. } => rate / 1e6 * length,
            Pace::Counted { count, .. } => count as f64,
            Pace::Users => 0.0,
        }
    }
}

impl SenderPlan {
    /// Whether only its first arrival begins a session.
    pub fn is_single_session(&self) -> bool {
        self.client.multi_turn.is_some_and(|turns| turns.single_session)
    }

    /// The mean number of requests that it sends, if no round arrives after the horizon.
    fn expected(&self) -> f64 {
        let rounds = f64::from(self.client.multi_turn.map_or(1, |turns| turns.max_rounds));
        let starts: f64 = self.segments.iter().map(Segment::expected).sum();
        rounds * if self.is_single_session() { starts.min(1.0) } else { starts }
    }
}

/// The random streams of one sender, one per drawn quantity: other inputs leave the outputs unchanged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams {
    pub arrivals: Stream,
    /// Whether a segment with a mean of 2.3 requests gets 2 or 3.
    pub counts: Stream,
    pub inputs: Stream,
    pub outputs: Stream,
    pub ratios: Stream,
    pub rounds: Stream,
    pub think_times: Stream,
    pub openings: Stream,
    /// Limits of output tokens.
    pub limits: Stream,
    /// Outputs that prompts of open sessions contain.
    pub recorded: Stream,
    /// The order of fixed prompts.
    pub prompts: Stream,
}

impl Streams {
    fn new(seed: u64, name: &str) -> Self {
        let stream = |what| Stream::new(seed, &format!("workload client {name}: {what}"));
        Self {
            arrivals: stream("arrivals"),
            counts: stream("counts"),
            inputs: stream("inputs"),
            outputs: stream("outputs"),
            ratios: stream("ratios"),
            rounds: stream("rounds"),
            think_times: stream("think times"),
            openings: stream("openings"),
            limits: stream("limits"),
            recorded: stream("recorded outputs"),
            prompts: stream("prompts"),
        }
    }
}

/// A client, or the members of a cohort, which are alike.
struct SenderGroup<'a> {
    client: &'a Client,
    /// Members of the cohort; `None` for a single client.
    population: Option<(u32, PrefixSharing)>,
    windows: Vec<Window>,
}

impl SenderGroup<'_> {
    /// Weight in the aggregate rate, where a window has none of its own.
    fn share(&self) -> f64 {
        self.client.load.share()
    }

    fn members(&self) -> u32 {
        self.population.map_or(1, |(population, _)| population)
    }

    fn weight(&self, window: &Window) -> f64 {
        match window.rate {
            WindowRate::Weight(weight) => weight,
            _ => self.share(),
        }
    }

    /// Weight of its first window that overlaps `time`; its usual weight if it has no windows.
    fn weight_during(&self, time: &Window) -> f64 {
        if self.windows.is_empty() {
            return self.share();
        }
        self.windows.iter().find(|window| window.overlaps(time)).map_or(0.0, |window| self.weight(window))
    }
}

/// Plans for all senders of `spec`.
pub(super) fn expand(spec: &Spec, options: &GenerateOptions) -> Result<Expanded, ExpandError> {
    let mut groups: Vec<SenderGroup<'_>> = spec
        .clients
        .iter()
        .map(|client| SenderGroup { client, population: None, windows: client.windows.clone() })
        .collect();
    groups.extend(spec.cohorts.iter().map(|cohort| SenderGroup {
        client: &cohort.client,
        population: Some((cohort.population, cohort.prefix_sharing)),
        windows: cohort.windows(),
    }));
    let mut making =
        Making { options, names: Names::default(), ids: FxHashMap::default(), prefixes: Prefixes::default() };
    let mut plans = Vec::new();
    let parts = std::iter::once(None).chain((0..spec.parts.len()).map(Some));
    let parts: Vec<Sharing<'_>> = parts.map(|part| Sharing::new(spec, part, &groups)).collect();
    for group in &groups {
        let part_index = group.client.part.map_or(0, |part| part + 1);
        let part = &parts[part_index];
        let end = options.horizon.min(part.horizon);
        let lanes: Vec<Arc<[Segment]>> = lanes(cut(part.segments(group), end)).into_iter().map(Arc::from).collect();
        making.members(group, &lanes, part_index, end, &mut plans)?;
    }
    check_end(spec, &plans, options)?;
    Ok(Expanded { plans, names: making.names, first_key: making.prefixes.next_key })
}

/// The groups that share one aggregate rate.
struct Sharing<'a> {
    aggregate_rate: f64,
    /// Horizon of the part; [`Micros::MAX`] = none.
    horizon: Micros,
    groups: Vec<&'a SenderGroup<'a>>,
    /// Whether any of them has a window with a rate or distribution of its own.
    varying: bool,
    sums: RefCell<Sums>,
}

/// By the windows of a group: the sum of the shares of all groups that are ever active at the same time.
type Sums = FxHashMap<Vec<(Micros, Micros)>, f64>;

impl<'a> Sharing<'a> {
    /// The groups of one part of `spec`, or those outside all parts.
    fn new(spec: &Spec, part: Option<usize>, groups: &'a [SenderGroup<'a>]) -> Self {
        let groups: Vec<&SenderGroup<'_>> = groups.iter().filter(|group| group.client.part == part).collect();
        let varying = groups.iter().any(|group| group.windows.iter().any(Window::overrides));
        let (aggregate_rate, horizon) = match part.map(|part| &spec.parts[part]) {
            Some(part) => (part.aggregate_rate, part.horizon.unwrap_or(Micros::MAX)),
            None => (spec.aggregate_rate, Micros::MAX),
        };
        Self { aggregate_rate, horizon, groups, varying, sums: RefCell::default() }
    }

    fn segments(&self, group: &SenderGroup<'_>) -> Vec<Segment> {
        if self.varying { self.varying(group) } else { self.steady(group) }
    }

    /// Segments with constant rates: the group's share of the aggregate rate, among the groups that are ever active at
    /// the same time.
    fn steady(&self, group: &SenderGroup<'_>) -> Vec<Segment> {
        let together = |other: &&&SenderGroup<'_>| {
            let (a, b) = (&group.windows, &other.windows);
            a.is_empty() || b.is_empty() || a.iter().any(|window| b.iter().any(|other| window.overlaps(other)))
        };
        // A million users may have the same windows.
        let times = group.windows.iter().map(|window| (window.start, window.end)).collect();
        let sum = || self.groups.iter().filter(together).map(|group| group.share()).sum();
        let sum = *self.sums.borrow_mut().entry(times).or_insert_with(sum);
        let rate = share_of(self.aggregate_rate, group.share(), sum);
        let windows = if group.windows.is_empty() {
            vec![Window::usual(Micros::ZERO, Micros::MAX)]
        } else {
            union(group.windows.clone())
        };
        windows.iter().filter_map(|window| group.segment(window, rate, false)).collect()
    }

    /// Segments if windows have rates or distributions of their own: each is filled with its number of requests. A
    /// group without windows sends at a constant rate.
    fn varying(&self, group: &SenderGroup<'_>) -> Vec<Segment> {
        if group.windows.is_empty() {
            return self.steady(group);
        }
        let rate = |window: &Window| {
            let weight = group.weight(window);
            if self.aggregate_rate == 0.0 {
                return weight;
            }
            let others = self.groups.iter().filter(|other| !std::ptr::eq(**other, group));
            let others: f64 = others.map(|other| other.weight_during(window)).sum();
            share_of(self.aggregate_rate, weight, weight + others)
        };
        group.windows.iter().filter_map(|window| group.segment(window, rate(window), true)).collect()
    }
}

/// The share of a rate; 0 if the sum of the weights is 0.
fn share_of(rate: f64, weight: f64, sum: f64) -> f64 {
    if sum > 0.0 { rate * weight / sum } else { 0.0 }
}

impl SenderGroup<'_> {
    /// The segment of a member in `window`, if all members together send `rate` requests per second.
    fn segment(&self, window: &Window, rate: f64, filled: bool) -> Option<Segment> {
        let arrival = window.arrival.unwrap_or(self.client.arrival);
        let rate = rate / f64::from(self.members());
        let pace = match (self.client.load, window.rate) {
            (load, _) if load.is_concurrency() => Pace::Users,
            (_, WindowRate::Count(count)) => Pace::Counted { count, intervals: Intervals::new(arrival, 1.0) },
            (_, WindowRate::Exact(rate)) => Pace::Steady(Intervals::new(arrival, rate)),
            _ if rate <= 0.0 => return None,
            _ if filled => Pace::Filled { rate, intervals: Intervals::new(arrival, rate) },
            _ => Pace::Steady(Intervals::new(arrival, rate)),
        };
        let (input, output, reason_ratio) = (window.input.clone(), window.output.clone(), window.reason_ratio.clone());
        Some(Segment { start: window.start, end: window.end, pace, input, output, reason_ratio })
    }
}

/// Merges overlapping windows, which have no settings of their own.
fn union(mut windows: Vec<Window>) -> Vec<Window> {
    windows.sort_by_key(|window| window.start);
    let mut joined: Vec<Window> = Vec::new();
    for window in windows {
        match joined.last_mut() {
            Some(last)
                if window.start <= last.end && last.rate == WindowRate::Usual && window.rate == WindowRate::Usual =>
            {
                last.end = last.end.max(window.end);
            }
            _ => joined.push(window),
        }
    }
    joined
}

/// The segments before the horizon, in order.
fn cut(mut segments: Vec<Segment>, horizon: Micros) -> Vec<Segment> {
    segments.retain(|segment| segment.start < horizon);
    for segment in &mut segments {
        // A counted segment spreads over its whole length; requests after the horizon are left out when they are drawn.
        if !matches!(segment.pace, Pace::Counted { .. }) {
            segment.end = segment.end.min(horizon);
        }
    }
    segments.sort_by_key(|segment| (segment.start, segment.end));
    segments
}

/// Distributes overlapping segments over the smallest number of lists without overlap.
fn lanes(segments: Vec<Segment>) -> Vec<Vec<Segment>> {
    let mut lanes: Vec<Vec<Segment>> = Vec::new();
    for segment in segments {
        let free = |lane: &&mut Vec<Segment>| lane.last().is_none_or(|last| last.end <= segment.start);
        match lanes.iter_mut().find(free) {
            Some(lane) => lane.push(segment),
            None => lanes.push(vec![segment]),
        }
    }
    lanes
}

/// Builds plans and allocates numbers.
struct Making<'a> {
    options: &'a GenerateOptions,
    names: Names,
    /// Number of senders by id so far: an id need not be unique.
    ids: FxHashMap<String, u32>,
    prefixes: Prefixes,
}

impl Making<'_> {
    /// One plan for each member and lane.
    fn members(
        &mut self,
        group: &SenderGroup<'_>,
        lanes: &[Arc<[Segment]>],
        part: usize,
        end: Micros,
        plans: &mut Vec<SenderPlan>,
    ) -> Result<(), ExpandError> {
        let client = Arc::new(group.client.clone());
        let names = &mut self.names;
        let tags = Tags {
            slo_class: names.intern(&client.slo_class),
            tenant: names.intern(&client.tenant_id),
            model: names.intern(&client.model),
            ..Tags::default()
        };
        let tags = Tags { adapter: names.intern_adapter(&client.adapter, tags.model), ..tags };
        let timeout = self.options.timeout.unwrap_or(match client.timeout {
            Timeout::After(timeout) => Some(timeout),
            Timeout::Unsaid if client.is_closed_loop() => Some(USUAL_TIMEOUT),
            Timeout::Unsaid | Timeout::Never => None,
        });
        for member in 0..group.members() {
            let id = match group.population {
                Some(_) => format!("{}-{member}", client.id),
                None => client.id.clone(),
            };
            let own_prefix = matches!(group.population, Some((_, PrefixSharing::PerMember)));
            let (prefix_group, prefix_tokens, prefix) =
                self.prefix(&client, own_prefix.then_some(member), tags.adapter)?;
            let tags = Tags { client: self.names.intern(&id), prefix_group, ..tags };
            let name = self.stream_name(id);
            for (lane, segments) in lanes.iter().enumerate() {
                let name = if lane == 0 { name.clone() } else { format!("{name} lane {lane}") };
                let streams = Streams::new(self.options.seed, &name);
                let (client, segments) = (Arc::clone(&client), Arc::clone(segments));
                let plan = SenderPlan {
                    client,
                    tags,
                    prefix_tokens,
                    prefix,
                    segments,
                    timeout,
                    part,
                    end,
                    streams,
                    max_tokens: if self.options.as_in_blis { MaxTokens::Length } else { group.client.max_tokens },
                    as_in_blis: self.options.as_in_blis,
                    prompts: None,
                };
                plans.push(self.with_prompts(plan)?);
            }
        }
        Ok(())
    }

    /// `plan` with its fixed prompts, if its client has some. A group is a prefix group and a tenant.
    fn with_prompts(&mut self, plan: SenderPlan) -> Result<SenderPlan, ExpandError> {
        let Some(cycle) = plan.client.prompts else { return Ok(plan) };
        let (names, prefixes) = (&mut self.names, &mut self.prefixes);
        let tenant = plan.tags.tenant;
        let tags = |group: u32| {
            let prefix_group = names.intern(&format!("prompt-{group}"));
            Tags { prefix_group, tenant: if tenant == Name::NONE { prefix_group } else { tenant }, ..plan.tags }
        };
        let block_size = self.options.block_size.get();
        let lengths = PromptLengths { question: &plan.client.input, output: &plan.client.output };
        let Streams { inputs: questions, outputs, limits, prompts: order, .. } = plan.streams;
        let streams = PromptStreams { questions, outputs, limits, order };
        let prompts =
            cycle.make(lengths, plan.max_tokens, streams, block_size, tags, |blocks| prefixes.take(blocks))?;
        Ok(SenderPlan { prompts: Some(prompts), ..plan })
    }

    /// The name of the random streams: it depends on the id alone; further clients with the same id get other streams.
    fn stream_name(&mut self, id: String) -> String {
        let before = self.ids.entry(id.clone()).or_default();
        *before += 1;
        if *before == 1 { id } else { format!("{id} number {before}") }
    }

    fn prefix(
        &mut self,
        client: &Client,
        member: Option<u32>,
        adapter: Name,
    ) -> Result<(Name, u32, Span), ExpandError> {
        const NONE: Span = Span { first: 0, len: 0 };
        let Some(prefix) = &client.prefix else { return Ok((Name::NONE, 0, NONE)) };
        let group = match member {
            Some(member) => format!("{}-{member}", prefix.group),
            None => prefix.group.clone(),
        };
        let name = self.names.intern(&group);
        let (tokens, span) = self.prefixes.span(name, adapter, prefix.tokens, self.options)?;
        Ok((name, tokens, span))
    }
}

/// Timeout of clients in closed loop without a timeout of their own, as in BLIS.
const USUAL_TIMEOUT: Micros = Micros(300_000_000);

/// Length and blocks of each prefix group; of each adapter apart, because the adapter changes what is cached.
#[derive(Default)]
struct Prefixes {
    known: FxHashMap<(Name, Name), (u32, Span)>,
    next_key: BlockKey,
}

impl Prefixes {
    fn span(
        &mut self,
        group: Name,
        adapter: Name,
        tokens: u32,
        options: &GenerateOptions,
    ) -> Result<(u32, Span), ExpandError> {
        // In BLIS, blocks are equal if their tokens are.
        let adapter = if options.as_in_blis { Name::NONE } else { adapter };
        match self.known.entry((group, adapter)) {
            Entry::Occupied(known) => Ok(*known.get()),
            Entry::Vacant(new) => {
                let len = tokens / options.block_size;
                let span = Span { first: self.next_key, len };
                self.next_key = self.next_key.checked_add(len).ok_or(ExpandError::TooManyBlocks)?;
                Ok(*new.insert((tokens, span)))
            }
        }
    }

    /// Keys of `len` further blocks.
    fn take(&mut self, len: u32) -> Result<Span, ExpandError> {
        let span = Span { first: self.next_key, len };
        self.next_key = self.next_key.checked_add(len).ok_or(ExpandError::TooManyBlocks)?;
        Ok(span)
    }
}

/// Maximum number of requests of a window that is filled: they take a second or two to draw.
const FILLED_MAX: f64 = 1e8;

/// Checks that the workload ends, after no more requests than 32 bits can number.
fn check_end(spec: &Spec, plans: &[SenderPlan], options: &GenerateOptions) -> Result<(), ExpandError> {
    let segments = || plans.iter().flat_map(|plan| plan.segments.iter());
    if segments().next().is_none() {
        return Err(ExpandError::Empty);
    }
    let is_filled = |segment: &&Segment| matches!(segment.pace, Pace::Filled { .. } | Pace::Counted { .. });
    let fullest = segments().filter(is_filled).map(Segment::expected).fold(0.0, f64::max);
    if fullest > FILLED_MAX {
        return Err(ExpandError::FullWindow { requests: fullest });
    }
    // The first windows of all clients are drawn before the first request.
    let first = plans.iter().filter_map(|plan| plan.segments.first());
    let at_once: f64 = first.filter(is_filled).map(Segment::expected).sum();
    if at_once > FILLED_MAX {
        return Err(ExpandError::FullWindows { requests: at_once });
    }
    if options.num_requests.is_some() {
        return Ok(());
    }
    // A part with a number of requests ends there.
    let counted =
        |plan: &&SenderPlan| plan.part.checked_sub(1).is_some_and(|part| spec.parts[part].num_requests.is_some());
    let open = || plans.iter().filter(|plan| !counted(plan));
    if open().any(|plan| !plan.is_single_session() && plan.segments.iter().any(|s| s.end == Micros::MAX)) {
        return Err(ExpandError::Endless);
    }
    let numbers: u64 = spec.parts.iter().filter_map(|part| part.num_requests).sum();
    let requests: f64 = open().map(SenderPlan::expected).sum::<f64>() + numbers as f64;
    // 1 % is many standard deviations of a Poisson count of this size.
    if requests > f64::from(u32::MAX) * 0.99 { Err(ExpandError::TooMany { requests }) } else { Ok(()) }
}
