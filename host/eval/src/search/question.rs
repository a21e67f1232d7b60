//! The question to a language model: the decisions, what may be read, the best programs, and the form of the reply.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use blis_plugin::decisions::OutputShape;
use blis_plugin::{Column, Function};

use super::archive::SearchOutcome;
use super::elites::Elite;
use super::grammar::{DecisionGrammar, Grammar, PatternSignal, column};
use super::infix::{FUNCTIONS, infix};
use super::program::rounded;
use crate::suite::{Split, Suite};

/// What a question is made of.
pub(super) struct Question<'a> {
    /// The suite, as [`about`] describes it.
    pub about: &'a str,
    pub grammar: &'a Grammar,
    /// Programs that new ones are made of, at least one.
    pub parents: &'a [Elite],
    /// Why programs of earlier replies were refused.
    pub refused: &'a [String],
    /// Programs that are asked for.
    pub count: usize,
}

impl Question<'_> {
    /// The text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "Improve the policy of a simulated LLM inference service.\n{}\nA policy has an expression for each of these \
             decisions:\n\n",
            self.about
        );
        self.grammar.decisions.iter().for_each(|decision| text.push_str(&decision_text(decision)));
        text.push_str(&functions(self.has_tables()));
        text.push_str("\nPolicies to begin with, and their scores:\n\n");
        for (number, parent) in (1..).zip(self.parents) {
            text.push_str(&parent_text(number, parent, self.grammar));
        }
        if !self.refused.is_empty() {
            text.push_str("These expressions of an earlier reply were refused:\n");
            self.refused.iter().for_each(|reason| text.push_str(&format!("- {reason}\n")));
            text.push('\n');
        }
        text.push_str(&self.form());
        text
    }

    fn has_tables(&self) -> bool {
        self.grammar.decisions.iter().any(|decision| decision.has_memory)
    }

    /// The form of the reply.
    fn form(&self) -> String {
        let example = self.grammar.decisions.first().map(decision_name).unwrap_or_default();
        let tables =
            if self.has_tables() { " `tables` replaces those of the first of them; without it they stay." } else { "" };
        format!(
            "Propose {} new policies, each with another idea, at most 48 functions, inputs and constants in each. Reply with JSON \
             alone:\n{{\"programs\": [{{\"from\": [1], \"expressions\": {{\"{example}\": \"…\"}}}}, …]}}\n`from` has the numbers \
             of the policies above that it is made of. A decision that is left out stays as in the first of them.{tables}\n",
            self.count
        )
    }
}

/// The suite as the question describes it.
pub(super) fn about(suite: &Suite) -> String {
    let mut text = format!("Suite `{}`.", suite.name);
    if !suite.about.is_empty() {
        text.push_str(&format!(" {}", suite.about.trim()));
    }
    text.push_str(&format!(" A score of 1 is that of the policy `{}`; higher is better.\n", suite.reference));
    text
}

/// The name of a decision in questions and replies: its function, and the part of it if there are several.
pub(super) fn decision_name(decision: &DecisionGrammar) -> String {
    decision.part.map_or_else(|| decision.function.to_owned(), |part| format!("{}.{part}", decision.function))
}

/// What the number of a decision means, by its name.
const MEANINGS: [(&str, &str); 20] = [
    ("admit", "the request is admitted if the number is above 0, else rejected"),
    ("route", "a number for each instance; the instance with the highest gets the request"),
    ("filter", "a number for each instance; those with 0 or less do not get the request"),
    ("priority", "a number for the request; a higher one goes first"),
    ("rank", "a number for the waiting request; the smallest is scheduled first"),
    ("victim", "a number for each running request; that with the highest is preempted"),
    ("saturation", "how full the service is: 0 empty, 1 full"),
    ("ceilings", "a number for each priority band; a band waits while the saturation is at or above it"),
    ("fair_pick", "a number for each flow (tenant); that with the highest is served next"),
    ("order", "a number for the request; of its tenant the smallest goes first"),
    ("evict", "a number for each waiting request; that with the highest is ended. The same number for all ends none"),
    ("scale", "the number of replicas of each group, rounded up"),
    ("drain", "a number for each replica; that with the highest is removed"),
    ("placement", "a number for each node; a replica starts on that with the highest"),
    ("keep", "a number for each chunk of the CPU tier; the smallest is evicted first"),
    ("store", "a number for each chunk; those above 0 are stored in the CPU tier"),
    ("load", "blocks are loaded from the CPU tier if the number is above 0, else computed again"),
    ("disaggregate.remote", "another instance prefills the request if the number is above 0"),
    ("disaggregate.prefill", "a number for each instance; that with the highest prefills the request"),
    ("disaggregate.decode", "a number for each instance; that with the highest decodes the request"),
];

/// What the number of a decision means: as listed, or in the table of rows.
fn meaning(decision: &DecisionGrammar) -> &'static str {
    let name = decision_name(decision);
    let listed = MEANINGS.iter().find(|(known, _)| *known == name).map(|&(_, meaning)| meaning);
    let function = Function::ALL.into_iter().find(|function| function.name() == decision.function);
    let field = function.zip(decision.part).and_then(|(function, part)| match &function.row().output {
        OutputShape::Record { shape, .. } => shape.fields.iter().find(|field| field.name == part),
        _ => None,
    });
    listed.or(field.map(|field| field.docs.trim().trim_end_matches('.'))).unwrap_or_default()
}

fn decision_text(decision: &DecisionGrammar) -> String {
    let name = decision_name(decision);
    let meaning = meaning(decision);
    let mut text = format!(
        "## {name}\n{meaning}.\nInputs: name | unit | lowest, quartiles and highest value of a first run | meaning. A column has a \
         number for each row.\n"
    );
    for input in &decision.inputs {
        let range = input.measured.map_or_else(|| "not measured".to_owned(), |range| range.0.map(short).join(" "));
        let kind = if input.is_column { "column" } else { "number" };
        let meaning = column(&input.name).map_or("", Column::about);
        let unit = if input.unit.is_empty() { "no unit" } else { input.unit };
        // Writing to a text does not fail.
        let _ = writeln!(text, "{} | {kind}, {unit} | {range} | {meaning}", input.name);
    }
    text.push('\n');
    text
}

fn short(value: f64) -> String {
    rounded(value).to_string()
}

fn functions(has_tables: bool) -> String {
    let mut text = "Functions: x + y, x - y, x * y, x / y (divides by |y|, at least 0.001)".to_owned();
    FUNCTIONS.iter().for_each(|(_, _, about)| text.push_str(&format!("; {about}")));
    text.push_str(". There are no others, no comparisons and no variables.\n");
    if has_tables {
        text.push_str(
            "Tables: a policy has at most two, m0 and m1: columns with an entry for each instance that events fill. One is\n\
             {\"on\": \"routed\" | \"first-token\" | \"completed\", \"until\": null or a later event of the same request that subtracts what \
             was added, \"key\": {\"by_instance\": true | false, \"name\": null | \"prefix-group\" | \"session\" | \"tenant\" | \"slo-class\"}, \
             \"amount\": \"one\" | \"input-tokens\" | \"generated-tokens\" | \"ttft\", \"replaces\": true | false, \"decay_ms\": null or the \
             time in which entries fall to 1/e}\n",
        );
    }
    text
}

fn parent_text(number: usize, parent: &Elite, grammar: &Grammar) -> String {
    let Elite { program, outcome, .. } = parent;
    let scores: Vec<String> =
        by_scenario(outcome).into_iter().map(|(name, score)| format!("{name} {score:.3}")).collect();
    let mut text = format!("{number}. score {:.4} ({})\n", outcome.train_score, scores.join(", "));
    for (value, decision) in program.values.iter().zip(&grammar.decisions) {
        // Writing to a text does not fail.
        let _ = writeln!(text, "   {} = {}", decision_name(decision), infix(value));
    }
    for (at, table) in program.memories.iter().enumerate() {
        let table = serde_json::to_string(table).unwrap_or_default();
        let _ = writeln!(text, "   m{at}: {table}");
    }
    for PatternSignal { kind, signal, rises } in &outcome.patterns {
        let which = match rises {
            Some(true) => "the better choice has more of",
            Some(false) => "the better choice has less of",
            None => "it depends on",
        };
        let _ = writeln!(text, "   where a decision of {kind} is wrong, {which} `{signal}`");
    }
    text.push('\n');
    text
}

/// The score in each scenario of train: the geometric mean over seeds.
fn by_scenario(outcome: &SearchOutcome) -> BTreeMap<&str, f64> {
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for run in outcome.runs.iter().filter(|run| run.stage == Split::Train.into_str()) {
        let sum = sums.entry(&run.scenario).or_default();
        *sum = (sum.0 + run.score.max(1e-6).ln(), sum.1 + 1.0);
    }
    sums.into_iter().map(|(name, (sum, count))| (name, (sum / count).exp())).collect()
}

#[cfg(test)]
mod tests {
    use blis_plugin::Kind;

    use super::super::archive::RunScore;
    use super::super::grammar::{InputRange, Operator};
    use super::super::program::{Amount, EventTable, Expr, Happening, Key, NameKey, Program};
    use super::super::variation::decided_kinds;
    use super::*;

    #[test]
    fn a_question_has_the_decisions_the_parents_and_the_form_of_the_reply() {
        let mut grammar = Grammar::new(&[Kind::Admission]).expect("admission");
        let inputs = &mut grammar.decisions[0].inputs;
        inputs
            .retain(|one| ["r.arrival", "r.input_tokens", "s.queue_depth", "s.ttft_ewma"].contains(&one.name.as_str()));
        inputs[1].measured = Some(InputRange([16.0, 128.0, 512.0, 1024.0, 4096.25]));
        let run = |(scenario, score): (&str, f64)| {
            let (stage, scenario) = (Split::Train.into_str().to_owned(), scenario.to_owned());
            RunScore { stage, scenario, seed: 1, score }
        };
        let signal =
            PatternSignal { kind: "admission".to_owned(), signal: "queue_depth".to_owned(), rises: Some(false) };
        let outcome = SearchOutcome {
            train_score: 1.25,
            runs: [("calm", 1.0), ("burst", 2.0), ("burst", 8.0)].map(run).to_vec(),
            patterns: vec![signal],
            ..SearchOutcome::default()
        };
        let key = Key { by_instance: false, name: Some(NameKey::Tenant) };
        let (on, amount, decay_ms) = (Happening::Routed, Amount::One, Some(500.0));
        let memory = EventTable { on, until: None, key, amount, replaces: false, decay_ms };
        let few = Expr::Apply(Operator::Subtract, vec![Expr::Constant(5.0), Expr::EventTable(0)]);
        let program = Program { values: vec![few], memories: vec![memory] };
        let suite = Suite::open("overload").expect("a suite");
        let question = Question {
            about: &about(&suite),
            grammar: &grammar,
            parents: &[Elite { number: 7, program, outcome }],
            refused: &["policy 2: `admit`, 1:5: there is no input `s.speed`".to_owned()],
            count: 4,
        };
        insta::assert_snapshot!(question.text());
    }

    #[test]
    fn every_decision_has_a_meaning() {
        let mut named = 0;
        for kind in decided_kinds() {
            for decision in Grammar::new(&[kind]).expect("a kind of the grammar").decisions {
                let name = decision_name(&decision);
                assert!(!meaning(&decision).is_empty(), "{name}");
                named += usize::from(MEANINGS.iter().any(|(known, _)| *known == name));
            }
        }
        assert_eq!(named, MEANINGS.len());
    }
}
