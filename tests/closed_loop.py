#!/usr/bin/env python3
"""Measures how well `blis observe`, `blis mock-server` and `blis replay` agree, and how many streams the two hold.

    python3 tests/closed_loop.py target/release/blis [SECONDS]

1. `blis observe` on `blis mock-server` at 50 requests/s, then `blis replay` of the trace on the same service: p99 of the absolute
   difference between observed and simulated TTFT and E2E, request by request; requests unaccounted for; lateness.
2. 1000 streams at once, each with 20 tokens/s: the time between tokens.

SECONDS is the duration of each part, 60 unless given. It asserts that nothing is lost; times are for a person to read, on a machine
where nothing else runs. The limits: 5 ms for both differences, 2 ms for lateness, and no stream slower than 20 tokens/s.
"""

import csv
import json
import subprocess
import sys

from foreign import FOLDER, constant_load, free_port, observe, program, running, wait_for_model

MODEL = "qwen/qwen3-14b"
SERVICE = ["--model", MODEL, "--hardware", "H100", "--num-instances", "8"]
# Every step takes 50 ms, whatever is in it.
STREAMS, STEP_US = 1000, 50_000
STEADY = ["--model", MODEL, "--hardware", "H100", "--latency-model", "blackbox", "--alpha-coeffs", "0,0,0", "--beta-coeffs",
          f"{STEP_US},0,0", "--max-num-seqs", str(STREAMS), "--max-num-batched-tokens", "32768", "--total-kv-blocks", "200000"]


def main():
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    FOLDER.mkdir(parents=True, exist_ok=True)
    differences(seconds)
    streams(seconds)


def differences(seconds):
    report = with_server(SERVICE, 50 * seconds, constant_load(50 * seconds, 50, 500, 100))
    rows = {row["request_id"]: row for row in csv.DictReader(open(FOLDER / "observed.csv", encoding="utf-8"))}
    results = FOLDER / "replayed.json"
    trace = ["--trace-header", FOLDER / "observed.yaml", "--trace-data", FOLDER / "observed.csv"]
    subprocess.run([program(), "replay", *SERVICE, *trace, "--metrics-path", results, "--output", "json", "--no-progress"],
                   check=True, stdout=subprocess.DEVNULL)
    simulated = {number(one["requestID"]): one for one in json.loads(results.read_text())["requests"]}
    print(f"50 requests/s for {seconds} s: {report['ends']}, {report['unaccounted_requests']} unaccounted for")
    for name, end in (("ttft", "first_chunk_time_us"), ("e2e", "last_chunk_time_us")):
        measured = {number(id): (int(row[end]) - int(row["send_time_us"])) / 1000 for id, row in rows.items()}
        gaps = sorted(abs(ms - simulated[id][f"{name}_ms"]) for id, ms in measured.items())
        print(f"  {name:4} |observed - replayed|: p50 {at(gaps, 50):.2f} ms, p99 {at(gaps, 99):.2f} ms, max {gaps[-1]:.2f} ms")
    lateness(report)


def streams(seconds):
    tokens = seconds * 1_000_000 // STEP_US
    load = constant_load(STREAMS, STREAMS / 2, 16, tokens)
    report = with_server(STEADY, STREAMS, [*load, "--record-itl", "--request-timeout", str(10 * seconds + 60)])
    itl, tpot = report["itl"], report["tpot"]
    print(f"{STREAMS} streams of {tokens} tokens: {report['ends']}, {report['other_lengths']} with another length")
    print(f"  between tokens: mean {itl['mean_ms']:.2f} ms, p50 {itl['p50_ms']:.2f} ms, p99 {itl['p99_ms']:.2f} ms; "
          f"tokens/s of a stream: {1000 / tpot['mean_ms']:.2f}, p99 of the slowest {1000 / tpot['p99_ms']:.2f}")
    lateness(report)
    assert report["other_lengths"] == 0, report


def lateness(report):
    late = report["lateness"]
    print(f"  lateness p50 {late['p50_ms']:.2f} ms, p99 {late['p99_ms']:.2f} ms, max {late['max_ms']:.2f} ms", flush=True)


def with_server(service, requests, load):
    port = free_port()
    server = [program(), "mock-server", *service, "--listen", f"127.0.0.1:{port}"]
    with running([server], FOLDER / "mock-server.log"):
        wait_for_model(f"http://127.0.0.1:{port}")
        return observe(f"http://127.0.0.1:{port}", MODEL, FOLDER, requests, load)


def number(id):
    return int(id.rpartition("_")[2])


def at(sorted_values, percent):
    return sorted_values[min(len(sorted_values) - 1, len(sorted_values) * percent // 100)]


if __name__ == "__main__":
    main()
