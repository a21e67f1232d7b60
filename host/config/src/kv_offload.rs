//! BLIS's tiers below the GPU's KV cache: the file of `--kv-offload-config`, and the resolution for a deployment.
//!
//! Source: BLIS f90a1e3a (`engine.md` §3.4). Values that BLIS records without using them are checked, and ignored.

use std::path::Path;

use blis_diag::yaml::{ABOVE_0, Document, Entries, FROM_0, NumberRange, Spanned, Word, explain};
use blis_diag::{Diagnostic, Location, name_hint, unreadable};
use blis_sim::capacity::block_bytes;
use blis_sim::kv::tiers::{BlisTiers, ChainConfig, MirrorConfig, StorageTier};
use blis_sim::model::ModelConfig;
use blis_sim::units::Micros;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::ConfigError;

/// Longer files are refused, and headers of traces have no more either.
const BYTES_MAX: u64 = 1 << 20;

/// The tiers of the options, before the size of a KV block is known.
#[derive(Clone, Debug, PartialEq)]
pub enum TierArgs {
    /// `--kv-cpu-blocks` and the flags beside it.
    Mirror(MirrorConfig),
    /// `--kv-offload-config`.
    Offload(KvOffload),
}

/// The content of a file of `--kv-offload-config`.
#[derive(Clone, Debug, PartialEq)]
pub struct KvOffload {
    /// Where the size of the CPU tier is set.
    location: Location,
    /// Size of the CPU tier on one GPU of the group, bytes.
    cpu_bytes: u64,
    /// Size of a block on one GPU, bytes, if the file says it.
    block_bytes: Option<u64>,
    prompt_only: bool,
    storage: Vec<StorageTier>,
}

impl TierArgs {
    /// The tiers of a deployment of `model`, over `tensor` GPUs and with blocks of `block_size` tokens.
    ///
    /// # Errors
    /// If the size of a block is unknown, or the CPU tier cannot hold one.
    pub(super) fn resolve(
        &self,
        model: Option<&ModelConfig>,
        tensor: u32,
        block_size: u32,
    ) -> Result<BlisTiers, ConfigError> {
        match self {
            Self::Mirror(mirror) => Ok(BlisTiers::Mirror(*mirror)),
            Self::Offload(offload) => {
                let of_model = || block_bytes(model?, tensor, block_size);
                let Some(bytes) = offload.block_bytes.or_else(of_model) else {
                    return Err(ConfigError::Conflict {
                        message: "`--kv-offload-config` needs the size of a KV block, which is unknown".into(),
                        hint:
                            "put the model's Hugging Face `config.json` into a folder and give `--model-config-folder`"
                                .into(),
                    });
                };
                offload.chain(bytes).map(BlisTiers::Chain)
            }
        }
    }
}

impl KvOffload {
    /// Reads the file at `path`, for KV blocks of `block_size` tokens.
    ///
    /// # Errors
    /// The first mistake, with its location.
    pub fn load(path: &Path, block_size: u32) -> Result<Self, Diagnostic> {
        let file = path.display().to_string();
        let text = blis_diag::read_text(path, BYTES_MAX).map_err(|error| unreadable(&file, &error))?;
        Self::parse(&file, &text, block_size)
    }

    /// Parses `text`, the content of `file`.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn parse(file: &str, text: &str, block_size: u32) -> Result<Self, Diagnostic> {
        let reader = OffloadReader { document: Document { file: file.into(), text }, block_size, resolved: false };
        let Some(raw) = reader.read::<RawFile>()? else {
            let what = "the configuration of KV offloading is empty";
            let hint = "it has `kv_offload: { cpu_bytes_to_use: 8589934592 }`";
            return Err(Diagnostic::in_text(Location::start(file), text, what).hint(hint));
        };
        reader.offload(&raw)
    }

    /// The tiers in the header of a TraceV2 trace at `path`, which BLIS writes there with their resolved numbers; `None` if it has none,
    /// or cannot be read, which the reader of the trace reports.
    ///
    /// # Errors
    /// The first mistake, with its location.
    pub fn of_trace(path: &Path, block_size: u32) -> Result<Option<Self>, Diagnostic> {
        match blis_diag::read_text(path, BYTES_MAX) {
            Ok(text) => Self::parse_header(&path.display().to_string(), &text, block_size),
            Err(_) => Ok(None),
        }
    }

    fn parse_header(file: &str, text: &str, block_size: u32) -> Result<Option<Self>, Diagnostic> {
        let reader = OffloadReader { document: Document { file: file.into(), text }, block_size, resolved: true };
        let header = reader.read::<RawHeader>()?;
        let offload = header.and_then(|header| header.kv_offload);
        offload.map(|kv_offload| reader.offload(&RawFile { kv_offload, kv_offload_devices: None })).transpose()
    }

    /// Whether `other` has the same tiers.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.cpu_bytes, one.prompt_only, one.storage.clone());
        of(self) == of(other)
    }

    /// The chain of a deployment with KV blocks of `block_bytes` on one GPU.
    fn chain(&self, block_bytes: u64) -> Result<ChainConfig, ConfigError> {
        let cpu_blocks = self.cpu_bytes / block_bytes;
        if cpu_blocks == 0 {
            let what = format!(
                "`cpu_bytes_to_use` is {}, and one KV block takes {block_bytes} bytes on each GPU",
                self.cpu_bytes
            );
            let hint = "give room for at least one block";
            return Err(ConfigError::Parse(Diagnostic::new(what).at(self.location.clone()).hint(hint)));
        }
        let Self { prompt_only, ref storage, .. } = *self;
        Ok(ChainConfig { cpu_blocks, block_bytes, prompt_only, storage: storage.clone(), seed: 0 })
    }
}

/// The header of a trace, as far as it concerns tiers.
#[derive(Deserialize)]
struct RawHeader {
    kv_offload: Option<RawOffload>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    kv_offload: RawOffload,
    /// Further device classes, as a section of BLIS's `defaults.yaml` has them.
    kv_offload_devices: Option<Entries<RawDevice>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOffload {
    cpu_bytes_to_use: Word,
    per_block_bytes: Option<Word>,
    block_size: Option<Word>,
    blocks_per_chunk: Option<Word>,
    tokens_per_hash: Option<Word>,
    eviction_policy: Option<Word>,
    offload_prompt_only: Option<bool>,
    #[serde(rename = "self_describing_kv_events")]
    _self_describing_kv_events: Option<bool>,
    store_threshold: Option<Word>,
    #[serde(alias = "tiers")]
    secondary_tiers: Option<Vec<Spanned<RawTier>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTier {
    #[serde(rename = "type")]
    kind: Word,
    root_dir: Word,
    n_read_threads: Option<Word>,
    n_write_threads: Option<Word>,
    locality: Option<Word>,
    #[serde(rename = "enable_kv_events")]
    _enable_kv_events: Option<bool>,
    direct_io: Option<bool>,
    device_class: Option<Word>,
    read_bandwidth: Option<Word>,
    write_bandwidth: Option<Word>,
    base_latency: Option<Word>,
    saturation_queue_depth: Option<Word>,
    single_transfer_fraction: Option<Word>,
    latency_jitter_stddev: Option<Word>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDevice {
    read_bandwidth: Word,
    write_bandwidth: Word,
    base_latency: Word,
    saturation_queue_depth: Option<Word>,
    single_transfer_fraction: Option<Word>,
    latency_jitter_stddev: Option<Word>,
    buffered_read_bandwidth: Option<Word>,
    buffered_write_bandwidth: Option<Word>,
    buffered_base_latency: Option<Word>,
    buffered_saturation_queue_depth: Option<Word>,
    buffered_single_transfer_fraction: Option<Word>,
    buffered_latency_jitter_stddev: Option<Word>,
}

/// The device classes of BLIS: reads and writes in bytes per µs, time of a transfer beside that in µs.
const DEVICES: [(&str, [f64; 3]); 5] = [
    ("nvme_gen4", [7000.0, 5000.0, 80.0]),
    ("nvme_gen3", [3500.0, 3000.0, 100.0]),
    ("sata_ssd", [550.0, 500.0, 150.0]),
    ("cpu_dram", [20_000.0, 20_000.0, 1.0]),
    ("s3", [1000.0, 1000.0, 30_000.0]),
];

const FRACTION: NumberRange =
    NumberRange { fits: |number| number > 0.0 && number <= 1.0, text: "a number above 0, at most 1" };

/// Longest time of a transfer beside its bytes: 1000 s, after which requests do not wait for it.
const LATENCY: NumberRange =
    NumberRange { fits: |number| (0.0..=1e9).contains(&number), text: "a number of microseconds from 0 to 1e9" };

struct OffloadReader<'a> {
    document: Document<'a>,
    block_size: u32,
    /// Whether all values are resolved, and zeros left out: a trace header.
    resolved: bool,
}

impl OffloadReader<'_> {
    fn read<T: DeserializeOwned>(&self) -> Result<Option<T>, Diagnostic> {
        self.document.read().map_err(|error| {
            let (what, hint) = explain(&error);
            match error.location() {
                Some(at) => self.document.wrong(at, what, hint),
                None => Diagnostic::new(format!("{}: {what}", self.document.file)).hint(hint),
            }
        })
    }

    fn offload(&self, raw: &RawFile) -> Result<KvOffload, Diagnostic> {
        let offload = &raw.kv_offload;
        let cpu_bytes = self.document.whole("`cpu_bytes_to_use`", &offload.cpu_bytes_to_use, 1..=u64::MAX)?;
        let block_bytes = offload.per_block_bytes.as_ref();
        let block_bytes =
            block_bytes.map(|word| self.document.whole("`per_block_bytes`", word, 1..=u64::MAX)).transpose()?;
        self.check_chunks(offload)?;
        self.check_recorded(offload)?;
        let tiers = offload.secondary_tiers.as_deref().unwrap_or_default();
        Ok(KvOffload {
            location: self.document.location(offload.cpu_bytes_to_use.referenced),
            cpu_bytes,
            block_bytes,
            prompt_only: offload.offload_prompt_only.unwrap_or(!self.resolved),
            storage: tiers.iter().map(|tier| self.tier(tier, raw)).collect::<Result<_, _>>()?,
        })
    }

    /// Blocks are copied one by one.
    fn check_chunks(&self, raw: &RawOffload) -> Result<(), Diagnostic> {
        const HINT: &str = "BLIS offloads single blocks: leave it out";
        if let (Some(_), Some(blocks), false) = (&raw.block_size, &raw.blocks_per_chunk, self.resolved) {
            let what = "`blocks_per_chunk` and `block_size` set the same";
            return Err(self.document.wrong(blocks.referenced, what, "leave out one of them"));
        }
        if let Some(word) = &raw.block_size {
            let tokens = self.document.whole("`block_size`", word, 1..=u32::MAX)?;
            if tokens != self.block_size {
                let what = format!("`block_size` is {tokens}, and a KV block has {} tokens", self.block_size);
                return Err(self.document.wrong(word.referenced, what, HINT));
            }
        }
        if let Some(word) = &raw.blocks_per_chunk
            && self.document.whole("`blocks_per_chunk`", word, 1..=u32::MAX)? != 1
        {
            let what = format!("`blocks_per_chunk` is {}", word.value);
            return Err(self.document.wrong(word.referenced, what, HINT));
        }
        Ok(())
    }

    /// Values that may be given, and have no effect.
    fn check_recorded(&self, raw: &RawOffload) -> Result<(), Diagnostic> {
        if let Some(word) = &raw.tokens_per_hash {
            self.document.whole("`tokens_per_hash`", word, 1..=u32::MAX)?;
        }
        if let Some(word) = &raw.store_threshold
            && self.document.whole("`store_threshold`", word, 0..=u32::MAX)? > 1
        {
            let what = format!("`store_threshold` is {}", word.value);
            let hint = "with further tiers every block is stored: set 0 or 1, or leave it out";
            return Err(self.document.wrong(word.referenced, what, hint));
        }
        match &raw.eviction_policy {
            Some(word) if word.value == "arc" => {
                let hint = "BLIS simulates `lru` only: leave it out";
                Err(self.document.wrong(word.referenced, "`eviction_policy` is `arc`", hint))
            }
            Some(word) => self.one_of("`eviction_policy`", word, &["lru"]),
            None => Ok(()),
        }
    }

    fn tier(&self, tier: &Spanned<RawTier>, raw: &RawFile) -> Result<StorageTier, Diagnostic> {
        let Spanned { value: tier, referenced, .. } = tier;
        if tier.kind.value != "fs" {
            let what = format!("`type` is `{}`", tier.kind.value);
            return Err(self.document.wrong(tier.kind.referenced, what, "BLIS simulates tiers of type `fs` only"));
        }
        if tier.root_dir.value.is_empty() {
            return Err(self.document.wrong(tier.root_dir.referenced, "`root_dir` is empty", "name a folder"));
        }
        if let Some(word) = &tier.locality {
            self.one_of("`locality`", word, &["LOCAL", "REMOTE"])?;
        }
        let Some(direct_io) = tier.direct_io.or(self.resolved.then_some(false)) else {
            let hint = "add `direct_io: true`, or `false` for buffered access, which may have other times";
            return Err(self.document.wrong(*referenced, "`direct_io` is missing", hint));
        };
        let threads = |name: &str, word: &Option<Word>| match word {
            Some(word) => self.document.whole(name, word, 1..=65_536),
            None => Ok(16),
        };
        let (read_threads, write_threads) =
            (threads("`n_read_threads`", &tier.n_read_threads)?, threads("`n_write_threads`", &tier.n_write_threads)?);
        let class = tier.device_class.as_ref().filter(|_| !self.resolved);
        let class = class.map(|class| self.device(class, raw, direct_io)).transpose()?;
        let number = |name: &str, word: &Option<Word>, of_class: Option<f64>, range| match (word, of_class) {
            (Some(word), _) => self.document.number(format_args!("`{name}`"), word, range),
            (None, Some(number)) => Ok(number),
            (None, None) => {
                let hint = "give `read_bandwidth`, `write_bandwidth` and `base_latency`, or a `device_class`";
                Err(self.document.wrong(*referenced, format!("`{name}` is missing"), hint))
            }
        };
        let read = number("read_bandwidth", &tier.read_bandwidth, class.map(|class| class.read_bandwidth), ABOVE_0)?;
        let write =
            number("write_bandwidth", &tier.write_bandwidth, class.map(|class| class.write_bandwidth), ABOVE_0)?;
        let base = class.map(|class| class.base_latency).or(self.resolved.then_some(0.0));
        let base = number("base_latency", &tier.base_latency, base, LATENCY)?;
        let DeviceTimes { saturation_queue_depth, single_transfer_fraction, latency_jitter_stddev, .. } =
            class.unwrap_or_default();
        let depth = tier.saturation_queue_depth.as_ref();
        let depth = depth.map(|word| self.document.whole("`saturation_queue_depth`", word, 0..=65_536)).transpose()?;
        let (single, jitter) = (&tier.single_transfer_fraction, &tier.latency_jitter_stddev);
        Ok(StorageTier {
            read_threads,
            write_threads,
            read_bandwidth: read,
            write_bandwidth: write,
            base_latency: Micros(base.round() as u64),
            saturation_queue_depth: depth.unwrap_or(saturation_queue_depth),
            single_transfer_fraction: number(
                "single_transfer_fraction",
                single,
                Some(single_transfer_fraction),
                FRACTION,
            )?,
            latency_jitter_stddev: number("latency_jitter_stddev", jitter, Some(latency_jitter_stddev), FROM_0)?,
        })
    }

    /// The device class `name`, one of the file or of BLIS.
    fn device(&self, name: &Word, raw: &RawFile, direct_io: bool) -> Result<DeviceTimes, Diagnostic> {
        let own = raw.kv_offload_devices.as_ref().map_or(&[][..], |devices| &devices.0);
        if let Some((_, device)) = own.iter().find(|(class, _)| class.value == name.value) {
            return self.own_device(device, direct_io);
        }
        if let Some((_, numbers)) = DEVICES.iter().find(|(class, _)| *class == name.value) {
            let [read_bandwidth, write_bandwidth, base_latency] = *numbers;
            return Ok(DeviceTimes { read_bandwidth, write_bandwidth, base_latency, ..DeviceTimes::default() });
        }
        let own = own.iter().map(|(class, _)| class.value.as_str());
        let known: Vec<&str> = own.chain(DEVICES.iter().map(|(class, _)| *class)).collect();
        let what = format!("unknown device class `{}`", name.value);
        Err(self.document.wrong(name.referenced, what, name_hint(&name.value, &known)))
    }

    fn own_device(&self, device: &RawDevice, direct_io: bool) -> Result<DeviceTimes, Diagnostic> {
        /// The value of buffered access if that is wanted and given.
        fn chosen<'a>(buffered: &'a Option<Word>, direct: Option<&'a Word>, direct_io: bool) -> Option<&'a Word> {
            buffered.as_ref().filter(|_| !direct_io).or(direct)
        }
        let number = |name: &str, word: Option<&Word>, range| match word {
            Some(word) => self.document.number(format_args!("`{name}`"), word, range),
            None => Ok(0.0),
        };
        let depth = chosen(&device.buffered_saturation_queue_depth, device.saturation_queue_depth.as_ref(), direct_io);
        let depth = depth.map(|word| self.document.whole("`saturation_queue_depth`", word, 0..=65_536)).transpose()?;
        let RawDevice { read_bandwidth, write_bandwidth, base_latency, .. } = device;
        let read = chosen(&device.buffered_read_bandwidth, Some(read_bandwidth), direct_io);
        let write = chosen(&device.buffered_write_bandwidth, Some(write_bandwidth), direct_io);
        let base = chosen(&device.buffered_base_latency, Some(base_latency), direct_io);
        let single =
            chosen(&device.buffered_single_transfer_fraction, device.single_transfer_fraction.as_ref(), direct_io);
        let jitter = chosen(&device.buffered_latency_jitter_stddev, device.latency_jitter_stddev.as_ref(), direct_io);
        Ok(DeviceTimes {
            read_bandwidth: number("read_bandwidth", read, ABOVE_0)?,
            write_bandwidth: number("write_bandwidth", write, ABOVE_0)?,
            base_latency: number("base_latency", base, LATENCY)?,
            saturation_queue_depth: depth.unwrap_or(1),
            single_transfer_fraction: match single {
                Some(_) => number("single_transfer_fraction", single, FRACTION)?,
                None => 1.0,
            },
            latency_jitter_stddev: number("latency_jitter_stddev", jitter, FROM_0)?,
        })
    }

    fn one_of(&self, name: &str, word: &Word, known: &[&str]) -> Result<(), Diagnostic> {
        if known.contains(&word.value.as_str()) {
            return Ok(());
        }
        Err(self.document.wrong(word.referenced, format!("{name} is `{}`", word.value), name_hint(&word.value, known)))
    }
}

/// The times of a device class.
#[derive(Clone, Copy)]
struct DeviceTimes {
    read_bandwidth: f64,
    write_bandwidth: f64,
    base_latency: f64,
    saturation_queue_depth: u32,
    single_transfer_fraction: f64,
    latency_jitter_stddev: f64,
}

/// What BLIS writes where nothing is given: a constant bandwidth.
impl Default for DeviceTimes {
    fn default() -> Self {
        Self {
            read_bandwidth: 0.0,
            write_bandwidth: 0.0,
            base_latency: 0.0,
            saturation_queue_depth: 1,
            single_transfer_fraction: 1.0,
            latency_jitter_stddev: 0.0,
        }
    }
}

#[cfg(test)]
mod tests;
