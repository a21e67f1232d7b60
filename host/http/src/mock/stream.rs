//! The body of a streamed response: a server-sent event for each token, as it leaves.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::mpsc::Sender;
use std::task::{Context, Poll};

use axum::body::Bytes;
use blis_sim::ids::RequestId;
use http_body::{Body, Frame};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::deliveries::{RefusalReason, StreamEvent};
use super::openai::{ResponseHead, TokenUsage};
use super::prompt::word;
use super::simulation::SimulationCommand;

/// The tokens of a request as they leave. If it is dropped before the last one, the request is cancelled.
pub(super) struct RequestOutput {
    pub id: RequestId,
    pub prompt_tokens: u32,
    /// The reason of the end, if it is not the model's limit.
    pub ends_by: &'static str,
    events: UnboundedReceiver<StreamEvent>,
    commands: Sender<SimulationCommand>,
    tokens: u32,
    has_ended: bool,
}

/// A token of an output.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutputToken {
    pub text: &'static str,
    pub is_first: bool,
    /// The reason and the usage, if it is the last.
    pub end: Option<(&'static str, TokenUsage)>,
}

impl RequestOutput {
    /// The output of request `id`, nothing of which has left.
    pub fn new(
        id: RequestId,
        prompt_tokens: u32,
        ends_by: &'static str,
        events: UnboundedReceiver<StreamEvent>,
        commands: Sender<SimulationCommand>,
    ) -> Self {
        Self { id, prompt_tokens, ends_by, events, commands, tokens: 0, has_ended: false }
    }

    /// The next token; `None` if the simulation has ended.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<OutputToken, RefusalReason>>> {
        let event = match self.events.poll_recv(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(event) => event,
        };
        Poll::Ready(event.map(|event| self.token(event)))
    }

    /// The next token, as of [`Self::poll`].
    pub async fn next(&mut self) -> Option<Result<OutputToken, RefusalReason>> {
        let event = self.events.recv().await?;
        Some(self.token(event))
    }

    fn token(&mut self, event: StreamEvent) -> Result<OutputToken, RefusalReason> {
        let end = match event {
            StreamEvent::Refused(refusal) => {
                self.has_ended = true;
                return Err(refusal);
            }
            StreamEvent::Token => None,
            StreamEvent::Last { capped, cached_tokens } => {
                self.has_ended = true;
                let reason = if capped { "length" } else { self.ends_by };
                Some((reason, TokenUsage::new(self.prompt_tokens, self.tokens + 1, cached_tokens)))
            }
        };
        let text = word(u64::from(self.id.0), self.tokens);
        self.tokens += 1;
        Ok(OutputToken { text, is_first: self.tokens == 1, end })
    }
}

impl Drop for RequestOutput {
    fn drop(&mut self) {
        if !self.has_ended {
            // The simulation is gone if the server stops.
            let _ = self.commands.send(SimulationCommand::Cancel(self.id));
        }
    }
}

/// An output as server-sent events.
pub(super) struct EventStream {
    head: ResponseHead,
    include_usage: bool,
    output: RequestOutput,
    /// Events that are known and were not sent.
    ready: VecDeque<Bytes>,
    is_over: bool,
}

impl EventStream {
    /// The stream of `output`, of which `first` has been received.
    pub fn new(head: ResponseHead, include_usage: bool, first: OutputToken, output: RequestOutput) -> Self {
        let mut stream = Self { head, include_usage, output, ready: VecDeque::new(), is_over: false };
        stream.add(first);
        stream
    }

    fn add(&mut self, token: OutputToken) {
        if token.is_first {
            let role = self.head.role();
            self.ready.extend(role.iter().map(event));
        }
        let reason = token.end.map(|(reason, _)| reason);
        self.ready.push_back(event(&self.head.chunk(token.text, reason)));
        if let Some((_, usage)) = token.end {
            if self.include_usage {
                self.ready.push_back(event(&self.head.usage(usage)));
            }
            self.ready.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
            self.is_over = true;
        }
    }
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(ready))));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            match self.output.poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(token))) => self.add(token),
                Poll::Ready(Some(Err(_)) | None) => {
                    // It was evicted for another, or the simulation has ended: the stream ends without its last chunk.
                    self.is_over = true;
                }
            }
        }
    }
}

fn event(chunk: &Value) -> Bytes {
    Bytes::from(format!("data: {chunk}\n\n"))
}
