//! OpenAI's requests and responses, as far as vLLM's server has them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::prompt::{Token, token_of_id, tokens_of_text};

/// Which of the two interfaces a client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Completions,
    Chat,
}

/// What a request says that the simulation depends on.
#[derive(Debug)]
pub(super) struct ParsedRequest {
    pub model: Option<String>,
    pub tokens: Vec<Token>,
    /// Limit of output tokens; `None` if the client set none.
    pub max_tokens: Option<u32>,
    pub stream: bool,
    /// Usage in a last chunk of its own.
    pub include_usage: bool,
    /// vLLM's: lower is served first.
    pub priority: Option<i32>,
}

#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    prompt: Option<Prompt>,
    messages: Option<Vec<ChatMessage>>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    n: Option<u32>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    priority: Option<i32>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Ids(Vec<u64>),
    Texts(Vec<String>),
    Lists(Vec<Vec<u64>>),
}

#[derive(Deserialize)]
struct ChatMessage {
    role: String,
    content: Option<MessageContent>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum MessageContent {
    Text(String),
    Parts(Vec<ContentPart>),
}

/// A part of another type than text has no tokens here.
#[derive(Deserialize)]
struct ContentPart {
    text: Option<String>,
}

/// Reads the body of a request.
///
/// # Errors
/// A message for the client.
pub(super) fn parse(api: Endpoint, body: &[u8]) -> Result<ParsedRequest, String> {
    let body: Body = serde_json::from_slice(body).map_err(|error| format!("the body is no request: {error}"))?;
    if body.n.is_some_and(|n| n != 1) {
        return Err("`n` must be 1: this server generates one output per request".to_owned());
    }
    let mut tokens = Vec::new();
    match api {
        Endpoint::Completions => {
            let missing = "`prompt` is missing: write text or a list of token ids";
            prompt_tokens(body.prompt.ok_or_else(|| missing.to_owned())?, &mut tokens)?;
        }
        Endpoint::Chat => chat_tokens(&body.messages.unwrap_or_default(), &mut tokens),
    }
    if tokens.is_empty() {
        return Err("the prompt is empty: it needs at least one token".to_owned());
    }
    let limit = body.max_completion_tokens.or(body.max_tokens);
    let max_tokens = match limit {
        None => None,
        Some(limit) => Some(
            u32::try_from(limit)
                .ok()
                .filter(|&limit| limit > 0)
                .ok_or_else(|| format!("`max_tokens` must be from 1 to {}, got {limit}", u32::MAX))?,
        ),
    };
    Ok(ParsedRequest {
        model: body.model,
        tokens,
        max_tokens,
        stream: body.stream,
        include_usage: body.stream_options.is_some_and(|options| options.include_usage),
        priority: body.priority,
    })
}

fn prompt_tokens(prompt: Prompt, tokens: &mut Vec<Token>) -> Result<(), String> {
    let one = |count: usize| match count {
        1 => Ok(()),
        _ => Err(format!("`prompt` has {count} prompts: send one per request")),
    };
    match prompt {
        Prompt::Text(text) => tokens_of_text(&text, tokens),
        Prompt::Ids(ids) => tokens.extend(ids.into_iter().map(token_of_id)),
        Prompt::Texts(texts) => {
            one(texts.len())?;
            tokens_of_text(&texts[0], tokens);
        }
        Prompt::Lists(lists) => {
            one(lists.len())?;
            tokens.extend(lists[0].iter().copied().map(token_of_id));
        }
    }
    Ok(())
}

/// A chat template adds a few tokens to each message: here its role.
fn chat_tokens(messages: &[ChatMessage], tokens: &mut Vec<Token>) {
    for message in messages {
        tokens_of_text(&message.role, tokens);
        match &message.content {
            None => {}
            Some(MessageContent::Text(text)) => tokens_of_text(text, tokens),
            Some(MessageContent::Parts(parts)) => {
                for text in parts.iter().filter_map(|part| part.text.as_deref()) {
                    tokens_of_text(text, tokens);
                }
            }
        }
    }
}

/// Numbers of tokens, as in responses.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct TokenUsage {
    pub prompt_tokens: u32,
    pub completion_tokens: u32,
    pub total_tokens: u32,
    pub prompt_tokens_details: CachedTokens,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct CachedTokens {
    pub cached_tokens: u32,
}

impl TokenUsage {
    pub fn new(prompt_tokens: u32, completion_tokens: u32, cached_tokens: u32) -> Self {
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
            prompt_tokens_details: CachedTokens { cached_tokens },
        }
    }
}

/// What all chunks of a response repeat.
#[derive(Clone, Debug)]
pub(super) struct ResponseHead {
    pub api: Endpoint,
    pub id: String,
    /// Seconds since the start of 1970, UTC.
    pub created: u64,
    pub model: String,
}

impl ResponseHead {
    /// The chunk before the first token of a chat, which has a role and no text.
    pub fn role(&self) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": ""});
        let choices = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]);
        (self.api == Endpoint::Chat).then(|| self.object("chat.completion.chunk", &choices))
    }

    /// A chunk of a stream with `text`, and the reason if it is the last.
    pub fn chunk(&self, text: &str, reason: Option<&str>) -> Value {
        match self.api {
            Endpoint::Completions => self.object(
                "text_completion",
                &json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": reason}]),
            ),
            Endpoint::Chat => self.object(
                "chat.completion.chunk",
                &json!([{"index": 0, "delta": {"content": text}, "logprobs": null, "finish_reason": reason}]),
            ),
        }
    }

    /// The chunk without choices behind the last one.
    pub fn usage(&self, usage: TokenUsage) -> Value {
        let object = match self.api {
            Endpoint::Completions => "text_completion",
            Endpoint::Chat => "chat.completion.chunk",
        };
        let mut chunk = self.object(object, &json!([]));
        chunk["usage"] = json!(usage);
        chunk
    }

    /// A response that is not streamed.
    pub fn whole(&self, text: &str, reason: &str, usage: TokenUsage) -> Value {
        let mut response = match self.api {
            Endpoint::Completions => self.object(
                "text_completion",
                &json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": reason}]),
            ),
            Endpoint::Chat => {
                let message = json!({"role": "assistant", "content": text});
                self.object(
                    "chat.completion",
                    &json!([{"index": 0, "message": message, "logprobs": null, "finish_reason": reason}]),
                )
            }
        };
        response["usage"] = json!(usage);
        response
    }

    fn object(&self, object: &str, choices: &Value) -> Value {
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices})
    }
}

/// An error as OpenAI's clients read it.
pub(super) fn error_body(code: u16, kind: &str, message: &str) -> Value {
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_text_or_token_ids() {
        let parse = |text: &str| parse(Endpoint::Completions, text.as_bytes());
        let ids = parse(r#"{"model": "m", "prompt": [1, 2, 3], "max_tokens": 4, "ignore_eos": true}"#).expect("valid");
        assert_eq!((ids.tokens.len(), ids.max_tokens, ids.stream), (3, Some(4), false));
        assert_eq!(parse(r#"{"prompt": [[1, 2, 3]]}"#).expect("valid").tokens, ids.tokens);
        let text = parse(r#"{"prompt": "two words", "stream": true, "stream_options": {"include_usage": true}}"#);
        let text = text.expect("valid");
        assert_eq!((text.tokens.len(), text.stream, text.include_usage), (2, true, true));
    }

    #[test]
    fn chat_has_the_tokens_of_all_messages() {
        let body = r#"{"messages": [{"role": "user", "content": "hi there"},
                       {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url"}]}],
                       "max_completion_tokens": 7, "max_tokens": 9}"#;
        let chat = parse(Endpoint::Chat, body.as_bytes()).expect("valid");
        assert_eq!((chat.tokens.len(), chat.max_tokens), (1 + 2 + 1 + 1, Some(7)));
    }

    #[test]
    fn what_cannot_be_served_is_refused_with_a_reason() {
        let bad = |text: &str| parse(Endpoint::Completions, text.as_bytes()).expect_err("invalid");
        assert!(bad("{").contains("no request"));
        assert!(bad(r#"{"max_tokens": 1}"#).contains("`prompt` is missing"));
        assert!(bad(r#"{"prompt": ""}"#).contains("empty"));
        assert!(bad(r#"{"prompt": ["a", "b"]}"#).contains("2 prompts"));
        assert!(bad(r#"{"prompt": "a", "max_tokens": 0}"#).contains("from 1"));
        assert!(bad(r#"{"prompt": "a", "max_tokens": -1}"#).contains("-1"));
        assert!(bad(r#"{"prompt": "a", "n": 2}"#).contains("`n` must be 1"));
        assert!(parse(Endpoint::Chat, b"{}").expect_err("invalid").contains("empty"));
    }
}
