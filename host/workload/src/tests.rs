//! Whole traces: real ones, if the folder `shared` exists, and how files are found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroU32;

use blis_sim::request::Request;
use blis_sim::units::Micros;

use super::*;

mod broken;

/// A file of the reference data; `None`, with a note on stderr, if the data are missing.
fn shared(path: &str) -> Option<PathBuf> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")).join(path);
    if path.exists() {
        return Some(path);
    }
    #[allow(clippy::print_stderr, reason = "a test that did nothing must say so")]
    {
        eprintln!("skipped: {} is not there", path.display());
    }
    None
}

fn requests(path: &Path, options: &TraceOptions) -> Vec<Request> {
    open_trace(path, options).unwrap().requests.collect()
}

/// Number of requests, sum of input tokens, sum of output tokens.
fn totals(requests: &[Request]) -> (usize, u64, u64) {
    let sum = |tokens: fn(&Request) -> u32| requests.iter().map(|request| u64::from(tokens(request))).sum();
    (requests.len(), sum(|request| request.input_tokens), sum(|request| request.output_tokens))
}

fn with_block(tokens: u32) -> TraceOptions {
    TraceOptions { block_size: NonZeroU32::new(tokens).unwrap(), ..TraceOptions::default() }
}

/// Share of input tokens that hit a prefix cache without evictions.
fn ideal_hit(requests: &[Request], block: u32) -> f64 {
    let mut cached = BTreeSet::new();
    let mut hit = 0;
    for request in requests {
        let keys: Vec<u32> = request.content.keys().take((request.input_tokens / block) as usize).collect();
        hit += keys.iter().take_while(|key| cached.contains(*key)).count() as u64 * u64::from(block);
        cached.extend(keys);
    }
    hit as f64 / totals(requests).1 as f64
}

#[test]
fn azure_2023_is_read_whole() {
    let Some(folder) = shared("data/traces/azure-2023") else { return };
    let conv = requests(&folder.join("AzureLLMInferenceTrace_conv.csv"), &TraceOptions::default());
    assert_eq!(totals(&conv), (19_366, 22_361_870, 4_088_665));
    assert_eq!(conv.last().unwrap().arrival.0 / 1_000_000, 3_501);
    let code = requests(&folder.join("AzureLLMInferenceTrace_code.csv"), &TraceOptions::default());
    assert_eq!(totals(&code), (8_819, 18_059_974, 245_896));
    assert!(code.is_sorted_by_key(|request| (request.arrival, request.id)));
}

/// 65.1 % is published; 0.650 430 950 and 0.651 216 901 follow from the ids by an independent program of ten lines
/// without runs of keys (full blocks of 512 and 16 tokens only).
#[test]
fn mooncake_prefixes_give_the_ideal_hit_rate() {
    let Some(path) = shared("data/traces/mooncake/synthetic_trace.jsonl") else { return };
    for (block, ideal) in [(512, 0.650_430_949_9), (16, 0.651_216_900_9)] {
        let requests = requests(&path, &with_block(block));
        assert_eq!(totals(&requests).0, 3_993);
        assert_eq!(totals(&requests).1, 61_194_628);
        let hit = ideal_hit(&requests, block);
        assert!((hit - ideal).abs() < 1e-9, "block {block}: {hit}");
    }
}

#[test]
fn every_recorded_case_is_read() {
    let Some(folder) = shared("cases/blis") else { return };
    let manifest = fs::read_to_string(folder.join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let mut whole = 0;
    for case in manifest["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let header = folder.join(name).join("trace.yaml");
        if !header.exists() {
            continue;
        }
        let requests = requests(&header, &TraceOptions::default());
        assert_eq!(requests.len() as u64, case["n_requests"].as_u64().unwrap(), "{name}");
        // Where BLIS counted every prompt, the sums must agree.
        let aggregate = &case["aggregate"];
        let all_counted = aggregate["injected_requests"] == case["n_requests"] && aggregate["dropped_unservable"] == 0;
        if all_counted && case["flags"]["session-mode"] != "closed-loop" && !name.starts_with('c') {
            assert_eq!(totals(&requests).1, aggregate["total_input_tokens"].as_u64().unwrap(), "{name}");
            whole += 1;
        }
    }
    assert!(whole > 15, "{whole} cases compared");
}

/// s12 has groups A 160, B 1024, C 100 and D 2055: with blocks of 32 tokens, 5, 32, 3 and 64 blocks.
#[test]
fn recorded_groups_share_their_blocks() {
    let Some(path) = shared("cases/blis/s21-block-32/trace.csv") else { return };
    let requests = requests(&path, &with_block(32));
    let lengths: BTreeSet<u32> = requests.iter().map(|request| request.content.shared_blocks()).collect();
    assert_eq!(lengths, BTreeSet::from([0, 3, 5, 32, 64]));
    let spans: BTreeSet<_> =
        requests.iter().flat_map(|r| r.content.spans()).map(|span| (span.first, span.len)).collect();
    assert_eq!(spans.iter().map(|span| span.1).sum::<u32>(), 104);
}

/// Counted with awk: 68 of s18's 120 requests have a deadline; s06 has 12 critical, 31 standard or unnamed, 9 batch, 14
/// sheddable and 14 background ones.
#[test]
fn recorded_deadlines_and_classes_arrive() {
    let Some(folder) = shared("cases/blis") else { return };
    let timed = requests(&folder.join("s18-deadlines/trace.csv"), &TraceOptions::default());
    assert_eq!((timed.len(), timed.iter().filter(|request| request.deadline.is_some()).count()), (120, 68));
    assert_eq!(timed[2].deadline, Some(Micros(9_026_909)));
    let classed = open_trace(&folder.join("s06-preempt-priority/trace.csv"), &TraceOptions::default()).expect("trace");
    let names = classed.names;
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for request in classed.requests {
        *counts.entry(names.text(request.tags.slo_class).to_owned()).or_default() += 1;
    }
    assert_eq!(counts.remove("").unwrap_or(0) + counts.remove("standard").unwrap_or(0), 31);
    let rest = [("background", 14), ("batch", 9), ("critical", 12), ("sheddable", 14)];
    assert!(counts.iter().map(|(name, &count)| (name.as_str(), count)).eq(rest), "{counts:?}");
}

/// A folder for one test, deleted at its end.
struct TestFolder(PathBuf);

impl TestFolder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("blis-workload-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn gzip(text: &str) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n";

#[test]
fn a_compressed_trace_is_read_like_any_other() {
    let scratch = TestFolder::new("gzip");
    let plain = scratch.file("plain.csv", AZURE.as_bytes());
    let compressed = scratch.file("compressed", &gzip(AZURE));
    let [plain, compressed] = [plain, compressed].map(|path| requests(&path, &TraceOptions::default()));
    assert_eq!((plain.len(), &plain), (1, &compressed));
    let torn = scratch.file("torn.gz", &gzip(AZURE)[..40]);
    assert!(matches!(open_trace(&torn, &TraceOptions::default()), Err(TraceError::Io { .. })));
}

#[test]
fn a_given_format_is_not_doubted() {
    let scratch = TestFolder::new("format");
    let path = scratch.file("azure.csv", AZURE.as_bytes());
    let options = TraceOptions { format: Some(TraceFormat::Mooncake), ..TraceOptions::default() };
    let error = open_trace(&path, &options).unwrap_err().to_string();
    assert!(error.contains("azure.csv:1: not a JSON object: `TIMESTAMP,"), "{error}");
}

#[test]
fn either_half_of_a_trace_v2_finds_the_other() {
    let scratch = TestFolder::new("halves");
    let columns = "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,\
        streaming,input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,\
        deadline_us,server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,\
        status,error_message,finish_reason";
    let data = format!("{columns}\n0,c0,,,,0,,0,false,10,5,0,0,0,0,0,,0,0,1000,0,0,0,0,ok,,\n");
    let header = scratch.file("a.yaml", b"trace_version: 3\ntime_unit: microseconds\n");
    let compressed = scratch.file("a.csv.gz", &gzip(&data));
    let lone = scratch.file("b.csv", data.as_bytes());
    assert_eq!(requests(&header, &TraceOptions::default()).len(), 1);
    assert_eq!(requests(&compressed, &TraceOptions::default()).len(), 1);
    assert_eq!(open_trace_v2(&header, &lone, &TraceOptions::default()).unwrap().count, Some(1));
    let error = open_trace(&lone, &TraceOptions::default()).unwrap_err().to_string();
    let error = error.replace(&scratch.0.display().to_string(), "DIR");
    insta::assert_snapshot!(error, @r"
    DIR/b.csv: this is the data of a TraceV2 trace, and `DIR/b.yaml` or `DIR/b.yml` is not there
    hint: give both files
    ");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = open_trace(Path::new("/no/such/trace"), &TraceOptions::default()).unwrap_err().to_string();
    assert_eq!(error, "`/no/such/trace` does not exist\nhint: check the path and the current folder");
}
