//! `blis search --model-url`: programs of a language model, for which a server on loopback stands.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::Duration;

use serde_json::{Value, json};

use crate::macros::{Scratch, blis, program};
use crate::search::{SUITE, found};

/// A server with OpenAI's interface. Its replies follow from the questions.
pub(crate) struct ModelServer {
    url: String,
    /// The bodies of the requests, and the values of `Authorization`.
    requests: Arc<Mutex<Vec<(Value, String)>>>,
}

impl ModelServer {
    /// Proposes programs, of which one in nine is none.
    pub(crate) fn proposing() -> Self {
        Self::start(|_, question| proposals(question))
    }

    /// Responds to the n-th request with `respond(n, question)`: the status and the body.
    fn start(respond: impl Fn(usize, &str) -> (u16, String) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let requests: Arc<Mutex<Vec<(Value, String)>>> = Arc::default();
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                // A search that was killed leaves a connection without a request.
                let Some((body, key)) = read_request(&stream) else { continue };
                let question = body["messages"][0]["content"].as_str().expect("a question").to_owned();
                let number = {
                    let mut seen = seen.lock().expect("no panic");
                    seen.push((body, key));
                    seen.len() - 1
                };
                let (status, body) = respond(number, &question);
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} X\r\nConnection: close\r\nRetry-After: 0\r\nContent-Length: {length}\r\n\r\n"
                );
                // The search may have been killed.
                let _ = stream.write_all(format!("{head}{body}").as_bytes());
            }
        });
        Self { url, requests }
    }

    fn questions(&self) -> Vec<String> {
        let requests = self.requests.lock().expect("no panic");
        requests
            .iter()
            .map(|(body, _)| body["messages"][0]["content"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Words of a search with this model.
    pub(crate) fn words(&self, others: &str) -> String {
        format!("{SUITE} --model-url {} --model-name proposer {others}", self.url)
    }
}

fn read_request(stream: &TcpStream) -> Option<(Value, String)> {
    let mut reader = BufReader::new(stream);
    let (mut length, mut key) = (0, String::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim();
        match line.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().ok()?,
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => value.clone_into(&mut key),
            _ if line.is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((serde_json::from_slice(&body).expect("JSON"), key))
}

fn completion(text: &str) -> (u16, String) {
    let choice = json!({"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"});
    (200, json!({"choices": [choice], "usage": {"prompt_tokens": 1000, "completion_tokens": 50}}).to_string())
}

/// Programs with constants that follow from the question, after one that is none of the grammar.
fn proposals(question: &str) -> (u16, String) {
    let mut hasher = DefaultHasher::new();
    question.hash(&mut hasher);
    let good = (1u8..).zip(hasher.finish().to_le_bytes()).map(|(number, byte)| {
        let weight = f64::from(number) + f64::from(byte) / 512.0;
        let text = format!("{weight} * most_best(s.cached_blocks) + fewest_best(s.in_flight + s.queue_depth)");
        json!({"from": [1], "expressions": {"route": text}})
    });
    let bad = json!({"expressions": {"route": "2 * s.speed"}});
    let programs: Vec<Value> = std::iter::once(bad).chain(good).collect();
    completion(&format!("Here they are.\n```json\n{}\n```", json!({"programs": programs})))
}

fn rows(archive: &str, query: &str) -> Vec<Vec<Option<i64>>> {
    let connection = rusqlite::Connection::open(archive).expect("an archive");
    let mut query = connection.prepare(query).expect("a query");
    let columns = query.column_count();
    let read = |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get(at)).collect::<Result<Vec<_>, _>>();
    query.query_map([], read).expect("rows").map(|row| row.expect("a row")).collect()
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn programs_of_a_model_are_evaluated() {
    let folder = Scratch::new();
    let archive = folder.path("search.sqlite");
    let server = ModelServer::proposing();
    let document = found(&server.words(&format!("--evaluations 96 --model-share 0.5 --archive {archive}")));
    let model = &document["model"];
    let questions = server.questions();
    assert_eq!((model["name"].as_str(), model["questions"].as_u64()), (Some("proposer"), Some(questions.len() as u64)));
    // A batch has one question, but the first one, of which the programs are given.
    assert_eq!(
        (questions.len(), model["input_tokens"].as_u64(), model["output_tokens"].as_u64()),
        (3, Some(3000), Some(150))
    );
    assert_eq!(model["refused"].as_u64(), Some(3), "one of each reply: {model:#}");
    let evaluated =
        rows(&archive, "SELECT number, parent FROM evaluations WHERE phase = 'search' AND operation = 'model'");
    assert_eq!(model["programs"].as_u64(), Some(evaluated.len() as u64));
    assert!(evaluated.len() > 9, "half of the mutations of three batches: {evaluated:?}");
    assert!(evaluated.iter().all(|row| row[1].is_some()), "{evaluated:?}");
    // The questions have what a model needs, and what it did wrong before.
    assert!(questions[0].contains("\ns.in_flight | column, requests | "), "{}", questions[0]);
    assert!(questions[0].contains("1. score ") && !questions[0].contains("refused"), "{}", questions[0]);
    assert!(questions[1].contains("- policy 1: `route`, 1:5: there is no input `s.speed`"), "{}", questions[1]);
    // Ancestors of the champion, one generation after the other.
    let parents = rows(&archive, "SELECT child, parent FROM lineage");
    let mut ancestors: BTreeSet<Option<i64>> = [document["champion"]["number"].as_i64()].into();
    for _ in 0..4 {
        let known = ancestors.clone();
        ancestors.extend(parents.iter().filter(|row| known.contains(&row[0])).map(|row| row[1]));
    }
    let descends = evaluated.iter().any(|row| ancestors.contains(&row[0]));
    assert_eq!(model["champion_descends"].as_bool(), Some(descends));
    // Everything is in the archive.
    let again = server.words(&format!("--evaluations 96 --model-share 0.5 --archive {archive} --output text"));
    let text = blis!(format!("search {again}")).done().stdout;
    let line = format!(
        "{} programs of the model `proposer`, 3 refused (3 questions, 3000 input and 150 output tokens)",
        evaluated.len()
    );
    // Lines are wrapped.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(&line), "{text}");
    assert_eq!(server.questions().len(), 3, "no question is asked twice");
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn a_search_with_a_model_that_is_killed_asks_nothing_twice_and_has_the_same_result() {
    let folder = Scratch::new();
    let [killed, whole] = ["killed.sqlite", "whole.sqlite"].map(|name| folder.path(name));
    // The third reply waits until the search is killed.
    let is_killed = Arc::new(AtomicBool::new(false));
    let waits_for = Arc::clone(&is_killed);
    let server = ModelServer::start(move |number, question| {
        while number >= 2 && !waits_for.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(2));
        }
        proposals(question)
    });
    let words = |archive: &str| server.words(&format!("--evaluations 120 --workers 2 --archive {archive}"));
    let mut process = program!(format!("search {}", words(&killed))).spawn().expect("it starts");
    let proposed = || {
        let connection = rusqlite::Connection::open(&killed).ok()?;
        connection.query_row("SELECT count(*) FROM proposals", [], |row| row.get::<_, i64>(0)).ok()
    };
    while proposed() < Some(2) {
        assert_eq!(process.try_wait().expect("a process"), None, "it ended before it was killed");
        sleep(Duration::from_millis(2));
    }
    process.kill().expect("it runs");
    process.wait().expect("it has ended");
    let before = server.questions();
    is_killed.store(true, Ordering::SeqCst);
    let resumed = found(&words(&killed));
    let after = server.questions().split_off(before.len());
    assert_eq!((after.len(), after.iter().filter(|one| before[..2].contains(one)).count()), (2, 0), "what has a reply");
    assert_eq!(resumed, found(&words(&whole)));
    let again = server.questions().split_off(before.len() + after.len());
    assert_eq!(again, [&before[..2], &after[..]].concat(), "the same questions");
}

#[test]
fn a_model_that_is_busy_is_asked_again() {
    let server = ModelServer::start(|number, question| match number {
        0 => (429, json!({"error": {"message": "slow down"}}).to_string()),
        1 => (500, "out of memory".to_owned()),
        _ => proposals(question),
    });
    let ended = blis!(format!("search {} --output json", server.words("--evaluations 48"))).done();
    assert!(
        ended.stderr.contains("rejected: 429") && ended.stderr.contains("http-error: 500 out of memory"),
        "{ended:?}"
    );
    assert_eq!((server.questions().len(), ended.json()["model"]["questions"].as_u64()), (3, Some(1)));
}

#[test]
fn a_model_that_does_not_reply_ends_the_search_which_goes_on_later() {
    let folder = Scratch::new();
    let archive = folder.path("search.sqlite");
    let key = "sekret-key";
    let refusing = ModelServer::start(|number, question| match number {
        0 => (401, json!({"error": {"message": "no such key"}}).to_string()),
        1 => (404, json!({"error": {"message": "no such model"}}).to_string()),
        2..5 => completion("I would rather not."),
        5 => (200, "<html>".to_owned()),
        _ => proposals(question),
    });
    let words = refusing.words(&format!("--evaluations 48 --archive {archive}"));
    for (what, hint, asked) in [
        ("has not replied: http-error: 401 no such key", "BLIS_API_KEY", 1),
        ("has not replied: http-error: 404 no such model", "`--model-name` names one", 2),
        (
            "3 replies of the model `proposer` are not the JSON that was asked for: there is no JSON object",
            "I would rather not",
            5,
        ),
        ("has not replied: malformed", "no server with OpenAI's interface", 6),
    ] {
        let mut search = program!(format!("search {words}"));
        let output = search.env("BLIS_API_KEY", key).output().expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(what) && stderr.contains(hint) && stderr.contains("goes on"), "{stderr}");
        assert!(!stderr.contains(key), "{stderr}");
        assert_eq!(refusing.questions().len(), asked, "{stderr}");
    }
    assert_eq!(refusing.requests.lock().expect("no panic")[0].1, format!("Bearer {key}"));
    let evaluated = rows(&archive, "SELECT count(*) FROM evaluations WHERE phase = 'search'");
    let document = found(&words);
    assert_eq!((evaluated, document["model"]["questions"].as_u64()), (vec![vec![Some(24)]], Some(1)));
    assert!(!fs::read(&archive).expect("the archive").windows(key.len()).any(|bytes| bytes == key.as_bytes()));
}

#[test]
fn what_is_no_model_is_refused() {
    let folder = Scratch::new();
    let archive = folder.path("search.sqlite");
    blis!(format!("search {SUITE} --evaluations 1 --archive {archive}")).done();
    let named = "--model-url http://127.0.0.1:9 --model-name m";
    for (words, what, hint) in [
        (format!("{named} --archive {archive}"), "its model is `none`, not `m`", "another file"),
        ("--model-url http://127.0.0.1:9".to_owned(), "`--model-name <NAME>` is missing", "--help"),
        ("--model-share 0.5".to_owned(), "`--model-url <URL>` are missing", "--help"),
        (format!("{named} --model-share 0"), "above 0 and at most 1", "--model-share"),
        ("--model-url 127.0.0.1:9 --model-name m".to_owned(), "no `http://`", "http://HOST:PORT"),
    ] {
        let ended = blis!(format!("search {SUITE} {words}"));
        assert_eq!(ended.code, Some(2), "{words}: {ended:?}");
        assert!(ended.stderr.contains(what) && ended.stderr.contains(hint), "{words}: {}", ended.stderr);
    }
}
