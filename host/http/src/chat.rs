//! A language model behind OpenAI's interface, for `blis search`: one question, one reply, over `/v1/chat/completions`.

use std::time::Duration;

use axum::body::Bytes;
use blis_eval::error::RunError;
use blis_eval::search::{ChatModel, ChatReply};
use http_body_util::Full;
use hyper::Request;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::observe::{ApiKey, Connections, Exchange, ExchangeEnd, ReadOptions, ServerUrl, bearer, exchange};

/// Attempts to get a reply.
const ATTEMPTS: u32 = 5;
/// Pause before the second attempt; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause that a server can ask for (`Retry-After`).
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A model of a server with OpenAI's interface.
#[derive(Debug)]
pub struct ChatClient {
    server: ServerUrl,
    model: String,
    authorization: Option<HeaderValue>,
    /// Maximum duration of a reply.
    timeout: Duration,
}

impl ChatClient {
    /// The model called `model` of `server`, which gets `api_key` as `Authorization: Bearer …`. A reply may take `timeout`.
    ///
    /// # Errors
    /// If the key cannot stand in a header.
    pub fn new(
        server: ServerUrl,
        model: String,
        api_key: Option<&ApiKey>,
        timeout: Duration,
    ) -> Result<Self, RunError> {
        Ok(Self { server, model, authorization: bearer(api_key)?, timeout })
    }

    /// Asks until there is a reply, or an error that does not go away.
    async fn ask(&self, question: &str) -> Result<ChatReply, RunError> {
        let connections = Connections::new(self.server.clone())
            .map_err(|error| RunError::runtime(format_args!("no TLS connection with {}: {error}", self.server)))?;
        let (mut attempt, mut pause) = (1, FIRST_PAUSE);
        loop {
            let Exchange { end, text, prompt_tokens, output_tokens, finish_reason, .. } =
                self.once(&connections, question).await?;
            let end = end.unwrap_or(ExchangeEnd::TimedOut);
            if end == ExchangeEnd::Completed && finish_reason == "length" {
                return Err(self.error("the reply has reached the length limit of the server", CUT));
            }
            if end == ExchangeEnd::Completed {
                let tokens = |count: Option<u32>| u64::from(count.unwrap_or(0));
                let (input_tokens, output_tokens) = (tokens(prompt_tokens), tokens(output_tokens));
                return Ok(ChatReply { text, input_tokens, output_tokens });
            }
            if attempt == ATTEMPTS || !is_transient(&end) {
                return Err(self.failed(&end, attempt));
            }
            let wait = retry_after(&end).unwrap_or(pause).min(LONGEST_PAUSE);
            tracing::warn!(
                "the model `{}` at {}: {end}; next attempt in {} s",
                self.model,
                self.server,
                wait.as_secs()
            );
            sleep(wait).await;
            (attempt, pause) = (attempt + 1, 2 * pause);
        }
    }

    async fn once(&self, connections: &Connections, question: &str) -> Result<Exchange, RunError> {
        let options = ReadOptions { start: Instant::now(), streaming: false, record_chunks: false, keep_text: true };
        // An interrupt ends the whole search.
        let (_interrupt, interrupted) = watch::channel(false);
        let message = self.message(question).map_err(RunError::runtime)?;
        Ok(exchange(connections, message, &options, self.timeout, interrupted).await)
    }

    fn message(&self, question: &str) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let body = json!({"model": self.model, "messages": [{"role": "user", "content": question}]});
        let mut message = Request::post(self.server.route("/v1/chat/completions"))
            .header(HOST, self.server.authority())
            .header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            message = message.header(AUTHORIZATION, authorization.clone());
        }
        message.body(Full::new(Bytes::from(body.to_string())))
    }

    fn failed(&self, end: &ExchangeEnd, attempts: u32) -> RunError {
        let hint = match end {
            ExchangeEnd::Error { status: 401 | 403, .. } => {
                "set BLIS_API_KEY or OPENAI_API_KEY to a key that the server accepts"
            }
            ExchangeEnd::Error { status: 404, .. } => {
                "`/v1/models` of the server lists its models: `--model-name` names one; `--model-url` is what stands before `/v1`"
            }
            ExchangeEnd::Error { status: 400..500, .. } => {
                "the server does not accept the request: see its documentation"
            }
            ExchangeEnd::TimedOut => "raise `--model-timeout`, or use a faster model",
            ExchangeEnd::Malformed(_) | ExchangeEnd::Truncated => {
                "`--model-url` names no server with OpenAI's interface"
            }
            ExchangeEnd::NotConnected(_) => "start the server, or correct `--model-url`",
            ExchangeEnd::Tls(_) => {
                "its certificate must be from an authority that this machine trusts, or that SSL_CERT_FILE names"
            }
            _ => "wait until the server replies again",
        };
        let times = if attempts == 1 { String::new() } else { format!(" ({attempts} attempts)") };
        self.error(&format!("{end}{times}"), hint)
    }

    fn error(&self, what: &str, hint: &str) -> RunError {
        RunError::runtime(format_args!("the model `{}` at {} has not replied: {what}", self.model, self.server))
            .hint(format_args!("{hint}; a search with `--archive` goes on where it ended if the command is run again"))
    }
}

const CUT: &str = "raise the default of the server for output tokens, or use a model with less reasoning";

impl ChatModel for ChatClient {
    fn name(&self) -> &str {
        &self.model
    }

    fn reply(&self, question: &str) -> Result<ChatReply, RunError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::runtime)?;
        let tasks = tokio::task::LocalSet::new();
        runtime.block_on(tasks.run_until(self.ask(question)))
    }
}

/// Whether a later attempt may succeed.
fn is_transient(end: &ExchangeEnd) -> bool {
    match end {
        ExchangeEnd::Rejected { .. } | ExchangeEnd::NotConnected(_) | ExchangeEnd::Disconnected(_) => true,
        ExchangeEnd::Truncated | ExchangeEnd::TimedOut => true,
        ExchangeEnd::Error { status, .. } => *status == 408 || *status >= 500,
        ExchangeEnd::Completed | ExchangeEnd::Tls(_) | ExchangeEnd::Malformed(_) | ExchangeEnd::Interrupted => false,
    }
}

/// The pause that the server asks for, if it does so in seconds.
fn retry_after(end: &ExchangeEnd) -> Option<Duration> {
    let ExchangeEnd::Rejected { retry_after: Some(text), .. } = end else { return None };
    text.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(key: Option<&str>) -> Result<ChatClient, RunError> {
        let key = key.map(|key| ApiKey(key.to_owned()));
        let server = ServerUrl::parse("http://127.0.0.1:9/team/v1").expect("a URL");
        ChatClient::new(server, "m".to_owned(), key.as_ref(), Duration::from_secs(1))
    }

    #[test]
    fn a_question_is_one_message_with_the_key_in_a_header() {
        let client = client(Some("secret")).expect("a client");
        let message = client.message("why?").expect("a message");
        assert_eq!(
            (message.uri().path(), &message.headers()[AUTHORIZATION]),
            ("/team/v1/chat/completions", &HeaderValue::from_static("Bearer secret"))
        );
        assert!(!format!("{client:?}").contains("secret"));
        assert!(ChatClient::new(client.server, "m".to_owned(), Some(&ApiKey("a\nb".to_owned())), FIRST_PAUSE).is_err());
    }

    #[test]
    fn errors_that_stay_are_not_tried_again_and_have_a_hint() {
        let error = |status| ExchangeEnd::Error { status, message: "no".to_owned() };
        let busy = ExchangeEnd::Rejected { status: 429, retry_after: Some("7".to_owned()) };
        assert_eq!([401, 404, 500].map(|status| is_transient(&error(status))), [false, false, true]);
        assert_eq!((is_transient(&busy), retry_after(&busy)), (true, Some(Duration::from_secs(7))));
        let shown = client(None).expect("a client").failed(&error(401), 1).text();
        assert_eq!(
            shown,
            "the model `m` at http://127.0.0.1:9/team has not replied: http-error: 401 no\n\
             hint: set BLIS_API_KEY or OPENAI_API_KEY to a key that the server accepts; a search with `--archive` goes on where it \
             ended if the command is run again"
        );
    }
}
