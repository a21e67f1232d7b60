//! A cache of compiled code that outlives the process: one file for each plugin, a SHA-256 and wasmtime's serialized code.
//!
//! The name of a file depends on everything that determines its content: the bytes of the plugin, the interface they
//! were checked against, wasmtime, its settings and the CPU type of this machine. A file is written under another name
//! after it is on the disk renamed, so that no process reads an incomplete file, and never changes afterwards. A file whose
//! name and content do not have its SHA-256 is not used: wasmtime would run damaged code, or that of another plugin. Intact code runs without further checks,
//! so the folder must belong to the user: one that others may write to is not used.

#![allow(unsafe_code)] // compiled code is taken from a file

use std::fs::{self, File};
use std::hash::{Hash as _, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use wasmtime::component::Component;
use wasmtime::{Engine, Module};

use super::componentize::WIT;
use super::{CompileCache, WasmSettings};
use crate::Limits;
use crate::limits::{COMPILED_BYTES, COMPILED_FILES};
use crate::user_cache;

/// Larger files are no compiled plugins of ours. The folder is private, so this is a bound for damaged ones.
const BYTES_MAX: u64 = 1 << 30;

/// Bytes of a SHA-256.
const CHECKSUM_BYTES: usize = 32;

/// The cache entry of one plugin, which need not exist yet.
pub(super) struct CachedCode<'a> {
    engine: &'a Engine,
    /// The path without extension; `None` if there is no cache.
    path: Option<PathBuf>,
}

impl<'a> CachedCode<'a> {
    /// The entry for the plugin with the SHA-256 `sha256`. What was compiled under the bounds of large components is not found
    /// under the others: whether a file is refused must not depend on earlier runs.
    pub(super) fn of(engine: &'a Engine, sha256: &str, settings: &WasmSettings, limits: &Limits) -> Self {
        let path = folder(&settings.cache).map(|folder| folder.join(name(engine, sha256, limits.large_components)));
        Self { engine, path }
    }

    /// The compiled core module, if it is in the cache.
    pub(super) fn module(&self) -> Option<Module> {
        let (file, code) = self.found("module")?;
        // SAFETY: only `store` writes such files, in a folder that only the user can write to; wasmtime produced their
        // content, which is intact, and checks that version and settings are the same.
        self.usable(&file, unsafe { Module::deserialize(self.engine, code) })
    }

    /// The compiled component, if it is in the cache.
    pub(super) fn component(&self) -> Option<Component> {
        let (file, code) = self.found("component")?;
        // SAFETY: as above.
        self.usable(&file, unsafe { Component::deserialize(self.engine, code) })
    }

    pub(super) fn store_module(&self, module: &Module) {
        self.store("module", || module.serialize());
    }

    pub(super) fn store_component(&self, component: &Component) {
        self.store("component", || component.serialize());
    }

    /// The file and its code, if it is intact.
    fn found(&self, form: &str) -> Option<(PathBuf, Vec<u8>)> {
        let file = self.path.as_ref()?.with_extension(form);
        if !(file.is_file() && user_cache::is_private(file.parent()?)) {
            return None;
        }
        let mut content = blis_diag::read_bytes(&file, BYTES_MAX).ok()?;
        let code = (content.len() >= CHECKSUM_BYTES).then(|| content.split_off(CHECKSUM_BYTES))?;
        if checksum(&file, &code) == content {
            return Some((file, code));
        }
        tracing::warn!("{} is damaged, and is compiled anew", file.display());
        None
    }

    fn usable<T>(&self, file: &Path, code: wasmtime::Result<T>) -> Option<T> {
        code.inspect_err(|error| tracing::debug!("{} is compiled anew: {error:#}", file.display())).ok()
    }

    /// Writes to the cache. Errors are ignored: without the cache loading only takes longer.
    fn store(&self, form: &str, code: impl FnOnce() -> wasmtime::Result<Vec<u8>>) {
        let Some(path) = &self.path else { return };
        let stored = code().map_err(|error| format!("{error:#}")).and_then(|code| {
            write(&path.with_extension(form), &code).map_err(|error| format!("{}: {error}", path.display()))
        });
        if let Err(error) = stored {
            tracing::warn!("a compiled plugin was not cached: {error}");
        }
    }
}

fn folder(cache: &CompileCache) -> Option<PathBuf> {
    match cache {
        CompileCache::Disabled => None,
        CompileCache::Folder(folder) => Some(folder.clone()),
        CompileCache::UserCache => Some(user_cache::folder()?.join("compiled")),
    }
}

/// A hash of everything that compiled code depends on, as 64 hexadecimal digits.
fn name(engine: &Engine, sha256: &str, large: bool) -> String {
    struct Digest(Sha256);
    impl Hasher for Digest {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0 // not called
        }
    }
    let mut digest = Digest(Sha256::new());
    digest.write(concat!("blis ", env!("CARGO_PKG_VERSION"), "\n").as_bytes());
    digest.write(&INTERFACE.to_le_bytes());
    engine.precompile_compatibility_hash().hash(&mut digest);
    digest.write(sha256.as_bytes());
    if large {
        digest.write(b"large");
    }
    digest.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A hash (FNV-1a) of the interface that components are checked against.
const INTERFACE: u64 = {
    let (text, mut hash, mut i) = (WIT.as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
    while i < text.len() {
        hash = (hash ^ text[i] as u64).wrapping_mul(0x0100_0000_01b3);
        i += 1;
    }
    hash
};

fn write(file: &Path, code: &[u8]) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    user_cache::create(folder)?;
    user_cache::make_room(folder, code.len() as u64, COMPILED_FILES, COMPILED_BYTES)?;
    // The name is unique to this process and thread.
    let number = std::thread::current().id();
    let draft = file.with_extension(format!("{}-{number:?}.draft", std::process::id()));
    let written = write_durably(&draft, &checksum(file, code), code).and_then(|()| fs::rename(&draft, file));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

/// The SHA-256 of the name of a file and its code: the code of another plugin under this name is not used.
fn checksum(file: &Path, code: &[u8]) -> Vec<u8> {
    let name = file.file_name().unwrap_or_default().as_encoded_bytes();
    Sha256::new().chain_update(name).chain_update(code).finalize().to_vec()
}

/// Writes the checksum and the code, and waits until they are on the disk: a rename may reach it before the content.
fn write_durably(file: &Path, checksum: &[u8], code: &[u8]) -> std::io::Result<()> {
    let mut open = File::create(file)?;
    open.write_all(checksum)?;
    open.write_all(code)?;
    open.sync_all()
}
