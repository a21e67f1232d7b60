//! The run as a TraceV2 trace, two files.
//!
//! Arrivals are those that happened, follow-up rounds of sessions included. Two columns at the end hold what the
//! published columns cannot: the client's limit of output tokens (`max_tokens`) if it differs from the output length;
//! and which KV blocks are equal (`block_keys_N` for blocks of N tokens: runs of keys, `first+count`, in the order of
//! the tokens). With them a replay has the same results.

use std::collections::BTreeMap;
use std::io::{self, Write};

use blis_sim::outcome::Status;

use super::journal::{Journal, Journey};
use super::service::ServiceInfo;
use blis_sim::request::session_text;
use blis_workload::Names;
use blis_workload::trace_v2::{BLOCK_KEYS, COLUMNS, GoodputTargets, MAX_TOKENS, VLLM_PRIORITY, keys_text};

pub(super) fn header(about: &ServiceInfo, out: &mut dyn Write) -> io::Result<()> {
    let ServiceInfo { model, block_size, tensor_parallel, max_num_seqs, max_model_len, seed, slo_targets, .. } = about;
    let model = serde_json::to_string(model)?;
    write!(
        out,
        "trace_version: 3\ntime_unit: microseconds\nmode: replayed\nwarm_up_requests: 0\nworkload_seed: {}\n\
         server:\n  type: blis\n  model: {model}\n  tensor_parallel: {tensor_parallel}\n  \
         max_num_seqs: {max_num_seqs}\n  block_size: {block_size}\n",
        *seed as i64,
    )?;
    if let Some(longest) = max_model_len {
        writeln!(out, "  max_model_len: {longest}")?;
    }
    if slo_targets.is_empty() {
        return Ok(());
    }
    writeln!(out, "goodput_slo_targets:")?;
    for (class, GoodputTargets { ttft_ms, itl_ms, e2e_ms }) in slo_targets {
        let targets = [("ttft_ms", ttft_ms), ("itl_ms", itl_ms), ("e2e_ms", e2e_ms)];
        let targets = targets.into_iter().filter_map(|(key, ms)| Some((key, (*ms)?)));
        let targets = serde_json::to_string(&targets.collect::<BTreeMap<_, _>>())?;
        writeln!(out, "  {}: {targets}", serde_json::to_string(class)?)?;
    }
    Ok(())
}

/// Writes the requests in the order in which they arrived.
pub(super) fn data(journal: &Journal, about: &ServiceInfo, names: &Names, out: &mut dyn Write) -> io::Result<()> {
    let with_priority = journal.journeys.iter().any(|journey| journey.request.client_priority.is_some());
    let with_keys = journal.journeys.iter().any(|journey| !journey.request.content.spans().is_empty());
    let with_budgets =
        journal.journeys.iter().any(|Journey { request, .. }| request.max_output_tokens != Some(request.output_tokens));
    let keys = format!("{BLOCK_KEYS}{}", about.block_size);
    let mut csv = csv::Writer::from_writer(out);
    let mut columns: Vec<&str> = COLUMNS.to_vec();
    if with_priority {
        let after = columns.iter().position(|&column| column == "slo_class").map_or(columns.len(), |index| index + 1);
        columns.insert(after, VLLM_PRIORITY);
    }
    if with_budgets {
        columns.push(MAX_TOKENS);
    }
    if with_keys {
        columns.push(&keys);
    }
    csv.write_record(&columns)?;
    for journey in &journal.journeys {
        csv.write_record(columns.iter().map(|&column| field(column, journey, names)))?;
    }
    csv.flush()
}

fn field(column: &str, journey: &Journey, names: &Names) -> String {
    let request = &journey.request;
    let tags = &request.tags;
    let text = |name| names.text(name).to_owned();
    let outcome = journey.outcome.as_ref();
    let after_arrival =
        |time: Option<_>| time.map_or("0".to_owned(), |time| request.arrival.saturating_add(time).0.to_string());
    match column {
        "request_id" => request.id.to_string(),
        "client_id" => text(tags.client),
        "tenant_id" => text(tags.tenant),
        "slo_class" => text(tags.slo_class),
        "session_id" => session_text(names.texts(), tags.session).into_owned(),
        "round_index" => tags.round_index.to_string(),
        "prefix_group" => text(tags.prefix_group),
        "streaming" => "true".to_owned(),
        "input_tokens" => request.input_tokens.to_string(),
        "output_tokens" => request.output_tokens.to_string(),
        "text_tokens" | "image_tokens" | "audio_tokens" | "video_tokens" | "reason_ratio" | "prefix_length" => {
            "0".to_owned()
        }
        "model" => text(tags.model),
        "deadline_us" => request.deadline.map_or(0, |deadline| deadline.max(request.arrival).0).to_string(),
        "server_input_tokens" => request.input_tokens.to_string(),
        "arrival_time_us" | "send_time_us" => request.arrival.0.to_string(),
        "first_chunk_time_us" => after_arrival(outcome.and_then(|outcome| outcome.ttft)),
        "last_chunk_time_us" => {
            let last = |outcome: &blis_sim::outcome::Outcome| {
                Some(outcome.ttft? + outcome.itl_sum).filter(|_| outcome.completed())
            };
            after_arrival(outcome.and_then(last))
        }
        "num_chunks" => outcome.map_or(0, |outcome| outcome.generated_tokens).to_string(),
        "status" => match journey.failure() {
            None => "ok",
            Some("timeout") => "timeout",
            Some(_) => "incomplete",
        }
        .to_owned(),
        "error_message" => journey.failure().filter(|&word| word != "timeout").unwrap_or_default().to_owned(),
        "finish_reason" => match outcome.map(|outcome| outcome.status) {
            Some(Status::Completed | Status::LengthCapped) => "length".to_owned(),
            _ => String::new(),
        },
        VLLM_PRIORITY => request.client_priority.map_or_else(String::new, |priority| priority.to_string()),
        MAX_TOKENS => request.max_output_tokens.map_or_else(String::new, |tokens| tokens.to_string()),
        _ if column.starts_with(BLOCK_KEYS) => keys_text(&request.content),
        _ => String::new(),
    }
}
