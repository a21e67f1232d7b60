//! The evaluation server among strangers: other users of the machine, pages in a browser, slow peers, and the loss of the process that
//! starts evaluations. No assertion is about time: other tests run at the same time.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::evaluate::{ServerProcess, small};
use crate::macros::{Scratch, blis};

/// A user without rights.
const OTHER_USER: u32 = 65_534;
const POLICY: &str = "fn route(r, s) { -s.in_flight }";

/// A server on a port.
struct PortServer {
    process: ServerProcess,
    address: String,
    token: Option<String>,
}

impl PortServer {
    fn start(words: &[&str]) -> Self {
        let mut process = ServerProcess::start(&[&["--http", "127.0.0.1:0"], words].concat());
        let line = process.receive();
        let address = line["listening"].as_str().expect("an address").trim_start_matches("http://").to_owned();
        Self { process, address, token: line["token"].as_str().map(str::to_owned) }
    }

    /// The head of a request with a body of `length` bytes.
    fn head(method: &str, path: &str, headers: &str, length: usize) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n"
        )
    }

    /// The status and the text of the response to a request with these `headers`.
    fn request(&self, (method, path): (&str, &str), headers: &str, body: &str) -> (u32, String) {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        let head = Self::head(method, path, headers, body.len());
        // A request that is refused by its head may be reset while its body is sent.
        let _ = stream.write_all((head + body).as_bytes());
        response(&mut stream)
    }

    /// As [`Self::request`], an evaluation with the token that the server has printed.
    fn evaluate(&self, body: &Value) -> (u32, String) {
        let token = self.token.as_deref().expect("a token");
        self.request(("POST", "/evaluate"), &format!("Authorization: Bearer {token}\r\n"), &body.to_string())
    }
}

impl Drop for PortServer {
    fn drop(&mut self) {
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
    }
}

fn response(stream: &mut impl std::io::Read) -> (u32, String) {
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    (text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0), text)
}

/// Whether this process may start others as another user; says so where it may not.
#[expect(clippy::print_stdout, reason = "a test that leaves something out says so")]
fn has_other_user() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !is_root {
        println!("skipped: only root can start a program as another user");
    }
    is_root
}

#[test]
fn evaluations_over_a_port_need_the_token() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let server = PortServer::start(&["--suite", &suite, "--ui"]);
    let token = server.token.clone().expect("it is printed");
    assert_eq!(token.len(), 32);
    let body = json!({"candidate": POLICY}).to_string();
    for (path, body) in [("/evaluate", &*body), ("/evaluate_examples", "{}")] {
        for headers in
            ["", "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n", "Authorization: Basic eDp5\r\n"]
        {
            let (code, text) = server.request(("POST", path), headers, body);
            assert!(
                code == 401 && text.contains("www-authenticate: Bearer") && !text.contains(&token),
                "{path}: {text}"
            );
        }
    }
    let (code, text) = server.evaluate(&json!({"candidate": POLICY}));
    assert!(code == 200 && text.contains("combined_score"), "{text}");
    // A page from elsewhere does not get so far.
    let bearer = format!("Authorization: Bearer {token}\r\n");
    for from in ["cross-site", "same-site"] {
        let (code, _) = server.request(("POST", "/evaluate"), &format!("{bearer}Sec-Fetch-Site: {from}\r\n"), &body);
        assert_eq!(code, 403, "{from}");
    }
    let (code, page) = server.request(("GET", "/"), "Sec-Fetch-Site: none\r\n", "");
    let policy = page.lines().find(|line| line.starts_with("content-security-policy: ")).expect("a header");
    assert!(
        code == 200 && policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    // What starts no work is open; what others have sent is not.
    assert_eq!(server.request(("GET", "/status"), "", "").0, 200);
    assert_eq!(server.request(("GET", "/task"), "", "").0, 200);
    assert_eq!(server.request(("GET", "/events"), "", "").0, 401);
    if has_other_user() {
        let port = server.address.rsplit(':').next().expect("a port");
        let head = PortServer::head("POST", "/evaluate", "", body.len());
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf '%s' \"$1\" >&3; cat <&3");
        let mut bash = Command::new("bash");
        let other = bash
            .args(["-c", &script, "bash", &format!("{head}{body}")])
            .uid(OTHER_USER)
            .gid(OTHER_USER)
            .current_dir("/");
        let text = String::from_utf8_lossy(&other.output().expect("bash").stdout).into_owned();
        assert!(text.starts_with("HTTP/1.1 401"), "{text}");
    }
}

#[test]
fn a_token_may_be_a_file_or_none() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let file = dir.write("token", "abcdefghijklmnop\n");
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("own");
    mode(0o644);
    let line = ["serve", "--http", "127.0.0.1:0", "--suite", &suite, "--token-file", &file.display().to_string()];
    assert!(blis!(line).refused().contains("other users can read the token"));
    mode(0o600);
    let mut server = PortServer::start(&line[3..]);
    assert_eq!(server.token, None, "it is known already");
    server.token = Some("abcdefghijklmnop".to_owned());
    assert_eq!(server.evaluate(&json!({"candidate": POLICY})).0, 200);
    assert_eq!(server.request(("POST", "/evaluate"), "", "{}").0, 401);
    let open = PortServer::start(&["--suite", &suite, "--no-token"]);
    assert_eq!(open.request(("POST", "/evaluate"), "", &json!({"candidate": POLICY}).to_string()).0, 200);
    assert!(blis!("serve --stdio --token-file x").refused().contains("--stdio"));
}

#[test]
fn a_socket_is_its_users_own() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let path = dir.path("socket");
    let mut server = ServerProcess::start(&["--socket", &path, "--suite", &suite]);
    assert_eq!(server.receive(), json!({"listening": format!("unix:{path}")}));
    let found = fs::symlink_metadata(&path).expect("it is there");
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    let body = json!({"candidate": POLICY}).to_string();
    let mut stream = UnixStream::connect(&path).expect("it listens");
    stream
        .write_all(format!("{}{body}", PortServer::head("POST", "/evaluate", "", body.len())).as_bytes())
        .expect("sent");
    let (code, text) = response(&mut stream);
    assert!(code == 200 && text.contains("combined_score"), "{text}");
    if has_other_user() {
        let connect = format!("import socket; socket.socket(socket.AF_UNIX).connect({path:?})");
        let other =
            Command::new("python3").args(["-c", &connect]).uid(OTHER_USER).gid(OTHER_USER).current_dir("/").output();
        match other {
            Ok(other) => {
                let stderr = String::from_utf8_lossy(&other.stderr).into_owned();
                assert!(!other.status.success() && stderr.contains("PermissionError"), "{stderr}");
            }
            Err(error) => println!("skipped: python3: {error}"),
        }
    }
    let taken = blis!(["serve", "--socket", &path, "--suite", &suite]);
    assert!(taken.code == Some(1) && taken.stderr.contains("cannot listen on"), "{}", taken.stderr);
    assert!(Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status().expect("kill").success());
    assert!(server.child.wait().expect("it ends").success());
    assert!(!Path::new(&path).exists(), "it is removed at the end");
    // What a server that was killed has left is no obstacle.
    let mut server = ServerProcess::start(&["--socket", &path, "--suite", &suite]);
    server.receive();
    server.child.kill().and_then(|()| server.child.wait()).expect("killed");
    let mut server = ServerProcess::start(&["--socket", &path, "--suite", &suite]);
    server.receive();
    server.child.kill().and_then(|()| server.child.wait()).expect("killed");
    // A file of another kind is not touched.
    let file = dir.write("file", "mine");
    assert_eq!(blis!(["serve", "--socket", &file.display().to_string(), "--suite", &suite]).code, Some(1));
    assert_eq!(dir.read("file"), "mine");
}

/// Regression: with a path the server returned the first line of a file that a link with a policy's name led to.
#[test]
fn files_are_read_in_allowed_folders_only() {
    let dir = Scratch::new();
    let suite = small(&dir);
    dir.write("secret.rhai", "sekret-content\n");
    dir.write("open/good.rhai", POLICY);
    dir.write("open/text.txt", "sekret-content\n");
    symlink("../secret.rhai", dir.join("open/link.rhai")).expect("a link");
    symlink("..", dir.join("open/up")).expect("a link");
    let path = |name: &str| json!({"candidate": {"path": dir.path(name)}});
    let closed = PortServer::start(&["--suite", &suite]);
    for name in ["open/good.rhai", "secret.rhai", "no-such.rhai"] {
        let (code, text) = closed.evaluate(&path(name));
        assert!(code == 400 && text.contains("--allow-path") && !text.contains("sekret"), "{name}: {text}");
    }
    let open = PortServer::start(&["--suite", &suite, "--allow-path", &dir.path("open")]);
    let (code, text) = open.evaluate(&path("open/good.rhai"));
    assert!(code == 200 && text.contains("\"status\":\"ok\""), "{text}");
    for name in [
        "secret.rhai",
        "open/../secret.rhai",
        "/etc/passwd",
        "open",
        "open/link.rhai",
        "open/up/secret.rhai",
        "open/text.txt",
    ] {
        let body = if name.starts_with('/') { json!({"candidate": {"path": name}}) } else { path(name) };
        for body in [body.clone(), json!({"candidate": POLICY, "incumbent": body["candidate"]})] {
            let (code, text) = open.evaluate(&body);
            assert!(code == 400 && !text.contains("sekret") && !text.contains("root:"), "{name}: {text}");
        }
    }
    assert!(blis!("serve --http 127.0.0.1:0 --allow-path", dir.path("none")).refused().contains("cannot be opened"));
}

/// The processes that the process `pid` has started.
fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(Result::ok);
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    children.flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

fn kill_children(pid: u32) -> usize {
    let all = children(pid);
    for child in &all {
        let _ = Command::new("kill").args(["-9", &child.to_string()]).status();
    }
    all.len()
}

#[cfg(target_os = "linux")]
#[test]
fn the_fork_server_is_started_again() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let mut server = ServerProcess::start(&["--stdio", "--suite", &suite, "--threads", "2", "--log", "error"]);
    let file = dir.write("policy.rhai", POLICY);
    let evaluate = |id: usize| json!({"id": id.to_string(), "candidate": {"path": file}}).to_string();
    server.send(&evaluate(0));
    let first = server.receive();
    assert_eq!(first["status"], "ok", "{first}");
    server.send("{\"status\": true}");
    let status = server.receive();
    assert_eq!((&status["status"], &status["fork_server"]), (&json!("ok"), &json!({"state": "ok", "restarts": 0})));
    for round in 1..=2 {
        // Before an evaluation, and during two.
        if round == 2 {
            server.send(&evaluate(10));
            server.send(&evaluate(11));
        }
        assert!(kill_children(server.child.id()) > 0);
        if round == 2 {
            for _ in 0..2 {
                let result = server.receive();
                assert_eq!(
                    (&result["status"], &result["combined_score"]),
                    (&json!("ok"), &first["combined_score"]),
                    "{result}"
                );
            }
        }
        server.send(&evaluate(round));
        let result = server.receive();
        assert_eq!((&result["status"], &result["hashes"]), (&json!("ok"), &first["hashes"]), "{result}");
        server.send("{\"status\": true}");
        let status = server.receive();
        assert_eq!((&status["status"], &status["fork_server"]["restarts"]), (&json!("ok"), &json!(round)), "{status}");
    }
    server.end();
}

/// A fork server that ends at once is not started for ever, and `status` says that it is down.
#[cfg(target_os = "linux")]
#[test]
fn restarts_are_bounded() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let mut server = ServerProcess::start(&["--stdio", "--suite", &suite, "--log", "off"]);
    server.send("{\"status\": true}");
    server.receive();
    // Without its suite no other process can start.
    fs::remove_file(&suite).expect("removed");
    kill_children(server.child.id());
    server.send(&json!({"id": "1", "candidate": POLICY}).to_string());
    let reply = server.receive();
    assert!(
        reply["error"]
            .as_str()
            .is_some_and(|error| error.contains("cannot be started again") || error.contains("restarts")),
        "{reply}"
    );
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        server.send("{\"status\": true}");
        let status = server.receive();
        if status["fork_server"]["state"] == "down" {
            assert_eq!(status["status"], "degraded");
            break;
        }
        assert!(Instant::now() < until, "{status}");
        std::thread::sleep(Duration::from_millis(50));
    }
    server.end();
}

/// Regression: 40 peers that did not end their bodies held 410 MB.
#[cfg(target_os = "linux")]
#[test]
fn slow_peers_hold_little_memory() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let server = PortServer::start(&["--suite", &suite]);
    let peak = || {
        let status = fs::read_to_string(format!("/proc/{}/status", server.process.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10
    };
    let before = peak();
    let token = server.token.as_deref().expect("a token");
    let length = 8 << 20;
    let head = PortServer::head("POST", "/evaluate", &format!("Authorization: Bearer {token}\r\n"), length);
    let part = " ".repeat(length - 1);
    let slow: Vec<TcpStream> = (0..40)
        .filter_map(|_| {
            let mut stream = TcpStream::connect(&server.address).ok()?;
            // Beyond what the server holds in all the rest is not read.
            stream.set_write_timeout(Some(Duration::from_secs(5))).ok()?;
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(part.as_bytes()));
            Some(stream)
        })
        .collect();
    assert_eq!(slow.len(), 40);
    let more = peak() - before;
    assert!(more < 150, "{more} MB more than {before} MB");
    assert_eq!(server.request(("GET", "/status"), "", "").0, 200);
    drop(slow);
    assert_eq!(server.evaluate(&json!({"candidate": POLICY})).0, 200);
}

/// Extreme values of counts, each of which would ask for more than a machine has.
#[test]
fn counts_have_ranges() {
    let counts: [(&str, &[&str]); 5] = [
        ("serve --stdio", &["--threads", "--queue", "--worker-memory-gib"]),
        ("search chat", &["--workers", "--worker-memory-gib", "--evaluations"]),
        ("evaluate least-loaded", &["--threads", "--worker-memory-gib", "--feedback-bytes", "--shard next/"]),
        ("tune least-loaded", &["--threads", "--evals"]),
        ("observe --model m --trace-output x", &["--max-in-flight"]),
    ];
    for (command, flags) in counts {
        for flag in flags {
            for value in ["4294967296", "9223372036854775807", "18446744073709551615", "-1", "NaN", "1e308"] {
                let line = match flag.strip_suffix('/') {
                    Some(_) => format!("{command} --out x {flag}{value}"),
                    None => format!("{command} {flag}={value}"),
                };
                let stderr = blis!(&line).refused();
                assert!(stderr.contains(" to ") || stderr.contains(" at most "), "{line}: {stderr}");
            }
        }
    }
}

/// Extreme values in requests: used, or refused in one error; and the server lives.
#[test]
fn extreme_numbers_in_requests_are_used_or_refused() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let mut server = ServerProcess::start(&["--stdio", "--suite", &suite]);
    let values = [
        "0",
        "1000000",
        "4294967296",
        "9223372036854775807",
        "18446744073709551615",
        "18446744073709551616",
        "-1",
        "1e308",
        "1e999",
    ];
    let keys = ["epoch", "train_seeds", "feedback_bytes", "patterns", "decisions", "wall_s", "seed"];
    for key in keys {
        for value in values {
            let scenario = if key == "seed" { ", \"scenario\": \"chat\"" } else { "" };
            server.send(&format!(
                "{{\"id\": \"x\", \"candidate\": \"{POLICY}\", \"stage\": \"smoke\", \"{key}\": {value}{scenario}}}"
            ));
            let reply = server.receive();
            let refused = reply["error"].as_str().is_some_and(|error| !error.is_empty() && !error.contains("panicked"));
            let used = reply["status"].as_str().is_some_and(|status| ["ok", "gate_failed", "limit"].contains(&status));
            assert!(refused != used, "{key}: {value}: {reply}");
        }
    }
    server.send(&json!({"id": "last", "candidate": POLICY}).to_string());
    assert_eq!(server.receive()["status"], "ok");
    server.end();
}
