//! Recorded sessions of TraceV2 and Mooncake traces in closed loop: only the first round arrives as recorded. A later
//! round follows after the end of the one before and a think time.

use std::sync::Arc;

use blis_sim::cluster::SessionStates;
use blis_sim::ids::RequestId;
use blis_sim::request::{BlockKey, Content, Name, Request, Tags};
use blis_sim::rng::Stream;
use blis_sim::units::Micros;
use rustc_hash::FxHashMap;

use super::SessionGrowth;
use super::columns::{Fields, TraceColumn};
use super::think_time::ClosedLoop;
use crate::closed_loop::{self, SessionSource};
use crate::conversation::{Conversation, EndStatus, KeyAllocator, RequestEnd, SessionState};
use crate::error::TraceError;
use crate::prefix::ROOT;
use crate::row::{RequestMetadata, TraceRow};
use crate::rows::SharedContents;
use crate::{Names, TraceOptions, Workload};
use blis_diag::RowError;

/// The properties of a record that only a replay in closed loop needs.
pub(crate) struct Extra {
    /// Tokens of the prompt without those of its prefix group.
    pub own: u32,
    /// Think time after the end of the round before.
    pub think_time: Micros,
    /// Time from its arrival to its deadline, if it has one.
    pub time_to_deadline: Option<Micros>,
}

impl Extra {
    pub(super) fn from_fields(fields: &Fields<'_>) -> Result<Self, RowError> {
        let (arrival, deadline) = (fields.arrival_us()?, fields.time(TraceColumn::DeadlineUs)?);
        Ok(Self {
            own: fields.own_tokens()?,
            think_time: Micros(fields.think_time()?),
            time_to_deadline: (deadline > 0).then(|| Micros(deadline.saturating_sub(arrival))),
        })
    }
}

/// A round that follows the end of the one before.
#[derive(Clone, Debug)]
struct Round {
    id: RequestId,
    own: u32,
    output: u32,
    max_output_tokens: Option<u32>,
    think_time: Micros,
    time_to_deadline: Option<Micros>,
    client_priority: Option<i32>,
    tags: Tags,
    media_tokens: u32,
    /// Length of the whole prompt and its shared blocks, if prompts do not grow.
    alone: (u32, Content),
}

/// A session with a request in flight.
#[derive(Debug)]
struct RecordedSession {
    /// Indices in [`Later::rounds`] of the round in flight, and of the end of the session's rounds.
    at: usize,
    end: usize,
    context: Conversation,
    input_tokens: u32,
}

/// The rounds of all sessions, known from the trace.
#[derive(Debug)]
pub(crate) struct Later {
    /// The sessions in the order of appearance, each with its rounds in order, the first one included.
    rounds: Vec<Round>,
    /// The range of each session's rounds in `rounds`: start and end.
    ranges: FxHashMap<Name, (usize, usize)>,
    /// The first block key that no prefix has.
    first_key: BlockKey,
}

impl Later {
    /// Moves the later rounds out of `rows`; the rest arrives by itself. `extras` has one entry per row.
    pub fn take<T: RequestMetadata>(
        rows: &mut Vec<TraceRow<T>>,
        extras: &[Extra],
        shared: &SharedContents,
        file: &Arc<str>,
        names: &Names,
    ) -> Result<Self, TraceError> {
        let order = in_sessions(rows);
        check_rounds(&order, rows, file, names)?;
        let recorded = order.iter().any(|&(_, round, index)| round > 0 && extras[index].think_time > Micros::ZERO);
        let content = |row: &TraceRow<T>| {
            let node = shared.renumbered.get(row.prefix as usize).copied().unwrap_or(ROOT);
            shared.prefixes.content(node, shared.block_size.map_or(u32::MAX, |size| row.input / size))
        };
        let mut rounds = Vec::with_capacity(order.len());
        let mut ranges: FxHashMap<Name, (usize, usize)> = FxHashMap::default();
        for (at, &(_, round, index)) in order.iter().enumerate() {
            let (row, extra) = (&rows[index], &extras[index]);
            let gap = match at.checked_sub(1) {
                Some(before) if round > 0 => row.arrival.saturating_sub(rows[order[before].2].arrival),
                _ => 0,
            };
            rounds.push(Round {
                id: row.id,
                own: extra.own,
                output: row.output,
                max_output_tokens: row.terms.max_output_tokens(),
                think_time: if recorded { extra.think_time } else { Micros(gap) },
                time_to_deadline: extra.time_to_deadline,
                client_priority: row.terms.client_priority(),
                tags: row.terms.tags(),
                media_tokens: row.terms.media_tokens(),
                alone: (row.input, content(row)),
            });
            ranges.entry(row.terms.tags().session).or_insert((at, at)).1 = at + 1;
        }
        rows.retain(|row| row.terms.tags().session == Name::NONE || row.terms.tags().round_index == 0);
        Ok(Self { rounds, ranges, first_key: shared.prefixes.next_key() })
    }

    /// `workload` with the later rounds following the ends of earlier ones.
    pub fn follow(
        self,
        workload: Workload,
        how: &ClosedLoop,
        growth: SessionGrowth,
        options: &TraceOptions,
    ) -> Workload {
        let Workload { requests, .. } = workload;
        let (requests, follow_ups) = closed_loop::split(SessionReplay {
            first: requests,
            waiting: FxHashMap::default(),
            over: SessionStates::default(),
            think_times: Stream::new(how.seed, "think times of sessions"),
            how: how.clone(),
            accumulate: growth == SessionGrowth::Accumulate,
            keys: KeyAllocator::new(options.block_size, self.first_key),
            horizon: options.horizon,
            later: self,
        });
        Workload { requests: Box::new(requests), follow_ups: Some(follow_ups), count: None, ..workload }
    }
}

/// The rows of sessions as (number of the session in the order of appearance, round, index), sorted.
fn in_sessions<T: RequestMetadata>(rows: &[TraceRow<T>]) -> Vec<(usize, u32, usize)> {
    let mut numbers: FxHashMap<Name, usize> = FxHashMap::default();
    let mut order = Vec::new();
    for (index, row) in rows.iter().enumerate().filter(|(_, row)| row.terms.tags().session != Name::NONE) {
        let next = numbers.len();
        let number = *numbers.entry(row.terms.tags().session).or_insert(next);
        order.push((number, row.terms.tags().round_index, index));
    }
    order.sort_unstable();
    order
}

/// Checks that the rounds of every session count 0, 1, 2, … `order`: session, round, row.
fn check_rounds<T: RequestMetadata>(
    order: &[(usize, u32, usize)],
    rows: &[TraceRow<T>],
    file: &Arc<str>,
    names: &Names,
) -> Result<(), TraceError> {
    let mut expected = 0;
    for (at, &(number, round, index)) in order.iter().enumerate() {
        if at == 0 || order[at - 1].0 != number {
            expected = 0;
        }
        if round != expected {
            let session = names.text(rows[index].terms.tags().session).to_owned();
            let (what, round) = if round < expected { ("twice", round) } else { ("not", expected) };
            return Err(TraceError::Rounds { file: Arc::clone(file), session, what, round });
        }
        expected = round.saturating_add(1);
    }
    Ok(())
}

/// The state of a replay in closed loop.
struct SessionReplay {
    /// The requests that arrive by themselves.
    first: Box<dyn Iterator<Item = Request> + Send>,
    later: Later,
    waiting: FxHashMap<Name, RecordedSession>,
    /// Numbers of sessions that have ended, by state.
    over: SessionStates,
    think_times: Stream,
    how: ClosedLoop,
    accumulate: bool,
    keys: KeyAllocator,
    horizon: Micros,
}

impl SessionReplay {
    /// Begins a session with `request`.
    fn begin(&mut self, request: &mut Request) {
        let Some(&(at, end)) = self.later.ranges.get(&request.tags.session) else { return };
        let mut context = Conversation::new(request.input_tokens, request.content.spans());
        if self.accumulate && at + 1 < end {
            context.extend(request.input_tokens.saturating_add(request.output_tokens), &mut self.keys);
            request.content = context.content();
        }
        let session = RecordedSession { at, end, context, input_tokens: request.input_tokens };
        self.waiting.insert(request.tags.session, session);
    }

    /// The arrival of the round that follows the end `ended` of `session`'s current one, if there is one.
    fn next_at(&self, session: &RecordedSession, ended: RequestEnd) -> Result<Micros, SessionState> {
        if ended.status == EndStatus::Failed {
            return Err(SessionState::Cancelled);
        }
        if session.at + 1 == session.end {
            return Err(SessionState::Completed);
        }
        let round = &self.later.rounds[session.at + 1];
        let think_time = match self.how.think_time {
            None => round.think_time,
            // The think time of a round depends on its index alone, not on the course of the simulation.
            Some(think_time) => think_time.draw(self.think_times.at(session.at as u64)),
        };
        let at = ended.at.saturating_add(think_time);
        if at > self.horizon { Err(SessionState::HorizonInterrupted) } else { Ok(at) }
    }

    /// The round after `session`'s current one.
    fn follow(&mut self, session: &mut RecordedSession, ended: RequestEnd, at: Micros) -> Request {
        session.at += 1;
        let round = &self.later.rounds[session.at];
        let (input_tokens, content) = if self.accumulate {
            let context = &mut session.context;
            let tokens = session.input_tokens.saturating_add(ended.generated_tokens);
            context.shorten(tokens.min(context.tokens), &self.keys);
            let input_tokens = context.tokens.saturating_add(round.own);
            if session.at + 1 < session.end {
                context.extend(input_tokens.saturating_add(round.output), &mut self.keys);
            }
            (input_tokens, context.content())
        } else {
            round.alone.clone()
        };
        session.input_tokens = input_tokens;
        Request {
            max_output_tokens: round.max_output_tokens,
            deadline: round
                .time_to_deadline
                .or(self.how.timeout)
                .map(|time_to_deadline| at.saturating_add(time_to_deadline)),
            client_priority: round.client_priority,
            tags: round.tags,
            media_tokens: round.media_tokens,
            content,
            ..Request::new(round.id, at, input_tokens, round.output)
        }
    }
}

impl SessionSource for SessionReplay {
    fn start(&mut self) -> Option<Request> {
        let mut request = self.first.next()?;
        if request.tags.session != Name::NONE {
            self.begin(&mut request);
        }
        Some(request)
    }

    fn ended(&mut self, name: Name, ended: RequestEnd) -> Option<Request> {
        let mut session = self.waiting.remove(&name)?;
        match self.next_at(&session, ended) {
            Ok(at) => {
                let request = self.follow(&mut session, ended, at);
                self.waiting.insert(name, session);
                Some(request)
            }
            Err(state) => {
                *state.count(&mut self.over) += 1;
                None
            }
        }
    }

    fn states(&self) -> SessionStates {
        SessionStates { active: self.waiting.len() as u64, ..self.over }
    }
}

#[cfg(test)]
mod tests;
