#!/usr/bin/env bash
# Builds the fuzz targets and runs each for SECONDS, JOBS at a time; prints executions and coverage of each.
#
#   host/fuzz/run-all.sh [-j JOBS] [SECONDS [TARGET…]]      default: one at a time, 600 s, all targets
#
# SANITIZER=none builds without AddressSanitizer, in much less time. Corpora grow in corpus/, what fails a
# target lies in artifacts/, logs in target/logs/. Exit code 1 if anything was found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

jobs=1
if [[ ${1:-} == -j ]]; then
    jobs=$2
    shift 2
fi
seconds=${1:-600}
shift $(($# > 0))
targets=("$@")
if ((${#targets[@]} == 0)); then mapfile -t targets < <(cargo +nightly fuzz list --fuzz-dir .); fi

mkdir -p target/logs
for target in "${targets[@]}"; do cargo +nightly fuzz build --fuzz-dir . --sanitizer "${SANITIZER:-address}" "$target"; done

# Starts the program itself, because cargo would wait for the previous target.
one() {
    local target=$1 log=target/logs/$1.log dictionary=() status=0 executed covered
    if [[ -f dictionaries/$target.dict ]]; then dictionary=("-dict=dictionaries/$target.dict"); fi
    mkdir -p "corpus/$target" "artifacts/$target"
    target/*/release/"$target" "corpus/$target" "seeds/$target" "-artifact_prefix=artifacts/$target/" \
        "-max_total_time=$seconds" -rss_limit_mb=2048 -max_len=65536 -timeout=10 -print_final_stats=1 \
        "${dictionary[@]}" >"$log" 2>&1 || status=$?
    executed=$(grep -oE 'number_of_executed_units: [0-9]+' "$log" | grep -oE '[0-9]+' || true)
    covered=$(grep -oE 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -1 || true)
    printf '%-18s exit code %-3d %12s executions  %s\n' "$target" "$status" "${executed:-?}" "$covered"
    return "$status"
}

running=()
for target in "${targets[@]}"; do
    while (($(jobs -rp | wc -l) >= jobs)); do sleep 1; done
    one "$target" &
    running+=($!)
done
failed=0
for job in "${running[@]}"; do wait "$job" || failed=1; done
exit "$failed"
