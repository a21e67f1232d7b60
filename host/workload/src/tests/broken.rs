//! Broken files of every format: each is refused with file, line and reason, or repaired where the documentation says
//! so. The whole table of results is one snapshot.

use std::fmt::Write as _;

use super::{TestFolder, gzip};
use crate::spec::Spec;
use crate::{TraceOptions, open_trace};

const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
const BLIS: &str = "arrival_time,request_id,model,prefill_tokens,decode_tokens\n";
const BURST: &str = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";
const V2: &str = "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,\
    input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,\
    server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,\
    error_message,finish_reason\n";
const MOON: &str = r#"{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}"#;
const BAILIAN: &str = r#"{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 20, "output_length": 5, "type": "text", "turn": 1, "hash_ids": [1, 2]}"#;
const AIPERF: &str = r#"{"metadata": {"request_start_ns": 1700000000000000000, "turn_index": 0}, "metrics": {"input_sequence_length": {"value": 20, "unit": "tokens"}, "output_sequence_length": {"value": 5, "unit": "tokens"}}, "error": null}"#;
const VCR: &str = r#"{"prompt_tokens": 40, "output_tokens": 5, "arrival_ms": 3.5, "block_hashes": ["a", "b"]}"#;
const VLLM: &str = r#"{"date": "d", "backend": "vllm", "model_id": "m", "duration": 3.0, "input_lens": [10, 20], "output_lens": [5, 6], "start_times": [7.5, 8.5], "errors": ["", ""]}"#;
const SGLANG: &str = r#"{"tag": null, "backend": "sglang", "dataset_name": "random", "request_rate": 2.0, "input_lens": [10, 20], "output_lens": [5, 6]}"#;
const OTEL: &str = r#"{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "llm_request", "startTimeUnixNano": "1700000000000000000", "attributes": [{"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": "20"}}, {"key": "gen_ai.usage.completion_tokens", "value": {"intValue": "5"}}]}]}]}]}"#;
const V2_ROW: &str = "0,c,,,,0,,0,false,10,5,0,0,0,0,0,,0,0,1000,0,0,0,0,ok,,";

fn files() -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |name: &str, bytes: &[u8]| all.push((name.to_owned(), bytes.to_vec()));
    // Any format.
    add("empty", b"");
    add("blank", b"\n \r\n\n");
    add("mark-only", b"\xef\xbb\xbf");
    add("binary", &[0, 159, 146, 150, 255, 0, 1, 2]);
    add("gzip-of-nothing.gz", &gzip(""));
    add("gzip-truncated.gz", &gzip(&(AZURE.to_owned() + "2023-11-16 18:15:46,5,5\n"))[..30]);
    add("gzip-magic-only.gz", &[0x1f, 0x8b]);
    add("words", b"three requests please\n");
    add("other-columns.csv", b"a,b,c\n1,2,3\n");
    add("json-list.json", b"[1, 2]\n");
    add("json-of-nothing-known.json", b"{\"x\": 1}\n");
    add(
        "json-keys-too-late.json",
        &[b"{\"label\": \"", vec![b'x'; 5000].as_slice(), b"\", ", &VLLM.as_bytes()[1..]].concat(),
    );
    add("ten-mebibyte-line.csv", &[AZURE.as_bytes(), &vec![b'7'; 10 << 20], b"\n"].concat());
    // CSV.
    for (name, header, row) in [
        ("azure", AZURE, "2023-11-16 18:15:46,5,5"),
        ("blis-csv", BLIS, "0,a,m,\"[1,2]\",\"[3]\""),
        ("burstgpt", BURST, "5,m,10,20,30,API log"),
    ] {
        let mut add =
            |case: &str, rows: &str| add(&format!("{name}-{case}.csv"), format!("{header}{rows}\n").as_bytes());
        add("header-only", "");
        add("good", row);
        add("crlf", &format!("{row}\r\n{row}\r"));
        add("too-few", &format!("{row}\n{}", &row[..row.find(',').unwrap()]));
        add("truncated", &format!("{row}\n{}", &row[..row.len() / 2]));
    }
    let mut rows =
        |case: &str, header: &str, rows: &str| add(&format!("{case}.csv"), format!("{header}{rows}\n").as_bytes());
    rows("azure-negative", AZURE, "2023-11-16 18:15:46,-5,5");
    rows("azure-fraction", AZURE, "2023-11-16 18:15:46,5.5,5");
    rows("azure-huge", AZURE, "2023-11-16 18:15:46,99999999999999999999999,5");
    rows("azure-no-prompt", AZURE, "2023-11-16 18:15:46,0,5");
    rows("azure-no-day", AZURE, "2023-02-30 18:15:46,5,5");
    rows("azure-seconds", AZURE, "1700158546.5,5,5");
    rows("azure-backwards", AZURE, "2023-11-16 18:15:46,5,5\n2023-11-16 18:15:40,6,5");
    rows("azure-too-many", AZURE, "2023-11-16 18:15:46,5,5,5");
    rows("blis-csv-nan", BLIS, "NaN,a,m,[1],[2]");
    rows("blis-csv-negative", BLIS, "-1,a,m,[1],[2]");
    rows("blis-csv-no-list", BLIS, "0,a,m,1,[2]");
    rows("blis-csv-huge-token", BLIS, "0,a,m,[4294967296],[2]");
    rows("blis-csv-open-quote", BLIS, "0,a,m,\"[1],[2]");
    rows("burstgpt-nan", BURST, "nan,m,10,20,30,x");
    rows("burstgpt-negative-time", BURST, "-3,m,10,20,30,x");
    rows("burstgpt-words", BURST, "1,m,ten,20,30,x");
    rows("burstgpt-failures-only", BURST, "1,m,10,0,10,x");
    rows("burstgpt-no-prompt", BURST, "1,m,0,20,20,x");
    rows("burstgpt-huge-time", BURST, "1e300,m,10,20,30,x");
    for (case, header, row) in [
        ("good", "arrival,input,output\n", "0,5,5\n0.5,6,6"),
        ("vidur", "arrived_at,num_prefill_tokens,num_decode_tokens,pd_ratio\n", "0.1,5,5,1.0"),
        ("too-few", "arrival,input,output\n", "0,5"),
        ("truncated", "arrival,input,output\n", "0,5,5\n0.5,6,"),
        ("negative", "arrival,input,output\n", "0,-5,5"),
        ("negative-time", "arrival,input,output\n", "-1,5,5"),
        ("milliseconds-as-seconds", "arrival,input,output\n", "1700000000000,5,5"),
        ("dates-and-numbers", "arrival,input,output\n", "2023-11-16 18:15:46,5,5\n3,5,5"),
        ("no-prompt", "arrival,input,output\n", "0,0,5"),
        ("two-inputs", "arrival,input,output,prompt_tokens\n", "0,5,5,5"),
        ("two-times", "arrival,arrived_at,input,output\n", "0,5,5,5"),
        ("no-arrivals", "input,output\n", "5,5"),
    ] {
        rows(&format!("csv-{case}"), header, row);
    }
    rows("trace-v2-twice", V2, &format!("{V2_ROW}\n{V2_ROW}"));
    rows("trace-v2-no-header-file", V2, V2_ROW);
    rows("trace-v2-deadline", V2, &V2_ROW.replace(",,0,0,1000", ",,500,0,1000"));
    rows("trace-v2-streaming", V2, &V2_ROW.replace("false", "perhaps"));
    rows("trace-v2-ratio", V2, &V2_ROW.replace(",0,,0,0,1000", ",NaN,,0,0,1000"));
    rows("trace-v2-missing-column", &V2.replace("round_index", "round"), V2_ROW);
    // JSON, one request per line.
    for (name, line, number) in
        [("mooncake", MOON, "600"), ("bailian", BAILIAN, "20"), ("aiperf", AIPERF, "20"), ("vllm-vcr", VCR, "40")]
    {
        let mut add = |case: &str, text: &str| add(&format!("{name}-{case}.jsonl"), text.as_bytes());
        add("good", line);
        add("mark-and-crlf", &format!("\u{feff}{line}\r\n\r\n{line}\r\n"));
        add("truncated", &format!("{line}\n{}", &line[..line.len() - 10]));
        add("negative", &line.replacen(number, "-1", 1));
        add("fraction", &line.replacen(number, "1.5", 1));
        add("as-text", &line.replacen(number, &format!("\"{number}\""), 1));
        add("exponent", &line.replacen(number, "6e2", 1).replace("1, 2", "1"));
        add("words", &line.replacen(number, "\"many\"", 1));
        add("nan", &line.replacen(number, "NaN", 1));
        add("huge", &line.replacen(number, "1e12", 1));
        add("null", &line.replacen(number, "null", 1));
        add("a-list", &format!("{line}\n[1, 2, 3]"));
        add("two-on-a-line", &format!("{line} {line}"));
        add("other-line", &format!("{line}\n{{\"x\": 1}}"));
    }
    add("mooncake-duplicate-key.jsonl", MOON.replace("\"output", "\"timestamp\": 1, \"output").as_bytes());
    add("mooncake-negative-time.jsonl", MOON.replace(": 0", ": -1").as_bytes());
    add("mooncake-too-many-ids.jsonl", MOON.replace("[1, 2]", "[1, 2, 3]").as_bytes());
    add("mooncake-negative-id.jsonl", MOON.replace("[1, 2]", "[1, -2]").as_bytes());
    add("mooncake-delay-only.jsonl", MOON.replace("timestamp", "delay").as_bytes());
    add(
        "mooncake-invalid-utf8.jsonl",
        &[
            br#"{"session_id": ""#.as_slice(),
            &[0xff, 0xfe],
            MOON[1..].replace("\"timestamp", "\", \"timestamp").as_bytes(),
        ]
        .concat(),
    );
    add("mooncake-deep.jsonl", format!("{{\"timestamp\": 0, \"x\": {}", "[".repeat(100_000)).as_bytes());
    add("bailian-negative-time.jsonl", BAILIAN.replace("0.5", "-0.5").as_bytes());
    add("bailian-no-chat.jsonl", format!("{BAILIAN}\n{}", BAILIAN.replace("\"chat_id\"", "\"chat\"")).as_bytes());
    add("vllm-vcr-no-blocks.jsonl", format!("{{\"meta\": {{\"block_size\": 0}}}}\n{VCR}").as_bytes());
    add("vllm-vcr-meta-only.jsonl", b"{\"meta\": {}}\n");
    add("aiperf-failures-only.jsonl", AIPERF.replace("null", "{\"code\": 500}").as_bytes());
    // JSON, a document.
    for (name, text) in [("vllm-bench", VLLM), ("sglang-bench", SGLANG), ("otel", OTEL)] {
        let mut add = |case: &str, text: &str| add(&format!("{name}-{case}.json"), text.as_bytes());
        add("good", text);
        add("mark-and-crlf", &format!("\u{feff}{}\r\n", text.replace(", ", ",\r\n")));
        add("truncated", &text.replace(", ", ",\n")[..text.len() - 10]);
        add("negative", &text.replacen("20", "-1", 1));
        add("words", &text.replacen("20", "\"many\"", 1).replace("\"\"many\"\"", "\"many\""));
        add("nan", &text.replacen("\"20\"", "NaN", 1).replacen("20", "NaN", 1));
        add("huge", &text.replacen("20", "99999999999", 1));
        add("rubbish-behind", &format!("{text}\nrubbish"));
    }
    add("vllm-bench-not-detailed.json", VLLM.replace("input_lens", "x").as_bytes());
    add("vllm-bench-no-start-times.json", VLLM.replace("start_times", "x").as_bytes());
    add("vllm-bench-lists-differ.json", VLLM.replace("[5, 6]", "[5]").as_bytes());
    add("vllm-bench-duplicate-list.json", VLLM.replace("\"errors\"", "\"input_lens\": [1], \"errors\"").as_bytes());
    add("vllm-bench-all-failed.json", VLLM.replace("[\"\", \"\"]", "[\"x\", \"y\"]").as_bytes());
    add("sglang-bench-inf.json", SGLANG.replace("2.0", "\"inf\"").as_bytes());
    add("sglang-bench-trace.json", SGLANG.replace("2.0", "\"trace\"").as_bytes());
    add("otel-no-spans.json", b"{\"resourceSpans\": []}");
    add("otel-no-usage.json", OTEL.replace("usage", "x").as_bytes());
    add("trace-v2-invalid-utf8.csv", &[V2.as_bytes(), b"0,\xff", &V2_ROW.as_bytes()[3..], b"\n"].concat());
    all
}

#[test]
fn broken_files_are_refused_with_location_and_reason() {
    let scratch = TestFolder::new("broken");
    let folder = format!("{}/", scratch.0.display());
    let mut table = String::new();
    let (mut refused, mut read) = (0, 0);
    for (name, bytes) in files() {
        let path = scratch.file(&name, &bytes);
        if name.starts_with("trace-v2") && !name.contains("no-header") {
            scratch.file(&name.replace(".csv", ".yaml"), b"trace_version: 3\ntime_unit: microseconds\n");
        }
        let result = match open_trace(&path, &TraceOptions::default()) {
            Ok(workload) => {
                read += 1;
                let (count, notes) = (workload.count.unwrap_or(0), workload.notes.join("; "));
                format!("{name}: read, {count} requests{}{notes}\n", if notes.is_empty() { "" } else { ": " })
            }
            Err(error) => {
                refused += 1;
                let message = error.to_string();
                assert!(message.contains(&name), "{name} is not named: {message}");
                format!("{}\n", message.replace(&folder, ""))
            }
        };
        let _ = writeln!(table, "{result}");
    }
    assert!(refused >= 60, "{refused} refused, {read} read");
    insta::assert_snapshot!(table);
}

/// The rest of any file is valid after bad lines are skipped.
#[test]
fn broken_files_are_survived_with_bad_lines_skipped() {
    let scratch = TestFolder::new("skipped");
    for (name, bytes) in files() {
        let path = scratch.file(&name, &bytes);
        let options = TraceOptions { skip_bad_lines: true, ..TraceOptions::default() };
        let Ok(workload) = open_trace(&path, &options) else { continue };
        let count = workload.count;
        let all: Vec<_> = workload.requests.collect();
        assert!(all.iter().all(|request| request.input_tokens > 0), "{name}");
        assert_eq!(count, Some(all.len() as u64), "{name}");
    }
}

/// The trace and the dataset of a ServeGen client, and the mistake in them.
fn servegen() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    const ROW: &str = "0,1,1,Gamma,0.5,2\n";
    const LENGTHS: &str = "{\"0\": {\"input_tokens\": \"{100: 0.5, 400: 0.5}\", \"output_tokens\": \"{50: 1.0}\"}}";
    let trace = |name, text: &str| (name, text.as_bytes().to_vec(), LENGTHS.as_bytes().to_vec());
    let lengths = |name, from: &str, to: &str| (name, ROW.as_bytes().to_vec(), LENGTHS.replace(from, to).into_bytes());
    vec![
        trace("good", ROW),
        trace("mark", &format!("\u{feff}{ROW}")),
        trace("crlf-and-header", "start,rate,cv,pattern,shape,scale\r\n0,1,1,Gamma,0.5,2\r\n"),
        trace("empty", ""),
        trace("header-only", "start,rate,cv,pattern\n"),
        trace("pattern", "0,1,1,Gama,0.5,2\n"),
        trace("rate-nan", "0,NaN,1,Gamma,0.5,2\n"),
        trace("rate-negative", "0,-1,1,Gamma,0.5,2\n"),
        trace("rate-word", "600,one,1,Gamma,0.5,2\n"),
        trace("start-huge", "99999999999,1,1,Gamma,0.5,2\n"),
        trace("start-fraction", "0.5,1,1,Gamma,0.5,2\n"),
        trace("start-twice", &format!("{ROW}{ROW}")),
        trace("start-backwards", &format!("600,1,1,Gamma,0.5,2\n{ROW}")),
        trace("five-fields", "0,1,1,Gamma,0.5\n"),
        trace("no-shape-no-cv", "0,1,0,Gamma\n"),
        trace("silent", "0,0,0,,0,0\n"),
        trace("truncated", &format!("{ROW}600,1,")),
        ("binary", vec![0, 159, 146, 150, 255], LENGTHS.as_bytes().to_vec()),
        lengths("mark-of-lengths", "{\"0\"", "\u{feff}{\"0\""),
        lengths("misspelt", "input_tokens", "input_token"),
        lengths("multimodal", "input_tokens", "image_tokens"),
        lengths("negative", "400: 0.5", "400: -0.5"),
        lengths("only-negative", "50: 1.0", "50: -1.0"),
        lengths("only-zeros", "50: 1.0", "50: 0.0"),
        lengths("nan", "50: 1.0", "50: nan"),
        lengths("huge", "50: 1.0", "1e300: 1.0"),
        lengths("fraction", "50: 1.0", "50.5: 1.0"),
        lengths("no-dictionary", "{50: 1.0}", "50"),
        lengths("no-pair", "50: 1.0", "50"),
        lengths("no-text", "\"{50: 1.0}\"", "50"),
        lengths("never", "{50: 1.0}", "{}"),
        lengths("no-start", LENGTHS, "{}"),
        lengths("word-as-start", "\"0\"", "\"noon\""),
        lengths("twice", "output_tokens", "input_tokens"),
        lengths("cut", "1.0}\"}}", "1."),
        lengths("list", LENGTHS, "[]"),
    ]
}

/// Once, lengths were guessed, and unknown patterns were Poisson.
#[test]
fn broken_servegen_folders_are_refused_with_location_and_reason() {
    let scratch = TestFolder::new("broken-servegen");
    let mut table = String::new();
    for (name, trace, lengths) in servegen() {
        std::fs::create_dir_all(scratch.0.join(name)).unwrap();
        scratch.file(&format!("{name}/chunk-7-trace.csv"), &trace);
        scratch.file(&format!("{name}/chunk-7-dataset.json"), &lengths);
        let result = match Spec::load(&scratch.0.join(name)) {
            Ok(spec) => format!("{name}: read, {} windows", spec.clients[0].windows.len()),
            Err(error) => error.to_string().replace(&format!("{}/", scratch.0.display()), ""),
        };
        assert!(result.contains(name), "{name} is not named: {result}");
        let _ = writeln!(table, "{result}\n");
    }
    insta::assert_snapshot!(table);
}
