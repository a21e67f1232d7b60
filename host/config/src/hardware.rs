//! GPUs: the files of `hardware/`, and the JSON table of older BLIS versions.

mod kernels;
mod measurements;
mod names;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{LazyLock, OnceLock};

use blis_sim::energy::GpuPower;
use blis_sim::model::{Gpu, Mfu};
use serde::Deserialize;

use self::measurements::{DEFAULT, KernelsEntry, LinksEntry, NodeEntry, OwnMeasurements};
pub(super) use self::names::UsualGpu;
pub use self::names::same as same_hardware;
use super::embedded;
use super::error::{ConfigError, known_hint};
use blis_diag::Diagnostic;

pub use self::kernels::MeasuredKernels;
pub use self::measurements::Network;

/// Longer files are refused as descriptions of GPUs.
const BYTES_MAX: u64 = 1 << 20;

/// A GPU with its names and figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// Name of its file, without extension.
    pub name: String,
    pub aliases: Vec<String>,
    pub gpu: Gpu,
    /// Memory that programs can allocate, GiB: what CUDA reports.
    pub usable_gib: f64,
    /// Its power; `None` if its file has no limit.
    pub power: Option<GpuPower>,
    /// FP8 peak in BLIS's table, TFLOPS, which BLIS's latency models take.
    pub blis_tflops_fp8: f64,
    /// What its file says about its kernels and links; `None`: an embedded file, see [`Hardware::own`].
    own: Option<OwnMeasurements>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// All GPUs that a deployment can name: those of `--hardware-config` first, then the embedded ones.
///
/// An embedded file is read when its GPU is first asked for: reading all takes longer than a short simulation.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// Those of `--hardware-config`.
    given: Vec<Hardware>,
}

/// A file of `hardware/` in the program.
struct EmbeddedGpu {
    path: &'static Path,
    text: &'static str,
    /// Without `own`.
    hardware: OnceLock<Hardware>,
    own: OnceLock<OwnMeasurements>,
}

static EMBEDDED: LazyLock<Vec<EmbeddedGpu>> = LazyLock::new(|| {
    let unread = |(path, text)| EmbeddedGpu { path, text, hardware: OnceLock::new(), own: OnceLock::new() };
    embedded::hardware().map(unread).collect()
});

impl EmbeddedGpu {
    fn name(&self) -> &'static str {
        self.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
    }

    /// The GPU without its measurements, which are most of a file and of use to one latency model only.
    fn hardware(&self) -> &Hardware {
        self.hardware.get_or_init(|| {
            let measured = ["\nkernels:", "\nlinks:", "\nnode:"].iter().filter_map(|key| self.text.find(key)).min();
            let (figures, _) = self.text.split_at(measured.map_or(self.text.len(), |end| end + 1));
            Hardware { own: None, ..self.read(figures) }
        })
    }

    fn own(&self) -> &OwnMeasurements {
        self.own.get_or_init(|| self.read(self.text).own.unwrap_or_default())
    }

    fn read(&self, text: &str) -> Hardware {
        let read = parse_yaml(&Path::new("hardware").join(self.path), text);
        read.expect("embedded files are read by a test")
    }
}

impl Hardware {
    fn names(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.name).chain(&self.aliases)
    }

    /// The GPU whose kernels stand in for this one's, which were not measured; `None` if they were.
    #[must_use]
    pub fn kernels_of(&self) -> Option<&str> {
        let own = self.own();
        match own.kernels {
            Some(_) => None,
            None => Some(own.kernels_of.as_deref().unwrap_or(DEFAULT)),
        }
    }

    /// What its file says about its kernels and links. That of an embedded file is read when first asked for.
    fn own(&self) -> &OwnMeasurements {
        let embedded = || EMBEDDED.iter().find(|file| file.name() == self.name).expect("all others have their own");
        self.own.as_ref().unwrap_or_else(|| embedded().own())
    }

    /// The figures that BLIS's latency models take.
    #[must_use]
    pub fn blis_gpu(&self) -> Gpu {
        Gpu { tflops_fp8: self.blis_tflops_fp8, ..self.gpu }
    }
}

impl Catalogue {
    /// Reads `path`, a file or a folder of files (`*.yaml`, `*.yml`, `*.json`), if it is given; the embedded files are
    /// always part of it.
    ///
    /// # Errors
    /// If a file cannot be read or its content is invalid.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let mut given = Vec::new();
        let Some(path) = path else { return Ok(Self { given }) };
        for file in files(path)? {
            let text = blis_diag::read_text(&file, BYTES_MAX)
                .map_err(|source| ConfigError::Read { path: file.clone(), source })?;
            given.extend(parse(&file, &text)?);
        }
        if given.is_empty() {
            let none = Diagnostic::new("no GPU file found").hint("give a .yaml or .json file, or their folder");
            return Err(ConfigError::in_file(path, none));
        }
        Ok(Self { given })
    }

    /// The GPU with that name or alias. Case, separators and the maker's name do not matter: `nvidia h100_sxm`.
    ///
    /// # Errors
    /// If the name is unknown.
    pub fn find(&self, name: &str) -> Result<&Hardware, ConfigError> {
        let has_name = |entry: &&Hardware| entry.names().any(|known| names::same(known, name));
        let by_file = || EMBEDDED.iter().find(|file| names::same(file.name(), name)).map(EmbeddedGpu::hardware);
        let by_alias = || EMBEDDED.iter().map(EmbeddedGpu::hardware).find(has_name);
        let usual = || {
            let meant = UsualGpu::of(name)?.meant;
            EMBEDDED.iter().find(|file| file.name() == meant).map(EmbeddedGpu::hardware)
        };
        self.given.iter().find(has_name).or_else(by_file).or_else(by_alias).or_else(usual).ok_or_else(|| {
            let mut known: Vec<String> = self.entries().flat_map(Hardware::names).cloned().collect();
            known.sort();
            known.dedup();
            ConfigError::unknown(
                "hardware",
                name,
                known,
                Some("`blis hardware` lists them; or describe one in a file and give `--hardware-config`"),
            )
        })
    }

    /// The GPU of `--hardware-config`, if there is exactly one.
    #[must_use]
    pub fn only_given(&self) -> Option<&Hardware> {
        if let [only] = self.given.as_slice() { Some(only) } else { None }
    }

    /// All GPUs, those of `--hardware-config` first.
    pub fn entries(&self) -> impl Iterator<Item = &Hardware> {
        self.given.iter().chain(EMBEDDED.iter().map(EmbeddedGpu::hardware))
    }
}

fn files(path: &Path) -> Result<Vec<std::path::PathBuf>, ConfigError> {
    let read = |source| ConfigError::Read { path: path.into(), source };
    if !fs::metadata(path).map_err(read)?.is_dir() {
        return Ok(vec![path.into()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(read)? {
        let file = entry.map_err(read)?.path();
        if file.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json") {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads a file of GPUs: JSON if the extension of `path` is `json`, YAML otherwise.
///
/// # Errors
/// If the content is invalid.
pub fn parse(path: &Path, text: &str) -> Result<Vec<Hardware>, ConfigError> {
    if path.extension().is_some_and(|end| end == "json") {
        let table: BTreeMap<String, HardwareEntry> =
            serde_json::from_str(text).map_err(|error| with_known_keys(ConfigError::json(path, &error)))?;
        return table.into_iter().map(|(name, entry)| entry.check(path, Some(name))).collect();
    }
    Ok(vec![parse_yaml(path, text)?])
}

fn parse_yaml(path: &Path, text: &str) -> Result<Hardware, ConfigError> {
    let entry: HardwareEntry =
        blis_diag::yaml::from_str(text).map_err(|error| with_known_keys(ConfigError::yaml(path, &error)))?;
    entry.check(path, path.file_stem().map(|stem| stem.to_string_lossy().into_owned()))
}

/// Share of the memory that CUDA reports, where a file does not say: 79.2 of 80 GiB on H100 and A100.
const USABLE_SHARE: f64 = 0.99;

/// The current keys. The reader also accepts the keys of older BLIS versions, which messages leave out.
const KEYS: [&str; 20] = [
    "name",
    "aliases",
    "tflops_fp16",
    "tflops_fp8",
    "tflops_fp4",
    "blis_tflops_fp8",
    "tflops_fp32",
    "hbm_tb_s",
    "l2_mb",
    "memory_gib",
    "usable_gib",
    "mfu_prefill",
    "mfu_decode",
    "kernels",
    "kernels_of",
    "links",
    "links_of",
    "node",
    "source",
    "note",
];

/// Lists the current keys in the message about an unknown key.
fn with_known_keys(error: ConfigError) -> ConfigError {
    let ConfigError::Parse(diagnostic) = error else { return error };
    ConfigError::Parse(match diagnostic.what.split_once(", expected one of ") {
        Some((unknown, _)) => {
            let key = unknown.split('`').nth(1).unwrap_or_default();
            Diagnostic { what: unknown.to_owned(), ..diagnostic.clone() }.hint(known_hint(key, &KEYS))
        }
        None => diagnostic,
    })
}

/// A GPU in a file, with the current keys and those of older BLIS versions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HardwareEntry {
    name: Option<String>,
    #[serde(default)]
    aliases: Vec<String>,
    #[serde(alias = "TFlopsPeak", alias = "compute_tflops_fp16")]
    tflops_fp16: Option<f64>,
    #[serde(alias = "TFlopsFP8")]
    tflops_fp8: Option<f64>,
    tflops_fp4: Option<f64>,
    /// The figure of BLIS's table, where it is another.
    blis_tflops_fp8: Option<f64>,
    /// Peak without tensor cores, for `--dtype float32`.
    tflops_fp32: Option<f64>,
    #[serde(alias = "BwPeakTBs", alias = "BwEffTBs")]
    hbm_tb_s: Option<f64>,
    l2_mb: Option<f64>,
    #[serde(alias = "MemoryGiB", alias = "memory_gb")]
    memory_gib: Option<f64>,
    /// Memory that CUDA reports, GiB, where it is not known from `memory_gib`.
    usable_gib: Option<f64>,
    #[serde(alias = "mfuPrefill")]
    mfu_prefill: Option<f64>,
    #[serde(alias = "mfuDecode")]
    mfu_decode: Option<f64>,
    /// Power limit, W: the TDP.
    max_power_w: Option<f64>,
    #[serde(rename = "source")]
    _source: Option<String>,
    note: Option<String>,
    kernels: Option<KernelsEntry>,
    /// The GPU that lends its curves, as shares of this one's peaks.
    kernels_of: Option<String>,
    links: Option<LinksEntry>,
    /// The GPU whose links are used.
    links_of: Option<String>,
    node: Option<NodeEntry>,

    /// Attainable instead of peak throughput, 10¹² operations per second: utilisation is then 1.
    #[serde(rename = "TFlopsEff")]
    tflops_effective: Option<f64>,
    /// Memory bandwidth, GB/s (10⁹ bytes per second).
    memory_bandwidth_gb_s: Option<f64>,

    // Keys of the first BLIS versions that no latency model here uses.
    sm_count: Option<f64>,
    #[serde(rename = "BwEffConstant")]
    bw_eff_constant: Option<f64>,
    #[serde(rename = "TOverheadMicros")]
    t_overhead_micros: Option<f64>,
    #[serde(rename = "perLayerOverhead")]
    per_layer_overhead: Option<f64>,
    #[serde(rename = "allReduceLatency")]
    all_reduce_latency: Option<f64>,
    #[serde(rename = "tpScalingExponent")]
    tp_scaling_exponent: Option<f64>,
    #[serde(rename = "mfuPrefillMultiplier")]
    mfu_prefill_multiplier: Option<f64>,
    #[serde(rename = "mfuDecodeMultiplier")]
    mfu_decode_multiplier: Option<f64>,
    #[serde(rename = "prefillBwFactor")]
    prefill_bw_factor: Option<f64>,
    #[serde(rename = "decodeBwFactor")]
    decode_bw_factor: Option<f64>,
    #[serde(rename = "vectorPeakFraction")]
    vector_peak_fraction: Option<f64>,
    #[serde(rename = "prefillOverheadMicros")]
    prefill_overhead_micros: Option<f64>,
    #[serde(rename = "mixedPrefillOverheadMicros")]
    mixed_prefill_overhead_micros: Option<f64>,
}

impl HardwareEntry {
    fn check(self, path: &Path, default_name: Option<String>) -> Result<Hardware, ConfigError> {
        let unused = self.unused_keys();
        let name = self.name.or(default_name).unwrap_or_default();
        let wrong =
            |message: String| Err(ConfigError::in_file(path, Diagnostic::new(format!("GPU `{name}`: {message}"))));
        if self.tflops_effective.is_some() && self.tflops_fp16.is_some() {
            return wrong("`TFlopsEff` and a peak figure are given; give one".into());
        }
        let effective_mfu = self.tflops_effective.map(|_| 1.0);
        let (prefill, decode) = (self.mfu_prefill.or(effective_mfu), self.mfu_decode.or(effective_mfu));
        let hbm_tb_s = self.hbm_tb_s.or(self.memory_bandwidth_gb_s.map(|gb_s| gb_s / 1000.0));
        let figures = [
            ("tflops_fp16", self.tflops_fp16.or(self.tflops_effective), true),
            ("hbm_tb_s", hbm_tb_s, true),
            ("tflops_fp8", self.tflops_fp8.or(Some(0.0)), false),
            ("memory_gib", self.memory_gib.or(Some(0.0)), false),
            ("blis_tflops_fp8", self.blis_tflops_fp8.or(self.tflops_fp8).or(Some(0.0)), false),
            ("tflops_fp32", self.tflops_fp32.or(Some(0.0)), false),
            ("tflops_fp4", self.tflops_fp4.or(Some(0.0)), false),
            ("l2_mb", self.l2_mb.or(Some(0.0)), false),
        ];
        let mut values = [0.0; 8];
        for ((key, value, required), slot) in figures.into_iter().zip(&mut values) {
            *slot = match value {
                None => return wrong(format!("`{key}` is missing")),
                Some(value) if !value.is_finite() || value < 0.0 || (required && value == 0.0) => {
                    return wrong(format!("`{key}` is {value}: it must be a positive number"));
                }
                Some(value) => value,
            };
        }
        let usable_gib = self.usable_gib.unwrap_or(values[3] * USABLE_SHARE);
        if !(0.0..=values[3]).contains(&usable_gib) {
            return wrong(format!("`usable_gib` is {usable_gib}: it must be at most `memory_gib`, {}", values[3]));
        }
        let mfu = match (prefill, decode) {
            (None, None) => None,
            (Some(prefill), Some(decode)) => Some(Mfu { prefill, decode }),
            _ => return wrong("give both `mfu_prefill` and `mfu_decode`, or neither".into()),
        };
        if mfu.is_some_and(|mfu| [mfu.prefill, mfu.decode].iter().any(|share| !(*share > 0.0 && *share <= 1.0))) {
            return wrong("`mfu_prefill` and `mfu_decode` must lie in (0, 1]".into());
        }
        if let Some(limit) = self.max_power_w.filter(|limit| !(limit.is_finite() && *limit > 0.0)) {
            return wrong(format!("`max_power_w` is {limit}: it must be a positive number"));
        }
        let [tflops_fp16, hbm_tb_s, tflops_fp8, memory_gib, blis_tflops_fp8, tflops_fp32, tflops_fp4, l2_mb] = values;
        let mut notes: Vec<String> = self.note.map(|note| format!("{name}: {note}")).into_iter().collect();
        if !unused.is_empty() {
            notes.push(format!("{}: GPU `{name}`: not used: {}", path.display(), unused.join(", ")));
        }
        let gpu = Gpu { tflops_fp16, tflops_fp8, tflops_fp32, tflops_fp4, hbm_tb_s, l2_mb, memory_gib, mfu };
        let own = OwnMeasurements {
            kernels: self.kernels,
            links: self.links,
            node: self.node,
            kernels_of: self.kernels_of,
            links_of: self.links_of,
        };
        if let Err(message) = own.check() {
            return wrong(message);
        }
        let power = self.max_power_w.map(|limit_w| GpuPower { limit_w });
        Ok(Hardware { name, aliases: self.aliases, gpu, usable_gib, power, blis_tflops_fp8, own: Some(own), notes })
    }

    fn unused_keys(&self) -> Vec<&'static str> {
        let keys = [
            ("sm_count", self.sm_count),
            ("BwEffConstant", self.bw_eff_constant),
            ("TOverheadMicros", self.t_overhead_micros),
            ("perLayerOverhead", self.per_layer_overhead),
            ("allReduceLatency", self.all_reduce_latency),
            ("tpScalingExponent", self.tp_scaling_exponent),
            ("mfuPrefillMultiplier", self.mfu_prefill_multiplier),
            ("mfuDecodeMultiplier", self.mfu_decode_multiplier),
            ("prefillBwFactor", self.prefill_bw_factor),
            ("decodeBwFactor", self.decode_bw_factor),
            ("vectorPeakFraction", self.vector_peak_fraction),
            ("prefillOverheadMicros", self.prefill_overhead_micros),
            ("mixedPrefillOverheadMicros", self.mixed_prefill_overhead_micros),
        ];
        keys.into_iter().filter(|(_, value)| value.is_some()).map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn yaml(text: &str) -> Result<Vec<Hardware>, ConfigError> {
        parse(Path::new("gpus/mine.yaml"), text)
    }

    /// Else a GPU would have another file's figures, depending on which is read first.
    #[test]
    fn no_two_embedded_gpus_share_a_name() {
        let mut seen = BTreeMap::new();
        for file in EMBEDDED.iter() {
            let hardware = file.hardware();
            assert_eq!(hardware.name, file.name());
            for name in hardware.names() {
                let plain: String = name.to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
                assert_eq!(*seen.entry(plain).or_insert(file.name()), file.name(), "{name}");
            }
        }
    }

    #[test]
    fn embedded_gpus_are_the_same_in_two_parts() {
        for file in EMBEDDED.iter() {
            let whole = file.read(file.text);
            assert_eq!(Some(file.own()), whole.own.as_ref());
            assert_eq!(*file.hardware(), Hardware { own: None, ..whole });
        }
    }

    #[test]
    fn embedded_gpus_are_those_of_the_blis_table() {
        let catalogue = Catalogue::load(None).unwrap();
        let figures = |name: &str| {
            let Gpu { tflops_fp16, tflops_fp8, hbm_tb_s, memory_gib, mfu, .. } =
                catalogue.find(name).unwrap().blis_gpu();
            let mfu = mfu.unwrap();
            [tflops_fp16, tflops_fp8, hbm_tb_s, mfu.prefill, mfu.decode, memory_gib]
        };
        assert_eq!(figures("H100"), [989.5, 1979.0, 3.35, 0.45, 0.30, 80.0]);
        assert_eq!(figures("a100-sxm"), [312.0, 0.0, 2.039, 0.38, 0.18, 80.0]);
        assert_eq!(figures("A100-80"), figures("A100-SXM"));
        assert_eq!(figures("L40S"), [362.05, 1466.0, 0.864, 0.32, 0.08, 48.0]);
        assert_eq!(figures("H200"), [989.5, 1979.0, 4.8, 0.45, 0.30, 141.0]);
        assert_eq!(catalogue.find("L40S").unwrap().gpu.tflops_fp8, 733.0, "dense");
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(
            text: String, near in "((name|tflops_fp16|hbm_tb_s|memory_gib|mfu_prefill|note|[&*!]a): ?[^\n]{0,9}\n){0,4}",
        ) {
            for text in [&text, &near] {
                let _ = yaml(text);
                let _ = parse(Path::new("gpus.json"), text);
            }
        }

        /// Figures that pass are usable: positive and finite.
        #[test]
        fn arbitrary_figures_are_usable_or_refused(flops: f64, tb_s: f64, gib: f64, mfu: f64) {
            let text = format!(
                "{{\"x\": {{\"tflops_fp16\": {flops:?}, \"hbm_tb_s\": {tb_s:?}, \"memory_gib\": {gib:?}, \
                 \"mfu_prefill\": {mfu:?}, \"mfu_decode\": 0.5}}}}"
            );
            for gpu in parse(Path::new("gpus.json"), &text).unwrap_or_default() {
                let Gpu { tflops_fp16, hbm_tb_s, memory_gib, mfu, .. } = gpu.gpu;
                prop_assert!(tflops_fp16 > 0.0 && tflops_fp16.is_finite() && hbm_tb_s > 0.0 && hbm_tb_s.is_finite());
                prop_assert!(memory_gib >= 0.0 && memory_gib.is_finite());
                prop_assert!(mfu.is_some_and(|mfu| mfu.prefill > 0.0 && mfu.prefill <= 1.0));
            }
        }
    }

    #[test]
    fn unknown_gpus_are_listed() {
        insta::assert_snapshot!(Catalogue::load(None).unwrap().find("H10").unwrap_err(), @r"
        unknown hardware: `H10`
        hint: did you mean `H100`? `blis hardware` lists them; or describe one in a file and give `--hardware-config`
        ");
    }

    #[test]
    fn yaml_takes_its_name_from_the_file_and_mistakes_have_a_location() {
        let entry = &yaml("tflops_fp16: 100\nhbm_tb_s: 1\nmemory_gib: 24\n").unwrap()[0];
        assert_eq!((entry.name.as_str(), entry.gpu.mfu), ("mine", None));
        insta::assert_snapshot!(yaml("tflops_fp16: 100\nhbm_tbs: 1\n").unwrap_err(), @r"
        gpus/mine.yaml:2:1: unknown field `hbm_tbs`
        hint: did you mean `hbm_tb_s`? known: name, aliases, tflops_fp16, tflops_fp8, tflops_fp4, blis_tflops_fp8, tflops_fp32, hbm_tb_s, l2_mb, memory_gib, usable_gib, mfu_prefill, mfu_decode, kernels, kernels_of, links, links_of, node, source, note
        ");
        insta::assert_snapshot!(yaml("tflops_fp16: fast\n").unwrap_err(), @"gpus/mine.yaml:1:14: the value is `fast`, not a number");
        insta::assert_snapshot!(yaml("tflops_fp16: 100\n").unwrap_err(), @"gpus/mine.yaml: GPU `mine`: `hbm_tb_s` is missing");
        insta::assert_snapshot!(yaml("tflops_fp16: 100\nhbm_tb_s: .nan\n").unwrap_err(), @"gpus/mine.yaml: GPU `mine`: `hbm_tb_s` is NaN: it must be a positive number");
        insta::assert_snapshot!(yaml("tflops_fp16: 100\nhbm_tb_s: 1\nmfu_prefill: 0.5\n").unwrap_err(), @"gpus/mine.yaml: GPU `mine`: give both `mfu_prefill` and `mfu_decode`, or neither");
        insta::assert_snapshot!(yaml("").unwrap_err(), @"gpus/mine.yaml: GPU `mine`: `tflops_fp16` is missing");
    }

    #[test]
    fn older_json_tables_are_read() {
        let text = r#"{
            "H100": {"TFlopsPeak": 989.5, "TFlopsFP8": 1979, "BwPeakTBs": 3.35, "mfuPrefill": 0.45, "mfuDecode": 0.3,
                     "MemoryGiB": 80, "TOverheadMicros": 500.0, "perLayerOverhead": 20.0},
            "Mine": {"compute_tflops_fp16": 100, "memory_bandwidth_gb_s": 1500, "memory_gb": 24, "sm_count": 84},
            "Eff": {"TFlopsEff": 400, "BwEffTBs": 2.5}
        }"#;
        let gpus = parse(Path::new("hardware_config.json"), text).unwrap();
        let names: Vec<&str> = gpus.iter().map(|gpu| gpu.name.as_str()).collect();
        assert_eq!(names, ["Eff", "H100", "Mine"]);
        assert_eq!(gpus[0].gpu.mfu, Some(Mfu { prefill: 1.0, decode: 1.0 }), "effective figures are attainable");
        let built_in = Catalogue::load(None).unwrap().find("H100").unwrap().gpu;
        assert_eq!(gpus[1].gpu, Gpu { tflops_fp32: 0.0, l2_mb: 0.0, ..built_in });
        assert_eq!((gpus[2].gpu.hbm_tb_s, gpus[2].gpu.memory_gib), (1.5, 24.0));
        insta::assert_snapshot!(gpus[1].notes[0], @"hardware_config.json: GPU `H100`: not used: TOverheadMicros, perLayerOverhead");
        let error = parse(Path::new("h.json"), "{\n \"H100\": {\"TFlops\": 1}\n}").unwrap_err();
        insta::assert_snapshot!(error, @r"
        h.json:2:18: unknown field `TFlops`
        hint: did you mean `tflops_fp4`? known: name, aliases, tflops_fp16, tflops_fp8, tflops_fp4, blis_tflops_fp8, tflops_fp32, hbm_tb_s, l2_mb, memory_gib, usable_gib, mfu_prefill, mfu_decode, kernels, kernels_of, links, links_of, node, source, note
        ");
    }
}
