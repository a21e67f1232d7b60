//! The pace: every request at its planned time, and the next round of a session when the one before has ended.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::rc::Rc;
use std::time::Duration;

use axum::body::Bytes;
use blis_eval::error::RunError;
use blis_sim::cluster::FollowUps;
use blis_sim::outcome::{Outcome, Rejection, Status};
use blis_sim::request::Request;
use blis_sim::units::Micros;
use blis_workload::{Names, Workload};
use http_body_util::Full;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior};

use super::connections::{Connections, SendError};
use super::contexts::{SessionContexts, Turn};
use super::exchange::{Exchange, ExchangeEnd, ReadOptions, exchange};
use super::messages::Messages;
use super::prompts::TokensPerWord;
use super::record::{ObservedRequest, Recording};
use super::settings::{ObserveSettings, PromptForm, SessionContext};
use crate::Termination;

/// The runtime's timer is accurate to a millisecond. The rest of the time to a planned moment passes in turns of the other
/// tasks.
const TIMER: Duration = Duration::from_millis(2);

/// Words of the two prompts by which tokens per word are measured.
const PROBE_WORDS: [u32; 2] = [100, 300];

/// Sends the requests of `workload`, and returns what was measured.
pub(super) async fn run(
    settings: &ObserveSettings,
    workload: Workload,
    show: &mut dyn FnMut(&LiveFigures),
) -> Result<Recording, RunError> {
    let mut messages = Messages::new(settings)?;
    let no_tls = |error: std::io::Error| {
        RunError::runtime(format_args!("no TLS connection with {}: {error}", settings.server))
            .hint("the environment variable `SSL_CERT_FILE` names a file with the certificate of a private authority")
    };
    let connections = Rc::new(Connections::new(settings.server.clone()).map_err(no_tls)?);
    // A peer that takes the connection and says nothing would hold the TLS handshake for ever.
    let opened = tokio::time::timeout(settings.timeout, connections.open_first()).await.map_err(|_| {
        let seconds = settings.timeout.as_secs_f64();
        RunError::runtime(format_args!("cannot connect to {}: it has not replied within {seconds} s", settings.server))
            .hint("is it a server with OpenAI's interface, and does it speak TLS if the URL has https://? `--request-timeout` is the limit")
    })?;
    opened.map_err(|error| match error {
        SendError::Tls(error) => no_tls(error),
        SendError::Connect(error) => unreachable(settings, &error),
        SendError::Broken(error) => unreachable(settings, &error),
    })?;
    if settings.prompts == PromptForm::Text {
        messages.words = Some(measure_words(&messages, &connections, settings).await?);
    }
    warm_up(&messages, &connections, settings).await?;
    let Workload { requests, follow_ups, names, .. } = workload;
    let (interrupt, interrupted) = watch::channel(false);
    let (report, reports) = unbounded_channel();
    let pace = LoadPace {
        settings,
        messages,
        names,
        requests: requests.peekable(),
        follow_ups,
        following: BTreeMap::new(),
        followed: 0,
        options: ReadOptions {
            start: Instant::now(),
            streaming: settings.streaming,
            record_chunks: settings.record_itl,
            keep_text: settings.context == SessionContext::Actual,
        },
        conversations: (settings.context == SessionContext::Actual).then(|| SessionContexts::new(settings.block_size)),
        connections,
        permits: settings.max_concurrency.map(|most| Rc::new(Semaphore::new(most.get()))),
        report,
        interrupted,
        in_flight: 0,
        records: Vec::new(),
        live: LiveFigures::default(),
        last_second: (0, 0, 0),
    };
    Ok(pace.execute(reports, interrupt, show).await)
}

/// The state of a run, for a line that is shown while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LiveFigures {
    /// Seconds since the start.
    pub seconds: f64,
    pub sent: u64,
    pub in_flight: u64,
    pub completed: u64,
    pub failed: u64,
    /// Requests per second that completed in the last second.
    pub rate: f64,
    /// Mean TTFT of these, ms; `None` if there are none.
    pub ttft_ms: Option<f64>,
}

fn unreachable(settings: &ObserveSettings, error: &dyn std::error::Error) -> RunError {
    RunError::runtime(format_args!("cannot connect to {}: {error}", settings.server))
        .hint("is the server running, and is `--server-url` its address?")
}

/// Measures how many tokens the server counts for a word.
async fn measure_words(
    messages: &Messages<'_>,
    connections: &Connections,
    settings: &ObserveSettings,
) -> Result<TokensPerWord, RunError> {
    let mut tokens = [0; 2];
    for (tokens, words) in tokens.iter_mut().zip(PROBE_WORDS) {
        let probed = before_start(messages, connections, settings, words).await?;
        let hint = "it must report `usage`; with token ids nothing is measured: `--prompts ids`";
        *tokens = probed
            .prompt_tokens
            .ok_or_else(|| RunError::runtime("the server does not say how many tokens a prompt has").hint(hint))?;
    }
    TokensPerWord::measured(PROBE_WORDS, tokens).ok_or_else(|| {
        let what = format!(
            "prompts of {} and {} words have {} and {} tokens",
            PROBE_WORDS[0], PROBE_WORDS[1], tokens[0], tokens[1]
        );
        RunError::runtime(what).hint("the length of prompts cannot be controlled: `--prompts ids` needs no measurement")
    })
}

async fn warm_up(
    messages: &Messages<'_>,
    connections: &Connections,
    settings: &ObserveSettings,
) -> Result<(), RunError> {
    for _ in 0..settings.warmup_requests {
        before_start(messages, connections, settings, PROBE_WORDS[0]).await?;
    }
    Ok(())
}

/// A request that is in no record.
///
/// # Errors
/// If it does not complete.
async fn before_start(
    messages: &Messages<'_>,
    connections: &Connections,
    settings: &ObserveSettings,
    words: u32,
) -> Result<Exchange, RunError> {
    let options =
        ReadOptions { start: Instant::now(), streaming: settings.streaming, record_chunks: false, keep_text: false };
    let message = messages.probe(words).map_err(RunError::runtime)?;
    let probed = exchange(connections, message, &options, settings.timeout, watch::channel(false).1).await;
    match &probed.end {
        Some(ExchangeEnd::Completed) => Ok(probed),
        end => {
            let end = end.as_ref().map(ToString::to_string).unwrap_or_default();
            let what = format!("the server does not serve a first request of the model `{}`: {end}", settings.model);
            Err(RunError::runtime(what).hint("`/v1/models` of the server lists its models; `--model` names one"))
        }
    }
}

/// The state of a run.
struct LoadPace<'a> {
    settings: &'a ObserveSettings,
    messages: Messages<'a>,
    names: Names,
    requests: Peekable<Box<dyn Iterator<Item = Request> + Send>>,
    follow_ups: Option<Box<dyn FollowUps + Send>>,
    /// Requests that follow from ends, by time and then as they became known.
    following: BTreeMap<(Micros, u64), Request>,
    followed: u64,
    /// What sessions sent and the server wrote; `None` with planned contexts.
    conversations: Option<SessionContexts>,
    options: ReadOptions,
    connections: Rc<Connections>,
    permits: Option<Rc<Semaphore>>,
    report: UnboundedSender<ObservedRequest>,
    interrupted: watch::Receiver<bool>,
    in_flight: u64,
    records: Vec<ObservedRequest>,
    live: LiveFigures,
    /// Requests that completed in the present second, and of these the sum of TTFTs (µs) and their number.
    last_second: (u64, u64, u64),
}

impl LoadPace<'_> {
    async fn execute(
        mut self,
        mut reports: UnboundedReceiver<ObservedRequest>,
        interrupt: watch::Sender<bool>,
        show: &mut dyn FnMut(&LiveFigures),
    ) -> Recording {
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut termination = Termination::new();
        let mut stops = false;
        loop {
            let next = self.next_at().filter(|_| !stops);
            if next.is_none() && self.in_flight == 0 {
                break;
            }
            tokio::select! {
                biased;
                () = moment(self.options.start, next) => self.send_due(),
                Some(record) = reports.recv() => self.ended(record),
                () = termination.next() => {
                    if stops {
                        // All receivers are in this program.
                        let _ = interrupt.send(true);
                    }
                    stops = true;
                }
                _ = tick.tick() => self.show(show),
            }
        }
        self.show(show);
        let unsent = if stops { self.following.len() as u64 + self.requests.count() as u64 } else { 0 };
        Recording::new(self.settings, self.names, self.records, unsent, stops, self.options.start.elapsed())
    }

    /// The planned time of the next request.
    fn next_at(&mut self) -> Option<Micros> {
        let listed = self.requests.peek().map(|request| request.arrival);
        let following = self.following.first_key_value().map(|(&(at, _), _)| at);
        [listed, following].into_iter().flatten().min()
    }

    fn take(&mut self) -> Option<(Micros, Request)> {
        let listed = self.requests.peek().map(|request| request.arrival);
        match self.following.first_entry() {
            Some(first) if listed.is_none_or(|listed| first.key().0 < listed) => {
                let ((at, _), request) = first.remove_entry();
                Some((at, request))
            }
            _ => self.requests.next().map(|request| (request.arrival, request)),
        }
    }

    /// Sends every request that is due.
    fn send_due(&mut self) {
        let now = self.now();
        while self.next_at().is_some_and(|at| at <= now) {
            if let Some((planned, request)) = self.take() {
                self.send(planned, request);
            }
        }
    }

    fn now(&self) -> Micros {
        Micros(u64::try_from(self.options.start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn send(&mut self, planned: Micros, request: Request) {
        self.in_flight += 1;
        self.live.sent += 1;
        let (message, added) = match &self.conversations {
            None => (self.messages.post(&request, &self.names), None),
            Some(conversations) => {
                let (before, new_tokens) = conversations.before(&request);
                let added = self.messages.added(before, &request, new_tokens);
                (self.messages.continuing(before, &added, &request, &self.names), Some(added))
            }
        };
        let limit = request.deadline.map_or(self.settings.timeout, |deadline| {
            self.settings.timeout.min(Duration::from_micros(deadline.saturating_sub(planned).0))
        });
        let record = ObservedRequest { planned, due: self.now(), request, added, exchange: Exchange::default() };
        let (connections, permits, options) = (Rc::clone(&self.connections), self.permits.clone(), self.options);
        let (report, interrupted) = (self.report.clone(), self.interrupted.clone());
        tokio::task::spawn_local(async move {
            let exchange = match message {
                Ok(message) => limited(&connections, message, &options, limit, interrupted, permits).await,
                // A name of the workload that no header may have.
                Err(error) => Exchange { end: Some(ExchangeEnd::Malformed(error.to_string())), ..Exchange::default() },
            };
            // The receiver is there until all requests are.
            let _ = report.send(ObservedRequest { exchange, ..record });
        });
    }

    fn ended(&mut self, mut record: ObservedRequest) {
        self.in_flight -= 1;
        self.keep_turn(&mut record);
        if record.exchange.end == Some(ExchangeEnd::Completed) {
            self.live.completed += 1;
            self.last_second.0 += 1;
            if let (Some(sent), Some(first)) = (record.exchange.sent_us, record.exchange.first_us) {
                self.last_second.1 += first.saturating_sub(sent);
                self.last_second.2 += 1;
            }
        } else {
            self.live.failed += 1;
        }
        let now = self.now();
        if let Some(follow_ups) = &mut self.follow_ups
            && let Some(next) = follow_ups.next(&record.outcome(now))
        {
            self.followed += 1;
            self.following.insert((next.arrival, self.followed), next);
        }
        self.records.push(record);
    }

    /// Adds what `record` sent and received to the conversation of its session, and keeps none of it in the record.
    fn keep_turn(&mut self, record: &mut ObservedRequest) {
        let (Some(conversations), Some(prompt)) = (&mut self.conversations, record.added.take()) else { return };
        let turn = Turn { prompt, output: std::mem::take(&mut record.exchange.text) };
        if record.completed() {
            conversations.add(&record.request, turn, record.output_tokens().unwrap_or(0));
        }
    }

    fn show(&mut self, show: &mut dyn FnMut(&LiveFigures)) {
        let (completed, sum, count) = std::mem::take(&mut self.last_second);
        let seconds = self.options.start.elapsed().as_secs_f64();
        let passed = (seconds - self.live.seconds).max(1e-3);
        self.live = LiveFigures {
            seconds,
            in_flight: self.in_flight,
            rate: completed as f64 / passed,
            ttft_ms: (count > 0).then(|| sum as f64 / count as f64 / 1e3),
            ..self.live
        };
        show(&self.live);
    }
}

/// Sends a message once there is a permit, if their number is limited.
async fn limited(
    connections: &Connections,
    message: hyper::Request<Full<Bytes>>,
    options: &ReadOptions,
    limit: Duration,
    mut interrupted: watch::Receiver<bool>,
    permits: Option<Rc<Semaphore>>,
) -> Exchange {
    let Some(permits) = permits else { return exchange(connections, message, options, limit, interrupted).await };
    // Nothing closes it.
    let permit = tokio::select! {
        permit = permits.acquire() => permit.ok(),
        _ = interrupted.wait_for(|is_set| *is_set) => None,
    };
    if permit.is_none() {
        return Exchange { end: Some(ExchangeEnd::Interrupted), ..Exchange::default() };
    }
    exchange(connections, message, options, limit, interrupted).await
}

/// Waits until `at` after `start`; for ever if there is no such moment.
async fn moment(start: Instant, at: Option<Micros>) {
    let Some(at) = at.and_then(|at| start.checked_add(Duration::from_micros(at.0))) else {
        return std::future::pending().await;
    };
    if let Some(before) = at.checked_sub(TIMER)
        && before > Instant::now()
    {
        tokio::time::sleep_until(before).await;
    }
    while Instant::now() < at {
        tokio::task::yield_now().await;
    }
}

impl ObservedRequest {
    /// The end of the request as closed-loop clients see it; `now` if no part of a response came.
    fn outcome(&self, now: Micros) -> Outcome {
        let status = match self.exchange.end {
            Some(ExchangeEnd::Completed) => Status::Completed,
            Some(ExchangeEnd::TimedOut) => Status::TimedOut,
            _ => Status::Rejected(Rejection::Admission),
        };
        let ended = match status {
            Status::Completed => self.exchange.last_us.map_or(now, Micros),
            _ => now,
        };
        Outcome {
            generated_tokens: self.output_tokens().unwrap_or(0),
            ..Outcome::new(&Request { arrival: self.planned, ..self.request.clone() }, status).ended_at(ended)
        }
    }
}
