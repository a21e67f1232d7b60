//! Lines of JSON on standard input and output.

use std::fmt::Display;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::sync::Arc;

use serde::Serialize;
use serde_json::json;

use blis_eval::error::RunError;
use blis_eval::evaluation::server::{EvaluationRequest, EvaluationServer, RequestError, id_text};
use blis_eval::result::EvaluationResult;

/// Maximum length of a request line.
const LINE_BYTES: u64 = 8 << 20;

/// Reads requests until the input ends or a request has `quit`.
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
            print_line(&json!({"id": null, "error": "the line is longer than 8 MiB"}))?;
            continue;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice::<EvaluationRequest>(&line) {
            Err(error) => print_line(&json!({"id": null, "error": format!("the line is no request: {error}")}))?,
            Ok(request) if request.quit => return Ok(()),
            Ok(request) => handle(server, &request)?,
        }
    }
}

fn handle(server: &Arc<EvaluationServer>, request: &EvaluationRequest) -> Result<(), RunError> {
    let id = request.id.as_ref().map(id_text);
    if let Some(cancelled) = &request.cancel {
        let cancelled = id_text(cancelled);
        let found = server.cancel(&cancelled);
        return print_line(&json!({"cancel": cancelled, "found": found}));
    }
    if request.task {
        return print_line(&server.task());
    }
    if request.status {
        return print_line(&server.status());
    }
    let request_id = id.clone();
    let reply = Box::new(move |result: Result<EvaluationResult, String>| {
        // A closed output is not an error: its reader does not need the reply.
        let _ = match result {
            Ok(document) => serde_json::to_string(&ResultLine::new(&document)).map(|line| print_line(&line)),
            Err(message) => Ok(print_line(&json!({"id": request_id, "error": message}))),
        };
    });
    match server.submit(request, reply) {
        Ok(()) => Ok(()),
        Err(why @ RequestError::Busy) => print_line(&json!({"id": id, "error": why.to_string(), "retry_after_s": 1})),
        Err(why @ RequestError::Budget) => {
            print_line(&json!({"id": id, "error": why.to_string(), "budget": server.budget()}))
        }
        Err(RequestError::Invalid(message)) => print_line(&json!({"id": id, "error": message})),
    }
}

/// What `blis evaluate` prints with `--output json`, and a line of `blis serve --stdio`.
#[derive(Serialize)]
struct ResultLine<'a> {
    #[serde(flatten)]
    result: &'a EvaluationResult,
    /// Lines of `blis serve --stdio`: another attempt may have another result, as after the wall limit; absent if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    depends_on_clock: bool,
}

impl<'a> ResultLine<'a> {
    fn new(result: &'a EvaluationResult) -> Self {
        Self { result, depends_on_clock: result.depends_on_clock }
    }
}

/// Writes a whole line at once, so that lines of several threads do not mix.
fn print_line(value: &impl Display) -> Result<(), RunError> {
    let mut out = io::stdout().lock();
    let text = format!("{value}\n");
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| RunError::output(&error))
}
