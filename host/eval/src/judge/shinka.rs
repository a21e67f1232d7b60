//! Evaluation results in the form that ShinkaEvolve reads.

use serde_json::{Value, json};

use crate::verdict::{Status, VerdictDocument};

/// The content of `metrics.json`.
#[must_use]
pub fn metrics(document: &VerdictDocument) -> Value {
    let feedback: Vec<String> = document.artifacts.told().map(|(name, text)| format!("## {name}\n{text}")).collect();
    let public: serde_json::Map<String, Value> = document
        .metrics
        .iter()
        .chain(&document.features)
        .filter(|(name, _)| *name != "select_score")
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    json!({
        "combined_score": document.combined_score,
        "public": public,
        "private": document.private,
        "text_feedback": feedback.join("\n"),
        "extra_data": {"status": document.status, "stage": document.stage, "hashes": document.hashes},
    })
}

/// The content of `correct.json`.
#[must_use]
pub fn correct(document: &VerdictDocument) -> Value {
    let correct = document.status == Status::Ok;
    let error = if correct { Value::Null } else { json!(document.artifacts.error) };
    json!({"correct": correct, "error": error})
}
