#!/bin/bash
# Candidates on many machines with Slurm: an array of shards, then one job that merges them.
#
#     bash slurm.sh candidates/*.rhai
#
# OUT/results.jsonl gets a result per line, in the order of the candidates. Set SUITE, STAGE, SHARDS, BLIS and OUT (a new
# folder that all nodes see) as you need. The last job reports shards that failed; they can be run again alone.
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
        --output="$OUT/shard-%a.log" --wrap="$evaluate --shard \$SLURM_ARRAY_TASK_ID/$SHARDS"
)
# `afterany`: if a shard is missing, `blis evaluate merge` names it.
sbatch --parsable --job-name=blis-merge --dependency="afterany:$array" --cpus-per-task=1 --mem=2G --time=00:10:00 \
    --output="$OUT/merge.log" --wrap="$merge >$(printf '%q' "$OUT/results.jsonl")"
