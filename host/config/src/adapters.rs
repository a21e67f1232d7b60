//! LoRA adapters of a deployment: the file of `--lora-config`, and what follows from it for slots, memory and times.
//!
//! ```yaml
//! lora:
//!   adapter_capacity: 4                # slots on the GPU (`--max-loras`)
//!   adapters:
//!     - {id: sql, rank: 16}
//!     - {id: legal, rank: 8, base_model: llama-3.1-8b-instruct}
//! ```

use std::path::Path;

use blis_diag::yaml::{ABOVE_0, Document, Entries, FROM_0, Spanned, Word, explain};
use blis_diag::{Diagnostic, Location, name_hint, quoted};
use blis_sim::adapters::{AdapterCosts, AdapterSettings};
use blis_sim::model::ModelConfig;
use blis_sim::request::Name;
use blis_sim::units::Micros;
use serde::Deserialize;

use super::error::ConfigError;
use super::short_name;

/// Longer files are refused: some 80 000 adapters.
const BYTES_MAX: u64 = 4 << 20;

/// vLLM's defaults of `--max-loras` and `--max-lora-rank`.
const SLOTS: u32 = 1;
const MAX_RANK: u32 = 16;

/// The ranks that vLLM accepts for `--max-lora-rank`.
pub const RANKS: [u32; 9] = [1, 8, 16, 32, 64, 128, 256, 320, 512];

/// Time before the first byte of an adapter, µs: BLIS's default.
const LOAD_BASE_US: f64 = 1500.0;
/// Bandwidth of the disk, bytes/µs: an assumption. Adapters of 42 to 170 MB then take tens to hundreds of milliseconds, as
/// operators of vLLM report.
const DISK_BANDWIDTH: f64 = 1000.0;
/// Bandwidth from the host's memory, bytes/µs: one direction on an H100, as measured for KV blocks (vLLM's blog of 8 January
/// 2026).
const HOST_BANDWIDTH: f64 = 50_000.0;

/// BLIS's defaults: bytes/µs of a load, and bytes of an adapter per rank.
const BLIS_BANDWIDTH: f64 = 2e6;
const BLIS_FOOTPRINT: f64 = 2e6;

/// Share by which each distinct adapter of a batch lengthens a step, by rank: k6/k7 of BLIS f90a1e3a, calibrated on vLLM
/// (digital twin of adapter serving, arXiv 2508.08343).
const OVERHEADS: [(u32, f64); 3] = [(8, 0.02), (16, 0.035), (32, 0.06)];

/// The adapter settings of the user; what is not set is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdapterArgs {
    /// The adapters; `None`: every adapter that a request names exists, with the maximum rank.
    pub declared: Option<Vec<DeclaredAdapter>>,
    /// Adapters that fit the GPU (`--max-loras`), ≥ 1.
    pub slots: Option<u32>,
    /// Adapters that fit the host's memory (`--max-cpu-loras`), ≥ 1.
    pub host_slots: Option<u32>,
    /// The rank for which slots are allocated (`--max-lora-rank`), one of [`RANKS`].
    pub max_rank: Option<u32>,
    /// Time before the first byte of a load from disk, µs, ≥ 0.
    pub load_base_us: Option<f64>,
    /// Bandwidth of loads from disk, bytes/µs, > 0.
    pub load_bandwidth: Option<f64>,
    /// Bandwidth of copies from the host's memory, bytes/µs, > 0.
    pub host_bandwidth: Option<f64>,
    /// Bytes of an adapter per rank, > 0; by default those of the model's attention and dense MLPs.
    pub footprint: Option<f64>,
    /// Share by which each distinct adapter of a batch lengthens a step, ≥ 0, by rank.
    pub overheads: Option<Vec<(u32, f64)>>,
    /// BLIS's rules instead of vLLM's.
    pub as_in_blis: bool,
}

/// An adapter that a file declares.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredAdapter {
    /// The name that requests use.
    pub id: String,
    /// The rank of its matrices, ≥ 1.
    pub rank: u32,
    /// The model that it belongs to; `None` for any.
    pub base_model: Option<String>,
    /// Where it is declared.
    location: Location,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAdapterFile {
    lora: Spanned<RawLora>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawLora {
    adapter_capacity: Option<Word>,
    max_cpu_loras: Option<Word>,
    max_lora_rank: Option<Word>,
    load_base_latency_us: Option<Word>,
    load_bandwidth_bytes_us: Option<Word>,
    host_bandwidth_bytes_us: Option<Word>,
    footprint_bytes_per_rank: Option<Word>,
    step_overhead_tiers: Option<Entries<RawStepTier>>,
    adapters: Option<Vec<Spanned<RawAdapter>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStepTier {
    k6: Word,
    k7: Word,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAdapter {
    id: Word,
    rank: Word,
    base_model: Option<Word>,
}

impl AdapterArgs {
    /// Reads the file of `--lora-config`.
    ///
    /// # Errors
    /// The first mistake, with its location.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            blis_diag::read_text(path, BYTES_MAX).map_err(|source| ConfigError::Read { path: path.into(), source })?;
        Self::parse(&path.display().to_string(), &text).map_err(ConfigError::Parse)
    }

    /// Parses `text`, the content of `file`.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn parse(file: &str, text: &str) -> Result<Self, Diagnostic> {
        const FORM: &str = "a file of adapters has `lora: { adapters: [{id: sql, rank: 16}] }`";
        let document = Document { file: file.into(), text };
        let raw: Option<RawAdapterFile> = document.read().map_err(|error| {
            let (what, hint) = explain(&error);
            match error.location() {
                Some(at) => document.wrong(at, what, hint),
                None => Diagnostic::new(format!("{file}: {what}")).hint(hint),
            }
        })?;
        let Some(RawAdapterFile { lora: Spanned { value: raw, .. } }) = raw else {
            return Err(Diagnostic::in_text(Location::start(file), text, "the file of adapters is empty").hint(FORM));
        };
        let count = |name: &str, word: &Option<Word>| {
            word.as_ref().map(|word| document.whole(format_args!("`{name}`"), word, 1..=100_000_u32)).transpose()
        };
        let number = |name: &str, word: &Option<Word>, range| {
            word.as_ref().map(|word| document.number(format_args!("`{name}`"), word, range)).transpose()
        };
        let max_rank = count("max_lora_rank", &raw.max_lora_rank)?;
        if let (Some(rank), Some(word)) = (max_rank, &raw.max_lora_rank)
            && !RANKS.contains(&rank)
        {
            let what = format!("`max_lora_rank` is {rank}");
            return Err(document.wrong(word.referenced, what, ranks_hint()));
        }
        Ok(Self {
            declared: raw.adapters.as_deref().map(|adapters| declared(&document, adapters)).transpose()?,
            slots: count("adapter_capacity", &raw.adapter_capacity)?,
            host_slots: count("max_cpu_loras", &raw.max_cpu_loras)?,
            max_rank,
            load_base_us: number("load_base_latency_us", &raw.load_base_latency_us, FROM_0)?,
            load_bandwidth: number("load_bandwidth_bytes_us", &raw.load_bandwidth_bytes_us, ABOVE_0)?,
            host_bandwidth: number("host_bandwidth_bytes_us", &raw.host_bandwidth_bytes_us, ABOVE_0)?,
            footprint: number("footprint_bytes_per_rank", &raw.footprint_bytes_per_rank, ABOVE_0)?,
            overheads: raw.step_overhead_tiers.as_ref().map(|tiers| overheads(&document, tiers)).transpose()?,
            as_in_blis: false,
        })
    }
}

/// The hint for a rank that vLLM does not accept.
#[must_use]
pub fn ranks_hint() -> String {
    format!("it must be one of {}", RANKS.map(|rank| rank.to_string()).join(", "))
}

fn declared(document: &Document<'_>, raw: &[Spanned<RawAdapter>]) -> Result<Vec<DeclaredAdapter>, Diagnostic> {
    let mut adapters: Vec<DeclaredAdapter> = Vec::new();
    for Spanned { value, .. } in raw {
        let id = &value.id;
        if id.value.is_empty() {
            return Err(document.wrong(id.referenced, "an adapter without a name", "requests name it by its `id`"));
        }
        if adapters.iter().any(|other| other.id == id.value) {
            let what = format!("the adapter {} is declared twice", quoted(id.value.as_bytes()));
            return Err(document.wrong(id.referenced, what, "keep one of them"));
        }
        let rank = document.whole(format_args!("the rank of `{}`", id.value), &value.rank, 1..=65_536_u32)?;
        adapters.push(DeclaredAdapter {
            id: id.value.clone(),
            rank,
            base_model: value.base_model.as_ref().map(|word| word.value.clone()).filter(|name| !name.is_empty()),
            location: document.location(id.referenced),
        });
    }
    Ok(adapters)
}

fn overheads(document: &Document<'_>, tiers: &Entries<RawStepTier>) -> Result<Vec<(u32, f64)>, Diagnostic> {
    let mut overheads = Vec::new();
    for (rank, RawStepTier { k6, k7 }) in &tiers.0 {
        let tier = document.whole("the rank of a tier", rank, 1..=65_536_u32)?;
        let k6 = document.number(format_args!("`k6` of rank {tier}"), k6, FROM_0)?;
        let k7 = document.number(format_args!("`k7` of rank {tier}"), k7, ABOVE_0)?;
        overheads.push((tier, k6 / k7));
    }
    overheads.sort_by_key(|&(rank, _)| rank);
    Ok(overheads)
}

/// The adapters of a deployment: every setting has a value.
#[derive(Clone, Debug, PartialEq)]
pub struct DeployedAdapters {
    declared: Option<Vec<DeclaredAdapter>>,
    /// Adapters that fit the GPU.
    pub slots: u32,
    /// Adapters that fit the host's memory.
    pub host_slots: u32,
    /// The rank for which slots are allocated; in BLIS the largest that is declared.
    pub max_rank: u32,
    /// Bytes of an adapter per rank.
    pub footprint: f64,
    /// Memory that the slots take from the KV cache, GiB: of one GPU, in BLIS of all GPUs together.
    pub reserved_gib: f64,
    load_base_us: f64,
    load_bandwidth: f64,
    host_bandwidth: f64,
    overheads: Vec<(u32, f64)>,
    as_in_blis: bool,
}

/// The adapters that fit the host's memory, beside `slots` on the GPU; BLIS does not read the setting.
///
/// # Errors
/// If they are fewer than the slots, which vLLM refuses.
fn host_slots(args: &AdapterArgs, slots: u32) -> Result<u32, ConfigError> {
    match args.host_slots {
        Some(host) if host < slots && !args.as_in_blis => Err(ConfigError::Conflict {
            message: format!(
                "{host} adapters in the host's memory (`--max-cpu-loras`) are fewer than {slots} on the GPU (`--max-loras`)"
            ),
            hint: "an adapter on the GPU is in the host's memory, too: raise `--max-cpu-loras`, or lower `--max-loras`"
                .into(),
        }),
        host => Ok(host.unwrap_or(slots).max(slots)),
    }
}

impl DeployedAdapters {
    /// The adapters that a file declares.
    #[must_use]
    pub fn declared(&self) -> &[DeclaredAdapter] {
        self.declared.as_deref().unwrap_or_default()
    }

    /// The adapters of `model`, called `name`, with that tensor-parallel size; `None` if BLIS would leave them off: without
    /// adapters or without slots.
    ///
    /// # Errors
    /// If an adapter has a larger rank than the slots, fewer adapters fit the host's memory than the GPU, or their size is unknown.
    pub(super) fn new(
        args: &AdapterArgs,
        name: &str,
        model: Option<&ModelConfig>,
        tensor: u32,
    ) -> Result<Option<Self>, ConfigError> {
        let declared = args.declared.as_deref().unwrap_or_default();
        let largest = declared.iter().map(|adapter| adapter.rank).max();
        let (slots, max_rank) = match (args.as_in_blis, args.slots, largest) {
            (true, Some(slots), Some(largest)) => (slots, largest),
            (true, ..) => return Ok(None),
            (false, slots, _) => (slots.unwrap_or(SLOTS), args.max_rank.unwrap_or(MAX_RANK)),
        };
        if let Some(adapter) = declared.iter().find(|adapter| adapter.rank > max_rank) {
            let what =
                format!("the adapter `{}` has rank {}, and slots are for rank {max_rank}", adapter.id, adapter.rank);
            let fits = RANKS.iter().find(|&&rank| rank >= adapter.rank);
            let hint = fits.map_or("vLLM has no larger slots than for rank 512".to_owned(), |rank| {
                format!("add `--max-lora-rank {rank}`")
            });
            return Err(ConfigError::Parse(Diagnostic::new(what).at(adapter.location.clone()).hint(hint)));
        }
        let unknown = || ConfigError::NoModelConfig {
            model: name.into(),
            needed_for: "the size of adapters".into(),
            instead: ", or set `footprint_bytes_per_rank` in the file of `--lora-config`",
        };
        let (footprint, of_slot) = match (args.footprint, args.as_in_blis, model) {
            (Some(footprint), ..) => (footprint, footprint),
            (None, true, _) => (BLIS_FOOTPRINT, BLIS_FOOTPRINT),
            (None, false, Some(model)) => (bytes_per_rank(model, 1), bytes_per_rank(model, tensor)),
            (None, false, None) => return Err(unknown()),
        };
        let bandwidth = if args.as_in_blis { BLIS_BANDWIDTH } else { DISK_BANDWIDTH };
        Ok(Some(Self {
            declared: args.declared.clone(),
            slots,
            host_slots: host_slots(args, slots)?,
            max_rank,
            footprint,
            reserved_gib: f64::from(slots) * of_slot * f64::from(max_rank) / GIB,
            load_base_us: args.load_base_us.unwrap_or(LOAD_BASE_US),
            load_bandwidth: args.load_bandwidth.unwrap_or(bandwidth),
            host_bandwidth: args.host_bandwidth.unwrap_or(HOST_BANDWIDTH),
            overheads: args.overheads.clone().unwrap_or_else(|| OVERHEADS.to_vec()),
            as_in_blis: args.as_in_blis,
        }))
    }

    /// The settings of instances for requests that name the adapters `used`, each with the model that they name beside it
    /// (empty for none), on a service of `served` models.
    ///
    /// # Errors
    /// If one of them is not declared, or belongs to another model.
    pub fn settings<'a>(
        &self,
        used: impl Iterator<Item = (Name, &'a str, &'a str)>,
        served: &[&str],
    ) -> Result<AdapterSettings, Diagnostic> {
        let mut adapters = Vec::new();
        for (name, id, model) in used {
            let rank = match &self.declared {
                None => self.max_rank,
                Some(declared) => rank_of(declared, id, model, served)?,
            };
            adapters.push((name, self.costs(rank)));
        }
        Ok(AdapterSettings::new(self.slots, self.host_slots, adapters))
    }

    /// What an adapter of that rank costs.
    fn costs(&self, rank: u32) -> AdapterCosts {
        let bytes = self.footprint * f64::from(rank);
        let from_disk = if self.as_in_blis {
            // BLIS f90a1e3a, `engine.md` §8.2.
            (self.load_base_us + (bytes / self.load_bandwidth).ceil()).ceil().max(1.0)
        } else {
            self.load_base_us + bytes / self.load_bandwidth + bytes / self.host_bandwidth
        };
        // vLLM's kernels multiply whole slots, whatever the rank of the adapter in them.
        let computed = if self.as_in_blis { rank } else { self.max_rank };
        AdapterCosts {
            rank: computed,
            from_disk: Micros::from_f64(from_disk),
            from_host: Micros::from_f64(bytes / self.host_bandwidth),
            overhead: overhead(&self.overheads, computed),
        }
    }

    /// Time before the first byte of a load from disk, µs, and its bandwidth, bytes/µs.
    #[must_use]
    pub fn load_from_disk(&self) -> (f64, f64) {
        (self.load_base_us, self.load_bandwidth)
    }

    /// What users should know: the size of slots, and the times that are assumed.
    pub(super) fn note(&self) -> String {
        let Self { slots, max_rank, footprint, load_bandwidth, .. } = self;
        let slot_mb = footprint * f64::from(*max_rank) / 1e6;
        format!(
            "LoRA: {slots} slot(s) of {slot_mb:.1} MB for rank {max_rank} take {:.2} GiB from the KV cache; loads at {} GB/s from \
             disk, step times with k6/k7 of BLIS: not validated",
            self.reserved_gib,
            load_bandwidth / 1000.0
        )
    }
}

const GIB: f64 = (1_u64 << 30) as f64;

/// The rank of the adapter `id`, which requests of `model` (empty for none) name.
fn rank_of(declared: &[DeclaredAdapter], id: &str, model: &str, served: &[&str]) -> Result<u32, Diagnostic> {
    let Some(adapter) = declared.iter().find(|adapter| adapter.id == id) else {
        let known: Vec<&str> = declared.iter().map(|adapter| adapter.id.as_str()).collect();
        let what = format!("requests name the LoRA adapter {}, which is not declared", quoted(id.as_bytes()));
        return Err(
            Diagnostic::new(what).hint(format!("add it to `adapters` in `--lora-config`; {}", name_hint(id, &known)))
        );
    };
    let Some(base) = &adapter.base_model else { return Ok(adapter.rank) };
    let matches = |name: &str| short_name(name).eq_ignore_ascii_case(&short_name(base));
    let fits = if model.is_empty() { served.iter().any(|name| matches(name)) } else { matches(model) };
    if fits {
        return Ok(adapter.rank);
    }
    let asked = if model.is_empty() { served.join(", ") } else { model.to_owned() };
    let what = format!("requests name the LoRA adapter `{id}` of {base} on {asked}");
    Err(Diagnostic::new(what).at(adapter.location.clone()).hint("correct its `base_model`, or leave it out"))
}

/// The overhead of the nearest rank; the lower one of two that are equally near. 0 without any.
fn overhead(tiers: &[(u32, f64)], rank: u32) -> f64 {
    tiers.iter().min_by_key(|(tier, _)| tier.abs_diff(rank)).map_or(0.0, |&(_, overhead)| overhead)
}

/// Bytes of an adapter on one GPU of a group of `tensor`, per rank: its matrices A and B beside those of attention and of dense
/// MLPs, `d_in + d_out` numbers each. As in vLLM (without `fully_sharded_loras`) the matrix at the side that the tensor
/// parallel group does not share is whole on each GPU. Experts have no adapter here.
fn bytes_per_rank(model: &ModelConfig, tensor: u32) -> f64 {
    let (d, tp) = (f64::from(model.hidden_size), f64::from(tensor.max(1)));
    let head = f64::from(model.head_dim.unwrap_or(model.hidden_size / model.num_attention_heads.max(1)));
    let [queries, kv] = [model.num_attention_heads, model.num_key_value_heads].map(|heads| f64::from(heads) * head);
    let split_outputs = |inputs: f64, outputs: f64| inputs + outputs / tp;
    let split_inputs = |inputs: f64, outputs: f64| inputs / tp + outputs;
    let attention = split_outputs(d, queries) + 2.0 * split_outputs(d, kv) + split_inputs(queries, d);
    let width = f64::from(model.dense_intermediate_size.unwrap_or(model.intermediate_size));
    let mlp = 2.0 * split_outputs(d, width) + split_inputs(width, d);
    let layers = f64::from(model.num_hidden_layers);
    let dense = layers - f64::from(model.moe.map_or(0, |_| model.moe_layers()));
    (layers * attention + dense * mlp) * model.dtype_bytes
}

#[cfg(test)]
mod tests;
