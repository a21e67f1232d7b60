//! The record of a run: every request, and the trace that is written of them.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use blis_eval::error::RunError;
use blis_report::{FileError, write_pair, write_whole};
use blis_sim::request::{Name, Request, session_text};
use blis_sim::units::Micros;
use blis_workload::Names;
use blis_workload::trace_v2::{ADAPTER, BLOCK_KEYS, COLUMNS, CONNECT_TIME_US, MAX_TOKENS, VLLM_PRIORITY, keys_text};

use super::exchange::{Exchange, ExchangeEnd};
use super::settings::ObserveSettings;

/// A request that was sent, and what was measured.
#[derive(Clone, Debug)]
pub(super) struct ObservedRequest {
    pub request: Request,
    /// When it was to be sent, and when the load generator came to it.
    pub planned: Micros,
    pub due: Micros,
    /// What it added to the conversation of its session, if that is kept.
    pub added: Option<String>,
    pub exchange: Exchange,
}

impl ObservedRequest {
    /// Whether the whole output came.
    pub fn completed(&self) -> bool {
        self.exchange.end == Some(ExchangeEnd::Completed)
    }

    /// Output tokens that the server counted, or else the parts with text; `None` if nothing came.
    pub fn output_tokens(&self) -> Option<u32> {
        self.exchange.output_tokens.or(Some(self.exchange.chunks).filter(|&chunks| chunks > 0))
    }
}

/// What was recorded of a server.
pub struct Recording {
    pub(super) settings: ObserveSettings,
    names: Names,
    /// In the order in which they were to be sent.
    pub(super) records: Vec<ObservedRequest>,
    /// Requests of the workload that were not sent, because the user ended the run.
    pub(super) unsent: u64,
    pub(super) is_interrupted: bool,
    pub(super) duration: Duration,
}

impl Recording {
    pub(super) fn new(
        settings: &ObserveSettings,
        names: Names,
        mut records: Vec<ObservedRequest>,
        unsent: u64,
        is_interrupted: bool,
        duration: Duration,
    ) -> Self {
        records.sort_by_key(|record| (record.planned, record.request.id));
        Self { settings: settings.clone(), names, records, unsent, is_interrupted, duration }
    }

    /// The files of a trace at `prefix`: header, requests, and the times of parts.
    #[must_use]
    pub fn files(prefix: &Path) -> [PathBuf; 3] {
        ["yaml", "csv", "itl.csv"].map(|end| {
            let mut path = prefix.as_os_str().to_owned();
            path.push(format!(".{end}"));
            path.into()
        })
    }

    /// Writes the trace: `prefix.yaml` and `prefix.csv`, and `prefix.itl.csv` if the times of parts were recorded. `date` is
    /// the day of the run.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, prefix: &Path, date: &str) -> Result<(), RunError> {
        let [header, data, parts] = Self::files(prefix);
        let refused = |error: FileError| RunError::file(&error);
        let csv = |out: &mut dyn Write| self.data(out);
        write_pair(&header, |out| self.header(date, out), &data, csv).map_err(refused)?;
        if self.settings.record_itl {
            write_whole(&parts, |out| self.parts(out)).map_err(refused)?;
        }
        Ok(())
    }

    fn header(&self, date: &str, out: &mut dyn Write) -> io::Result<()> {
        let ObserveSettings { model, seed, .. } = &self.settings;
        write!(
            out,
            "trace_version: 3\ntime_unit: microseconds\ncreated_at: {}\nmode: real\nwarm_up_requests: 0\n\
             workload_seed: {}\nserver:\n  model: {}\n",
            serde_json::to_string(date)?,
            seed.cast_signed(),
            serde_json::to_string(model)?,
        )
    }

    fn data(&self, out: &mut dyn Write) -> io::Result<()> {
        let keys = format!("{BLOCK_KEYS}{}", self.settings.block_size);
        let any = |has: fn(&ObservedRequest) -> bool| self.records.iter().any(has);
        let mut columns: Vec<&str> = COLUMNS.to_vec();
        if any(|record| record.request.client_priority.is_some()) {
            columns.push(VLLM_PRIORITY);
        }
        if any(|record| record.request.tags.adapter != Name::NONE) {
            columns.push(ADAPTER);
        }
        columns.extend([MAX_TOKENS, CONNECT_TIME_US]);
        if any(|record| !record.request.content.spans().is_empty()) {
            columns.push(&keys);
        }
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(&columns)?;
        for record in &self.records {
            csv.write_record(columns.iter().map(|&column| self.field(column, record)))?;
        }
        csv.flush()
    }

    fn field(&self, column: &str, record: &ObservedRequest) -> String {
        let ObservedRequest { request, planned, exchange, .. } = record;
        let tags = &request.tags;
        let text = |name| self.names.text(name).to_owned();
        let or_zero = |time: Option<u64>| time.unwrap_or(0).to_string();
        match column {
            "request_id" => request.id.to_string(),
            "client_id" => text(tags.client),
            "tenant_id" => text(tags.tenant),
            "slo_class" => text(tags.slo_class),
            "session_id" => session_text(self.names.texts(), tags.session).into_owned(),
            "round_index" => tags.round_index.to_string(),
            "prefix_group" => text(tags.prefix_group),
            "streaming" => self.settings.streaming.to_string(),
            "input_tokens" => request.input_tokens.to_string(),
            "output_tokens" => record.output_tokens().unwrap_or(request.output_tokens).to_string(),
            "text_tokens" | "image_tokens" | "audio_tokens" | "video_tokens" | "reason_ratio" | "prefix_length" => {
                "0".to_owned()
            }
            "model" => self.settings.model.clone(),
            "deadline_us" => request.deadline.map_or(0, |deadline| deadline.max(*planned).0).to_string(),
            "server_input_tokens" => exchange.prompt_tokens.unwrap_or(0).to_string(),
            "arrival_time_us" => planned.0.to_string(),
            "send_time_us" => or_zero(exchange.sent_us),
            "first_chunk_time_us" => or_zero(exchange.first_us),
            "last_chunk_time_us" => or_zero(exchange.last_us),
            "num_chunks" => exchange.chunks.to_string(),
            "status" => trace_status(exchange.end.as_ref()).to_owned(),
            "error_message" => exchange.end.as_ref().map(ToString::to_string).unwrap_or_default(),
            "finish_reason" => exchange.finish_reason.clone(),
            VLLM_PRIORITY => request.client_priority.map_or_else(String::new, |priority| priority.to_string()),
            ADAPTER => text(tags.adapter),
            MAX_TOKENS => request.output_tokens.to_string(),
            CONNECT_TIME_US => exchange.connected_in_us.map_or_else(String::new, |time| time.to_string()),
            _ if column.starts_with(BLOCK_KEYS) => keys_text(&request.content),
            _ => String::new(),
        }
    }

    fn parts(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "request_id,chunk_index,timestamp_us")?;
        for record in &self.records {
            for (index, at) in record.exchange.chunks_us.iter().enumerate() {
                writeln!(out, "{},{index},{at}", record.request.id)?;
            }
        }
        Ok(())
    }
}

/// The four statuses of the format; the kind of error is in another column.
fn trace_status(end: Option<&ExchangeEnd>) -> &'static str {
    match end {
        Some(ExchangeEnd::Completed) => "ok",
        Some(ExchangeEnd::TimedOut) => "timeout",
        Some(ExchangeEnd::Interrupted) | None => "incomplete",
        Some(_) => "error",
    }
}
