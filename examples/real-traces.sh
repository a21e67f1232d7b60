#!/usr/bin/env bash
# Simulates four public traces to their last request on 1, 4 and 16 instances, and prints a table (Markdown).
#
#   examples/real-traces.sh FOLDER [BLIS]
#
# FOLDER holds azure-2023/, mooncake/ and servegen-deepseek-r1/ as their authors publish them; what is absent is left
# out. BLIS is the program [target/release/blis]. Needs Python 3 to read JSON. What the rows mean: real-traces.md.
set -euo pipefail
export LC_ALL=C

folder=${1:?name the folder of the traces}
blis=${2:-target/release/blis}
command -v "$blis" > /dev/null || { echo "there is no program $blis: build it with cargo build --release" >&2; exit 2; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# A row: what the run came to, and the CPU time of the whole program: reading the trace and writing the figures of
# every request included.
row() { # name, instances, flags of the workload
    local name=$1 instances=$2
    shift 2
    local TIMEFORMAT='%U %S'
    { time "$blis" run --model meta-llama/llama-3.1-8b-instruct --num-instances "$instances" \
        --routing-policy weighted --log off --no-progress --metrics-path "$scratch/results" "$@" > /dev/null; } 2> "$scratch/cpu"
    python3 - "$name" "$instances" "$scratch" <<'PYTHON'
import json, sys
name, instances, scratch = sys.argv[1:]
r = json.load(open(f"{scratch}/results"))
cpu = sum(map(float, open(f"{scratch}/cpu").read().split()))
dropped, rejected = r["dropped_unservable"], r["rejected_requests"]
cells = [
    name, instances, r["completed_requests"], f"{rejected} / {dropped}",
    f"{r['ttft_mean_ms']:,.0f}", f"{r['ttft_p99_ms']:,.0f}", f"{r['e2e_mean_ms']:,.0f}", f"{r['e2e_p99_ms']:,.0f}",
    f"{r['responses_per_sec']:.2f}", f"{r['tokens_per_sec']:,.0f}", f"{r['preemption_count']:,}",
    f"{100 * r['cache_hit_rate']:.1f} %", f"{cpu:.2f}",
]
print("| " + " | ".join(str(cell) for cell in cells) + " |")
PYTHON
}

echo "| trace | instances | completed | rejected / dropped | TTFT mean, ms | TTFT p99 | E2E mean, ms | E2E p99 | requests/s | output tokens/s | preemptions | prefix hits | CPU s |"
echo "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
while read -r name path flags; do
    if [ ! -e "$folder/$path" ]; then
        echo "left out: $folder/$path is not there" >&2
        continue
    fi
    for instances in 1 4 16; do
        # shellcheck disable=SC2086 # several flags
        row "$name" "$instances" $flags "$folder/$path"
    done
done <<'TRACES'
azure-conv azure-2023/AzureLLMInferenceTrace_conv.csv --workload-trace
azure-code azure-2023/AzureLLMInferenceTrace_code.csv --workload-trace
mooncake-synthetic mooncake/synthetic_trace.jsonl --workload-trace
deepseek-r1 servegen-deepseek-r1 --num-requests 20000 --workload-spec
TRACES
