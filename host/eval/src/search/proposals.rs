//! Programs of a language model instead of a share of the mutations of a batch.
//!
//! ```text
//! best programs ─► question ─► model ─► reply ─► archive ─► programs of the grammar ─► batch
//!                     ▲                                 └── refused, with reasons ──┐
//!                     └────────────────── of the next batch ◄───────────────────────┘
//! ```
//!
//! A reply is in the archive before its programs are evaluated: a search that goes on reads it there and asks nothing twice.

use std::collections::BTreeMap;

use blis_sim::rng::Stream;
use serde::Deserialize;
use serde_json::Value;

use super::archive::Candidate;
use super::elites::Elite;
use super::grammar::Grammar;
use super::infix::parsed;
use super::model::ChatModel;
use super::program::{EventTable, Program};
use super::proposal_table::{self, Proposal};
use super::question::{Question, decision_name};
use super::run::{SearchRun, sha256};
use super::variation::{DEPTH_MAX, MEMORIES_MAX, Operation, SIZE_MAX, consistent};
use crate::error::RunError;

/// Programs that a question shows.
const PARENTS: usize = 3;
/// Draws of parents until there are as many different ones.
const PARENT_DRAWS: usize = 12;
/// Reasons of refusals that a question has, and characters of each.
const REASONS: usize = 5;
const REASON_CHARACTERS: usize = 200;
/// Replies without the JSON that was asked for, until the search ends.
const REPLY_ATTEMPTS: usize = 3;
/// Decay of a table, ms.
const DECAY_MS: std::ops::RangeInclusive<f64> = 1.0..=1e8;

/// The programs of a reply.
#[derive(Debug, Default, PartialEq)]
struct ReadReply {
    candidates: Vec<Candidate>,
    refused: Vec<String>,
}

impl SearchRun<'_> {
    /// `candidates` of a batch with programs of the language model, if there is one, instead of a share of the mutations. Mutations
    /// stay where its reply has too few programs.
    ///
    /// # Errors
    /// If the model does not reply, or the archive cannot be used.
    pub(super) fn with_proposals(
        &mut self,
        batch: usize,
        mut candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, RunError> {
        let Some(model) = &self.model else { return Ok(candidates) };
        let mutations = || candidates.iter().enumerate().filter(|(_, one)| one.operation == Operation::Mutation);
        let count = (model.mutation.share * mutations().count() as f64).round() as usize;
        let replaced: Vec<usize> = mutations().map(|(at, _)| at).take(count).collect();
        let parents = self.shown(batch);
        if replaced.is_empty() || parents.is_empty() {
            return Ok(candidates);
        }
        let (about, refused) = (model.about.as_str(), &model.refused[..]);
        let question = Question { about, grammar: &self.used, parents: &parents, refused, count: replaced.len() };
        let question = question.text();
        let stored = proposal_table::stored(self.archive.connection(), batch)?;
        let is_stored = stored.is_some();
        let proposal = match stored {
            Some(stored) if stored.question != question => return Err(other_question(batch)),
            Some(stored) => stored,
            None => ask(model.mutation.model, question)?,
        };
        let read = self.read_reply(&proposal.reply, &parents, &candidates, replaced.len())?;
        if !is_stored {
            let programs = read.candidates.len();
            proposal_table::put(self.archive.connection(), batch, &proposal, programs, &read.refused)?;
        }
        self.count(&proposal, &read);
        for (at, candidate) in replaced.into_iter().zip(read.candidates) {
            candidates[at] = candidate;
        }
        Ok(candidates)
    }

    /// Adds a reply to what the next question and the result have.
    fn count(&mut self, proposal: &Proposal, read: &ReadReply) {
        let Some(model) = &mut self.model else { return };
        let result = &mut model.result;
        result.questions += 1;
        result.programs += read.candidates.len() as u64;
        result.refused += read.refused.len() as u64;
        result.input_tokens += proposal.input_tokens;
        result.output_tokens += proposal.output_tokens;
        model.refused = read.refused.iter().take(REASONS).cloned().collect();
    }

    /// The programs that a question shows: the best one, and others as parents are drawn.
    fn shown(&self, batch: usize) -> Vec<Elite> {
        let mut draw = Stream::new(self.numbers.seed, "model").at(batch as u64);
        let mut shown: Vec<Elite> = self.populations.present().best().into_iter().take(1).cloned().collect();
        for _ in 0..PARENT_DRAWS {
            let Some(drawn) = self.populations.present().pick(&mut draw) else { break };
            if shown.len() < PARENTS && shown.iter().all(|one| one.number != drawn.number) {
                shown.push(drawn.clone());
            }
        }
        shown
    }

    /// The first `count` programs of a reply that are new and of the grammar, and why others before them are refused. `batch` are the
    /// other programs.
    fn read_reply(
        &self,
        reply: &str,
        parents: &[Elite],
        batch: &[Candidate],
        count: usize,
    ) -> Result<ReadReply, RunError> {
        let damaged = |error| {
            RunError::runtime(format_args!("the archive has a reply of the model that is none: {error}"))
                .hint("name a new file with `--archive`")
        };
        let mut read = ReadReply::default();
        let mut sources: Vec<String> = batch.iter().map(|one| one.program.source(self.grammar)).collect();
        for (number, proposed) in (1..).zip(programs_of(reply).map_err(damaged)?) {
            if read.candidates.len() == count {
                break;
            }
            let refused = match candidate(proposed, parents, &self.used) {
                Ok(candidate) => {
                    let candidate = self.simplified(candidate);
                    let source = candidate.program.source(self.grammar);
                    if sources.contains(&source) || self.known.contains_key(&sha256(&source)) {
                        "it decides as a policy that was evaluated before".to_owned()
                    } else {
                        sources.push(source);
                        read.candidates.push(candidate);
                        continue;
                    }
                }
                Err(reason) => reason,
            };
            let line = format!("policy {number}: {refused}").replace(char::is_control, " ");
            read.refused.push(line.chars().take(REASON_CHARACTERS).collect());
        }
        Ok(read)
    }
}

/// Asks until the reply has the form that was asked for.
fn ask(model: &dyn ChatModel, question: String) -> Result<Proposal, RunError> {
    let mut proposal = Proposal { question, reply: String::new(), input_tokens: 0, output_tokens: 0 };
    let mut wrong = String::new();
    for _ in 0..REPLY_ATTEMPTS {
        let reply = model.reply(&proposal.question)?;
        proposal.input_tokens += reply.input_tokens;
        proposal.output_tokens += reply.output_tokens;
        proposal.reply = reply.text;
        match programs_of(&proposal.reply) {
            Ok(_) => return Ok(proposal),
            Err(error) => wrong = error,
        }
    }
    let start: String = proposal.reply.chars().take(REASON_CHARACTERS).collect();
    let name = model.name();
    let what = format!("{REPLY_ATTEMPTS} replies of the model `{name}` are not the JSON that was asked for: {wrong}");
    Err(RunError::runtime(what).hint(format_args!(
        "the last one begins with {start:?}; with another model a search needs another `--archive`, with this one it goes on if \
         the command is run again"
    )))
}

fn other_question(batch: usize) -> RunError {
    let what = format!("the archive has the reply to another question for batch {batch} than this search asks");
    RunError::runtime(what)
        .hint("another version of the program has written the archive: name a new one with `--archive`")
}

/// The whole of a reply.
#[derive(Deserialize)]
struct ReplyDocument {
    programs: Vec<Value>,
}

/// A program of a reply.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProposedProgram {
    #[serde(default)]
    from: Vec<usize>,
    expressions: BTreeMap<String, String>,
    tables: Option<Vec<EventTable>>,
}

/// The programs of a reply; text around the JSON is left out.
fn programs_of(reply: &str) -> Result<Vec<Value>, String> {
    // What comes before is the reasoning of some models.
    let reply = reply.rsplit_once("</think>").map_or(reply, |(_, rest)| rest);
    let Some((from, to)) = reply.find('{').zip(reply.rfind('}')).filter(|(from, to)| from < to) else {
        return Err("there is no JSON object".to_owned());
    };
    let document: ReplyDocument = serde_json::from_str(&reply[from..=to]).map_err(|error| error.to_string())?;
    Ok(document.programs)
}

/// The program that `proposed` is, or why it is none.
fn candidate(proposed: Value, parents: &[Elite], grammar: &Grammar) -> Result<Candidate, String> {
    let ProposedProgram { from, expressions, tables } =
        serde_json::from_value(proposed).map_err(|error| error.to_string())?;
    let from = if from.is_empty() { vec![1] } else { from };
    let of = |&number: &usize| {
        let found = number.checked_sub(1).and_then(|at| parents.get(at));
        found.ok_or_else(|| format!("`from` has {number}: there are the policies 1 to {}", parents.len()))
    };
    let from: Vec<&Elite> = from.iter().map(of).collect::<Result<_, _>>()?;
    let mut program = from[0].program.clone();
    if let Some(tables) = tables {
        program.memories = checked(tables)?;
    }
    for (name, text) in &expressions {
        let decision = grammar.decisions.iter().position(|decision| decision_name(decision) == *name);
        let at = decision.ok_or_else(|| format!("there is no decision `{name}`"))?;
        let read = parsed(text, &grammar.decisions[at], program.memories.len());
        program.values[at] = read.map_err(|error| format!("`{name}`, {error}"))?;
    }
    let program = program.without_unread();
    fits(&program)?;
    let number = |at: usize| from.get(at).map(|parent| parent.number);
    let other = number(1).filter(|&other| Some(other) != number(0));
    Ok(Candidate { program, operation: Operation::Model, parents: [number(0), other] })
}

fn checked(tables: Vec<EventTable>) -> Result<Vec<EventTable>, String> {
    if tables.len() > MEMORIES_MAX {
        return Err(format!("{} tables are more than {MEMORIES_MAX}", tables.len()));
    }
    let wrong = tables.iter().filter_map(|table| table.decay_ms).find(|decay| !DECAY_MS.contains(decay));
    match wrong {
        Some(decay) => Err(format!("`decay_ms` is {decay}: it is from {} to {}", DECAY_MS.start(), DECAY_MS.end())),
        None => Ok(tables.into_iter().map(consistent).collect()),
    }
}

fn fits(program: &Program) -> Result<(), String> {
    let depth = program.values.iter().map(super::program::Expr::depth).max().unwrap_or(0);
    if program.size() > SIZE_MAX {
        return Err(format!("{} functions, inputs and constants are more than {SIZE_MAX}", program.size()));
    }
    if depth > DEPTH_MAX {
        return Err(format!("{depth} levels of functions are more than {DEPTH_MAX}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use blis_plugin::Kind;
    use serde_json::json;

    use super::super::archive::SearchOutcome;
    use super::super::infix::infix;
    use super::super::seeds::{neutral, seeds};
    use super::*;

    fn parents(grammar: &Grammar) -> Vec<Elite> {
        let of = |(number, program)| Elite { number, program, outcome: SearchOutcome::default() };
        (10..).zip(seeds(grammar)).map(of).take(3).collect()
    }

    /// The expressions of a program of a reply, or why it is refused.
    fn read(kinds: &[Kind], proposed: Value) -> Result<Vec<String>, String> {
        let grammar = Grammar::new(kinds).expect("kinds of the grammar");
        let found = candidate(proposed, &parents(&grammar), &grammar)?;
        Ok(found.program.values.iter().map(infix).collect())
    }

    #[test]
    fn a_program_of_a_reply_keeps_what_it_does_not_change() {
        let kinds = [Kind::Admission, Kind::Scheduling];
        let proposed = json!({"from": [3, 1], "expressions": {"admit": "1.0 - random()"}});
        assert_eq!(
            read(&kinds, proposed.clone()),
            Ok(vec!["(1.0 - random())".to_owned(), "r.input_tokens".to_owned()])
        );
        let grammar = Grammar::new(&kinds).expect("kinds of the grammar");
        let found = candidate(proposed, &parents(&grammar), &grammar).expect("a program");
        assert_eq!((found.operation, found.parents), (Operation::Model, [Some(12), Some(10)]));
        let same = candidate(json!({"expressions": {}}), &parents(&grammar), &grammar).expect("the first one");
        assert_eq!((same.program, same.parents), (neutral(&grammar), [Some(10), None]));
    }

    #[test]
    fn tables_of_a_reply_are_read() {
        let table = json!({"on": "routed", "key": {"by_instance": true, "name": "prefix-group"}, "amount": "one",
            "replaces": true, "decay_ms": 500.0});
        let with = |table: &Value, text: &str| json!({"expressions": {"route": text}, "tables": [table]});
        assert_eq!(read(&[Kind::Routing], with(&table, "m0 - 1")), Ok(vec!["(m0 - 1.0)".to_owned()]));
        let mut wrong = table.clone();
        wrong["decay_ms"] = json!(0.0);
        let refused = read(&[Kind::Routing], with(&wrong, "m0")).expect_err("no decay");
        assert_eq!(refused, "`decay_ms` is 0: it is from 1 to 100000000");
        assert!(read(&[Kind::Routing], with(&table, "m1")).is_err(), "there is one table");
    }

    #[test]
    fn what_is_no_program_is_refused_with_the_reason() {
        let large = vec!["s.in_flight"; 40].join(" + ");
        let flat = vec!["s.in_flight"; 13].join(" + ");
        let of = |text: &str| json!({"expressions": {"route": text}});
        let refused: Vec<String> = [
            of("2 * s.load +"),
            of("s.speed"),
            of(&large),
            of(&flat),
            json!({"expressions": {"rout": "1"}}),
            json!({"from": [4], "expressions": {}}),
            json!({"expression": "1"}),
            json!("1"),
        ]
        .into_iter()
        .filter_map(|proposed| read(&[Kind::Routing], proposed).err())
        .collect();
        assert_eq!(
            refused,
            [
                "`route`, 1:13: Script is incomplete",
                "`route`, 1:1: there is no input `s.speed`",
                "79 functions, inputs and constants are more than 48",
                "13 levels of functions are more than 12",
                "there is no decision `rout`",
                "`from` has 4: there are the policies 1 to 3",
                "unknown field `expression`, expected one of `from`, `expressions`, `tables`",
                "invalid type: string \"1\", expected struct ProposedProgram",
            ]
        );
    }

    #[test]
    fn the_json_of_a_reply_is_found_in_its_text() {
        let replies = [
            "{\"programs\": [1, 2]}",
            "Here they are:\n```json\n{\"programs\": [1, 2]}\n```\nGood luck.",
            "<think>perhaps {a}</think>\n{\"programs\": [1, 2]}",
        ];
        for reply in replies {
            assert_eq!(programs_of(reply), Ok(vec![json!(1), json!(2)]), "{reply}");
        }
        for (reply, wrong) in
            [("no", "no JSON object"), ("{\"policies\": []}", "programs"), ("{\"programs\": [1", "no JSON")]
        {
            assert!(programs_of(reply).is_err_and(|error| error.contains(wrong)), "{reply}");
        }
    }
}
