//! Runs a scenario on one of the engines.

use blis_sim::ids::RequestId;
use blis_sim::instance::{Fast, Instance, Plain, StepRecord};
use blis_sim::observer::{Interests, Observer, SimEvent};
use blis_sim::units::Micros;

use super::case::{RecordedScenario, STEP, ScenarioError};
use super::rows::{BlockRow, GroupRow, RequestTotals, ScenarioRow, SchedulerSteps, StepTotals};

/// The engine that runs a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// The reference engine of the simulator.
    Plain,
    /// The one that runs simulations.
    Fast,
}

/// What the scheduler of `engine` does with `case`.
///
/// # Errors
/// If the scenario has no KV cache, or comes to no end.
pub fn steps(case: &RecordedScenario, engine: EngineKind) -> Result<SchedulerSteps, ScenarioError> {
    let config = case.instance()?;
    let block_size = config.block_size;
    match engine {
        EngineKind::Plain => Driver::new(case).run(Plain::new(config), block_size, |plain| plain.last_step.clone()),
        EngineKind::Fast => {
            let last = |fast: &Fast| fast.last_step().cloned().unwrap_or_default();
            Driver::new(case).run(Fast::new(config).recording(), block_size, last)
        }
    }
}

/// Follows the requests through the steps of an engine.
struct Driver<'a> {
    case: &'a RecordedScenario,
    requests: Vec<Followed>,
    outcomes: Outcomes,
    rows: Vec<GroupRow>,
    summary: StepTotals,
    /// Requests that finished in the last step, to be reported with the next one (asynchronous scheduling).
    late: Vec<String>,
    groups: usize,
}

/// What the engine reports of each request at its end.
struct Outcomes(Vec<RequestTotals>);

impl Observer for Outcomes {
    fn interests(&self) -> Interests {
        Interests::OUTCOMES
    }

    fn record(&mut self, event: &SimEvent<'_>) {
        if let SimEvent::Outcome(outcome) = event {
            self.0[outcome.id.0 as usize] =
                RequestTotals { cached_tokens: outcome.cached_tokens, output_tokens: outcome.generated_tokens };
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Followed {
    admitted: bool,
    preempted: bool,
    generated: u32,
}

impl<'a> Driver<'a> {
    fn new(case: &'a RecordedScenario) -> Self {
        Self {
            case,
            requests: vec![Followed::default(); case.requests.len()],
            outcomes: Outcomes(vec![RequestTotals::default(); case.requests.len()]),
            rows: Vec::new(),
            summary: StepTotals::default(),
            late: Vec::new(),
            groups: 0,
        }
    }

    fn run<I: Instance>(
        mut self,
        mut instance: I,
        block_size: u32,
        last_step: impl Fn(&I) -> StepRecord,
    ) -> Result<SchedulerSteps, ScenarioError> {
        let mut arrivals = self.case.arrivals(block_size).into_iter().peekable();
        let mut last = StepRecord { now: Micros::MAX, ..last_step(&instance) };
        loop {
            let next = arrivals.peek().map(|request| request.arrival);
            match (next, instance.next_event()) {
                (Some(at), event) if event.is_none_or(|event| at <= event) => {
                    self.fill_up_to(at);
                    if let Some(request) = arrivals.next() {
                        instance.arrive(request.arrival, request);
                    }
                }
                (_, Some(event)) => {
                    let advanced = instance.advance(event + Micros(1), &mut self.outcomes);
                    advanced.map_err(|error| ScenarioError::Groups(error.to_string()))?;
                    let step = last_step(&instance);
                    if step.now != last.now && step.end > step.now {
                        self.fill_up_to(step.now);
                        self.push(&step);
                        last = step;
                    }
                }
                _ => break,
            }
        }
        self.fill_up_to(Micros::MAX);
        instance.finish(Micros::MAX, &mut self.outcomes);
        Ok(self.finish())
    }

    /// The step after the last end runs with nothing, unless there is a request.
    fn fill_up_to(&mut self, now: Micros) {
        let Some(last) = self.rows.last() else { return };
        let (s, free) = (last.s + 1, last.g);
        if s * STEP >= now.0
            || last.q.is_empty() && last.h.iter().all(|&held| held == 0) && last.f == last.g && last.d.is_empty()
        {
            // The next step follows at once, or this one was the empty one.
            return;
        }
        let d = std::mem::take(&mut self.late);
        self.rows.push(GroupRow { s, f: free, g: free, h: vec![0; self.groups], d, ..GroupRow::default() });
    }

    fn name(&self, id: RequestId) -> String {
        self.case.requests[id.0 as usize].id.clone()
    }

    fn push(&mut self, step: &StepRecord) {
        self.groups = step.held_pages.len();
        let mut row = GroupRow {
            s: step.now.0 / STEP,
            f: step.free_blocks_planned,
            g: step.free_blocks,
            h: step.held_pages.clone(),
            ..GroupRow::default()
        };
        for &(id, tokens, before) in &step.scheduled {
            let (kind, samples) = self.schedule(id, tokens, before);
            row.q.push((self.name(id), kind, tokens, before, samples));
        }
        let mut preempted = step.preempted.clone();
        preempted.sort_by_key(|id| (self.case.requests[id.0 as usize].arrival_step, id.0));
        self.summary.preemptions += preempted.len() as u64;
        for id in preempted {
            self.requests[id.0 as usize].preempted = true;
            row.p.push(self.name(id));
        }
        let mut finished: Vec<String> = step.finished.iter().map(|&id| self.name(id)).collect();
        finished.sort_unstable();
        row.d = if self.case.is_asynchronous() { std::mem::replace(&mut self.late, finished) } else { finished };
        self.rows.push(row);
    }

    /// A request computes `tokens` tokens after `before`: how it comes into the step, and whether a token comes out.
    fn schedule(&mut self, id: RequestId, tokens: u32, before: u32) -> (&'static str, u8) {
        let prompt = self.case.requests[id.0 as usize].prompt_tokens();
        let progress = &mut self.requests[id.0 as usize];
        let known = prompt + progress.generated;
        let summary = &mut self.summary;
        summary.scheduled_tokens += u64::from(tokens);
        let kind = match (progress.admitted, std::mem::take(&mut progress.preempted)) {
            (false, _) => {
                summary.hit += u64::from(before);
                if self.case.is_cached() {
                    summary.prefix_cache_queries += u64::from(known);
                    summary.prefix_cache_hits += u64::from(before);
                }
                "n"
            }
            (true, true) => {
                summary.hit_on_resume += u64::from(before);
                "p"
            }
            (true, false) => "r",
        };
        progress.admitted = true;
        let samples = before + tokens >= known;
        progress.generated += u32::from(samples);
        (kind, u8::from(samples))
    }

    fn finish(self) -> SchedulerSteps {
        let groups = self.case.has_groups();
        let summary = StepTotals { steps: self.rows.len() as u64, ..self.summary };
        let rows = self.rows.into_iter();
        let steps = rows
            .map(|row| if groups { ScenarioRow::Groups(row) } else { ScenarioRow::Blocks(BlockRow::from(row)) })
            .collect();
        let names = self.case.requests.iter().map(|request| request.id.clone());
        SchedulerSteps { steps, summary, per_request: names.zip(self.outcomes.0).collect() }
    }
}
