//! inference-perf's shared-prefix load: groups of users, each group with its own system prompt, at a rate that changes
//! in stages.

use blis_sim::units::Micros;

use super::Lengths;
use super::client::{Client, MultiTurn, Prefix};
use super::window::{Window, WindowRate};

mod countable;
pub(super) mod own;
mod sweep;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct SharedPrefix {
    /// Stages: requests per second of all users together, and duration in s.
    pub stages: Vec<(f64, f64)>,
    pub system_prompts: u32,
    /// Number of users of each system prompt.
    pub users: u32,
    pub system_tokens: u32,
    pub question_tokens: u32,
    pub output_tokens: u32,
    /// Whether the requests of a user are rounds of one session.
    pub multi_turn: bool,
}

/// Maximum number of senders of one specification.
const SENDERS_MAX: u64 = 1_000_000;

impl SharedPrefix {
    /// The first mistake, and a hint.
    pub fn check(&self) -> Result<(), (String, &'static str)> {
        if self.stages.is_empty() {
            return Err(("there is no stage".to_owned(), "add `stages`, each with `rate` and `duration`"));
        }
        let senders = u64::from(self.system_prompts) * u64::from(self.users) * self.stages.len() as u64;
        if senders > SENDERS_MAX {
            let what = format!("{senders} users in all stages, more than {SENDERS_MAX}");
            return Err((what, "lower the number of system prompts or of users"));
        }
        Ok(())
    }

    /// The aggregate rate, and the clients.
    pub fn clients(&self) -> (f64, Vec<Client>) {
        let users = u64::from(self.system_prompts) * u64::from(self.users);
        let mut clients = Vec::new();
        let mut start = Micros::ZERO;
        for (index, &(rate, seconds)) in self.stages.iter().enumerate() {
            let end = start.saturating_add(Micros::from_secs_f64(seconds).max(Micros(1)));
            let total = (rate * seconds) as u64;
            for user in 0..users {
                let share = total / users + u64::from(user < total % users);
                if share > 0 {
                    clients.push(self.client(index, user, share, start, end, rate / users as f64));
                }
            }
            start = end;
        }
        (self.stages.iter().map(|(rate, _)| rate).sum(), clients)
    }

    fn client(&self, stage: usize, user: u64, share: u64, start: Micros, end: Micros, rate: f64) -> Client {
        let (prompt, number) = (user / u64::from(self.users), user % u64::from(self.users));
        let many = self.stages.len() > 1;
        let id = if many {
            format!("stage-{stage}-prompt-{prompt}-user-{number}")
        } else {
            format!("prompt-{prompt}-user-{number}")
        };
        let group = format!("prompt-{prompt}");
        let (input, output) = (Lengths::Constant(self.question_tokens), Lengths::Constant(self.output_tokens));
        // Its requests fill the time of a single stage; several stages are Poisson.
        let (end, pace) = match (many, self.multi_turn) {
            (false, false) => (end, WindowRate::Count(share)),
            (false, true) => (Micros::MAX, WindowRate::Exact(rate)),
            (true, _) => (end, WindowRate::Exact(rate)),
        };
        let multi_turn = self.multi_turn.then(|| MultiTurn {
            max_rounds: u32::try_from(share).unwrap_or(u32::MAX),
            think_time: Micros::from_secs_f64(1.0 / rate),
            accumulate: false,
            single_session: true,
        });
        Client {
            tenant_id: group.clone(),
            slo_class: "standard".to_owned(),
            prefix: (self.system_tokens > 0).then_some(Prefix { group, tokens: self.system_tokens }),
            windows: vec![Window { rate: pace, ..Window::usual(start, end) }],
            closed_loop: multi_turn.is_some(),
            multi_turn,
            ..Client::new(&id, 1.0, input, output)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(stages: &[(f64, f64)], multi_turn: bool) -> SharedPrefix {
        SharedPrefix {
            stages: stages.to_vec(),
            system_prompts: 2,
            users: 3,
            system_tokens: 100,
            question_tokens: 447,
            output_tokens: 248,
            multi_turn,
        }
    }

    #[test]
    fn the_requests_of_a_stage_are_split_to_the_last() {
        let (rate, clients) = load(&[(10.0, 2.0)], false).clients();
        let shares: Vec<_> = clients.iter().map(|client| client.windows[0].rate).collect();
        let expected = [4, 4, 3, 3, 3, 3].map(WindowRate::Count);
        assert_eq!((rate, shares), (10.0, expected.to_vec()));
        assert_eq!((clients[3].id.as_str(), clients[3].tenant_id.as_str()), ("prompt-1-user-0", "prompt-1"));
    }

    #[test]
    fn stages_follow_each_other_and_users_take_turns() {
        let (rate, clients) = load(&[(6.0, 10.0), (12.0, 10.0)], true).clients();
        assert_eq!((rate, clients.len()), (18.0, 12));
        let late = &clients[6];
        assert_eq!(late.id, "stage-1-prompt-0-user-0");
        assert_eq!((late.windows[0].start, late.windows[0].end), (Micros(10_000_000), Micros(20_000_000)));
        let turns = late.multi_turn.unwrap();
        assert_eq!((turns.max_rounds, turns.think_time, late.closed_loop), (20, Micros(500_000), true));
        assert!(load(&[], false).check().is_err());
    }
}
