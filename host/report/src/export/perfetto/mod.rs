//! The export for the Perfetto viewer (<https://ui.perfetto.dev>): one process per instance, and one for the gateway.
//!
//! | track | content |
//! |---|---|
//! | `requests` of the gateway | a request from its arrival to its instance, or to its end; inside: the gateway's queue |
//! | `routing` of the gateway | the moment at which a request goes to its instance: an arrow starts here |
//! | `steps` of an instance | engine steps; an arrow ends at the first step of each request, and another leads from its last step on a prefill instance to its first on its decode instance |
//! | `requests` of an instance | a request, or its part there; inside: `queue`, `prefill`, `KV wait`, `KV transfer`, `decode`, `preempted` |
//! | counters of an instance | waiting and running requests, KV blocks in use (%) |
//!
//! A file with a name that ends in `.pftrace` has Perfetto's own protobuf form, which is several times smaller; any other is JSON
//! (Chrome's trace event format). Both have the same content, and a further `.gz` compresses either. Requests overlap, so those of a process are laid out in lanes:
//! in each lane one follows the other.

mod form;
mod json;
mod proto;

use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::path::Path;

use blis_sim::ids::InstanceIndex;
use blis_sim::outcome::{StageTimes, Status};
use blis_sim::units::Micros;
use blis_workload::Names;
use flate2::Compression;
use flate2::write::GzEncoder;

use self::form::{Arrow, ArrowPath, Counter, CounterValues, Properties, Property, TraceForm, TraceSlice, Track};
use super::journal::{Journal, Journey, StepSums};
use super::service::ServiceInfo;

/// The part of a run that is exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportWindow {
    /// What ends before is left out.
    pub from: Micros,
    /// What begins at this time or later is left out.
    pub to: Micros,
    /// The instances that are exported, with the requests that they served; empty for all, and the requests of none.
    pub instances: Vec<u32>,
}

impl Default for ExportWindow {
    fn default() -> Self {
        Self { from: Micros::ZERO, to: Micros::MAX, instances: Vec::new() }
    }
}

impl ExportWindow {
    fn contains(&self, instance: Option<InstanceIndex>, start: Micros, end: Micros) -> bool {
        let is_listed = |instance: InstanceIndex| self.instances.contains(&instance.0);
        start < self.to && end >= self.from && (self.instances.is_empty() || instance.is_some_and(is_listed))
    }
}

/// Writes the events in the form that the name of the file says.
pub(super) fn write(
    path: &Path,
    journal: &Journal,
    about: &ServiceInfo,
    names: &Names,
    window: &ExportWindow,
    out: &mut dyn Write,
) -> io::Result<()> {
    if path.extension().is_some_and(|extension| extension == "gz") {
        let mut compressed = GzEncoder::new(out, Compression::fast());
        write(&path.with_extension(""), journal, about, names, window, &mut compressed)?;
        return compressed.finish().map(|_| ());
    }
    let export = TraceExport { journal, about, names, window };
    if path.extension().is_some_and(|extension| extension == "pftrace") {
        export.write(&mut proto::ProtoForm::new(out))
    } else {
        let mut json = json::JsonForm::new(out)?;
        export.write(&mut json)?;
        json.finish()
    }
}

/// A request in one process, with its stages.
struct RequestSpan<'a> {
    journey: &'a Journey,
    /// `None`: the gateway.
    instance: Option<InstanceIndex>,
    times: (Micros, Micros),
    stages: Vec<(&'static str, Micros, Micros)>,
}

struct TraceExport<'a> {
    journal: &'a Journal,
    about: &'a ServiceInfo,
    names: &'a Names,
    window: &'a ExportWindow,
}

impl TraceExport<'_> {
    fn write(&self, form: &mut impl TraceForm) -> io::Result<()> {
        let last = self.journal.steps.iter().map(|step| step.end).max().unwrap_or_default();
        let instances = self.journal.steps.iter().map(|step| step.instance.index() + 1).max().unwrap_or(0);
        let mut steps: Vec<Vec<&StepSums>> = vec![Vec::new(); instances];
        let mut spans: Vec<Vec<RequestSpan<'_>>> = Vec::new();
        spans.resize_with(instances + 1, Vec::new);
        for step in
            self.journal.steps.iter().filter(|step| self.window.contains(Some(step.instance), step.start, step.end))
        {
            steps[step.instance.index()].push(step);
        }
        for journey in &self.journal.journeys {
            let instance = journey.outcome.and_then(|outcome| outcome.instance);
            let gateway = in_gateway(journey, last);
            spans[0].extend(Some(gateway).filter(|span| self.window.contains(instance, span.times.0, span.times.1)));
            for span in in_instances(journey, last).into_iter().flatten() {
                let of_instance = span.instance.and_then(|instance| spans.get_mut(instance.index() + 1));
                if let Some(spans) =
                    of_instance.filter(|_| self.window.contains(span.instance, span.times.0, span.times.1))
                {
                    spans.push(span);
                }
            }
        }
        let mut spans = spans.into_iter();
        self.gateway(spans.next().unwrap_or_default(), form)?;
        for ((instance, steps), spans) in (0..).map(InstanceIndex).zip(steps).zip(spans) {
            if steps.is_empty() && spans.is_empty() {
                continue;
            }
            let process = Track::process_of(instance);
            form.process(process, &format!("instance_{instance}"), "steps")?;
            self.steps(process, &steps, &spans, form)?;
            self.requests(process, spans, form)?;
        }
        Ok(())
    }

    fn gateway(&self, spans: Vec<RequestSpan<'_>>, form: &mut impl TraceForm) -> io::Result<()> {
        form.process(Track::GATEWAY, "gateway", "routing")?;
        let mut routed: Vec<_> =
            spans.iter().filter_map(|span| Some((span.journey.handed_over?, span.journey))).collect();
        routed.sort_by_key(|&(at, journey)| (at, journey.request.id));
        let track = Track { process: Track::GATEWAY, line: Track::STEPS };
        for (at, journey) in routed.into_iter().filter(|&(at, _)| self.window.from <= at && at < self.window.to) {
            let id = journey.request.id.0;
            let arrow = journey.in_batch.first().map(|_| Arrow::Starts(ArrowPath::Routing, id));
            let arrows = arrow.as_slice();
            form.slice(track, &TraceSlice { name: "routed", times: (at, at), arrows, ..TraceSlice::default() })?;
        }
        self.requests(Track::GATEWAY, spans, form)
    }

    /// The steps of one instance and its counters.
    fn steps(
        &self,
        process: u32,
        steps: &[&StepSums],
        spans: &[RequestSpan<'_>],
        form: &mut impl TraceForm,
    ) -> io::Result<()> {
        let mut of_steps: Vec<(u64, Arrow)> = spans.iter().flat_map(RequestSpan::arrows).flatten().collect();
        of_steps.sort_unstable();
        let mut of_steps = of_steps.into_iter().peekable();
        let mut counted = None;
        let (mut arrows, mut properties) = (Vec::new(), Vec::new());
        for step in steps {
            arrows.clear();
            while let Some((_, arrow)) = of_steps.next_if(|&(number, _)| number <= step.number) {
                arrows.push(arrow);
            }
            let all = [
                ("prefill_tokens", step.prefill_tokens),
                ("prefill_requests", step.prefill_requests),
                ("decode_requests", step.decode_requests),
                ("preempted", step.preempted),
            ];
            properties.clear();
            let there = all.into_iter().filter(|&(_, value)| value > 0);
            properties.extend(there.map(|(name, value)| (name, Property::Number(value.into()))));
            let name = match (step.prefill_requests, step.decode_requests) {
                (0, _) => "decode step",
                (_, 0) => "prefill step",
                _ => "mixed step",
            };
            let values = self.counted(step);
            let changed =
                std::array::from_fn(|index| counted.is_none_or(|before: [u64; 3]| before[index] != values[index]));
            counted = Some(values);
            let slice = TraceSlice {
                name,
                times: (step.start, step.end),
                properties: &properties,
                arrows: &arrows,
                counters: CounterValues { values, changed },
            };
            form.slice(Track { process, line: Track::STEPS }, &slice)?;
        }
        Ok(())
    }

    /// The counters at the beginning of a step.
    fn counted(&self, step: &StepSums) -> [u64; 3] {
        let used = u64::from(self.about.total_kv_blocks.saturating_sub(step.free_blocks));
        let percent = used * 100 / u64::from(self.about.total_kv_blocks.max(1));
        Counter::ALL.map(|(counter, _)| match counter {
            Counter::Running => step.running.into(),
            Counter::KvPercent => percent,
            Counter::Waiting => step.waiting.into(),
        })
    }

    /// Requests in lanes of tracks.
    fn requests(&self, process: u32, mut spans: Vec<RequestSpan<'_>>, form: &mut impl TraceForm) -> io::Result<()> {
        spans.sort_by_key(|span| (span.times, span.journey.request.id));
        let mut free: BinaryHeap<std::cmp::Reverse<(Micros, u32)>> = BinaryHeap::new();
        let mut lanes = 0;
        for span in spans {
            let (start, end) = span.times;
            let line = match free.peek() {
                // The next begins later than the last ended, so that the viewer need not order events of one moment.
                Some(&std::cmp::Reverse((ended, line))) if ended < start => {
                    free.pop();
                    line
                }
                _ => {
                    lanes += 1;
                    form.lane(Track { process, line: lanes })?;
                    lanes
                }
            };
            free.push(std::cmp::Reverse((end, line)));
            self.request(Track { process, line }, &span, form)?;
        }
        Ok(())
    }

    fn request(&self, track: Track, span: &RequestSpan<'_>, form: &mut impl TraceForm) -> io::Result<()> {
        let journey = span.journey;
        let tags = journey.request.tags;
        let named = [("class", tags.slo_class), ("tenant", tags.tenant), ("model", tags.model)];
        let name = name(journey);
        if track.process == Track::GATEWAY && journey.handed_over.is_some() {
            // Its properties are with its other part.
            return self.parts(track, span, &name, &[], form);
        }
        let mut properties = vec![
            ("input_tokens", Property::Number(journey.request.input_tokens.into())),
            ("output_tokens", Property::Number(journey.request.output_tokens.into())),
        ];
        let texts =
            named.into_iter().map(|(what, name)| (what, self.names.text(name))).filter(|(_, text)| !text.is_empty());
        properties.extend(texts.map(|(what, text)| (what, Property::Text(text))));
        properties.extend(journey.failure().map(|word| ("ended", Property::Text(word))));
        self.parts(track, span, &name, &properties, form)
    }

    /// A request with its stages.
    fn parts(
        &self,
        track: Track,
        span: &RequestSpan<'_>,
        name: &str,
        properties: Properties<'_>,
        form: &mut impl TraceForm,
    ) -> io::Result<()> {
        let RequestSpan { journey, times: (start, end), stages, .. } = span;
        let id = journey.request.id.0;
        form.begin(track, id, name, *start, properties)?;
        for &(stage, from, to) in stages {
            form.begin(track, id, stage, from, &[])?;
            form.end(track, id, stage, to)?;
        }
        form.end(track, id, name, *end)
    }
}

fn name(journey: &Journey) -> String {
    format!("request_{}", journey.request.id)
}

/// Its end; `last` if it had not ended.
fn ended(journey: &Journey, last: Micros) -> Micros {
    match journey.outcome.map(|outcome| (outcome.status, outcome.ended_at)) {
        Some((Status::Queued | Status::Running | Status::Arriving | Status::InGateway, _)) | None => last,
        Some((_, at)) => at,
    }
    .max(journey.request.arrival)
}

/// A request from its arrival to its instance.
fn in_gateway(journey: &Journey, last: Micros) -> RequestSpan<'_> {
    let arrival = journey.request.arrival;
    let end = journey.handed_over.unwrap_or_else(|| ended(journey, last)).max(arrival);
    let queue = journey.in_gateway.map(|(joined, left)| ("gateway queue", joined, left.min(end)));
    let encode = journey.encoded.map(|(from, to)| ("encode", from, to.min(end)));
    RequestSpan { journey, instance: None, times: (arrival, end), stages: queue.into_iter().chain(encode).collect() }
}

/// A request on its instance; or its two parts, if it was prefilled on another than the one that decoded it.
fn in_instances(journey: &Journey, last: Micros) -> [Option<RequestSpan<'_>>; 2] {
    match (&journey.parts, journey.handed_over) {
        (Some(parts), Some(start)) => in_parts(journey, parts, start, ended(journey, last)),
        _ => [in_instance(journey, last), None],
    }
}

/// The part on the prefill instance, from `start` on, and that on the decode instance, until `end`. A stage that it did not reach
/// has no length; the last one that it reached lasts to its end.
fn in_parts<'a>(journey: &'a Journey, parts: &StageTimes, start: Micros, end: Micros) -> [Option<RequestSpan<'a>>; 2] {
    let span = |instance, start: Micros, stages: &[(&'static str, Option<Micros>)], is_last: bool| {
        let (mut at, mut shown) = (start, Vec::new());
        for (index, &(name, time)) in stages.iter().enumerate() {
            let is_end = is_last && index + 1 == stages.len();
            let to = time.filter(|_| !is_end).map_or(end, |time| at.saturating_add(time)).min(end);
            if at < to {
                shown.push((name, at, to));
            }
            at = to.max(at);
        }
        Some(RequestSpan { journey, instance: Some(instance), times: (start, at), stages: shown })
    };
    let first = span(parts.prefill, start, &[("queue", parts.prefill_queue), ("prefill", parts.prefill_time)], false);
    let arrival = parts.prefill_queue.zip(parts.prefill_time).zip(parts.hold);
    let arrival = arrival.map(|((queue, prefill), hold)| start + queue + prefill + hold).filter(|&at| at < end);
    let stages = [("KV wait", parts.decode_wait), ("KV transfer", parts.transfer), ("decode", None)];
    [first, arrival.and_then(|at| span(parts.decode, at, &stages, true))]
}

impl RequestSpan<'_> {
    /// The arrows that start or end at steps of its instance, with their numbers.
    fn arrows(&self) -> [Option<(u64, Arrow)>; 2] {
        let Self { journey, instance, .. } = self;
        let id = journey.request.id.0;
        let first = journey.in_batch.iter().find(|change| Some(change.instance) == *instance).map(|change| change.step);
        let Some(parts) = &journey.parts else {
            return [first.map(|step| (step, Arrow::Ends(ArrowPath::Routing, id))), None];
        };
        // Both ends of the arrow are there, or none.
        let goes_on =
            journey.left_first.filter(|_| journey.in_batch.iter().any(|change| change.instance == parts.decode));
        if Some(parts.prefill) == *instance {
            let leaves = goes_on.map(|step| (step, Arrow::Starts(ArrowPath::Transfer, id)));
            [first.map(|step| (step, Arrow::Ends(ArrowPath::Routing, id))), leaves]
        } else {
            [first.filter(|_| goes_on.is_some()).map(|step| (step, Arrow::Ends(ArrowPath::Transfer, id))), None]
        }
    }
}

/// A request from its arrival at its instance to its end; `None` if it reached none.
fn in_instance(journey: &Journey, last: Micros) -> Option<RequestSpan<'_>> {
    let start = journey.handed_over?;
    let end = ended(journey, last).max(start);
    let first = journey.first_output.unwrap_or(Micros::MAX);
    let mut stages = Vec::new();
    let mut stage = |name, from: Micros, to: Micros| {
        if from < to.min(end) {
            stages.push((name, from, to.min(end)));
        }
    };
    let mut at = start;
    for change in &journey.in_batch {
        if change.entered {
            stage(if at == start { "queue" } else { "preempted" }, at, change.at);
        } else {
            stage("prefill", at, change.at.min(first));
            stage("decode", at.max(first), change.at);
        }
        at = change.at;
    }
    if journey.in_batch.is_empty() {
        stage("queue", at, end);
    } else if journey.is_in_batch() {
        stage("prefill", at, first);
        stage("decode", at.max(first), end);
    } else {
        stage("preempted", at, end);
    }
    let instance = journey.outcome.and_then(|outcome| outcome.instance);
    Some(RequestSpan { journey, instance, times: (start, end), stages })
}

#[cfg(test)]
mod tests;
