//! One request and its response, with the time of every part.

use std::fmt;
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode, header};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::Instant;

use super::connections::{Answered, Connections, SendError};
use crate::sse::EventReader;

/// Maximum length of a whole response, bytes.
const LONGEST_BODY: usize = 16 << 20;
/// Characters of a server's message that are kept.
const LONGEST_MESSAGE: usize = 200;

/// What was measured of one request. Times are µs on the clock of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Exchange {
    /// Time to open a connection, µs; `None` if an open one was used.
    pub connected_in_us: Option<u64>,
    /// When the request was sent; `None` if it was not.
    pub sent_us: Option<u64>,
    /// When the first part with text came, and the last one.
    pub first_us: Option<u64>,
    pub last_us: Option<u64>,
    /// When each part with text came, if that is recorded.
    pub chunks_us: Vec<u64>,
    /// Number of parts with text.
    pub chunks: u32,
    /// Tokens as the server counted them.
    pub prompt_tokens: Option<u32>,
    pub output_tokens: Option<u32>,
    pub finish_reason: String,
    /// The output, without reasoning, if that is kept.
    pub text: String,
    pub end: Option<ExchangeEnd>,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub(crate) enum ExchangeEnd {
    /// The whole output came.
    Completed,
    /// 429 or 503, with the server's `Retry-After`.
    Rejected { status: u16, retry_after: Option<String> },
    /// Another status than 200, or an error within the stream.
    #[strum(to_string = "http-error")]
    Error { status: u16, message: String },
    /// No connection could be opened.
    NotConnected(String),
    /// The connection could not be encrypted.
    #[strum(to_string = "tls-error")]
    Tls(String),
    /// The connection broke before the end of the response.
    Disconnected(String),
    /// The stream ended as a response should, but before its last part.
    Truncated,
    /// The response is none of this interface.
    Malformed(String),
    /// The end was later than the limit.
    TimedOut,
    /// The user ended the run first.
    Interrupted,
}

/// `kind: details`, the column `error_message` of a trace.
impl fmt::Display for ExchangeEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.into_str();
        match self {
            Self::Completed => Ok(()),
            Self::Rejected { status, retry_after: None } => write!(f, "{name}: {status}"),
            Self::Rejected { status, retry_after: Some(after) } => write!(f, "{name}: {status}, retry after {after}"),
            Self::Error { status, message } => write!(f, "{name}: {status} {message}"),
            Self::NotConnected(what) | Self::Tls(what) | Self::Disconnected(what) | Self::Malformed(what) => {
                write!(f, "{name}: {what}")
            }
            Self::Truncated => write!(f, "{name}: the stream ended without its last part"),
            Self::TimedOut | Self::Interrupted => f.write_str(name),
        }
    }
}

/// How responses are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadOptions {
    pub start: Instant,
    pub streaming: bool,
    /// Record the time of every part.
    pub record_chunks: bool,
    /// Keep the text of the output.
    pub keep_text: bool,
}

impl ReadOptions {
    fn since_start(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.start).as_micros()).unwrap_or(u64::MAX)
    }
}

/// Sends `request` and reads its response, for `limit` at most, and until `interrupted` is set.
pub(crate) async fn exchange(
    connections: &Connections,
    request: Request<Full<Bytes>>,
    options: &ReadOptions,
    limit: Duration,
    mut interrupted: watch::Receiver<bool>,
) -> Exchange {
    let mut measured = Exchange::default();
    let begun = Instant::now();
    // Its sender is there as long as the run.
    let interruption = async move {
        if interrupted.wait_for(|is_set| *is_set).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let end = tokio::select! {
        end = tokio::time::timeout(limit, send_and_read(connections, request, options, &mut measured)) => {
            end.unwrap_or(ExchangeEnd::TimedOut)
        }
        () = interruption => ExchangeEnd::Interrupted,
    };
    measured.end = Some(end);
    // Of a request that got no response, the time at which it was to be written.
    if measured.sent_us.is_none() && !matches!(measured.end, Some(ExchangeEnd::NotConnected(_))) {
        measured.sent_us = Some(options.since_start(begun));
    }
    measured
}

async fn send_and_read(
    connections: &Connections,
    request: Request<Full<Bytes>>,
    options: &ReadOptions,
    measured: &mut Exchange,
) -> ExchangeEnd {
    let Answered { response, connection, connected_in, sent } = match connections.send(request).await {
        Ok(answered) => answered,
        Err(SendError::Connect(error)) => return ExchangeEnd::NotConnected(shortened(&error.to_string())),
        Err(SendError::Tls(error)) => return ExchangeEnd::Tls(shortened(&error.to_string())),
        Err(SendError::Broken(error)) => return broken(&error),
    };
    measured.connected_in_us = connected_in.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    measured.sent_us = Some(options.since_start(sent));
    let end = match response.status() {
        StatusCode::OK if options.streaming => read_stream(response, options, measured).await,
        StatusCode::OK => read_whole(response, options, measured).await,
        _ => refusal(response).await,
    };
    let is_read = matches!(end, ExchangeEnd::Completed | ExchangeEnd::Rejected { .. } | ExchangeEnd::Error { .. });
    if is_read {
        connections.give_back(connection);
    }
    end
}

fn broken(error: &hyper::Error) -> ExchangeEnd {
    let text = shortened(&error.to_string());
    if error.is_parse() { ExchangeEnd::Malformed(text) } else { ExchangeEnd::Disconnected(text) }
}

async fn refusal(response: Response<Incoming>) -> ExchangeEnd {
    let status = response.status();
    let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()).map(shortened);
    let body = body(response).await;
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            ExchangeEnd::Rejected { status: status.as_u16(), retry_after }
        }
        _ => {
            let body = body.unwrap_or_default();
            let message = serde_json::from_slice::<ErrorBody>(&body).ok().and_then(ErrorBody::message);
            let message = message.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned());
            ExchangeEnd::Error { status: status.as_u16(), message: shortened(&message) }
        }
    }
}

async fn read_stream(response: Response<Incoming>, options: &ReadOptions, measured: &mut Exchange) -> ExchangeEnd {
    let mut body = response.into_body();
    let mut events = EventReader::default();
    let (mut is_done, mut wrong) = (false, None);
    while let Some(frame) = body.frame().await {
        let at = options.since_start(Instant::now());
        let frame = match frame {
            Ok(frame) => frame,
            // All parts have come.
            Err(_) if is_done => break,
            Err(error) => return broken(&error),
        };
        let Some(bytes) = frame.data_ref() else { continue };
        let read = events.read(bytes, |data| match data {
            "[DONE]" => is_done = true,
            data => wrong = wrong.take().or(measured.add(data, at, options)),
        });
        if let Err(error) = read {
            return ExchangeEnd::Malformed(error.to_string());
        }
        if let Some(end) = wrong {
            return end;
        }
    }
    if is_done || (!measured.finish_reason.is_empty() && !events.is_within_event()) {
        ExchangeEnd::Completed
    } else {
        ExchangeEnd::Truncated
    }
}

async fn read_whole(response: Response<Incoming>, options: &ReadOptions, measured: &mut Exchange) -> ExchangeEnd {
    let body = match body(response).await {
        Ok(body) => body,
        Err(end) => return end,
    };
    let at = options.since_start(Instant::now());
    let Ok(text) = std::str::from_utf8(&body) else { return ExchangeEnd::Malformed("no UTF-8".to_owned()) };
    match measured.add(text, at, options) {
        Some(end) => end,
        None if measured.finish_reason.is_empty() => ExchangeEnd::Truncated,
        None => ExchangeEnd::Completed,
    }
}

async fn body(response: Response<Incoming>) -> Result<Vec<u8>, ExchangeEnd> {
    let mut body = response.into_body();
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(&error))?;
        let Some(bytes) = frame.data_ref() else { continue };
        if read.len() + bytes.len() > LONGEST_BODY {
            return Err(ExchangeEnd::Malformed(format!("a response of more than {LONGEST_BODY} bytes")));
        }
        read.extend_from_slice(bytes);
    }
    Ok(read)
}

/// A part of a response, or a whole one.
#[derive(Deserialize)]
struct ResponsePart {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<PartUsage>,
    error: Option<ErrorText>,
}

#[derive(Deserialize)]
struct Choice {
    text: Option<String>,
    delta: Option<DeltaText>,
    message: Option<DeltaText>,
    finish_reason: Option<String>,
}

/// Reasoning counts as output.
#[derive(Deserialize)]
struct DeltaText {
    content: Option<String>,
    #[serde(alias = "reasoning")]
    reasoning_content: Option<String>,
}

#[derive(Deserialize)]
struct PartUsage {
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: Option<ErrorText>,
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ErrorText {
    Object { message: Option<String>, code: Option<serde_json::Value> },
    Text(String),
}

impl ErrorBody {
    fn message(self) -> Option<String> {
        match self.error {
            Some(ErrorText::Object { message, .. }) => message,
            Some(ErrorText::Text(text)) => Some(text),
            None => self.message,
        }
    }
}

impl Choice {
    fn has_text(&self) -> bool {
        let filled = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let parts = [&self.delta, &self.message];
        let in_part = |part: &DeltaText| filled(&part.content) || filled(&part.reasoning_content);
        filled(&self.text) || parts.into_iter().flatten().any(in_part)
    }

    /// Its text, without reasoning.
    fn output(&self) -> Option<&str> {
        let part = self.delta.as_ref().or(self.message.as_ref());
        self.text.as_deref().or_else(|| part?.content.as_deref())
    }
}

impl Exchange {
    /// Adds a part that came at `at`. Returns the end that it means, if it is none of an output.
    fn add(&mut self, data: &str, at: u64, options: &ReadOptions) -> Option<ExchangeEnd> {
        let part: ResponsePart = match serde_json::from_str(data) {
            Ok(part) => part,
            Err(error) => return Some(ExchangeEnd::Malformed(shortened(&error.to_string()))),
        };
        if let Some(error) = part.error {
            let status = match &error {
                ErrorText::Object { code: Some(code), .. } => code.as_u64().and_then(|code| u16::try_from(code).ok()),
                _ => None,
            };
            let message = ErrorBody { error: Some(error), message: None }.message().unwrap_or_default();
            return Some(ExchangeEnd::Error { status: status.unwrap_or(200), message: shortened(&message) });
        }
        for choice in &part.choices {
            if choice.has_text() {
                self.chunks = self.chunks.saturating_add(1);
                self.first_us.get_or_insert(at);
                self.last_us = Some(at);
                if options.record_chunks {
                    self.chunks_us.push(at);
                }
                if options.keep_text {
                    self.text.extend(choice.output());
                    if self.text.len() > LONGEST_BODY {
                        return Some(ExchangeEnd::Malformed(format!("an output of more than {LONGEST_BODY} bytes")));
                    }
                }
            }
            if let Some(reason) = &choice.finish_reason {
                self.finish_reason = shortened(reason);
            }
        }
        if let Some(usage) = part.usage {
            self.prompt_tokens = usage.prompt_tokens.or(self.prompt_tokens);
            self.output_tokens = usage.completion_tokens.or(self.output_tokens);
        }
        None
    }
}

/// The start of a text of the server, on one line.
fn shortened(text: &str) -> String {
    let line = |c: char| if c.is_control() { ' ' } else { c };
    text.trim().chars().take(LONGEST_MESSAGE).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> ReadOptions {
        ReadOptions { start: Instant::now(), streaming: true, record_chunks: true, keep_text: true }
    }

    #[test]
    fn the_first_part_with_text_is_the_first_token() {
        let mut measured = Exchange::default();
        let parts = [
            r#"{"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": null}]}"#,
            r#"{"choices": [{"delta": {"reasoning_content": "hm"}}]}"#,
            r#"{"choices": [{"delta": {"content": "so"}, "finish_reason": "length"}]}"#,
            r#"{"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 5}}"#,
        ];
        for (at, part) in (1..).zip(parts) {
            assert_eq!(measured.add(part, at, &options()), None);
        }
        assert_eq!((measured.first_us, measured.last_us, measured.chunks), (Some(2), Some(3), 2));
        assert_eq!((measured.prompt_tokens, measured.output_tokens), (Some(4), Some(5)));
        assert_eq!((measured.finish_reason.as_str(), &measured.chunks_us[..]), ("length", &[2, 3][..]));
        assert_eq!(measured.text, "so", "without reasoning");
    }

    #[test]
    fn errors_within_a_stream_end_it() {
        let end = |part| Exchange::default().add(part, 0, &options()).expect("an end").to_string();
        assert_eq!(end(r#"{"error": {"message": "too\nlong", "code": 400}}"#), "http-error: 400 too long");
        assert_eq!(end(r#"{"error": "no"}"#), "http-error: 200 no");
        assert!(end("{\"choices\": [").starts_with("malformed: EOF"));
        assert!(end("7").starts_with("malformed: "));
    }
}
