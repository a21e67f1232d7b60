//! Native libraries with the C interface of `sdk/c/blis_policy.h`. A library is not sandboxed: it runs in this process
//! with all its rights. Its *outputs* are checked like those of any other plugin.
//!
//! This is the only module that calls foreign code. A library stays loaded until the process ends, because its
//! functions and texts may be referenced anywhere.
#![allow(unsafe_code)]

mod guest;
mod host;
mod library;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use self::guest::NativeGuest;
use self::library::{Library, at, cause, table_of};
use super::{Fault, FaultKind, Guest, GuestSetup, Limits, Plugin, PolicyDescription, Technology};
use blis_diag::{Location, unreadable};

/// Loads the library at `path` and reads its description.
///
/// # Errors
/// If the file is not a library, has no BLIS entry point, was built for another version of the interface, or is
/// incomplete.
pub fn load(path: &Path, limits: &Limits) -> Result<Arc<dyn Plugin>, Fault> {
    let file = blis_diag::display(path).to_string();
    let absolute = fs::canonicalize(path).map_err(|error| {
        Fault::of(FaultKind::Unreadable, unreadable(&file, &error).at(Location::file(file.as_str())))
    })?;
    // SAFETY: the user allows its initialisers to run with `--allow-native`. The path is absolute, so that the loader
    // takes this file and not one of the same name elsewhere.
    let library = unsafe { libloading::Library::new(&absolute) };
    let library = library.map_err(|error| {
        let what = format!("not a library for this machine: {}", cause(&error));
        at(&file, FaultKind::Unreadable, &what).hint("build it here, with `cc -shared -fPIC`")
    })?;
    // The library stays loaded until the process ends; the loader loads the same file once.
    let library = Box::leak(Box::new(library));
    let table = table_of(library, &file)?;
    let library = Library::new(table, file.into(), limits)?;
    Ok(Arc::new(Native { library: Arc::new(library) }))
}

#[derive(Debug)]
struct Native {
    library: Arc<Library>,
}

impl Plugin for Native {
    fn description(&self) -> &PolicyDescription {
        &self.library.description
    }

    fn technology(&self) -> Technology {
        Technology::Native
    }

    fn start(&self, setup: &GuestSetup) -> Result<Box<dyn Guest>, Fault> {
        Ok(Box::new(NativeGuest::start(Arc::clone(&self.library), setup)?))
    }
}

#[cfg(test)]
mod tests;
