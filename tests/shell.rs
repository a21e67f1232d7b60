//! A shell in a folder that has what the repository has, with the program on its path.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::macros::{Ended, Scratch, ended, root};

pub struct Shell(Scratch);

impl Shell {
    pub fn new() -> Self {
        let folder = Scratch::new();
        for name in ["docs", "examples", "hardware", "model_configs", "plugins", "policies", "sdk", "tests"] {
            symlink(root().join(name), folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        Self(folder)
    }

    pub fn folder(&self) -> &Scratch {
        &self.0
    }

    /// Runs a line to its end, without standard input. Every command of a pipe counts.
    pub fn run(&self, line: &str) -> Ended {
        let mut bash = Command::new("bash");
        bash.args(["-e", "-o", "pipefail", "-c", line]).current_dir(&*self.0).env("PATH", path());
        ended(bash.stdin(Stdio::null()))
    }

    /// The same with its output on a terminal and its messages in a pipe. Without `script`, which makes the terminal, both
    /// go to pipes.
    #[expect(clippy::print_stderr, reason = "a test says what it leaves out")]
    pub fn run_on_terminal(&self, line: &str) -> Ended {
        const BASH: &str = "bash -e -o pipefail -c \"$LINE\" 2> messages";
        let has_script = Command::new("script").arg("--version").stdout(Stdio::null()).status().is_ok();
        if !has_script {
            eprintln!("there is no `script` to make a terminal: {line} prints into a pipe");
            return self.run(line);
        }
        let mut script = Command::new("script");
        script.args(["-qec", BASH, "/dev/null"]).current_dir(&*self.0).env("PATH", path()).env("LINE", line);
        let mut ended = ended(script.env("TERM", "xterm").stdin(Stdio::null()));
        ended.stderr = self.0.read("messages");
        ended
    }
}

fn path() -> OsString {
    let mut path = Path::new(env!("CARGO_BIN_EXE_blis")).parent().expect("a folder").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}
