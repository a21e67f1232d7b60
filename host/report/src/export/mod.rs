//! A run in the formats of other tools, which read it like a real measurement.
//!
//! | format | what is written |
//! |---|---|
//! | `trace-v2` | `PATH.yaml` and `PATH.csv`: a trace that replays to the same results |
//! | `vllm-bench` | the JSON of `vllm bench serve --save-result --save-detailed` |
//! | `aiperf` | a folder with AIPerf's `profile_export.jsonl` and `profile_export_aiperf.json` |
//! | `otel` | OpenTelemetry spans, a JSON document per line: a request's journey, and every engine step |
//! | `perfetto` | requests and steps for the Perfetto viewer; PATH ends in `.pftrace` for the smaller form |
//!
//! The data are kept in a [`Journal`] until the end of the run.

mod aiperf;
mod journal;
mod otel;
mod perfetto;
mod service;
mod statistics;
mod trace_v2;
mod vllm_bench;

use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use journal::{Journal, JournalDetail};
pub use perfetto::ExportWindow;
pub use service::ServiceInfo;

use super::file::{FileError, write_pair, write_whole};
use blis_diag::name_hint;
use blis_workload::Names;
use strum::VariantNames as _;

/// A format of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantNames)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum ExportFormat {
    /// BLIS's trace, two files.
    TraceV2,
    VllmBench,
    /// AIPerf, two files in a folder.
    Aiperf,
    /// OpenTelemetry, in the vocabulary of vLLM's journey and step tracing.
    Otel,
    /// Perfetto's viewer, JSON or protocol buffers.
    Perfetto,
}

impl ExportFormat {
    /// What the journal must keep for it.
    #[must_use]
    pub fn detail(self) -> JournalDetail {
        match self {
            Self::TraceV2 => JournalDetail::Requests,
            Self::Otel | Self::Perfetto => JournalDetail::Steps,
            Self::VllmBench | Self::Aiperf => JournalDetail::Tokens,
        }
    }
}

/// A format and its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    pub format: ExportFormat,
    /// File, folder (`aiperf`), or the common beginning of two file names (`trace-v2`).
    pub path: PathBuf,
}

impl FromStr for Export {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = ExportFormat::VARIANTS;
        let (name, path) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` is not FORMAT=PATH; formats: {}", names.join(", ")))?;
        let format = name.parse().map_err(|_| format!("no export format `{name}`; {}", name_hint(name, names)))?;
        if path.is_empty() {
            return Err(format!("`{text}` names no file"));
        }
        Ok(Self { format, path: path.into() })
    }
}

impl Export {
    /// The files that it writes.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        match self.format {
            ExportFormat::TraceV2 => ["yaml", "csv"].map(|extension| with_extension(&self.path, extension)).into(),
            ExportFormat::Aiperf => {
                ["profile_export.jsonl", "profile_export_aiperf.json"].map(|file| self.path.join(file)).into()
            }
            ExportFormat::VllmBench | ExportFormat::Otel | ExportFormat::Perfetto => vec![self.path.clone()],
        }
    }

    /// Writes the files, all of them completely or none. `window` is the part of the run that `perfetto` has; the others have
    /// all of it.
    ///
    /// # Errors
    /// If a file cannot be written: which one.
    pub fn write(
        &self,
        journal: &Journal,
        about: &ServiceInfo,
        names: &Names,
        window: &ExportWindow,
    ) -> Result<(), FileError> {
        let files = self.files();
        match self.format {
            ExportFormat::TraceV2 => write_pair(
                &files[0],
                |out| trace_v2::header(about, out),
                &files[1],
                |out| trace_v2::data(journal, about, names, out),
            ),
            ExportFormat::VllmBench => write_whole(&files[0], |out| vllm_bench::write(journal, about, out)),
            ExportFormat::Aiperf => write_pair(
                &files[0],
                |out| aiperf::requests(journal, names, out),
                &files[1],
                |out| aiperf::summary(journal, about, out),
            ),
            ExportFormat::Otel => write_whole(&files[0], |out| otel::write(journal, about, names, out)),
            ExportFormat::Perfetto => {
                write_whole(&files[0], |out| perfetto::write(&files[0], journal, about, names, window, out))
            }
        }
    }
}

fn with_extension(path: &Path, extension: &str) -> PathBuf {
    // `out.run1` is a name, not a name with an extension.
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

#[cfg(test)]
mod tests;
