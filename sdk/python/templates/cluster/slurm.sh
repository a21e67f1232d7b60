#!/bin/bash
# Candidates on many machines with Slurm: an array of shards, then one job that puts them together.
#
#     bash slurm.sh candidates/*.rhai
#
# The verdicts are the last lines of shards/verdicts.jsonl, one per candidate; they are those of a single machine. Set SUITE,
# STAGE, SHARDS and OUT (a folder that all nodes see) as you need. A shard that failed can be run again by itself:
# sbatch --array=N … .
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

array=$(
    sbatch --parsable --job-name=blis --array="0-$((SHARDS - 1))" --cpus-per-task=1 --mem=2G --time=01:00:00 \
        --output="$OUT/shard-%a.log" --wrap="$(printf '%q ' "$BLIS" evaluate "$@" --suite "$SUITE" --stage "$STAGE" \
            --threads 1)--shard \$SLURM_ARRAY_TASK_ID/$SHARDS --out $(printf '%q' "$OUT")/\$SLURM_ARRAY_TASK_ID"
)
# `afterok`: with a shard missing there is nothing to put together.
sbatch --parsable --job-name=blis-merge --dependency="afterok:$array" --cpus-per-task=1 --mem=2G --time=00:10:00 \
    --output="$OUT/merge.log" \
    --wrap="$(printf '%q ' "$BLIS" merge)$(for i in $(seq 0 "$((SHARDS - 1))"); do printf '%q ' "$OUT/$i"; done)> $(printf '%q' "$OUT/verdicts.jsonl")"
