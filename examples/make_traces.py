#!/usr/bin/env python3
"""Writes the traces of the examples. They are made up, and the same on every run:
`python3 examples/make_traces.py` must change nothing.

Only integer arithmetic decides what is written, so that no Python version can differ.
"""

import datetime
import json
import pathlib

HERE = pathlib.Path(__file__).parent

TRACE_V2_HEADER = "trace_version: 3\ntime_unit: microseconds\nmode: generated\n"
TRACE_V2_COLUMNS = (
    "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,"
    "input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,"
    "deadline_us,server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,"
    "num_chunks,status,error_message,finish_reason"
)


def spread(number, low, high):
    """The `number`-th of a scattered sequence of integers from `low` to `high`."""
    return low + (number * 2654435761 >> 8) % (high - low + 1)


def azure(path, rows):
    """`rows`: arrival in ms, prompt and output tokens."""
    start = datetime.datetime(2024, 1, 1)
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for ms, prompt, output in rows:
        lines.append(f"{start + datetime.timedelta(milliseconds=ms):%Y-%m-%d %H:%M:%S.%f},{prompt},{output}")
    (HERE / path).write_text("\n".join(lines) + "\n")


def a_minute_of_chat():
    """About five requests a second for a minute, with a burst in the middle."""
    ms, rows = 0, []
    for n in range(300):
        burst = 20_000 <= ms < 25_000
        ms += spread(n, 5, 40) if burst else spread(n, 50, 400)
        rows.append((ms, spread(3 * n + 1, 20, 1500), spread(3 * n + 2, 10, 400)))
    azure("replay-a-trace/chat.csv", rows)


def documents():
    """Questions about four documents of 6144 tokens, each document in 12 blocks of 512 tokens."""
    lines = []
    for n in range(80):
        document = spread(n, 0, 3)
        question = spread(n + 1000, 30, 400)
        lines.append(json.dumps({
            "timestamp": 250 * n,
            "input_length": 12 * 512 + question,
            "output_length": spread(n + 2000, 20, 120),
            "hash_ids": [*range(12 * document, 12 * document + 12), 1000 + n],
        }))
    (HERE / "prefix-caching/documents.jsonl").write_text("\n".join(lines) + "\n")


def long_prompts():
    """A conversation every 100 ms for 20 s, and a prompt of 16 000 tokens every 4 s."""
    rows = [(100 * n, spread(n, 50, 300), spread(n + 500, 100, 300)) for n in range(200)]
    rows += [(2_030 + 4_000 * n, 16_000, 50) for n in range(5)]
    azure("long-prompts/chat-and-reports.csv", sorted(rows))


def two_classes():
    """Four batch jobs for each person who waits, twice what the engine can take."""
    lines = [TRACE_V2_COLUMNS]
    for n in range(200):
        is_critical = n % 5 == 4
        slo_class = "critical" if is_critical else "batch"
        prompt = spread(n, 50, 200) if is_critical else spread(n, 500, 1500)
        output = spread(n + 500, 20, 80) if is_critical else spread(n + 500, 200, 400)
        lines.append(
            f"{n},made-up,,{slo_class},,0,,0,true,{prompt},{output},{prompt},0,0,0,0,,0,0,{50_000 * n},0,0,0,0,ok,,"
        )
    (HERE / "priorities/trace.csv").write_text("\n".join(lines) + "\n")
    (HERE / "priorities/trace.yaml").write_text(TRACE_V2_HEADER)


def a_conversation():
    """Three rounds: each prompt is the one before, its output and 20 tokens more. And an unrelated request."""
    lines = ["arrival_time,request_id,model,prefill_tokens,decode_tokens"]
    context, token = [], 1
    for turn in range(3):
        prompt = context + list(range(token, token + (64 if turn == 0 else 20)))
        output = list(range(5000 + 100 * turn, 5000 + 100 * turn + 30))
        token += 100
        lines.append(f'{turn}.0,turn-{turn},made-up,"{prompt}","{output}"')
        context = prompt + output
    lines.append(f'3.0,stranger,made-up,"{list(range(9000, 9100))}","{list(range(9200, 9230))}"')
    (HERE / "shared-tokens/conversation.csv").write_text("\n".join(lines) + "\n")


def assistants():
    """Thirty questions a second to 48 assistants, each with instructions of 4096 tokens of its own."""
    ms, lines = 0, []
    for n in range(400):
        ms += spread(n, 2, 64)
        assistant = spread(spread(n + 700, 0, 1 << 24), 0, 47)
        lines.append(json.dumps({
            "timestamp": ms,
            "input_length": 8 * 512 + spread(n + 1000, 30, 300),
            "output_length": spread(n + 2000, 50, 250),
            "hash_ids": [*range(8 * assistant, 8 * assistant + 8), 1000 + n],
        }))
    (HERE / "cluster-routing/assistants.jsonl").write_text("\n".join(lines) + "\n")


def two_tenants():
    """People who wait (critical, standard), a tenant's nightly batch, and a crawler in the background."""
    kinds = [  # class, tenant, prompt, output
        ("critical", "shop", (50, 200), (20, 80)),
        ("standard", "shop", (100, 600), (50, 200)),
        ("batch", "reports", (500, 1500), (200, 400)),
        ("background", "crawler", (800, 2000), (100, 300)),
    ]
    lines = [TRACE_V2_COLUMNS]
    for n in range(320):
        slo_class, tenant, prompt, output = kinds[spread(spread(n, 0, 1 << 24), 0, 3)]
        prompt, output = spread(n + 300, *prompt), spread(n + 900, *output)
        lines.append(
            f"{n},made-up,{tenant},{slo_class},,0,,0,true,{prompt},{output},{prompt},0,0,0,0,,0,0,{25_000 * n},"
            "0,0,0,0,ok,,"
        )
    (HERE / "policy-bundle/trace.csv").write_text("\n".join(lines) + "\n")
    (HERE / "policy-bundle/trace.yaml").write_text(TRACE_V2_HEADER)


if __name__ == "__main__":
    a_minute_of_chat()
    documents()
    long_prompts()
    two_classes()
    a_conversation()
    assistants()
    two_tenants()
