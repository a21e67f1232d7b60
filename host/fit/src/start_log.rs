//! The start-up log of a vLLM server: its settings, and the memory of a GPU as the server measured it.
//!
//! Lines are recognised by vLLM's own words, whatever stands before them (process, date, source file); all others are left out. Words differ
//! between versions: 0.10 to 0.33 are read. A recognised line of which the number cannot be read is refused with its location.

use blis_diag::{Diagnostic, Location};
use serde::Serialize;

/// What a log says; `None` where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StartLog {
    /// Version of vLLM that wrote the log.
    pub version: Option<String>,
    /// Model, as the server was started with it.
    pub model: Option<String>,
    /// GPUs that share each layer.
    pub tensor_parallel_size: Option<u32>,
    /// Pipeline stages, 1 unless the log says more.
    pub pipeline_parallel_size: Option<u32>,
    /// Data-parallel ranks, 1 unless the log says more.
    pub data_parallel_size: Option<u32>,
    /// Share of the memory of a GPU that the server uses.
    pub gpu_memory_utilization: Option<f64>,
    /// Length of a request, tokens.
    pub max_model_len: Option<u64>,
    /// Maximum batch size, requests.
    pub max_num_seqs: Option<u32>,
    /// Token budget of a step.
    pub max_num_batched_tokens: Option<u32>,
    /// Whether kernels are launched without CUDA graphs.
    pub enforce_eager: Option<bool>,
    /// Memory that CUDA reports, GiB.
    pub total_gib: Option<f64>,
    /// "Model loading took".
    pub weights_gib: Option<f64>,
    /// "peak activation".
    pub activation_gib: Option<f64>,
    /// "non-torch" memory.
    pub non_torch_gib: Option<f64>,
    /// "consumed memory": weights and what is not PyTorch's.
    pub consumed_gib: Option<f64>,
    /// What was subtracted for CUDA graphs.
    pub graphs_estimate_gib: Option<f64>,
    /// What they took in the end.
    pub graphs_gib: Option<f64>,
    /// "Available KV cache memory"; below 0 where the server did not start.
    pub available_gib: Option<f64>,
    /// "GPU KV cache size", tokens.
    pub kv_cache_tokens: Option<u64>,
    /// "Maximum concurrency" of requests of `max_model_len`.
    pub max_concurrency: Option<f64>,
}

/// A log of which a line cannot be read, or which is of no start.
pub type StartLogError = Box<Diagnostic>;

/// Characters of a line that are looked at: settings are at its beginning.
const LINE_CHARS: usize = 64 << 10;

/// Reads the log `file` with the content `text`.
///
/// # Errors
/// If a recognised line has no number where one belongs, or no line has memory of a start.
pub fn read(file: &str, text: &str) -> Result<StartLog, StartLogError> {
    let mut log = StartLog::default();
    for (number, line) in (1..).zip(text.lines()) {
        let end = line.char_indices().nth(LINE_CHARS).map_or(line.len(), |(end, _)| end);
        let mut reader = LineOfLog { file, text, number, line: &line[..end] };
        reader.settings(&mut log)?;
        reader.memory(&mut log)?;
    }
    if log.weights_gib.is_none() && log.available_gib.is_none() && log.consumed_gib.is_none() {
        let what = "no line has the memory of a start (`Model loading took … GiB`, `Available KV cache memory: … GiB`)";
        let hint = "give the standard error of the server from its start on, with VLLM_LOGGING_LEVEL=INFO or DEBUG";
        return Err(Box::new(Diagnostic::new(what).at(Location::start(file)).hint(hint)));
    }
    Ok(log)
}

/// A line, and where it is.
struct LineOfLog<'a> {
    file: &'a str,
    text: &'a str,
    number: u64,
    line: &'a str,
}

impl<'a> LineOfLog<'a> {
    /// Settings: those of "non-default args" as a Python dictionary, and those of the engine's configuration.
    fn settings(&mut self, log: &mut StartLog) -> Result<(), StartLogError> {
        for word in ["API server version ", "LLM engine (v", "engine (version "] {
            if let Some(version) = self.after(word).map(version_word).filter(|version| !version.is_empty()) {
                log.version.get_or_insert_with(|| version.to_owned());
            }
        }
        let is_settings = self.line.contains("non-default args") || self.line.contains("with config:");
        if !is_settings {
            // Two settings have lines of their own where they follow from the GPU.
            if let Some(rest) = self.after("max_num_batched_tokens=").filter(|_| self.line.contains("hunked prefill")) {
                log.max_num_batched_tokens = Some(self.whole(rest)?);
            }
            return Ok(());
        }
        if let Some(model) = self.setting("model").or_else(|| self.setting("model_tag")) {
            log.model.get_or_insert_with(|| model.trim_matches(['\'', '"']).to_owned());
        }
        self.number_of("tensor_parallel_size", &mut log.tensor_parallel_size)?;
        self.number_of("pipeline_parallel_size", &mut log.pipeline_parallel_size)?;
        self.number_of("data_parallel_size", &mut log.data_parallel_size)?;
        self.number_of("max_num_seqs", &mut log.max_num_seqs)?;
        self.number_of("max_num_batched_tokens", &mut log.max_num_batched_tokens)?;
        for name in ["max_model_len", "max_seq_len"] {
            self.number_of(name, &mut log.max_model_len)?;
        }
        if let Some(value) = self.setting("gpu_memory_utilization") {
            log.gpu_memory_utilization = Some(self.decimal(value)?);
        }
        if let Some(value) = self.setting("enforce_eager") {
            log.enforce_eager = Some(value.starts_with("True"));
        }
        Ok(())
    }

    /// The memory of a GPU. Of several processes, the largest parts and the smallest rest count: vLLM takes the smallest, too.
    fn memory(&mut self, log: &mut StartLog) -> Result<(), StartLogError> {
        let largest = f64::max;
        self.gib_after("Model loading took ", &mut log.weights_gib, largest)?;
        self.gib_after("Available KV cache memory: ", &mut log.available_gib, f64::min)?;
        for word in ["for peak activation", "peak activation memory"] {
            self.gib_around(word, &mut log.activation_gib)?;
        }
        self.gib_after("torch peak memory increase: ", &mut log.activation_gib, largest)?;
        self.gib_around("for non-torch memory", &mut log.non_torch_gib)?;
        self.gib_after("non-torch forward increase memory: ", &mut log.non_torch_gib, largest)?;
        for word in ["for consumed memory", "consumed memory (weights + non-torch)", "consumed memory"] {
            self.gib_around(word, &mut log.consumed_gib)?;
        }
        self.gib_after("Estimated CUDA graph memory: ", &mut log.graphs_estimate_gib, largest)?;
        if let Some(rest) = self.after("Graph capturing finished").and_then(|rest| after(rest, "took ")) {
            log.graphs_gib = Some(self.gib(rest)?);
        }
        if let Some(rest) = self.after("Free memory on device").and_then(|rest| after(rest, "/")) {
            log.total_gib = Some(self.gib(rest)?);
        }
        if let Some(rest) = self.after("GPU KV cache size: ") {
            log.kv_cache_tokens = Some(self.whole(rest)?);
        }
        if let Some(rest) = self.after("Maximum concurrency for ") {
            log.max_model_len = Some(self.whole(rest)?);
            let Some(times) = after(rest, "per request: ") else { return Err(self.refused(rest, "a concurrency")) };
            log.max_concurrency = Some(self.decimal(times)?);
        }
        Ok(())
    }

    fn after(&self, word: &str) -> Option<&'a str> {
        after(self.line, word)
    }

    /// The text of a setting: `'name': value` or `name=value`.
    fn setting(&self, name: &str) -> Option<&'a str> {
        let found = [format!("'{name}': "), format!(" {name}="), format!("({name}=")];
        let value = found.iter().find_map(|word| self.after(word))?;
        let end = value.find([',', '}', ')']).unwrap_or(value.len());
        Some(&value[..end])
    }

    /// A whole number of that setting; `None` in Python stands for the default.
    fn number_of<N: TryFrom<u64>>(&self, name: &str, number: &mut Option<N>) -> Result<(), StartLogError> {
        if let Some(value) = self.setting(name).filter(|value| *value != "None") {
            *number = Some(self.whole(value)?);
        }
        Ok(())
    }

    /// The number of GiB after `word`, combined with one of before.
    fn gib_after(&self, word: &str, gib: &mut Option<f64>, combined: fn(f64, f64) -> f64) -> Result<(), StartLogError> {
        let Some(rest) = self.after(word) else { return Ok(()) };
        let read = self.gib(rest)?;
        *gib = Some(gib.map_or(read, |before| combined(before, read)));
        Ok(())
    }

    /// The number of GiB in front of `word` (`1.89 GiB for peak activation`), or after it (`consumed memory: 15.26 GiB`).
    fn gib_around(&self, word: &str, gib: &mut Option<f64>) -> Result<(), StartLogError> {
        let Some(at) = self.line.find(word) else { return Ok(()) };
        let front = self.line[..at].trim_end();
        let rest = match front.strip_suffix("GiB").map(str::trim_end) {
            Some(front) => &self.line[front.rfind([' ', '(']).map_or(0, |space| space + 1)..],
            None => self.line[at + word.len()..].trim_start_matches([':', ' ']),
        };
        // The words also stand in sentences without a figure.
        if rest.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
            let read = self.gib(rest)?;
            *gib = Some(gib.map_or(read, |before| before.max(read)));
        }
        Ok(())
    }

    /// A number of GiB; MiB are converted.
    fn gib(&self, rest: &'a str) -> Result<f64, StartLogError> {
        let number = self.decimal(rest)?;
        let unit = rest.trim_start_matches(is_decimal).trim_start();
        match unit {
            unit if unit.starts_with("GiB") || unit.starts_with("GB") => Ok(number),
            unit if unit.starts_with("MiB") => Ok(number / 1024.0),
            _ => Err(self.refused(rest, "a number of GiB")),
        }
    }

    fn decimal(&self, rest: &'a str) -> Result<f64, StartLogError> {
        let end = rest.find(|character| !is_decimal(character)).unwrap_or(rest.len());
        let number = rest[..end].replace(',', "").trim_end_matches('.').parse().ok();
        number
            .filter(|number: &f64| number.is_finite() && number.abs() < 1e9)
            .ok_or_else(|| self.refused(rest, "a number"))
    }

    fn whole<N: TryFrom<u64>>(&self, rest: &'a str) -> Result<N, StartLogError> {
        let end = rest.find(|character: char| !(character.is_ascii_digit() || character == ',')).unwrap_or(rest.len());
        let number = rest[..end].replace(',', "").parse::<u64>().ok();
        number.and_then(|number| N::try_from(number).ok()).ok_or_else(|| self.refused(rest, "a whole number"))
    }

    /// The error for `rest`, a part of the line, where `expected` belongs.
    fn refused(&self, rest: &str, expected: &str) -> StartLogError {
        let before = self.line.len() - rest.len();
        let column = self.line.get(..before).map_or(1, |before| before.chars().count() as u64 + 1);
        let word: String = rest.chars().take_while(|character| !character.is_whitespace()).take(40).collect();
        let location = Location::file(self.file).characters(self.number, column, word.chars().count().max(1) as u64);
        let what = format!("`{word}` is not {expected}");
        Box::new(
            Diagnostic::in_text(location, self.text, what)
                .hint("the line is one of vLLM's start: correct it, or leave it out"),
        )
    }
}

/// The text after `word`; both are parts of one text.
fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.find(word).map(|at| &text[at + word.len()..])
}

fn is_decimal(character: char) -> bool {
    character.is_ascii_digit() || matches!(character, '.' | ',' | '-')
}

/// The version at the beginning of a text.
fn version_word(text: &str) -> &str {
    let text = text.trim_start_matches('v');
    let end = text.find(|character: char| !(character.is_ascii_alphanumeric() || matches!(character, '.' | '+')));
    text[..end.unwrap_or(text.len())].trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "\
(APIServer pid=1) INFO 04-01 12:00:00 [api_server.py:1] vLLM API server version 0.19.0
(APIServer pid=1) INFO 04-01 12:00:00 [utils.py:1] non-default args: {'model': 'meta-llama/Llama-3.1-8B-Instruct', 'max_model_len': 8192, \
'gpu_memory_utilization': 0.95, 'tensor_parallel_size': 2, 'max_num_seqs': None, 'enforce_eager': True}
(APIServer pid=1) INFO 04-01 12:00:00 [config.py:1] Chunked prefill is enabled with max_num_batched_tokens=8192.
(Worker_TP0 pid=2) INFO [gpu_model_runner.py:4118] Model loading took 7.51 GiB memory and 3.2 seconds
(Worker_TP1 pid=3) INFO [gpu_model_runner.py:4118] Model loading took 7.50 GiB memory and 3.2 seconds
DEBUG [gpu_worker.py:1] Memory profiling takes 2.12 seconds. Total non KV cache memory: 11.47GiB; torch peak memory increase: 1.89GiB; \
non-torch forward increase memory: 2.07GiB; weights memory: 7.51GiB.
(Worker_TP0 pid=2) INFO [gpu_worker.py:298] Available KV cache memory: 63.76 GiB
(EngineCore_DP0 pid=2) INFO [kv_cache_utils.py:1087] GPU KV cache size: 1,044,608 tokens
(EngineCore_DP0 pid=2) INFO [kv_cache_utils.py:1091] Maximum concurrency for 8,192 tokens per request: 127.52x
INFO [gpu_model_runner.py:1] Graph capturing finished in 6 secs, took 0.55 GiB
";

    #[test]
    fn a_log_has_settings_and_memory() {
        let log = read("vllm.log", OLD).unwrap();
        assert_eq!(
            (log.version.as_deref(), log.model.as_deref()),
            (Some("0.19.0"), Some("meta-llama/Llama-3.1-8B-Instruct"))
        );
        assert_eq!(
            (log.tensor_parallel_size, log.max_num_seqs, log.max_num_batched_tokens),
            (Some(2), None, Some(8192))
        );
        assert_eq!(
            (log.gpu_memory_utilization, log.enforce_eager, log.max_model_len),
            (Some(0.95), Some(true), Some(8192))
        );
        assert_eq!((log.weights_gib, log.activation_gib, log.non_torch_gib), (Some(7.51), Some(1.89), Some(2.07)));
        assert_eq!((log.available_gib, log.graphs_gib), (Some(63.76), Some(0.55)));
        assert_eq!((log.kv_cache_tokens, log.max_concurrency), (Some(1_044_608), Some(127.52)));
    }

    #[test]
    fn newer_logs_have_one_line_and_consumed_memory() {
        let log = read(
            "vllm.log",
            "Initializing a V1 LLM engine (v0.31.0) with config: model='m', max_seq_len=131072, data_parallel_size=2, enforce_eager=False\n\
             Free memory on device cuda:0 (78.7/79.25 GiB) on startup. Desired GPU memory utilization is (0.92, 72.91 GiB). Actual usage is \
             15.26 GiB for consumed memory (weights + non-torch), 1.44 GiB for peak activation, and 0.23 GiB for CUDAGraph memory.\n\
             Available KV cache memory: 56.21 GiB\n\
             GPU KV cache size: 460,496 tokens, Maximum concurrency for 131,072 tokens per request: 3.51x\n",
        )
        .unwrap();
        assert_eq!(
            (log.version.as_deref(), log.data_parallel_size, log.max_model_len),
            (Some("0.31.0"), Some(2), Some(131_072))
        );
        assert_eq!((log.total_gib, log.consumed_gib, log.activation_gib), (Some(79.25), Some(15.26), Some(1.44)));
        assert_eq!((log.kv_cache_tokens, log.max_concurrency), (Some(460_496), Some(3.51)));
    }

    #[test]
    fn what_cannot_be_read_has_its_location() {
        let refused = |text: &str| read("vllm.log", text).unwrap_err().to_string();
        insta::assert_snapshot!(refused("x\nINFO Available KV cache memory: n/a GiB"), @r"
        vllm.log:2:33: `n/a` is not a number
          2 | INFO Available KV cache memory: n/a GiB
            |                                 ^^^
        hint: the line is one of vLLM's start: correct it, or leave it out
        ");
        insta::assert_snapshot!(refused("GPU KV cache size: many tokens"), @r"
        vllm.log:1:20: `many` is not a whole number
          1 | GPU KV cache size: many tokens
            |                    ^^^^
        hint: the line is one of vLLM's start: correct it, or leave it out
        ");
        insta::assert_snapshot!(refused("Model loading took 7 apples"), @r"
        vllm.log:1:20: `7` is not a number of GiB
          1 | Model loading took 7 apples
            |                    ^
        hint: the line is one of vLLM's start: correct it, or leave it out
        ");
        insta::assert_snapshot!(refused("INFO: 127.0.0.1 - \"GET /health HTTP/1.1\" 200 OK"), @r"
        vllm.log:1:1: no line has the memory of a start (`Model loading took … GiB`, `Available KV cache memory: … GiB`)
        hint: give the standard error of the server from its start on, with VLLM_LOGGING_LEVEL=INFO or DEBUG
        ");
        assert!(read("vllm.log", "Available KV cache memory: -2.14 GiB").is_ok());
    }
}
