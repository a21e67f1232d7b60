//! Evaluation results in the form that ShinkaEvolve reads.

use serde_json::{Value, json};

use crate::result::{EvaluationResult, EvaluationStatus};

/// The content of `metrics.json`.
#[must_use]
pub fn metrics(document: &EvaluationResult) -> Value {
    let feedback: Vec<String> = document.artifacts.texts().map(|(name, text)| format!("## {name}\n{text}")).collect();
    let figures = [json!(document.metrics), json!(document.features)].into_iter().filter_map(|figures| match figures {
        Value::Object(figures) => Some(figures),
        _ => None,
    });
    let public: serde_json::Map<String, Value> = figures.flatten().collect();
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
pub fn correct(document: &EvaluationResult) -> Value {
    let correct = document.status == EvaluationStatus::Ok;
    let error = if correct { Value::Null } else { json!(document.artifacts.error) };
    json!({"correct": correct, "error": error})
}
