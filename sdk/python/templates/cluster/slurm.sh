#!/bin/bash
# Candidates on many machines with Slurm: an array of processes that share the parts, then one job that merges them.
#
#     bash slurm.sh candidates/*.rhai
#
# OUT/results.jsonl gets a result per line, in the order of the candidates. Set SUITE, STAGE, SHARDS, BLIS and OUT (a new
# folder that all nodes see) as you need: SHARDS processes take the parts, four for each of them, as they get free. The last
# job reports parts that are missing.
set -euo pipefail

SUITE=${SUITE:-{{suite}}}
STAGE=${STAGE:-select}
SHARDS=${SHARDS:-16}
OUT=${OUT:-$PWD/shards}
BLIS=${BLIS:-blis}

if [[ $# -eq 0 ]]; then
    echo "usage: $0 CANDIDATE…" >&2
    exit 2
fi
mkdir -p "$OUT"

# Quoted for the shell of the job: names of candidates may have spaces.
evaluate=$(printf '%q ' "$BLIS" evaluate "$@" --suite "$SUITE" --stage "$STAGE" --threads 1 --out "$OUT")
merge=$(printf '%q ' "$BLIS" evaluate merge "$OUT")
array=$(
    sbatch --parsable --job-name=blis --array="0-$((SHARDS - 1))" --cpus-per-task=1 --mem=2G --time=01:00:00 \
        --output="$OUT/shard-%a.log" --wrap="$evaluate --shard next/$((4 * SHARDS))"
)
# `afterany`: if a part is missing, `blis evaluate merge` names it.
sbatch --parsable --job-name=blis-merge --dependency="afterany:$array" --cpus-per-task=1 --mem=2G --time=00:10:00 \
    --output="$OUT/merge.log" --wrap="$merge >$(printf '%q' "$OUT/results.jsonl")"
