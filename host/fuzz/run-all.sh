#!/usr/bin/env bash
# Runs the fuzz targets, each for SECONDS, so many at a time; says how many executions and what was covered.
#
#   host/fuzz/run-all.sh [-j JOBS] [SECONDS [TARGET…]]      default: 600 s, one at a time, all targets
#
# Corpora grow in corpus/, what fails a target lies in artifacts/, logs in target/logs/. Exit code 1 if
# anything was found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

jobs=1
if [[ ${1:-} == -j ]]; then
    jobs=$2
    shift 2
fi
seconds=${1:-600}
shift $(($# > 0 ? 1 : 0))
if (($# > 0)); then targets=("$@"); else mapfile -t targets < <(cargo +nightly fuzz list --fuzz-dir .); fi

mkdir -p target/logs
cargo +nightly fuzz build --fuzz-dir .

one() {
    local target=$1 log=target/logs/$1.log dictionary=()
    if [[ -f dictionaries/$target.dict ]]; then dictionary=("-dict=dictionaries/$target.dict"); fi
    mkdir -p "corpus/$target"
    # Without cargo, which would let only one of them start at a time.
    mkdir -p "artifacts/$target"
    local status=0
    "$(ls target/*/release/"$target")" "corpus/$target" "seeds/$target" "-artifact_prefix=artifacts/$target/" \
        "-max_total_time=$seconds" -rss_limit_mb=2048 -max_len=65536 -timeout=10 -print_final_stats=1 \
        "${dictionary[@]}" >"$log" 2>&1 || status=$?
    local covered executed
    covered=$(grep -oE 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -1 || true)
    executed=$(grep -oE '^#[0-9]+|number_of_executed_units: [0-9]+' "$log" | tail -1 | grep -oE '[0-9]+' || true)
    printf '%-20s exit %-3s %12s executions  %s\n' "$target" "$status" "${executed:-0}" "$covered"
    return "$status"
}

failed=0
for target in "${targets[@]}"; do
    while (($(jobs -rp | wc -l) >= jobs)); do
        wait -n || failed=1
    done
    one "$target" &
done
while (($(jobs -p | wc -l) > 0)); do
    wait -n || failed=1
done
exit "$failed"
