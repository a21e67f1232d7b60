//! Lines of JSON on standard input and output.

use std::fmt::Display;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::sync::Arc;

use serde_json::json;

use blis_eval::error::RunError;
use blis_eval::evaluation::server::{EvaluationRequest, EvaluationServer, RequestError, id_text};
use blis_eval::result::EvaluationResult;

/// Longer lines are no requests.
const LINE_BYTES: u64 = 8 << 20;

/// Until the input ends, or somebody says so.
pub(super) fn run(server: &Arc<EvaluationServer>) -> Result<(), RunError> {
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line);
        let read = read.map_err(|error| RunError::runtime(format_args!("standard input cannot be read: {error}")))?;
        if read == 0 {
            return Ok(());
        }
        if !line.ends_with(b"\n") && read as u64 == LINE_BYTES {
            input.skip_until(b'\n').map_err(|error| RunError::runtime(format_args!("standard input: {error}")))?;
            say(&json!({"id": null, "error": "the line is longer than 8 MiB"}))?;
            continue;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice::<EvaluationRequest>(&line) {
            Err(error) => say(&json!({"id": null, "error": format!("the line is no request: {error}")}))?,
            Ok(ask) if ask.quit => return Ok(()),
            Ok(ask) => answer(server, &ask)?,
        }
    }
}

fn answer(server: &Arc<EvaluationServer>, ask: &EvaluationRequest) -> Result<(), RunError> {
    let id = ask.id.as_ref().map(id_text);
    if let Some(cancelled) = &ask.cancel {
        let cancelled = id_text(cancelled);
        let found = server.cancel(&cancelled);
        return say(&json!({"cancel": cancelled, "found": found}));
    }
    if ask.task {
        return say(&server.task());
    }
    if ask.status {
        return say(&server.status());
    }
    let called = id.clone();
    let reply = Box::new(move |answer: Result<EvaluationResult, String>| {
        // Whoever asked may be gone; then nobody misses the answer.
        let _ = match answer {
            Ok(document) => serde_json::to_string(&document).map(|document| say(&document)),
            Err(told) => Ok(say(&json!({"id": called, "error": told}))),
        };
    });
    match server.submit(ask, reply) {
        Ok(()) => Ok(()),
        Err(RequestError::Busy) => say(&json!({"id": id, "error": "busy", "retry_after_s": 1})),
        Err(RequestError::Budget) => {
            say(&json!({"id": id, "error": "the budget is used up", "budget": server.budget()}))
        }
        Err(RequestError::Invalid(told)) => say(&json!({"id": id, "error": told})),
    }
}

/// A whole line at a time, whoever says it.
fn say(value: &impl Display) -> Result<(), RunError> {
    let mut out = io::stdout().lock();
    let text = format!("{value}\n");
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| RunError::output(&error))
}
