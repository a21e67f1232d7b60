//! A language model that proposes programs: what a search needs of it, and what came of it.

use serde::{Deserialize, Serialize};

use super::archive::Archive;
use super::proposal_table;
use crate::error::RunError;

/// A language model with a chat interface.
pub trait ChatModel {
    /// Its name, which is a setting of the archive.
    fn name(&self) -> &str;

    /// Its reply to one message.
    ///
    /// # Errors
    /// If no reply came, after all attempts.
    fn reply(&self, question: &str) -> Result<ChatReply, RunError>;
}

/// A reply, with its tokens as the server counted them; 0 if it did not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatReply {
    pub text: String,
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// Programs of a language model instead of mutations.
#[derive(Clone, Copy)]
pub struct ModelMutation<'a> {
    pub model: &'a dyn ChatModel,
    /// Share of the mutations of each batch, above 0 and at most 1.
    pub share: f64,
}

/// What came of a language model that proposes programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelResult {
    /// The model that requests name.
    pub name: String,
    /// Questions with a reply, one for a batch at most. Unit: requests.
    pub questions: u64,
    /// Programs of its replies that were evaluated. Unit: programs.
    pub programs: u64,
    /// Programs of its replies that are none of the grammar, or were evaluated before. Unit: programs.
    pub refused: u64,
    /// Tokens of all questions, as the server counts them.
    pub input_tokens: u64,
    /// Tokens of all replies, as the server counts them.
    pub output_tokens: u64,
    /// Whether the champion, or one of its ancestors, is a program of the model.
    pub champion_descends: bool,
}

/// A language model in a search.
pub(super) struct ModelProposals<'a> {
    pub mutation: ModelMutation<'a>,
    /// The suite, as questions describe it.
    pub about: String,
    /// Why programs of the last reply were refused.
    pub refused: Vec<String>,
    pub result: ModelResult,
}

impl<'a> ModelProposals<'a> {
    /// Questions describe the suite by `about`.
    pub fn new(mutation: ModelMutation<'a>, about: String) -> Self {
        let result = ModelResult { name: mutation.model.name().to_owned(), ..ModelResult::default() };
        Self { mutation, about, refused: Vec::new(), result }
    }

    /// What came of it; `champion` is the number of the champion in the search.
    ///
    /// # Errors
    /// If the archive cannot be read.
    pub fn result(&self, archive: &Archive, champion: Option<usize>) -> Result<ModelResult, RunError> {
        let descends = champion.map(|number| proposal_table::descends_from_model(archive.connection(), number));
        Ok(ModelResult { champion_descends: descends.transpose()?.unwrap_or(false), ..self.result.clone() })
    }
}
