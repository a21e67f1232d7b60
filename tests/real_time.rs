//! What runs in real time: `blis mock-server`, `blis observe` on it and on servers that fail in every way, and
//! `blis calibrate`. No assertion is about time: other tests run at the same time.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::macros::{Ended, Scratch, Words, blis, command, program};

const MODEL: &str = "qwen/qwen3-14b";

/// A mock server on a free port, which ends with the test.
struct RunningServer {
    process: Child,
    address: String,
}

impl RunningServer {
    fn start(flags: &str) -> Self {
        let line = format!("mock-server --model {MODEL} --listen 127.0.0.1:0 {flags}");
        let mut process = program!(line).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let listening: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let address = listening["listening"].as_str().expect("an address").trim_start_matches("http://").to_owned();
        Self { process, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream
    }

    /// The whole response to a request.
    fn send(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = self.connect();
        write_request(&mut stream, method, path, body);
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        response
    }

    fn counts(&self) -> Value {
        body_of(&self.send("GET", "/counts", ""))
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write_request(stream: &mut TcpStream, method: &str, path: &str, body: &str) {
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .expect("written");
}

/// The JSON of a response that is not chunked.
fn body_of(response: &str) -> Value {
    let (_, body) = response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no body: {response}"));
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"))
}

#[test]
fn the_mock_server_has_the_interface_of_openai() {
    let server = RunningServer::start("--num-instances 2 --time-scale 0.01");
    assert!(server.send("GET", "/health", "").starts_with("HTTP/1.1 200"));
    let models = body_of(&server.send("GET", "/v1/models", ""));
    assert_eq!(models["data"][0]["id"], MODEL);

    let prompt: Vec<u32> = (1..=40).collect();
    let body = json!({"model": MODEL, "prompt": prompt, "max_tokens": 5}).to_string();
    let whole = body_of(&server.send("POST", "/v1/completions", &body));
    let text = whole["choices"][0]["text"].as_str().expect("a text");
    assert_eq!((text.split_whitespace().count(), &whole["choices"][0]["finish_reason"]), (5, &json!("length")));
    assert_eq!((&whole["usage"]["prompt_tokens"], &whole["usage"]["completion_tokens"]), (&json!(40), &json!(5)));

    let message = json!([{"role": "user", "content": "two words"}]);
    let body = json!({"messages": message, "max_tokens": 3, "stream": true, "stream_options": {"include_usage": true}});
    let stream = server.send("POST", "/v1/chat/completions", &body.to_string());
    assert!(stream.contains("text/event-stream"), "{stream}");
    let parts: Vec<&str> = stream.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(parts.last(), Some(&"[DONE]"));
    let parts: Vec<Value> =
        parts[..parts.len() - 1].iter().map(|part| serde_json::from_str(part).expect("JSON")).collect();
    assert_eq!(parts[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let reasons: Vec<&Value> = parts[1..4].iter().map(|part| &part["choices"][0]["finish_reason"]).collect();
    assert_eq!(reasons, [&Value::Null, &Value::Null, &json!("length")]);
    assert_eq!((parts.len(), &parts[4]["usage"]["completion_tokens"]), (5, &json!(3)));

    let metrics = server.send("GET", "/metrics", "");
    for name in
        ["vllm:num_requests_waiting{engine=\"1\"", "vllm:kv_cache_usage_perc", "vllm:time_to_first_token_seconds_count"]
    {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
    assert!(metrics.contains(&format!("vllm:generation_tokens_total{{model_name=\"{MODEL}\"}} 8\n")), "{metrics}");

    for (body, status, message) in [
        (json!({"model": "other", "prompt": "a"}), 404, "does not exist"),
        (json!({"prompt": ["a", "b"]}), 400, "2 prompts"),
        (json!({"prompt": "a", "max_tokens": 10_000_000}), 400, "maximum context length"),
    ] {
        let response = server.send("POST", "/v1/completions", &body.to_string());
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{response}");
        let error = body_of(&response)["error"]["message"].as_str().expect("a message").to_owned();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn equal_prompts_are_found_in_the_prefix_cache() {
    let server = RunningServer::start("--time-scale 0.01");
    let prompt: Vec<u32> = (1..=64).collect();
    let cached = |prompt: &[u32]| {
        let body = json!({"prompt": prompt, "max_tokens": 2}).to_string();
        let response = body_of(&server.send("POST", "/v1/completions", &body));
        response["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number")
    };
    let other: Vec<u32> = prompt.iter().rev().copied().collect();
    assert_eq!([cached(&prompt), cached(&prompt), cached(&prompt[..32]), cached(&other)], [0, 48, 16, 0]);
}

#[test]
fn a_client_that_disconnects_cancels_its_request() {
    let server = RunningServer::start("");
    let mut stream = server.connect();
    let body = json!({"prompt": "a", "max_tokens": 30_000, "stream": true}).to_string();
    write_request(&mut stream, "POST", "/v1/completions", &body);
    let mut first = [0; 1];
    stream.read_exact(&mut first).expect("a first token");
    assert_eq!(server.counts()["in_service"], 1);
    drop(stream);
    let until = Instant::now() + Duration::from_secs(60);
    while server.counts()["cancelled"] != 1 {
        assert!(Instant::now() < until, "{}", server.counts());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.counts(), json!({"arrived": 1, "cancelled": 1, "completed": 0, "in_service": 0, "refused": 0}));
    let metrics = server.send("GET", "/metrics", "");
    assert!(metrics.contains(&format!("num_requests_running{{engine=\"0\",model_name=\"{MODEL}\"}} 0\n")), "{metrics}");
}

#[test]
fn policies_of_the_service_reject_with_their_status() {
    let server = RunningServer::start("--admission-policy reject-all");
    let response = server.send("POST", "/v1/completions", &json!({"prompt": "a", "stream": true}).to_string());
    assert!(response.starts_with("HTTP/1.1 429") && response.contains("retry-after: 1"), "{response}");
    assert_eq!(server.counts()["refused"], 1);
}

/// What `blis observe` prints with these flags, and the rows of its trace.
fn observe(address: &str, folder: &Scratch, flags: &str) -> (Value, Vec<BTreeMap<String, String>>) {
    let prefix = folder.path("trace");
    let line = format!("observe --model {MODEL} --server-url http://{address} --output json {flags} --trace-output");
    let report = blis!(line, prefix).json();
    (report, rows(folder.path("trace.csv")))
}

fn rows(path: impl AsRef<Path>) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(path).expect("a trace");
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().expect("a header").split(',').collect();
    lines.map(|line| columns.iter().map(ToString::to_string).zip(split_csv(line)).collect()).collect()
}

/// The fields of a line; quoted ones have no line ends here.
fn split_csv(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("one").push(c),
        }
    }
    fields
}

const SMALL: &str = "--rate 200 --prompt-tokens 40 --prompt-tokens-stdev 5 --output-tokens 6 --output-tokens-stdev 0";

#[test]
fn what_is_observed_replays_and_calibrates() {
    let (server, folder) = (RunningServer::start("--num-instances 2 --time-scale 0.05"), Scratch::new());
    let (report, rows) = observe(&server.address, &folder, &format!("{SMALL} --num-requests 30 --record-itl"));
    assert_eq!((&report["planned_requests"], &report["ends"]), (&json!(30), &json!({"completed": 30})));
    assert_eq!((&report["unaccounted_requests"], &report["other_lengths"]), (&json!(0), &json!(0)));
    assert_eq!(server.counts()["completed"], 30);
    assert_eq!(rows.len(), 30);
    for row in &rows {
        let time = |name: &str| row[name].parse::<u64>().expect("a time");
        assert_eq!((row["status"].as_str(), &row["input_tokens"]), ("ok", &row["server_input_tokens"]));
        assert_eq!((&row["output_tokens"], &row["num_chunks"]), (&row["max_tokens"], &row["max_tokens"]));
        assert!(time("arrival_time_us") <= time("send_time_us"), "never early: {row:?}");
        assert!(time("send_time_us") < time("first_chunk_time_us"));
        assert!(time("first_chunk_time_us") <= time("last_chunk_time_us"));
    }
    let parts = fs::read_to_string(folder.path("trace.itl.csv")).expect("times of parts");
    let tokens: u64 = rows.iter().map(|row| row["output_tokens"].parse::<u64>().expect("a number")).sum();
    assert_eq!(parts.lines().count() as u64, 1 + tokens);

    let trace = ["--trace-header", "trace.yaml", "--trace-data", "trace.csv"];
    let replayed = ended_in(&folder, &[&format!("replay --model {MODEL} --output json"), &trace]).json();
    assert_eq!(replayed["completed_requests"], 30);
    let calibrated = ended_in(&folder, &[&format!("calibrate --model {MODEL} --output json --fit"), &trace]).json();
    let requests = json!({"requests": 30, "pairs": 30, "not_measured": 0, "not_simulated": 0, "warm_up": 0});
    assert_eq!(calibrated["requests"], requests);
    assert_eq!(calibrated["worst"].as_array().map(Vec::len), Some(10));
    assert!(calibrated["fitted"]["constants"]["rtt_ms"].is_number(), "{calibrated}");
}

fn ended_in(folder: &Scratch, words: &[&dyn Words]) -> Ended {
    crate::macros::ended(command(words).current_dir(folder.path("")))
}

#[test]
fn prompts_of_words_have_the_tokens_that_the_server_counts() {
    let (server, folder) = (RunningServer::start("--time-scale 0.01"), Scratch::new());
    let flags = format!("{SMALL} --num-requests 12 --api chat --warmup-requests 2 --max-in-flight 3 --no-streaming");
    let (report, rows) = observe(&server.address, &folder, &flags);
    assert_eq!(report["ends"], json!({"completed": 12}));
    assert_eq!(server.counts()["completed"], 12 + 2 + 2, "two prompts to count tokens, two to warm up");
    for row in rows {
        let count = |name: &str| row[name].parse::<i64>().expect("a number");
        assert!((count("input_tokens") - count("server_input_tokens")).abs() <= 3, "{row:?}");
    }
}

const SESSIONS: &str = "version: '2'
seed: 1
aggregate_rate: 50
num_requests: 12
clients:
  - id: chat
    rate_fraction: 1
    arrival: {process: poisson}
    input_distribution: {type: constant, params: {value: 40}}
    output_distribution: {type: constant, params: {value: 5}}
    reasoning:
      multi_turn: {max_rounds: 3, think_time_us: 1000, context_growth: accumulate}
";

#[test]
fn a_round_of_a_session_follows_the_end_of_the_one_before() {
    let (server, folder) = (RunningServer::start("--time-scale 0.02"), Scratch::new());
    let spec = folder.write("spec.yaml", SESSIONS);
    let (report, rows) = observe(&server.address, &folder, &format!("--workload-spec {}", spec.display()));
    assert_eq!(report["unaccounted_requests"], 0, "{report}");
    let mut sessions: BTreeMap<&str, Vec<&BTreeMap<String, String>>> = BTreeMap::new();
    for row in &rows {
        sessions.entry(&row["session_id"]).or_default().push(row);
    }
    let time = |row: &BTreeMap<String, String>, name: &str| row[name].parse::<u64>().expect("a time");
    let rounds: Vec<_> = sessions.values().flat_map(|rounds| rounds.windows(2)).collect();
    assert!(rounds.len() >= 4, "{rows:?}");
    for pair in rounds {
        assert!(time(pair[1], "send_time_us") >= time(pair[0], "last_chunk_time_us"), "{pair:?}");
        assert!(time(pair[1], "input_tokens") > time(pair[0], "input_tokens"), "it has the conversation before");
    }
}

/// What a server does with a connection, after it has read a request.
type ServerFailure = fn(&mut TcpStream);

/// A server that fails in one way, for every request; and what it was sent.
fn failing_server(fail: ServerFailure) -> (String, Arc<Mutex<String>>) {
    let requests = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&requests);
    let address = small_server(move |stream, request| {
        seen.lock().expect("no panic").push_str(request);
        fail(stream);
    });
    (address, requests)
}

/// The address of a server that passes every connection to `respond`, with the request that it has read.
fn small_server(respond: impl Fn(&mut TcpStream, &str) + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let respond = respond.clone();
            std::thread::spawn(move || {
                let Ok(mut stream) = stream else { return };
                if let Some(request) = read_request(&mut stream) {
                    respond(&mut stream, &request);
                }
            });
        }
    });
    address
}

/// Head and body of a request; `None` if the connection is closed without one.
fn read_request(stream: &mut impl Read) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(head + &*String::from_utf8_lossy(&body))
}

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const PART: &str = "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n";

/// The client may be gone: that is what some of the tests are about.
fn send(stream: &mut impl Write, text: &str) {
    let _ = stream.write_all(text.as_bytes());
}

fn send_chunk(stream: &mut impl Write, text: &str) {
    send(stream, &format!("{:x}\r\n{text}\r\n", text.len()));
}

fn respond(stream: &mut TcpStream, status: &str, headers: &str, body: &str) {
    // The connection ends with it. A client that does not know that might send its next request at that moment, and see a broken connection.
    let head = format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\n");
    send(stream, &format!("{head}content-length: {}\r\n\r\n{body}", body.len()));
}

/// Each failure with the kind under which its requests are recorded, and a part of the message.
const FAILURES: &[(&str, &str, &str, ServerFailure)] = &[
    ("closes at once", "disconnected", "", |_| {}),
    ("closes within the stream", "disconnected", "", |stream| {
        send(stream, STREAM);
        send_chunk(stream, PART);
    }),
    ("sends half a chunk", "disconnected", "", |stream| {
        send(stream, STREAM);
        send(stream, &format!("{:x}\r\n{}", PART.len(), &PART[..20]));
    }),
    ("ends the stream early", "truncated", "without its last part", |stream| {
        send(stream, STREAM);
        send_chunk(stream, PART);
        send(stream, "0\r\n\r\n");
    }),
    ("ends the stream within an event", "truncated", "", |stream| {
        send(stream, STREAM);
        send_chunk(stream, &PART[..20]);
        send(stream, "0\r\n\r\n");
    }),
    ("sends an event that is no JSON", "malformed", "", |stream| {
        send(stream, STREAM);
        send_chunk(stream, "data: {\"choices\": [\n\n");
    }),
    ("sends an event that is no text", "malformed", "no UTF-8", |stream| {
        send(stream, STREAM);
        let _ = stream.write_all(b"9\r\ndata: \xff\n\n\r\n");
    }),
    ("sends a line of 10 MB", "malformed", "more than 1048576 bytes", |stream| {
        send(stream, STREAM);
        send_chunk(stream, &"x".repeat(10 << 20));
    }),
    ("speaks no HTTP", "malformed", "", |stream| send(stream, "220 mail.example ESMTP\r\n")),
    ("rejects with a time to come back", "rejected", "429, retry after 7", |stream| {
        respond(stream, "429 Too Many Requests", "retry-after: 7\r\n", "{}");
    }),
    ("is unavailable", "rejected", "503", |stream| respond(stream, "503 Service Unavailable", "", "")),
    ("refuses", "http-error", "400 no such thing", |stream| {
        respond(stream, "400 Bad Request", "", "{\"error\": {\"message\": \"no such thing\"}}");
    }),
    ("fails within the stream", "http-error", "500 out of memory", |stream| {
        send(stream, STREAM);
        send_chunk(stream, "data: {\"error\": {\"message\": \"out of memory\", \"code\": 500}}\n\n");
    }),
    ("hangs", "timed-out", "", |stream| {
        send(stream, STREAM);
        send_chunk(stream, PART);
        std::thread::sleep(Duration::from_secs(60));
    }),
];

/// A chat that counts words as tokens and writes ` yes`; the session and the messages of each request go into `seen`.
fn yes_server(seen: &Arc<Mutex<Vec<(String, Value)>>>) -> String {
    let seen = Arc::clone(seen);
    small_server(move |stream, request| {
        let (head, body) = request.split_at(request.find('{').expect("a body"));
        let body: Value = serde_json::from_str(body).expect("JSON");
        let text = |message: &Value| message["content"].as_str().expect("a text").to_owned();
        let texts: String = body["messages"].as_array().expect("messages").iter().map(text).collect();
        let session = head.lines().find_map(|line| line.strip_prefix("x-session-id: ")).unwrap_or_default();
        seen.lock().expect("no panic").push((session.to_owned(), body["messages"].clone()));
        let usage = json!({"prompt_tokens": texts.split(' ').count() - 1, "completion_tokens": body["max_tokens"]});
        let delta = json!({"role": "assistant", "content": " yes"});
        let part = json!({"choices": [{"delta": delta, "finish_reason": "length"}], "usage": usage});
        // It ends the connection, which a client may use again at that moment unless it reads so.
        send(stream, &STREAM.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n"));
        send_chunk(stream, &format!("data: {part}\n\ndata: [DONE]\n\n"));
        send(stream, "0\r\n\r\n");
    })
}

#[test]
fn rounds_contain_what_the_server_wrote() {
    let (seen, folder) = (Arc::default(), Scratch::new());
    let address = yes_server(&seen);
    let spec = folder.write("spec.yaml", SESSIONS);
    let flags = format!("--workload-spec {} --api chat --context actual --log off", spec.display());
    let (report, rows) = observe(&address, &folder, &flags);
    assert_eq!(report["ends"], json!({"completed": 12}), "{report}");
    let requests = seen.lock().expect("no panic");
    let rounds = requests.iter().filter(|(session, _)| !session.is_empty());
    let mut sessions: BTreeMap<&str, Vec<&Vec<Value>>> = BTreeMap::new();
    rounds.for_each(|(name, sent)| sessions.entry(name).or_default().push(sent.as_array().expect("messages")));
    let mut later = 0;
    for rounds in sessions.values() {
        assert_eq!(rounds[0].len(), 1);
        for pair in rounds.windows(2) {
            // The whole round before, its output, and a message of 40 words.
            let (before, output, last) =
                (&pair[1][..pair[0].len()], &pair[1][pair[0].len()], &pair[1][pair[1].len() - 1]);
            assert_eq!((before, pair[1].len()), (&pair[0][..], pair[0].len() + 2));
            assert_eq!(output, &json!({"role": "assistant", "content": " yes"}));
            assert_eq!(
                (&last["role"], last["content"].as_str().map(|text| text.split(' ').count() - 1)),
                (&json!("user"), Some(40))
            );
            later += 1;
        }
    }
    assert!(later >= 4, "{requests:?}");
    // The server counted one word of each output, not the five tokens that the trace has.
    let count = |row: &BTreeMap<String, String>, name: &str| row[name].parse::<u32>().expect("a number");
    for row in rows {
        assert_eq!(
            count(&row, "input_tokens") - count(&row, "server_input_tokens"),
            4 * count(&row, "round_index"),
            "{row:?}"
        );
    }
    let line = "observe --model m --context actual --trace-output x";
    assert!(blis!(line).refused().contains("needs prompts as text"));
}

#[test]
fn every_failure_of_a_server_has_its_status_and_loses_nothing() {
    for &(what, kind, message, fail) in FAILURES {
        let ((address, _), folder) = (failing_server(fail), Scratch::new());
        let limit = if kind == "timed-out" { "0.5" } else { "30" };
        let line =
            format!("observe --model {MODEL} --server-url http://{address} --output json {SMALL} --num-requests 4");
        let line = format!("{line} --log off --request-timeout {limit} --trace-output");
        let ended = blis!(line, folder.path("trace")).with_code(1);
        assert!(
            ended.stderr.starts_with(&format!("error: none of the 4 requests completed; the first: {kind}")),
            "{what}: {}",
            ended.stderr
        );
        let report: Value = serde_json::from_str(&ended.stdout).expect("a report");
        let rows = rows(folder.path("trace.csv"));
        assert_eq!((&report["ends"], &report["unaccounted_requests"]), (&json!({kind: 4}), &json!(0)), "{what}");
        assert_eq!(rows.len(), 4, "{what}");
        for row in rows {
            let status = if kind == "timed-out" { "timeout" } else { "error" };
            assert_eq!(row["status"], status, "{what}");
            let error = &row["error_message"];
            assert!(error.starts_with(kind) && error.contains(message), "{what}: {error}");
        }
        // What failed has no measured latency, and is simulated with the others.
        let trace = "--trace-header trace.yaml --trace-data trace.csv";
        let replayed = ended_in(&folder, &[&format!("replay --model {MODEL} --output json {trace}")]).json();
        assert_eq!(replayed["completed_requests"], 4, "{what}");
        let error = ended_in(&folder, &[&format!("calibrate --model {MODEL} {trace}")]).refused();
        assert!(error.contains("no measured latencies"), "{error}");
    }
}

#[test]
fn a_server_that_goes_away_is_connected_to_again() {
    // Each connection serves one request and is closed, whatever the header says.
    let ((address, _), folder) = (
        failing_server(|stream| {
            send(stream, STREAM);
            send_chunk(stream, "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"length\"}]}\n\n");
            send_chunk(stream, "data: [DONE]\n\n");
            send(stream, "0\r\n\r\n");
        }),
        Scratch::new(),
    );
    let (report, _) = observe(&address, &folder, &format!("{SMALL} --num-requests 5 --log off"));
    assert_eq!(report["ends"].as_object().map(|ends| ends.values().filter_map(Value::as_u64).sum()), Some(5));
    assert_eq!((&report["ends"]["completed"], &report["unaccounted_requests"]), (&json!(5), &json!(0)), "{report}");
}

#[test]
fn a_server_that_is_not_there_is_an_error_with_its_address() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let folder = Scratch::new();
    let line = format!("observe --model m --server-url http://{free} --num-requests 1 --trace-output");
    let ended = blis!(line, folder.path("trace")).with_code(1);
    assert!(ended.stderr.contains(&format!("cannot connect to http://{free}")), "{}", ended.stderr);
    let line = "observe --model m --server-url ftp://a.example --trace-output x";
    assert!(blis!(line).refused().contains("no `http://` or `https://`"));
    let line = "observe --model m --api chat --prompts ids --trace-output x";
    assert!(blis!(line).refused().contains("a chat has text"));
}

const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/tls/cert.pem");

/// A server on TLS: it serves the first `good` connections, one request each, and sends something else than TLS to the others.
fn tls_server(good: usize) -> u16 {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let certificate = CertificateDer::from_pem_file(CERTIFICATE).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(CERTIFICATE.replace("cert.pem", "key.pem")).expect("a key");
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key);
    let config = Arc::new(config.expect("a configuration"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (Ok(mut stream), config) = (stream, Arc::clone(&config)) else { return };
            std::thread::spawn(move || {
                if number >= good {
                    return send(&mut stream, "220 mail.example ESMTP\r\n");
                }
                let session = rustls::ServerConnection::new(config).expect("a session");
                let mut encrypted = rustls::StreamOwned::new(session, stream);
                if read_request(&mut encrypted).is_some() {
                    send(&mut encrypted, STREAM);
                    send_chunk(
                        &mut encrypted,
                        "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"length\"}]}\n\n",
                    );
                    send_chunk(&mut encrypted, "data: [DONE]\n\n");
                    send(&mut encrypted, "0\r\n\r\n");
                    encrypted.conn.send_close_notify();
                    let _ = encrypted.flush();
                }
            });
        }
    });
    port
}

#[test]
fn tls_needs_a_certificate_that_is_trusted() {
    let folder = Scratch::new();
    let observe = |port: u16, certificate: Option<&str>| {
        let line = format!(
            "observe --model m --server-url https://localhost:{port} {SMALL} --num-requests 4 --log off --output json \
             --trace-output"
        );
        let mut program = program!(line, folder.path("trace"));
        if let Some(file) = certificate {
            program.env("SSL_CERT_FILE", file);
        }
        program.output().expect("it runs")
    };
    let trusted = observe(tls_server(usize::MAX), Some(CERTIFICATE));
    let report: Value = serde_json::from_slice(&trusted.stdout).expect("a report");
    assert_eq!((&report["ends"], &report["unaccounted_requests"]), (&json!({"completed": 4}), &json!(0)));

    // The first connection is opened before the start.
    let broken = observe(tls_server(1), Some(CERTIFICATE));
    let report: Value = serde_json::from_slice(&broken.stdout).expect("a report");
    assert_eq!(
        (&report["ends"], &report["unaccounted_requests"]),
        (&json!({"completed": 1, "tls-error": 3}), &json!(0))
    );
    let errors: Vec<String> = rows(folder.path("trace.csv")).iter().map(|row| row["error_message"].clone()).collect();
    assert_eq!(errors.iter().filter(|error| error.starts_with("tls-error: ")).count(), 3, "{errors:?}");

    let own = observe(tls_server(usize::MAX), None);
    let message = String::from_utf8_lossy(&own.stderr).into_owned();
    assert_eq!(own.status.code(), Some(1), "{message}");
    for part in ["no TLS connection with https://localhost:", "hint: ", "SSL_CERT_FILE"] {
        assert!(message.contains(part), "{message}");
    }
}

/// Regression: the limit held for requests, not for the connection before them.
#[test]
fn a_silent_peer_is_left_after_the_limit() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let folder = Scratch::new();
    let line =
        format!("observe --model m --server-url https://{address} {SMALL} --num-requests 2 --request-timeout 0.5");
    let begun = Instant::now();
    let mut program = program!(line, "--trace-output", folder.path("trace"));
    let ended = crate::macros::ended(program.env("SSL_CERT_FILE", CERTIFICATE)).with_code(1);
    assert!(ended.stderr.contains("it has not replied within 0.5 s\nhint: "), "{}", ended.stderr);
    assert!(begun.elapsed() < Duration::from_secs(60));
}

/// Regression: with 300 refusals out of 300 the exit code was 0.
#[test]
fn a_run_without_a_completed_request_is_an_error_with_the_first_refusal() {
    let folder = Scratch::new();
    let (address, _) = failing_server(|stream| respond(stream, "429 Too Many Requests", "retry-after: 7\r\n", "{}"));
    let line = format!("observe --model m --server-url http://{address} {SMALL} --num-requests 30 --trace-output");
    let ended = blis!(line, folder.path("trace")).with_code(1);
    let first = "error: none of the 30 requests completed; the first: rejected: 429, retry after 7\n";
    assert!(ended.stderr.contains(first), "{}", ended.stderr);
    assert!(ended.stdout.contains("\"rejected\": 30"), "{}", ended.stdout);
}

#[test]
fn the_api_key_is_sent_and_stands_nowhere_else() {
    let ((address, requests), folder) =
        (failing_server(|stream| respond(stream, "401 Unauthorized", "", "no")), Scratch::new());
    let line =
        format!("observe --model m --server-url http://{address} {SMALL} --num-requests 2 --log trace --trace-output");
    let mut program = program!(line, folder.path("trace"));
    let output = program.env("BLIS_API_KEY", "sekret-key").output().expect("it runs");
    assert!(requests.lock().expect("no panic").to_lowercase().contains("authorization: bearer sekret-key"));
    let mut shown = String::from_utf8_lossy(&output.stdout).into_owned() + &*String::from_utf8_lossy(&output.stderr);
    for file in fs::read_dir(folder.path("")).expect("a folder") {
        shown.push_str(&fs::read_to_string(file.expect("a file").path()).expect("text"));
    }
    assert!(shown.contains("401") && !shown.contains("sekret"), "{shown}");
}

#[test]
fn the_end_of_the_workload_and_the_deadlines_of_clients_hold() {
    let (server, folder) = (RunningServer::start("--time-scale 0.01"), Scratch::new());
    let trace = folder.write("trace-in.csv", "arrival,input,output\n0,20,3\n0.05,20,3\n0.1,20,30000\n9,20,3\n");
    let line = format!("--workload-trace {} --horizon 1s --timeout 2", trace.display());
    let (report, rows) = observe(&server.address, &folder, &line);
    assert_eq!((&report["planned_requests"], rows.len()), (&json!(3), 3), "the last one is after the horizon");
    assert_eq!(report["ends"], json!({"completed": 2, "timed-out": 1}));
    assert_eq!(rows[2]["deadline_us"], "2100000");
}

#[test]
#[cfg(unix)]
fn an_interrupted_run_keeps_what_was_recorded() {
    let (server, folder) = (RunningServer::start("--time-scale 0.01"), Scratch::new());
    let line = format!(
        "observe --model {MODEL} --server-url http://{} {SMALL} --num-requests 100000 --output json --log off --trace-output",
        server.address
    );
    let mut process = program!(line, folder.path("trace")).stdout(Stdio::piped()).spawn().expect("it starts");
    let until = Instant::now() + Duration::from_secs(60);
    while server.counts()["completed"].as_u64() < Some(20) {
        assert!(Instant::now() < until, "{}", server.counts());
        std::thread::sleep(Duration::from_millis(10));
    }
    let interrupt = Command::new("kill").args(["-INT", &process.id().to_string()]).status().expect("kill");
    assert!(interrupt.success());
    let mut text = String::new();
    process.stdout.take().expect("a pipe").read_to_string(&mut text).expect("a report");
    assert_eq!(process.wait().expect("it ends").code(), Some(0));
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let count = |name: &str| report["ends"][name].as_u64().unwrap_or(0);
    assert_eq!((&report["planned_requests"], &report["unaccounted_requests"]), (&json!(100_000), &json!(0)));
    assert!(count("completed") >= 20 && count("unsent") > 0, "{report}");
    assert_eq!(rows(folder.path("trace.csv")).len() as u64, 100_000 - count("unsent"));
}

#[test]
fn a_run_beside_its_own_trace_has_no_error() {
    let folder = Scratch::new();
    for flags in [
        "--rate 20 --num-requests 60",
        "--rate 20 --num-requests 60 --num-instances 3 --routing-policy weighted --workload chatbot --slo-ttft 0.5",
        "--rate 20 --num-requests 60 --latency-model trained-physics --hardware H100",
    ] {
        let service = flags.split_once(" 60").map_or("", |(_, service)| service);
        let service = service.replace(" --workload chatbot --slo-ttft 0.5", "");
        let flags = flags.replace(" --slo-ttft 0.5", "");
        ended_in(&folder, &[&format!("run --model {MODEL} {flags} --trace-output own")]).done();
        let line = format!("calibrate --model {MODEL} {service} --trace-header own.yaml --trace-data own.csv");
        let own = ended_in(&folder, &[&line, &"--output json --fail-over 0.0001"]).json();
        assert_eq!(own["requests"]["pairs"], 60, "{flags}");
        assert_eq!(own["worst"], json!([]), "{flags}");
        for latency in ["ttft", "tpot", "e2e", "decode"] {
            let errors = &own[latency];
            assert_eq!(
                (&errors["mape_percent"], &errors["ks_distance"]),
                (&json!(0.0), &json!(0.0)),
                "{flags} {latency}"
            );
            for statistic in ["mean", "p50", "p90", "p99"] {
                assert_eq!(errors[statistic]["error_percent"], 0.0, "{flags} {latency} {statistic}");
            }
        }
    }
    let other = "calibrate --hardware A100-SXM --trace-header own.yaml --trace-data own.csv --fail-over 1";
    let failed = ended_in(&folder, &[&format!("{other} --model {MODEL}")]).with_code(1);
    assert!(failed.stderr.contains("the mean end-to-end latency is off by"), "{}", failed.stderr);
    let none = ended_in(&folder, &[&format!("calibrate --model {MODEL}")]).refused();
    assert!(none.contains("no measured trace") && none.contains("--workload-trace"), "{none}");
}
