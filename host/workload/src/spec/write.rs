//! Writes a specification as YAML; reading it gives the same specification.

use std::fmt::{self, Display};

use super::arrival::IntervalShape;
use super::client::{Client, ClientLoad, Multimodal, Timeout, Turns};
use super::cohort::{Cohort, PrefixSharing};
use super::lengths::{Bounds, LONGEST};
use super::specification::{Part, Spec};
use super::window::{Window, WindowRate};
use super::{Arrival, Lengths, PromptCycle};
use crate::MaxTokens;
use crate::trace_v2::GoodputTargets;
use blis_diag::text;

/// A file of version 2.
impl Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "version: \"2\"")?;
        entry(f, 0, "seed", self.seed)?;
        entry(f, 0, "category", named(&self.category))?;
        entry(f, 0, "aggregate_rate", Some(self.aggregate_rate).filter(|&rate| rate > 0.0))?;
        entry(f, 0, "num_requests", self.num_requests)?;
        entry(f, 0, "horizon", self.horizon.map(|horizon| horizon.0))?;
        list(f, "goodput_slo_targets", &self.goodput_slo_targets, |f, (class, targets)| {
            writeln!(f, "  {}: {{ {} }}", text(class), Targets(targets))
        })?;
        list(f, "parts", &self.parts, |f, part| writeln!(f, "  {}: {{ {} }}", text(&part.name), PartText(part)))?;
        list(f, "clients", &self.clients, |f, client| Sender { client, parts: &self.parts, cohort: None }.write(f))?;
        list(f, "cohorts", &self.cohorts, |f, cohort| {
            Sender { client: &cohort.client, parts: &self.parts, cohort: Some(cohort) }.write(f)
        })
    }
}

/// `key: value` in a line of its own; nothing without a value.
fn entry(f: &mut fmt::Formatter<'_>, indent: usize, key: &str, value: Option<impl Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| writeln!(f, "{:indent$}{key}: {value}", ""))
}

/// A name as YAML has it; `None` without one.
fn named(name: &str) -> Option<impl Display> {
    (!name.is_empty()).then(|| text(name))
}

/// A key and its list, if the list is not empty.
fn list<T>(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    items: impl IntoIterator<Item = T>,
    mut item: impl FnMut(&mut fmt::Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    let mut items = items.into_iter().peekable();
    if items.peek().is_some() {
        writeln!(f, "{key}:")?;
    }
    items.try_for_each(|value| item(f, value))
}

/// `key: value` pairs with commas between them.
fn pairs(f: &mut fmt::Formatter<'_>, pairs: impl IntoIterator<Item = Option<(&'static str, String)>>) -> fmt::Result {
    let pairs: Vec<String> = pairs.into_iter().flatten().map(|(key, value)| format!("{key}: {value}")).collect();
    f.write_str(&pairs.join(", "))
}

struct Targets<'a>(&'a GoodputTargets);

impl Display for Targets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GoodputTargets { ttft_ms, itl_ms, e2e_ms } = self.0;
        let pair = |key, ms: &Option<f64>| ms.map(|ms| (key, ms.to_string()));
        pairs(f, [pair("ttft_ms", ttft_ms), pair("itl_ms", itl_ms), pair("e2e_ms", e2e_ms)])
    }
}

struct PartText<'a>(&'a Part);

impl Display for PartText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Part { name: _, aggregate_rate, num_requests, horizon } = self.0;
        let number = num_requests.map(|number| ("num_requests", number.to_string()));
        let horizon = horizon.map(|horizon| ("horizon", horizon.0.to_string()));
        pairs(f, [Some(("aggregate_rate", aggregate_rate.to_string())), number, horizon])
    }
}

/// A client, or the members of a cohort, which are alike.
struct Sender<'a> {
    client: &'a Client,
    parts: &'a [Part],
    cohort: Option<&'a Cohort>,
}

impl Sender<'_> {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = self.client;
        writeln!(f, "  - id: {}", text(&client.id))?;
        entry(f, 4, "part", client.part.map(|part| text(&self.parts[part].name)))?;
        entry(f, 4, "tenant_id", named(&client.tenant_id))?;
        entry(f, 4, "slo_class", named(&client.slo_class))?;
        entry(f, 4, "model", named(&client.model))?;
        entry(f, 4, "adapter", named(&client.adapter))?;
        match client.load {
            ClientLoad::Share(share) => writeln!(f, "    rate_fraction: {share}")?,
            ClientLoad::Users { count, think_time } => {
                writeln!(f, "    concurrency: {count}\n    think_time_us: {}", think_time.0)?;
            }
            ClientLoad::Sessions(count) => writeln!(f, "    sessions: {count}")?,
        }
        if let Some(cohort) = self.cohort {
            population(f, cohort)?;
        }
        writeln!(f, "    arrival: {{ {} }}", Spacing(client.arrival))?;
        writeln!(f, "    input_distribution: {}", LengthsText(&client.input))?;
        writeln!(f, "    output_distribution: {}", LengthsText(&client.output))?;
        match client.max_tokens {
            MaxTokens::Drawn => {}
            MaxTokens::Unlimited => writeln!(f, "    max_tokens: none")?,
            MaxTokens::Length => writeln!(f, "    max_tokens: length")?,
            MaxTokens::Fixed(limit) => writeln!(f, "    max_tokens: {limit}")?,
        }
        if let Some(prefix) = &client.prefix {
            writeln!(f, "    prefix_group: {}\n    prefix_length: {}", text(&prefix.group), prefix.tokens)?;
        }
        if let Some(PromptCycle { groups, prompts_per_group, system_tokens, conversations }) = client.prompts {
            let counts = format!("groups: {groups}, prompts_per_group: {prompts_per_group}");
            let rest = format!("system_prompt_len: {system_tokens}, conversations: {conversations}");
            writeln!(f, "    prompt_cycle: {{ {counts}, {rest} }}")?;
        }
        if client.sampling.values().next().is_some() {
            write!(f, "    sampling: {{ ")?;
            pairs(f, client.sampling.values().map(|(param, value)| Some((param.name(), value.to_string()))))?;
            writeln!(f, " }}")?;
        }
        entry(f, 4, "streaming", client.streaming.then_some(true))?;
        if let Some(network) = client.network {
            let (rtt, bandwidth) = (network.rtt_ms, network.bandwidth_mbps);
            writeln!(f, "    network: {{ rtt_ms: {rtt}, bandwidth_mbps: {bandwidth} }}")?;
        }
        if self.cohort.is_none() && !client.windows.is_empty() {
            writeln!(f, "    lifecycle:\n      windows:")?;
            client.windows.iter().try_for_each(|window| writeln!(f, "        - {{ {} }}", WindowText(window)))?;
        }
        if let Some(parts) = &client.multimodal {
            multimodal(f, parts)?;
        }
        sessions(f, client)?;
        let timeout = match client.timeout {
            Timeout::Unsaid => None,
            Timeout::Never => Some(0),
            Timeout::After(timeout) => Some(timeout.0),
        };
        entry(f, 4, "timeout", timeout)?;
        entry(f, 4, "slo_target_us", client.slo_target.map(|target| target.0))?;
        let is_unusual = client.closed_loop != client.multi_turn.is_some();
        entry(f, 4, "closed_loop", is_unusual.then_some(client.closed_loop))
    }
}

fn population(f: &mut fmt::Formatter<'_>, cohort: &Cohort) -> fmt::Result {
    writeln!(f, "    population: {}", cohort.population)?;
    let is_own = cohort.prefix_sharing == PrefixSharing::PerMember;
    entry(f, 4, "prefix_sharing", is_own.then_some("per_member"))?;
    if let Some(diurnal) = cohort.diurnal {
        let (hour, ratio) = (diurnal.peak_hour, diurnal.peak_to_trough_ratio);
        writeln!(f, "    diurnal: {{ peak_hour: {hour}, peak_to_trough_ratio: {ratio} }}")?;
    }
    if let Some(spike) = cohort.spike {
        let rate = spike.trace_rate.map_or_else(String::new, |rate| format!(", trace_rate: {rate}"));
        let (start, duration) = (spike.start.0, spike.duration.0);
        writeln!(f, "    spike: {{ start_time_us: {start}, duration_us: {duration}{rate} }}")?;
    }
    if let Some(drain) = cohort.drain {
        let (start, ramp) = (drain.start.0, drain.ramp.0);
        writeln!(f, "    drain: {{ start_time_us: {start}, ramp_duration_us: {ramp} }}")?;
    }
    Ok(())
}

fn multimodal(f: &mut fmt::Formatter<'_>, parts: &Multimodal) -> fmt::Result {
    const KINDS: [&str; 3] = ["image", "audio", "video"];
    writeln!(f, "    multimodal:")?;
    entry(f, 6, "text_distribution", parts.text.as_ref().map(LengthsText))?;
    for (kind, (size, count)) in KINDS.iter().zip(&parts.items).filter_map(|(kind, item)| Some((kind, item.as_ref()?)))
    {
        writeln!(f, "      {kind}_distribution: {}", LengthsText(size))?;
        writeln!(f, "      {kind}_count_distribution: {}", LengthsText(count))?;
    }
    Ok(())
}

fn sessions(f: &mut fmt::Formatter<'_>, client: &Client) -> fmt::Result {
    if client.reason_ratio.is_some() || client.multi_turn.is_some() {
        writeln!(f, "    reasoning:")?;
    }
    entry(f, 6, "reason_ratio_distribution", client.reason_ratio.as_ref().map(LengthsText))?;
    let Some(turns) = client.multi_turn else { return Ok(()) };
    writeln!(f, "      multi_turn:\n        max_rounds: {}", turns.max_rounds)?;
    let Turns { rounds, think_time_ms, opening } = &client.turns;
    entry(f, 8, "think_time_us", think_time_ms.is_none().then_some(turns.think_time.0))?;
    entry(f, 8, "rounds_distribution", rounds.as_ref().map(LengthsText))?;
    entry(f, 8, "think_time_ms_distribution", think_time_ms.as_ref().map(LengthsText))?;
    entry(f, 8, "opening_distribution", opening.as_ref().map(LengthsText))?;
    entry(f, 8, "context_growth", turns.accumulate.then_some("accumulate"))?;
    entry(f, 8, "single_session", turns.single_session.then_some(true))
}

struct Spacing(Arrival);

impl Display for Spacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, shape) = match self.0 {
            Arrival::Constant => ("constant", None),
            Arrival::Poisson => ("poisson", None),
            Arrival::Gamma(shape) => ("gamma", Some(shape)),
            Arrival::Weibull(shape) => ("weibull", Some(shape)),
        };
        write!(f, "process: {name}")?;
        match shape {
            None => Ok(()),
            Some(IntervalShape::Cv(cv)) => write!(f, ", cv: {cv}"),
            Some(IntervalShape::Own { shape, scale_us }) => write!(f, ", shape: {shape}, scale: {scale_us}"),
        }
    }
}

struct WindowText<'a>(&'a Window);

impl Display for WindowText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Window { start, end, rate, arrival, input, output, reason_ratio } = self.0;
        let rate = match rate {
            WindowRate::Usual => None,
            WindowRate::Weight(weight) => Some(("trace_rate", weight.to_string())),
            WindowRate::Exact(rate) => Some(("rate", rate.to_string())),
            WindowRate::Count(count) => Some(("requests", count.to_string())),
        };
        let lengths =
            |key, lengths: &Option<Lengths>| lengths.as_ref().map(|lengths| (key, LengthsText(lengths).to_string()));
        pairs(
            f,
            [
                Some(("start_us", start.0.to_string())),
                Some(("end_us", end.0.to_string())),
                rate,
                arrival.map(|arrival| ("arrival", format!("{{ {} }}", Spacing(arrival)))),
                lengths("input_distribution", input),
                lengths("output_distribution", output),
                lengths("reason_ratio_distribution", reason_ratio),
            ],
        )
    }
}

/// A length distribution as YAML.
struct LengthsText<'a>(&'a Lengths);

impl Display for LengthsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Both bounds if they are mandatory, else those that have an effect.
        let both = |bounds: &Bounds| format!("min: {}, max: {}", bounds.min, bounds.max);
        let some = |bounds: &Bounds| {
            let min = (bounds.min > 1).then(|| format!(", min: {}", bounds.min));
            let max = (bounds.max < LONGEST).then(|| format!(", max: {}", bounds.max));
            min.unwrap_or_default() + max.as_deref().unwrap_or_default()
        };
        let (kind, params) = match self.0 {
            Lengths::Gaussian { mean, std_dev, bounds } => {
                ("gaussian", format!("mean: {mean}, std_dev: {std_dev}, {}", both(bounds)))
            }
            Lengths::Exponential { mean, bounds } => ("exponential", format!("mean: {mean}{}", some(bounds))),
            Lengths::LogNormal { mu, sigma, bounds } => {
                ("lognormal", format!("mu: {mu}, sigma: {sigma}{}", some(bounds)))
            }
            Lengths::ParetoLogNormal { alpha, xm, mu, sigma, mix_weight } => (
                "pareto_lognormal",
                format!("alpha: {alpha}, xm: {xm}, mu: {mu}, sigma: {sigma}, mix_weight: {mix_weight}"),
            ),
            Lengths::Uniform(bounds) => ("uniform", both(bounds)),
            Lengths::Constant(tokens) => ("constant", format!("value: {tokens}")),
            Lengths::Empirical(counted) => {
                let counted: Vec<(u32, f64)> = counted.probabilities().collect();
                // 0 tokens count as 1: there may be two such entries.
                let pair = |same: &[(u32, f64)]| {
                    format!("{}: {}", same[0].0, same.iter().map(|&(_, probability)| probability).sum::<f64>())
                };
                ("empirical", counted.chunk_by(|a, b| a.0 == b.0).map(pair).collect::<Vec<_>>().join(", "))
            }
        };
        write!(f, "{{ type: {kind}, params: {{ {params} }} }}")
    }
}
