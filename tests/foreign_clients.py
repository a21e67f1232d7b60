#!/usr/bin/env python3
"""A load generator of others against `blis mock-server`, and its figures beside those of `blis observe`.

    python3 tests/foreign_clients.py target/release/blis

guidellm is installed from the package registry into target/foreign, in a fixed version; where the registry lacks it, this says
so and ends with code 0. Both clients send requests with the same lengths at the same rate to a fresh server each. Fails if a
median of one differs from that of the other by more than 2 %: the gap between tokens and the end-to-end latency. TTFT is shown
beside them: it holds the client's own time before the first token, which differs between programs.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys

VERSION = "guidellm==0.3.1"
FOLDER = pathlib.Path(__file__).resolve().parent.parent / "target/foreign"
MODEL, RATE, SECONDS, OUTPUT = "qwen/qwen3-14b", 4, 20, 50
MOST_PERCENT = 2.0

TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
vocab = {character: number for number, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
vocab.update({"<s>": 256, "</s>": 257})
tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", model_max_length=100000)
fast.save_pretrained(sys.argv[1])
"""


def main():
    program = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "target/release/blis").resolve())
    python = installed()
    if python is None:
        print(f"skipped: the registry lacks {VERSION}")
        return
    theirs = with_server(program, lambda url: guidellm(python, url))
    ours = with_server(program, lambda url: observe(program, url, theirs["prompt_tokens"]))
    wrong = []
    for name in ("ttft", "itl", "e2e"):
        percent = 100 * (theirs[name] - ours[name]) / ours[name]
        print(f"{name:5} median: guidellm {theirs[name]:9.2f} ms, observe {ours[name]:9.2f} ms, {percent:+.2f} %")
        if name != "ttft" and abs(percent) > MOST_PERCENT:
            wrong.append(name)
    sys.exit(f"more than {MOST_PERCENT} %: {', '.join(wrong)}" if wrong else 0)


def installed():
    """The Python that has guidellm; None if the registry lacks it."""
    python = FOLDER / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    pip = subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-input", VERSION], check=False)
    return python if pip.returncode == 0 else None


def with_server(program, measure):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    server = subprocess.Popen([program, "mock-server", "--model", MODEL, "--listen", address], stdout=subprocess.PIPE)
    try:
        server.stdout.readline()
        return measure(f"http://{address}")
    finally:
        server.terminate()
        server.wait()


def guidellm(python, url):
    tokenizer, results = FOLDER / "tokenizer", FOLDER / "guidellm.json"
    subprocess.run([python, "-c", TOKENIZER, tokenizer], check=True, stderr=subprocess.DEVNULL)
    command = [FOLDER / "bin/guidellm", "benchmark", "run", "--target", url, "--model", MODEL, "--processor", tokenizer,
               "--data", f"prompt_tokens=1000,output_tokens={OUTPUT}", "--rate-type", "constant", "--rate", str(RATE),
               "--max-seconds", str(SECONDS), "--disable-progress", "--disable-console-outputs", "--output-path", results]
    subprocess.run(command, check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=subprocess.DEVNULL)
    metrics = json.loads(results.read_text())["benchmarks"][0]["metrics"]

    def median(name, factor=1):
        return metrics[name]["successful"]["median"] * factor

    return {"ttft": median("time_to_first_token_ms"), "itl": median("inter_token_latency_ms"),
            "e2e": median("request_latency", 1000), "prompt_tokens": round(median("prompt_token_count"))}


def observe(program, url, prompt_tokens):
    lengths = ["--prompt-tokens", str(prompt_tokens), "--prompt-tokens-stdev", "0", "--output-tokens", str(OUTPUT),
               "--output-tokens-stdev", "0"]
    command = [program, "observe", "--model", MODEL, "--server-url", url, "--rate", str(RATE), "--arrival-process", "constant",
               "--num-requests", str(RATE * SECONDS), "--trace-output", str(FOLDER / "observed"), "--output", "json", *lengths]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert report["unaccounted_requests"] == 0 and report["ends"] == {"completed": RATE * SECONDS}, report
    return {"ttft": report["ttft"]["p50_ms"], "itl": report["tpot"]["p50_ms"], "e2e": report["e2e"]["p50_ms"]}


if __name__ == "__main__":
    main()
