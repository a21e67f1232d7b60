//! The files of a specification, without a file system.

use std::io;
use std::path::Path;

use blis_workload::spec::Files;

/// Every file that a specification names has this text, and every folder is empty.
pub struct OneFile<'a>(pub &'a str);

impl Files for OneFile<'_> {
    fn read(&self, _path: &Path) -> io::Result<String> {
        Ok(self.0.to_owned())
    }

    fn names(&self, _path: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::NotFound.into())
    }
}
