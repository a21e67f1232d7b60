//! The keys of a specification for serde: every value is text that `parse` interprets, so that errors can say which
//! values are valid instead of YAML's type names.

use serde::Deserialize;

pub(super) use blis_diag::yaml::{Entries, Spanned, Word};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawSpec {
    pub version: Option<Word>,
    pub seed: Option<Word>,
    pub category: Option<Word>,
    pub aggregate_rate: Option<Word>,
    pub num_requests: Option<Word>,
    pub horizon: Option<Word>,
    pub clients: Option<Vec<Spanned<RawClient>>>,
    pub cohorts: Option<Vec<Spanned<RawClient>>>,
    pub parts: Option<Entries<RawPart>>,
    pub servegen_data: Option<Spanned<RawServeGen>>,
    pub inference_perf: Option<Spanned<RawInferencePerf>>,
    pub goodput_slo_targets: Option<Entries<RawTargets>>,
}

/// The settings of a part, which replace those of the specification for its clients.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawPart {
    pub aggregate_rate: Option<Word>,
    pub num_requests: Option<Word>,
    pub horizon: Option<Word>,
}

/// A client or a cohort.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawClient {
    pub id: Option<Word>,
    pub part: Option<Word>,
    pub tenant_id: Option<Word>,
    pub slo_class: Option<Word>,
    pub model: Option<Word>,
    pub adapter: Option<Word>,
    pub rate_fraction: Option<Word>,
    pub concurrency: Option<Word>,
    pub sessions: Option<Word>,
    pub think_time_us: Option<Word>,
    pub arrival: Option<Spanned<RawArrival>>,
    pub input_distribution: Option<Spanned<RawLengths>>,
    pub output_distribution: Option<Spanned<RawLengths>>,
    pub max_tokens: Option<Word>,
    pub prefix_group: Option<Word>,
    pub prefix_length: Option<Word>,
    pub streaming: Option<Word>,
    pub network: Option<RawNetwork>,
    pub lifecycle: Option<Spanned<RawLifecycle>>,
    pub multimodal: Option<Spanned<RawMultimodal>>,
    pub reasoning: Option<RawReasoning>,
    pub timeout: Option<Word>,
    pub slo_target_us: Option<Word>,
    pub closed_loop: Option<Word>,
    pub sampling: Option<Spanned<RawSampling>>,
    pub prompt_cycle: Option<Spanned<RawPromptCycle>>,
    pub population: Option<Word>,
    pub prefix_sharing: Option<Word>,
    pub diurnal: Option<Spanned<RawDiurnal>>,
    pub spike: Option<Spanned<RawSpike>>,
    pub drain: Option<Spanned<RawDrain>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawArrival {
    pub process: Option<Word>,
    pub cv: Option<Word>,
    pub shape: Option<Word>,
    pub scale: Option<Word>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLengths {
    #[serde(rename = "type")]
    pub kind: Option<Word>,
    pub params: Option<Entries<Word>>,
    pub file: Option<Word>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawNetwork {
    pub rtt_ms: Option<Word>,
    pub bandwidth_mbps: Option<Word>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLifecycle {
    pub windows: Option<Vec<Spanned<RawWindow>>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawWindow {
    pub start_us: Option<Word>,
    pub end_us: Option<Word>,
    pub trace_rate: Option<Word>,
    pub rate: Option<Word>,
    pub requests: Option<Word>,
    pub arrival: Option<Spanned<RawArrival>>,
    pub input_distribution: Option<Spanned<RawLengths>>,
    pub output_distribution: Option<Spanned<RawLengths>>,
    pub reason_ratio_distribution: Option<Spanned<RawLengths>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawMultimodal {
    pub text_distribution: Option<Spanned<RawLengths>>,
    pub image_distribution: Option<Spanned<RawLengths>>,
    pub image_count_distribution: Option<Spanned<RawLengths>>,
    pub audio_distribution: Option<Spanned<RawLengths>>,
    pub audio_count_distribution: Option<Spanned<RawLengths>>,
    pub video_distribution: Option<Spanned<RawLengths>>,
    pub video_count_distribution: Option<Spanned<RawLengths>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawReasoning {
    pub reason_ratio_distribution: Option<Spanned<RawLengths>>,
    pub multi_turn: Option<Spanned<RawMultiTurn>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawMultiTurn {
    pub max_rounds: Option<Word>,
    pub think_time_us: Option<Word>,
    pub context_growth: Option<Word>,
    pub single_session: Option<Word>,
    pub rounds_distribution: Option<Spanned<RawLengths>>,
    pub think_time_ms_distribution: Option<Spanned<RawLengths>>,
    pub opening_distribution: Option<Spanned<RawLengths>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawPromptCycle {
    pub groups: Option<Word>,
    pub prompts_per_group: Option<Word>,
    pub system_prompt_len: Option<Word>,
    pub conversations: Option<Word>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawSampling {
    pub temperature: Option<Word>,
    pub top_k: Option<Word>,
    pub top_p: Option<Word>,
    pub min_p: Option<Word>,
    pub repetition_penalty: Option<Word>,
    pub presence_penalty: Option<Word>,
    pub frequency_penalty: Option<Word>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawDiurnal {
    pub peak_hour: Option<Word>,
    pub peak_to_trough_ratio: Option<Word>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawSpike {
    pub start_time_us: Option<Word>,
    pub duration_us: Option<Word>,
    pub trace_rate: Option<Word>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawDrain {
    pub start_time_us: Option<Word>,
    pub ramp_duration_us: Option<Word>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTargets {
    pub ttft_ms: Option<Word>,
    pub itl_ms: Option<Word>,
    pub e2e_ms: Option<Word>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawServeGen {
    pub path: Option<Word>,
    pub start_secs: Option<Word>,
    pub duration_secs: Option<Word>,
    pub window_duration_secs: Option<Word>,
    pub drain_timeout_secs: Option<Word>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawInferencePerf {
    pub stages: Option<Vec<RawStage>>,
    pub shared_prefix: Option<Spanned<RawSharedPrefix>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawStage {
    pub rate: Option<Word>,
    pub duration: Option<Word>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawSharedPrefix {
    pub num_unique_system_prompts: Option<Word>,
    pub num_users_per_system_prompt: Option<Word>,
    pub system_prompt_len: Option<Word>,
    pub question_len: Option<Word>,
    pub output_len: Option<Word>,
    pub enable_multi_turn_chat: Option<Word>,
}
