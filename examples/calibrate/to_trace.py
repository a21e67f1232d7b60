"""Writes trace.yaml and trace.csv: the measured requests of LLMServingSim (docs/fidelity/llmservingsim, MIT) as a TraceV2 trace.

    python3 examples/calibrate/to_trace.py

Arrivals, and with them the times of tokens, are µs from the first arrival. A request joins vLLM's queue a little after it
arrived at the client: the time between is part of TTFT as the client sees it.
"""

import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
REQUESTS = HERE.parent.parent / "docs/fidelity/llmservingsim/llama-3.1-8b/requests.jsonl"
COLUMNS = (
    "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,input_tokens,"
    "output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,server_input_tokens,"
    "arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason,"
    "max_tokens"
)


def main():
    requests = [json.loads(line) for line in REQUESTS.read_text().splitlines()]
    start = min(request["queued_ts"] for request in requests)
    rows = [COLUMNS]
    for number, request in enumerate(sorted(requests, key=lambda request: request["queued_ts"])):
        sent, first, last = (round((request[name] - start) * 1e6) + 1
                             for name in ("queued_ts", "first_token_ts", "last_token_ts"))
        tokens, output = request["input_toks"], request["output_toks"]
        rows.append(f"{number},,,,,0,,0,true,{tokens},{output},0,0,0,0,0,,0,{tokens},{sent},{sent},{first},{last},"
                    f"{output},ok,,length,{output}")
    (HERE / "trace.csv").write_text("\n".join(rows) + "\n")
    (HERE / "trace.yaml").write_text(
        "trace_version: 3\ntime_unit: microseconds\nmode: real\nwarm_up_requests: 0\nserver:\n  type: vllm\n"
        "  model: meta-llama/Llama-3.1-8B\n  tensor_parallel: 1\n  max_num_seqs: 128\n")


if __name__ == "__main__":
    main()
