//! Recorded sessions in closed loop, of TraceV2 and Mooncake: of each only the first round arrives as recorded. A later one
//! follows when the one before has ended and its client has thought.

use std::sync::Arc;

use blis_sim::cluster::SessionStates;
use blis_sim::request::{BlockKey, Content, Name, Request, Tags};
use blis_sim::rng::Stream;
use blis_sim::units::Micros;
use rustc_hash::FxHashMap;

use super::SessionGrowth;
use super::columns::{Column, Fields};
use super::think_time::ClosedLoop;
use crate::closed_loop::{self, Sessions};
use crate::conversation::{Context, EndStatus, Ended, Keys, SessionState};
use crate::error::TraceError;
use crate::prefix::ROOT;
use crate::row::{Row, Terms};
use crate::rows::Shared;
use crate::{Names, TraceOptions, Workload};
use blis_diag::RowError;

/// What only a replay in closed loop wants to know of a record.
pub(crate) struct Extra {
    /// Tokens of the prompt without those of its prefix group.
    pub own: u32,
    /// From the answer before.
    pub think_time: Micros,
    /// From its arrival to its deadline, if it has one.
    pub patience: Option<Micros>,
}

impl Extra {
    pub(super) fn of(fields: &Fields<'_>) -> Result<Self, RowError> {
        let (arrival, deadline) = (super::arrival_us(fields)?, fields.time(Column::DeadlineUs)?);
        Ok(Self {
            own: super::own_tokens(fields)?,
            think_time: Micros(fields.think_time()?),
            patience: (deadline > 0).then(|| Micros(deadline.saturating_sub(arrival))),
        })
    }
}

/// A round that follows from the end of the one before.
#[derive(Clone, Debug)]
struct Round {
    id: u32,
    own: u32,
    output: u32,
    max_output_tokens: Option<u32>,
    think_time: Micros,
    patience: Option<Micros>,
    client_priority: Option<i32>,
    tags: Tags,
    /// Whole prompt and its shared blocks, where prompts do not grow.
    alone: (u32, Content),
}

/// A session that waits for an answer.
#[derive(Debug)]
struct Session {
    /// Places in [`Later::rounds`] of the round that is being answered, and behind the last one.
    at: usize,
    end: usize,
    context: Context,
    input_tokens: u32,
}

/// What is known beforehand of all sessions.
#[derive(Debug)]
pub(crate) struct Later {
    /// Session by session in the order of appearance, each with its rounds in order, the first included.
    rounds: Vec<Round>,
    /// Where each session's rounds lie in `rounds`: start and end.
    places: FxHashMap<Name, (usize, usize)>,
    /// The first block key that no prefix has.
    first_key: BlockKey,
}

impl Later {
    /// Takes the later rounds out of `rows`: what stays arrives by itself. `extras`: of each row.
    pub fn take<T: Terms>(
        rows: &mut Vec<Row<T>>,
        extras: &[Extra],
        shared: &Shared,
        (file, names): (&Arc<str>, &Names),
    ) -> Result<Self, TraceError> {
        let order = in_sessions(rows);
        check_rounds(&order, rows, (file, names))?;
        let recorded = order.iter().any(|&(_, round, place)| round > 0 && extras[place].think_time > Micros::ZERO);
        let content = |row: &Row<T>| {
            let node = shared.renumbered.get(row.prefix as usize).copied().unwrap_or(ROOT);
            shared.prefixes.content(node, shared.block_size.map_or(u32::MAX, |size| row.input / size))
        };
        let mut rounds = Vec::with_capacity(order.len());
        let mut places: FxHashMap<Name, (usize, usize)> = FxHashMap::default();
        for (at, &(_, round, place)) in order.iter().enumerate() {
            let (row, extra) = (&rows[place], &extras[place]);
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
                patience: extra.patience,
                client_priority: row.terms.client_priority(),
                tags: row.terms.tags(),
                alone: (row.input, content(row)),
            });
            places.entry(row.terms.tags().session).or_insert((at, at)).1 = at + 1;
        }
        rows.retain(|row| row.terms.tags().session == Name::NONE || row.terms.tags().round_index == 0);
        Ok(Self { rounds, places, first_key: shared.prefixes.next_key() })
    }

    /// `workload`, with the later rounds following.
    pub fn follow(
        self,
        workload: Workload,
        how: &ClosedLoop,
        growth: SessionGrowth,
        options: &TraceOptions,
    ) -> Workload {
        let Workload { requests, .. } = workload;
        let (requests, follow_ups) = closed_loop::split(Replay {
            first: requests,
            waiting: FxHashMap::default(),
            over: SessionStates::default(),
            think_times: Stream::new(how.seed, "think times of sessions"),
            how: how.clone(),
            accumulate: growth == SessionGrowth::Accumulate,
            keys: Keys::new(options.block_size, self.first_key),
            horizon: options.horizon,
            later: self,
        });
        Workload { requests: Box::new(requests), follow_ups: Some(follow_ups), count: None, ..workload }
    }
}

/// The rows of sessions: number of the session in the order of appearance, round, place. Sorted.
fn in_sessions<T: Terms>(rows: &[Row<T>]) -> Vec<(usize, u32, usize)> {
    let mut numbers: FxHashMap<Name, usize> = FxHashMap::default();
    let mut order = Vec::new();
    for (place, row) in rows.iter().enumerate().filter(|(_, row)| row.terms.tags().session != Name::NONE) {
        let next = numbers.len();
        let number = *numbers.entry(row.terms.tags().session).or_insert(next);
        order.push((number, row.terms.tags().round_index, place));
    }
    order.sort_unstable();
    order
}

/// Rounds count 0, 1, 2, … in every session. `order`: session, round, row.
fn check_rounds<T: Terms>(
    order: &[(usize, u32, usize)],
    rows: &[Row<T>],
    (file, names): (&Arc<str>, &Names),
) -> Result<(), TraceError> {
    let mut expected = 0;
    for (at, &(number, round, place)) in order.iter().enumerate() {
        if at == 0 || order[at - 1].0 != number {
            expected = 0;
        }
        if round != expected {
            let session = names.text(rows[place].terms.tags().session).to_owned();
            let (what, round) = if round < expected { ("twice", round) } else { ("not", expected) };
            return Err(TraceError::Rounds { file: Arc::clone(file), session, what, round });
        }
        expected = round.saturating_add(1);
    }
    Ok(())
}

/// A replay in closed loop on its way.
struct Replay {
    /// What arrives by itself.
    first: Box<dyn Iterator<Item = Request> + Send>,
    later: Later,
    waiting: FxHashMap<Name, Session>,
    /// Sessions that do not wait any more.
    over: SessionStates,
    think_times: Stream,
    how: ClosedLoop,
    accumulate: bool,
    keys: Keys,
    horizon: Micros,
}

impl Replay {
    /// `request` is the first of a session.
    fn begin(&mut self, request: &mut Request) {
        let Some(&(at, end)) = self.later.places.get(&request.tags.session) else { return };
        let mut context = Context::new(request.input_tokens, request.content.spans());
        if self.accumulate && at + 1 < end {
            context.extend(request.input_tokens.saturating_add(request.output_tokens), &mut self.keys);
            request.content = context.content();
        }
        let session = Session { at, end, context, input_tokens: request.input_tokens };
        self.waiting.insert(request.tags.session, session);
    }

    /// When the round behind `session`'s present one arrives, if that has `ended` so and there is one.
    fn next_at(&self, session: &Session, ended: Ended) -> Result<Micros, SessionState> {
        if ended.status == EndStatus::Failed {
            return Err(SessionState::Cancelled);
        }
        if session.at + 1 == session.end {
            return Err(SessionState::Completed);
        }
        let round = &self.later.rounds[session.at + 1];
        let think_time = match self.how.think_time {
            None => round.think_time,
            // Whatever happens before, a round of the trace always draws the same.
            Some(think_time) => think_time.draw(self.think_times.at(session.at as u64)),
        };
        let at = ended.at.saturating_add(think_time);
        if at > self.horizon { Err(SessionState::HorizonInterrupted) } else { Ok(at) }
    }

    /// The round behind `session`'s present one.
    fn follow(&mut self, session: &mut Session, ended: Ended, at: Micros) -> Request {
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
            id: round.id,
            arrival: at,
            input_tokens,
            output_tokens: round.output,
            max_output_tokens: round.max_output_tokens,
            deadline: round.patience.or(self.how.timeout).map(|patience| at.saturating_add(patience)),
            client_priority: round.client_priority,
            priority: 0,
            tags: round.tags,
            content,
        }
    }
}

impl Sessions for Replay {
    fn start(&mut self) -> Option<Request> {
        let mut request = self.first.next()?;
        if request.tags.session != Name::NONE {
            self.begin(&mut request);
        }
        Some(request)
    }

    fn ended(&mut self, name: Name, ended: Ended) -> Option<Request> {
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
