//! `blis!` starts the program: `blis!("run --model m", flags)`, or `blis!(in &folder, "plugin list")` elsewhere than
//! in the repository. What ended is an [`Ended`]; files of a test lie in its [`Scratch`].

use std::ffi::OsString;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

/// Runs the program to its end, without standard input, and returns an [`Ended`]. Words are texts, which are split at
/// spaces, or paths and lists of words, which are not.
macro_rules! blis {
    (in $folder:expr, $($words:expr),+ $(,)?) => {
        $crate::macros::ended($crate::macros::program!($($words),+).current_dir($folder))
    };
    ($($words:expr),* $(,)?) => {
        $crate::macros::ended(&mut $crate::macros::program!($($words),*))
    };
}

/// The same as a [`Command`], for tests that say more about it.
macro_rules! program {
    ($($words:expr),* $(,)?) => {
        $crate::macros::command(&[$(&$words as &dyn $crate::macros::Words),*])
    };
}

pub(crate) use {blis, program};

/// Words of a command line.
pub trait Words {
    fn words(&self) -> Vec<OsString>;
}

impl Words for str {
    fn words(&self) -> Vec<OsString> {
        self.split_whitespace().map(OsString::from).collect()
    }
}

impl Words for String {
    fn words(&self) -> Vec<OsString> {
        self.as_str().words()
    }
}

impl Words for Path {
    fn words(&self) -> Vec<OsString> {
        vec![self.into()]
    }
}

impl Words for PathBuf {
    fn words(&self) -> Vec<OsString> {
        vec![self.into()]
    }
}

impl<T: AsRef<str>> Words for [T] {
    fn words(&self) -> Vec<OsString> {
        self.iter().map(|word| word.as_ref().into()).collect()
    }
}

impl<T: AsRef<str>, const N: usize> Words for [T; N] {
    fn words(&self) -> Vec<OsString> {
        self[..].words()
    }
}

impl<T: AsRef<str>> Words for Vec<T> {
    fn words(&self) -> Vec<OsString> {
        self[..].words()
    }
}

impl<T: Words + ?Sized> Words for &T {
    fn words(&self) -> Vec<OsString> {
        (**self).words()
    }
}

/// The repository, where programs of tests start.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository")
}

/// See [`program!`].
pub fn command(words: &[&dyn Words]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blis"));
    command.args(words.iter().flat_map(|words| words.words())).stdin(Stdio::null()).current_dir(root());
    command
}

/// The exit code and the output of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// `None` if a signal ended it.
    pub code: Option<i32>,
    /// Without the settings of a run, which differ where figures must not: see [`Ended::whole_json`].
    pub stdout: String,
    /// Without the warnings about load, which most runs of tests have because they are short: see `run`.
    pub stderr: String,
    /// The value of `run` in the document of a run.
    run: Settings,
    line: String,
}

/// The settings of a run, which are not compared.
#[derive(Clone, Debug, Default)]
struct Settings(Option<Value>);

impl PartialEq for Settings {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Settings {}

/// See [`blis!`].
pub fn ended(command: &mut Command) -> Ended {
    let line = command.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let output = command.output().unwrap_or_else(|error| panic!("blis {line}: {error}"));
    let text = |bytes| String::from_utf8(bytes).unwrap_or_else(|error| panic!("blis {line}: {error}"));
    let (stdout, run) = without_run(text(output.stdout));
    let stderr = without_load_warnings(&text(output.stderr));
    Ended { code: output.status.code(), stdout, stderr, run, line }
}

/// The document of a run without its last value, `run`; and that value.
fn without_run(stdout: String) -> (String, Settings) {
    let Some((figures, run)) = stdout.split_once(",\n  \"run\": {") else { return (stdout, Settings::default()) };
    let run = format!("{{{}", run.trim_end().strip_suffix('}').expect("it is the last value"));
    (format!("{figures}\n}}\n"), Settings(Some(serde_json::from_str(&run).expect("an object"))))
}

fn without_load_warnings(stderr: &str) -> String {
    let is_kept =
        |line: &&str| ![" WARN overloaded: ", " WARN too short: "].iter().any(|start| line.starts_with(start));
    stderr.split_inclusive('\n').filter(is_kept).collect()
}

impl Ended {
    /// The same, which must have exit code `code`.
    #[track_caller]
    pub fn with_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "blis {}: {}{}", self.line, self.stdout, self.stderr);
        self
    }

    /// The same; the program must have succeeded.
    #[track_caller]
    pub fn done(self) -> Self {
        self.with_code(0)
    }

    /// The whole document that it printed, with `run`; the program must have succeeded.
    #[track_caller]
    pub fn whole_json(self) -> Value {
        let run = self.run.0.clone();
        let mut document = self.json();
        if let (Some(run), Value::Object(fields)) = (run, &mut document) {
            fields.insert("run".to_owned(), run);
        }
        document
    }

    /// The document that it printed; the program must have succeeded.
    #[track_caller]
    pub fn json(self) -> Value {
        let Self { stdout, line, .. } = self.done();
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("blis {line}: {error}: {stdout}"))
    }

    /// Standard error of a program that refused its input: one error, at most one hint, nothing on standard output.
    #[track_caller]
    pub fn refused(self) -> String {
        let Self { stdout, stderr, line, .. } = self.with_code(2);
        assert_eq!(stdout, "", "blis {line}");
        let count = |start| stderr.lines().filter(|line| line.starts_with(start)).count();
        assert!(count("error: ") == 1 && count("hint: ") <= 1, "blis {line}: {stderr}");
        stderr
    }
}

/// Panics if a line of `text` is wider than 80 columns, unless it is one word that cannot be broken. Colours and line
/// ends of terminals take no column.
#[track_caller]
pub fn assert_fits(command: &str, text: &str) {
    for line in text.lines() {
        let mut plain = String::new();
        let mut rest = line.trim_end_matches('\r');
        while let Some((before, escape)) = rest.split_once('\x1b') {
            plain.push_str(before);
            rest = escape.find(|c: char| c.is_ascii_alphabetic()).map_or("", |end| &escape[end + 1..]);
        }
        plain.push_str(rest);
        let one_word = !plain.trim().contains(' ');
        assert!(plain.width() <= 80 || one_word, "{command}: {} columns\n{plain}\n\n{text}", plain.width());
    }
}

/// A folder of one test, empty at first and gone after it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("blis-test-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }

    /// Writes a file, and the folders that it lies in.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("it lies in the folder")).expect("scratch");
        fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    pub fn read(&self, name: &str) -> String {
        let path = self.0.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The path of a file, as a word of a command line.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
