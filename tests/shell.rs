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
}

fn path() -> OsString {
    let mut path = Path::new(env!("CARGO_BIN_EXE_blis")).parent().expect("a folder").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}
