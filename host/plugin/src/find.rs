//! Resolves a name to a plugin: its file, and the technology that loads it.
//!
//! The search order is: the folders of `--policy-dir`, `policies/`, the policies embedded in the program, and last the
//! name as a path. The caller resolves the names of built-in policies before.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};

pub use super::sha256::sha256;
use super::{Fault, FaultKind, Limits, LoadedPlugin, Surroundings, Technology, native, script, wasm};
use blis_diag::{Location, display, nearest, printable, read_bytes, unreadable};

static POLICIES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../policies");

/// The folder that is searched by default.
const DEFAULT_FOLDER: &str = "policies";

/// The search path for plugins, and the permissions and limits for loading them.
#[derive(Clone, Debug)]
pub struct Finder {
    /// Folders that are searched before `policies/`.
    pub dirs: Vec<PathBuf>,
    /// Where `policies/` and files are searched, and may lie; in the working folder, and anywhere, without one.
    pub beside: Option<Surroundings>,
    pub allow_native: bool,
    /// Limits for the files and for the guests.
    pub limits: Limits,
    /// WebAssembly settings, including the folder for compiled components.
    pub wasm: wasm::WasmSettings,
}

/// A file that may be a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginFile {
    /// The name of the file without extension.
    pub name: String,
    /// The technology, determined by the extension.
    pub technology: Technology,
    pub location: PluginLocation,
}

/// The location of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginLocation {
    File(PathBuf),
    /// A policy embedded in the program: its path in the repository, and its content.
    Embedded(&'static str, &'static [u8]),
}

impl PluginLocation {
    /// The path that messages show.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Embedded(name, _) => Path::new(DEFAULT_FOLDER).join(name),
        }
    }
}

impl PluginFile {
    /// Whether it is a policy of this program, embedded or as a file with the same content.
    #[must_use]
    pub fn is_shipped(&self) -> bool {
        match &self.location {
            PluginLocation::Embedded(..) => true,
            PluginLocation::File(path) => {
                let shipped = path.file_name().and_then(|name| POLICIES.get_file(name));
                shipped.map(include_dir::File::contents).is_some_and(|known| {
                    let most = known.len() as u64;
                    read_bytes(path, most).is_ok_and(|bytes| bytes == known)
                })
            }
        }
    }
}

impl Technology {
    /// The technologies that have files.
    pub const ALL: [Self; 3] = [Self::Script, Self::Component, Self::Native];

    /// The name in result documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Component => "component",
            Self::Script => "script",
            Self::Native => "native",
            Self::BuiltIn => "built-in",
        }
    }

    /// The technology for the extension of `path`.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "wasm" => Some(Self::Component),
            "rhai" => Some(Self::Script),
            "so" | "dylib" | "dll" => Some(Self::Native),
            _ => None,
        }
    }
}

impl Finder {
    /// Searches `dirs` first; allows no native library.
    #[must_use]
    pub fn new(dirs: Vec<PathBuf>) -> Self {
        Self { dirs, beside: None, allow_native: false, limits: Limits::default(), wasm: wasm::WasmSettings::default() }
    }

    /// The plugin called `name`; `None` if no plugin has that name and it is not a path.
    ///
    /// # Errors
    /// If two files of one folder have that name, a folder of `dirs` cannot be read, or the name looks like a path and
    /// either no file is there or its extension belongs to no technology.
    pub fn find(&self, name: &str) -> Result<Option<PluginFile>, Fault> {
        for dir in self.dirs.iter().chain([&self.default_folder()]) {
            let mut of_that_name = self.files_in(dir)?.into_iter().filter(|found| found.name == name);
            if let (Some(first), second) = (of_that_name.next(), of_that_name.next()) {
                return second.map_or(Ok(Some(first.clone())), |second| Err(twice(name, &first, &second)));
            }
        }
        if let Some(found) = embedded().into_iter().find(|found| found.name == name) {
            return Ok(Some(found));
        }
        let path = Path::new(name);
        let Some(technology) = Technology::of(path) else {
            let is_path = name.contains(['/', '\\']) || path.is_file();
            return if is_path { Err(no_plugin(path)) } else { Ok(None) };
        };
        let file = match &self.beside {
            Some(beside) => beside.find(path).map_err(|message| at(path, FaultKind::NotAllowed, message))?,
            None => path.to_owned(),
        };
        if let Err(error) = fs::metadata(&file) {
            return Err(unreadable_at(&file, &error));
        }
        Ok(Some(PluginFile { name: stem(path), technology, location: PluginLocation::File(file) }))
    }

    fn default_folder(&self) -> PathBuf {
        self.beside.as_ref().map_or_else(PathBuf::new, |beside| beside.folder.clone()).join(DEFAULT_FOLDER)
    }

    /// A hint for `name`, which is neither a plugin nor one of `built_ins`.
    #[must_use]
    pub fn hint(&self, name: &str, built_ins: &[&str]) -> String {
        let plugins: Vec<String> = self.all().into_iter().filter_map(Result::ok).map(|found| found.name).collect();
        let known: Vec<&str> = built_ins.iter().copied().chain(plugins.iter().map(String::as_str)).collect();
        if let Some(near) = nearest(name, &known) {
            return format!("did you mean `{near}`?");
        }
        if Path::new(name).is_dir() {
            return format!("`{name}` is a folder: name a file in it");
        }
        let dirs: Vec<_> =
            self.dirs.iter().map(|dir| dir.display().to_string()).chain([format!("{DEFAULT_FOLDER}/")]).collect();
        let built_in = match built_ins {
            [] | [_, _, _, _, _, _, _, _, _, ..] => "no built-in policy".to_owned(),
            few => format!("built in are {}", few.join(", ")),
        };
        let dirs = dirs.join(", ");
        format!("{built_in}; no `{name}.rhai`, `.wasm` or `.so` in {dirs}, no file: see `blis plugin list`")
    }

    /// Every plugin that [`Self::find`] finds by name, sorted; an error for each folder that cannot be read.
    #[must_use]
    pub fn all(&self) -> Vec<Result<PluginFile, Fault>> {
        let mut all: Vec<Result<PluginFile, Fault>> = Vec::new();
        let usual = self.default_folder();
        let dirs = self.dirs.iter().chain([&usual]);
        let folders = dirs.map(|dir| self.files_in(dir)).chain([Ok(embedded())]);
        for folder in folders {
            let found = match folder {
                Ok(found) => found,
                Err(fault) => {
                    all.push(Err(fault));
                    continue;
                }
            };
            // A plugin in an earlier folder hides one of the same name in a later folder.
            let hidden =
                |name: &str, all: &[Result<PluginFile, Fault>]| all.iter().flatten().any(|known| known.name == name);
            let fresh: Vec<_> = found.into_iter().filter(|found| !hidden(&found.name, &all)).collect();
            for (index, found) in fresh.iter().enumerate() {
                all.push(match fresh[..index].iter().find(|other| other.name == found.name) {
                    Some(other) => Err(twice(&found.name, other, found)),
                    None => Ok(found.clone()),
                });
            }
        }
        all.sort_by(|a, b| key(a).cmp(&key(b)));
        all
    }

    /// Loads the plugin in `found`.
    ///
    /// # Errors
    /// If it is native and native libraries are not allowed, if it cannot be read or is too large, or if it is not a
    /// valid plugin.
    pub fn load(&self, found: &PluginFile) -> Result<LoadedPlugin, Fault> {
        let path = found.location.path();
        if found.technology == Technology::Native && !self.allow_native {
            let fault = at(&path, FaultKind::NotAllowed, "a native library runs outside the sandbox, with your rights");
            return Err(fault.hint("if you trust it, add `--allow-native`"));
        }
        let content = self.content(&found.location)?;
        let sha256 = sha256(&content);
        let plugin = match found.technology {
            Technology::Component => wasm::load_known(&path, &content, &sha256, &self.limits, &self.wasm)?,
            Technology::Script => script::load(&path, text(&path, &content)?, &self.limits)?,
            Technology::Native => native::load(&path, &self.limits)?,
            Technology::BuiltIn => unreachable!("a built-in policy has no file"),
        };
        let (name, file) = (found.name.clone(), display(&path).to_string());
        Ok(LoadedPlugin { name, file, sha256, bytes: content.len() as u64, plugin })
    }

    fn content(&self, location: &PluginLocation) -> Result<Vec<u8>, Fault> {
        let path = match location {
            PluginLocation::File(path) => path,
            PluginLocation::Embedded(_, content) => return Ok(content.to_vec()),
        };
        read(path, self.limits.file_bytes)
    }

    /// The plugins of a folder, sorted. A missing folder is empty, unless the user named it.
    fn files_in(&self, dir: &Path) -> Result<Vec<PluginFile>, Fault> {
        let named = self.dirs.iter().any(|named| named == dir);
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !named => return Ok(Vec::new()),
            entries => entries.and_then(Iterator::collect::<Result<Vec<_>, _>>),
        };
        let entries = entries.map_err(|error| unreadable_at(dir, &error))?;
        let files = entries.into_iter().map(|entry| entry.path()).filter(|path| path.is_file());
        let found = |path: PathBuf| {
            Some(PluginFile {
                name: stem(&path),
                technology: Technology::of(&path)?,
                location: PluginLocation::File(path),
            })
        };
        let mut all: Vec<PluginFile> = files.filter_map(found).collect();
        all.sort_by_key(|found| found.location.path());
        Ok(all)
    }
}

/// At most `most` bytes of the file `path`.
///
/// # Errors
/// If the path cannot be read, is not a file, or the file is larger.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, Fault> {
    read_bytes(path, most).map_err(|error| match (error.kind(), fs::metadata(path)) {
        (io::ErrorKind::FileTooLarge, Ok(found)) => {
            at(path, FaultKind::Unreadable, format!("it has {} bytes; a plugin may have {most}", found.len()))
        }
        (io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory, _) => {
            at(path, FaultKind::Unreadable, error.to_string())
        }
        _ => unreadable_at(path, &error),
    })
}

/// The fault for a `path` that cannot be read or does not exist.
fn unreadable_at(path: &Path, error: &io::Error) -> Fault {
    let file = display(path);
    Fault::of(FaultKind::Unreadable, unreadable(&file, error).at(Location::file(file)))
}

/// A fault of the file `path` as a whole.
fn at(path: &Path, kind: FaultKind, what: impl Into<String>) -> Fault {
    Fault::new(kind, what).at(Location::file(display(path)))
}

/// The text of a script, which must be UTF-8.
fn text<'a>(path: &Path, content: &'a [u8]) -> Result<&'a str, Fault> {
    str::from_utf8(content).map_err(|error| {
        let line = content[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count() + 1;
        let location = Location::file(display(path)).line(line as u64);
        Fault::new(FaultKind::Unreadable, "not UTF-8 text; is this a script?").at(location)
    })
}

/// The embedded plugins, sorted by name.
fn embedded() -> Vec<PluginFile> {
    let found = |file: &'static include_dir::File<'static>| {
        let (path, technology) = (file.path(), Technology::of(file.path())?);
        Some(PluginFile {
            name: stem(path),
            technology,
            location: PluginLocation::Embedded(path.to_str()?, file.contents()),
        })
    };
    let mut all: Vec<_> = POLICIES.files().filter_map(found).collect();
    all.sort_by_key(|found| found.location.path());
    all
}

/// The fixture file of the embedded policy `name`: its path in the repository, and its text.
#[must_use]
pub fn embedded_fixture(name: &str) -> Option<(String, &'static str)> {
    let file = format!("{name}.test.yaml");
    let text = POLICIES.get_file(&file)?.contents_utf8()?;
    Some((format!("{DEFAULT_FOLDER}/{file}"), text))
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn key(found: &Result<PluginFile, Fault>) -> (Cow<'_, str>, PathBuf) {
    match found {
        Ok(found) => (Cow::Borrowed(&found.name), found.location.path()),
        Err(fault) => (Cow::Owned(fault.message()), PathBuf::new()),
    }
}

fn twice(name: &str, first: &PluginFile, second: &PluginFile) -> Fault {
    let (first, second) = (first.location.path(), second.location.path());
    at(&first, FaultKind::Unreadable, format!("`{}` is also {}", printable(name), display(&second)))
        .hint("give the path of the one you mean, or rename the other")
}

fn no_plugin(path: &Path) -> Fault {
    if path.is_dir() {
        return at(path, FaultKind::Unreadable, "a folder, not a plugin").hint("name a file in it");
    }
    let fault = at(path, FaultKind::Unreadable, "not a plugin by its name");
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("py" | "js" | "go" | "rs" | "c") => fault.hint(
            "policies are Rhai scripts, WebAssembly components or native libraries: see `blis plugin new --help`",
        ),
        Some("yaml" | "yml" | "json") => fault.hint("`--policy-config FILE` reads a bundle"),
        _ => fault.hint("a plugin ends in `.rhai`, `.wasm`, `.so`, `.dylib` or `.dll`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary folder with empty files of the given names, removed after the test.
    struct PluginFolder(PathBuf);

    impl PluginFolder {
        fn new(test: &str, files: &[&str]) -> Self {
            let folder = std::env::temp_dir().join(format!("blis-find-{test}-{}", std::process::id()));
            fs::create_dir_all(&folder).expect("a folder");
            files.iter().for_each(|file| fs::write(folder.join(file), "").expect("a file"));
            Self(folder)
        }

        fn finder(&self) -> Finder {
            Finder::new(vec![self.0.clone()])
        }

        fn message(&self, fault: &Fault) -> String {
            fault.to_string().replace(&self.0.display().to_string(), "DIR")
        }
    }

    impl Drop for PluginFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn names_are_files_of_the_folders() {
        let first = PluginFolder::new("first", &["mine.rhai", "notes.txt", "two.rhai", "two.wasm"]);
        let second = PluginFolder::new("second", &["mine.wasm", "native.so"]);
        let finder = Finder::new(vec![first.0.clone(), second.0.clone()]);
        let found = |name: &str| finder.find(name).expect("no error").map(|found| (found.technology, found.location));
        let file = |folder: &PluginFolder, name: &str| PluginLocation::File(folder.0.join(name));
        assert_eq!(found("mine"), Some((Technology::Script, file(&first, "mine.rhai"))), "the first folder wins");
        assert_eq!(found("native"), Some((Technology::Native, file(&second, "native.so"))));
        assert_eq!(found("notes"), None);
        let path = second.0.join("mine.wasm");
        assert_eq!(found(path.to_str().expect("text")), Some((Technology::Component, PluginLocation::File(path))));
        let names: Vec<_> = finder.all().into_iter().map(|found| found.map(|found| found.name)).collect();
        assert!(names.contains(&Ok("mine".into())) && names.contains(&Ok("native".into())), "{names:?}");
        let twice = finder.find("two").expect_err("which one?");
        insta::assert_snapshot!(first.message(&twice), @r"
        DIR/two.rhai: `two` is also DIR/two.wasm
        hint: give the path of the one you mean, or rename the other [unreadable]
        ");
        assert!(names.iter().any(|name| name.as_ref().is_err_and(|fault| *fault == twice)), "{names:?}");
    }

    #[test]
    fn missing_plugins_get_a_hint() {
        let folder = PluginFolder::new("absent", &["prefix-aware.rhai", "x.so", "readme.md"]);
        let finder = folder.finder();
        let hint = finder.hint("prefix-awre", &["round-robin"]).replace(&folder.0.display().to_string(), "DIR");
        assert_eq!(hint, "did you mean `prefix-aware`?");
        let hint = finder.hint("zzzzzzzz", &["round-robin"]).replace(&folder.0.display().to_string(), "DIR");
        assert!(hint.contains("blis plugin list") && hint.contains("DIR, policies/"), "{hint}");
        let fault = |name: &str| {
            folder.message(&finder.find(&name.replace("DIR", folder.0.to_str().expect("text"))).expect_err("nothing"))
        };
        insta::assert_snapshot!([fault("DIR/no.rhai"), fault("DIR/readme.md")].join("\n"), @r"
        DIR/no.rhai: `DIR/no.rhai` does not exist
        hint: check the path and the current folder [unreadable]
        DIR/readme.md: not a plugin by its name
        hint: a plugin ends in `.rhai`, `.wasm`, `.so`, `.dylib` or `.dll` [unreadable]
        ");
        let gone = Finder::new(vec![folder.0.join("gone")]);
        assert!(
            folder.message(&gone.find("x").expect_err("no folder")).starts_with("DIR/gone: `DIR/gone` does not exist")
        );
    }

    #[test]
    fn native_libraries_have_to_be_allowed() {
        let folder = PluginFolder::new("native", &["x.so"]);
        let found = folder.finder().find("x").expect("no error").expect("it is there");
        insta::assert_snapshot!(folder.message(&folder.finder().load(&found).expect_err("not allowed")), @r"
        DIR/x.so: a native library runs outside the sandbox, with your rights
        hint: if you trust it, add `--allow-native` [not-allowed]
        ");
    }

    #[test]
    fn large_files_are_not_read() {
        let folder = PluginFolder::new("large", &[]);
        let path = folder.0.join("large.wasm");
        fs::File::create(&path).and_then(|file| file.set_len(50_000_000)).expect("a file");
        let found = folder.finder().find("large").expect("no error").expect("it is there");
        let message = folder.message(&folder.finder().load(&found).expect_err("too large"));
        assert_eq!(message, "DIR/large.wasm: it has 50000000 bytes; a plugin may have 33554432 [unreadable]");
    }

    #[test]
    fn the_programs_own_policies_are_found_anywhere() {
        for found in embedded() {
            let again = Finder::new(Vec::new()).find(&found.name).expect("no error").expect("it is there");
            assert_eq!(again.technology, found.technology);
        }
    }
}
