//! What a command may do beyond simulating what its user named, and the flags that grant it.
//!
//! A permission is granted on the command line and nowhere else: no file, suite, record, request or environment variable
//! has one. Whatever else names the flag of a permission is refused with one sentence that names the flag.

/// What only the command line grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// Native libraries as policies: they run outside the sandbox.
    NativeCode,
    /// Components as large as those with an interpreter inside, which take up to a minute to compile.
    LargeComponents,
    /// Files that a peer, or a suite outside its own folder, names.
    ReadPaths,
    /// Files that are written.
    WriteFiles,
    /// Ports and sockets.
    Listen,
    /// Connections to other machines.
    Connect,
    /// Other programs that are started.
    StartPrograms,
}

/// The permissions with their names in results (`run.granted`) and the flags that grant them, of any command, without dashes.
#[rustfmt::skip]
const PERMISSIONS: [(Permission, &str, &[&str]); 7] = [
    (Permission::NativeCode, "native-code", &["allow-native"]),
    (Permission::LargeComponents, "large-components", &["allow-large-components"]),
    (Permission::ReadPaths, "read-paths", &["allow-path", "record", "cache", "archive"]),
    (Permission::WriteFiles, "write-files", &["trace-path", "regret-path", "metrics-path", "results-path", "export", "trace-output", "timeline", "report", "csv", "out", "write"]),
    (Permission::Listen, "listen", &["listen", "http", "socket", "ui"]),
    (Permission::Connect, "connect", &["server-url", "model-url"]),
    (Permission::StartPrograms, "start-programs", &["worker-command"]),
];

impl Permission {
    /// All permissions, in their order.
    pub fn all() -> impl Iterator<Item = Self> {
        PERMISSIONS.iter().map(|(permission, ..)| *permission)
    }

    /// The name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        PERMISSIONS[self as usize].1
    }

    /// The flags that grant it.
    #[must_use]
    pub fn flags(self) -> &'static [&'static str] {
        PERMISSIONS[self as usize].2
    }

    /// The permission that the flag `name` (without dashes) grants.
    #[must_use]
    pub fn of_flag(name: &str) -> Option<Self> {
        Self::all().find(|permission| permission.flags().contains(&name))
    }
}

/// Why `name` is refused in a file or a request: the rest of a sentence that begins with its name.
pub(crate) fn refused(name: &str) -> String {
    format!("is granted by the flag `--{name}` of the command line only")
}

/// What to do about it.
pub(crate) const HINT: &str = "leave it out here, and give the flag if you trust what you run";
