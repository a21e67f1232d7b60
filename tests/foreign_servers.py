#!/usr/bin/env python3
"""`blis observe` on servers of others: a real engine on this CPU, and another simulator.

    python3 tests/foreign_servers.py target/release/blis [llama.cpp] [dynamo]

* llama.cpp's server (of the package xllamacpp) with a Llama of random weights and a vocabulary of bytes, which this script writes.
* The mocker of NVIDIA Dynamo, a simulated vLLM, behind Dynamo's own frontend.

Both are installed from the package registry into target/foreign, in fixed versions, and listen on this machine only; one that the
registry lacks is left out with a message. Fails unless every request completes, all prompts and outputs have exactly the planned
numbers of tokens, and the server's own counters say the same.
"""

import os
import shutil
import subprocess
import sys
import urllib.request

from foreign import FOLDER, constant_load, environment, free_port, observe, running, wait_for_model, write_tokenizer

REQUESTS, RATE, PROMPT, OUTPUT = 100, 5, 300, 40

# Two layers of a Llama: everything that an engine does for a large one, in microseconds.
WRITE_MODEL = """
import sys, gguf, numpy
layers, width, heads, kv_heads, inner, context = 2, 64, 4, 2, 128, 4096
tokens = [b"<unk>", b"<s>", b"</s>"] + [b"<0x%02X>" % byte for byte in range(256)] + [b"w%d" % n for n in range(32000)]
kinds = [gguf.TokenType.UNKNOWN, *[gguf.TokenType.CONTROL] * 2, *[gguf.TokenType.BYTE] * 256, *[gguf.TokenType.NORMAL] * 32000]
random = numpy.random.default_rng(1)
writer = gguf.GGUFWriter(sys.argv[1], "llama")
writer.add_context_length(context)
writer.add_embedding_length(width)
writer.add_block_count(layers)
writer.add_feed_forward_length(inner)
writer.add_head_count(heads)
writer.add_head_count_kv(kv_heads)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_rope_dimension_count(width // heads)
writer.add_vocab_size(len(tokens))
writer.add_tokenizer_model("llama")
writer.add_token_list(tokens)
writer.add_token_scores([0.0] * len(tokens))
writer.add_token_types([int(kind) for kind in kinds])
writer.add_bos_token_id(1)
writer.add_eos_token_id(2)
writer.add_unk_token_id(0)

def weights(name, *shape):
    writer.add_tensor(f"{name}.weight", random.normal(0, 0.05, shape).astype(numpy.float32))

def ones(name):
    writer.add_tensor(f"{name}.weight", numpy.ones(width, numpy.float32))

weights("token_embd", len(tokens), width)
weights("output", len(tokens), width)
ones("output_norm")
for layer in range(layers):
    ones(f"blk.{layer}.attn_norm")
    ones(f"blk.{layer}.ffn_norm")
    for name, rows in (("q", width), ("k", width * kv_heads // heads), ("v", width * kv_heads // heads), ("output", width)):
        weights(f"blk.{layer}.attn_{name}", rows, width)
    weights(f"blk.{layer}.ffn_gate", inner, width)
    weights(f"blk.{layer}.ffn_up", inner, width)
    weights(f"blk.{layer}.ffn_down", width, inner)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
"""

SERVE_MODEL = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port, params.hostnames = sys.argv[1], int(sys.argv[2]), ["127.0.0.1"]
params.n_ctx, params.n_parallel, params.n_gpu_layers = 8192, 4, 0
params.cpuparams.n_threads = 1
params.endpoint_metrics = True
server = xllamacpp.Server(params)
threading.Event().wait()
"""


def main():
    asked = sys.argv[2:] or list(SERVERS)
    unknown = [name for name in asked if name not in SERVERS]
    if unknown:
        sys.exit(f"no server is called {unknown[0]}; there are {', '.join(SERVERS)}")
    for name in asked:
        SERVERS[name](f"http://127.0.0.1:{free_port()}")


def llama_cpp(url):
    executables = environment("llama.cpp", ["xllamacpp==2026.10.11549", "gguf==0.19.0", "numpy"])
    if executables is None:
        return
    model = FOLDER / "random.gguf"
    subprocess.run([executables / "python", "-c", WRITE_MODEL, model], check=True)
    server = [executables / "python", "-c", SERVE_MODEL, model, url.rpartition(":")[2]]
    with running([server], FOLDER / "llama.cpp.log"):
        measure("llama.cpp", url, "llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total")


def dynamo(url):
    own = ["ai-dynamo==1.6.1", "ai-dynamo-runtime==1.6.1"]
    # Their list of dependencies has a package that is on no public registry, and what clusters need.
    needed = ["aiohttp", "msgspec", "prometheus-client", "pydantic==2.13.5", "pyzmq", "tqdm", "transformers", "uvloop", "zstandard"]
    executables = environment("dynamo", needed, (3, 10), own)
    if executables is None:
        return
    model, discovery = FOLDER / "dynamo-model", FOLDER / "dynamo-discovery"
    shutil.rmtree(discovery, ignore_errors=True)
    tokens = write_tokenizer(model, words=32000)
    (model / "config.json").write_text(f"""{{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
"intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": {tokens},
"max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "eos_token_id": {tokens - 1}, "torch_dtype": "float32"}}""")
    hosts = ("DYN_TCP_RPC_HOST", "DYN_EVENT_PLANE_HOST", "DYN_TCP_RESPONSE_STREAM_HOST", "DYN_SYSTEM_HOST")
    variables = {**os.environ, **dict.fromkeys(hosts, "127.0.0.1"), "DYN_FILE_KV": str(discovery), "HF_HUB_OFFLINE": "1"}
    planes = ["--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq"]
    python = executables / "python"
    mocker = [python, "-m", "dynamo.mocker", "--model-path", model, "--model-name", "m", *planes]
    frontend = [python, "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", url.rpartition(":")[2], *planes]
    with running([mocker, frontend], FOLDER / "dynamo.log", env=variables):
        measure("dynamo mocker", url, "dynamo_frontend_input_sequence_tokens_sum", "dynamo_frontend_output_tokens_total")


def measure(name, url, input_counter, output_counter):
    model = wait_for_model(url)
    results = FOLDER / f"{name.replace(' ', '-')}-results"
    results.mkdir(exist_ok=True)
    before = counters(url)
    report = observe(url, model, results, REQUESTS, [*constant_load(REQUESTS, RATE, PROMPT, OUTPUT), "--record-itl"])
    after = counters(url)
    for figure in ("ttft", "tpot", "e2e"):
        one = report[figure]
        print(f"{name:14} {figure:4} mean {one['mean_ms']:8.2f} ms, p50 {one['p50_ms']:8.2f} ms, p99 {one['p99_ms']:8.2f} ms")
    late = report["lateness"]["p99_ms"]
    print(f"{name:14} {report['input_tokens']} tokens in, {report['output_tokens']} out, lateness p99 {late:.2f} ms", flush=True)
    expected = {"input_tokens": REQUESTS * PROMPT, "output_tokens": REQUESTS * OUTPUT, "other_lengths": 0}
    found = {key: report[key] for key in expected}
    assert found == expected, f"{name}: {found}, not {expected}"
    for counter, tokens in ((input_counter, REQUESTS * PROMPT), (output_counter, REQUESTS * OUTPUT)):
        counted = after.get(counter, 0) - before.get(counter, 0)
        assert counted == tokens, f"{name}: {counter} grew by {counted}, not {tokens}"


def counters(url):
    """The values of `/metrics`, summed over labels."""
    values = {}
    for line in urllib.request.urlopen(f"{url}/metrics", timeout=10).read().decode().splitlines():
        if line and not line.startswith("#"):
            labelled, value = line.rsplit(" ", 1)
            name = labelled.partition("{")[0]
            values[name] = values.get(name, 0) + float(value)
    return values


SERVERS = {"llama.cpp": llama_cpp, "dynamo": dynamo}

if __name__ == "__main__":
    main()
