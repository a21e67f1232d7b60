"""Routing policies of llm-d's router on two published workloads: the tables of README.md.

    python3 examples/router/router.py [--blis target/release/blis]

Takes about two minutes of one core. Figures are medians over the seeds.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
POLICIES = {
    "round-robin": "--routing-policy round-robin",
    "approximate": "--routing-policy epp-default",
    "precise": "--routing-policy weighted --routing-scorers precise-prefix-cache:3,queue-depth:2,kv-utilization:2",
    "token-aware": "--routing-policy token-aware",
    "prefill-ahead": f"--routing-policy {HERE / 'prefill-ahead.rhai'}",
}
# Without the length, sessions beyond 40 960 tokens would be dropped.
SERVICE = "--model qwen/qwen3-32b --tp 2 --hardware H100 --max-model-len 131072 --snapshot-refresh-interval 50000"


class Runs:
    def __init__(self, blis, folder):
        self.blis, self.folder = blis, Path(folder)

    def spec(self, name, old, new):
        """The path of the specification `name`, with `new` instead of `old`."""
        text = (HERE / name).read_text()
        if old not in text:
            raise SystemExit(f"{name} has no `{old}`")
        path = self.folder / f"{new.replace(' ', '').replace(':', '-')}.yaml"
        path.write_text(text.replace(old, new))
        return path

    def row(self, spec, instances, seeds, figure, more="--horizon 600s"):
        """The median of `figure` for each policy."""
        medians = []
        for flags in POLICIES.values():
            values = []
            for seed in range(1, seeds + 1):
                command = f"{self.blis} run {SERVICE} --num-instances {instances} {flags} --workload-spec {spec} --seed {seed} {more}"
                done = subprocess.run([*command.split(), "--output", "json"], capture_output=True, text=True)
                if done.returncode != 0:
                    raise SystemExit(f"{command}\n{done.stderr}")
                values.append(figure(json.loads(done.stdout)))
            medians.append(statistics.median(values))
        return medians


def served_tokens(document):
    """Thousands of prompt tokens served per second."""
    return document["load"]["served_rps"] * 7.2


def ttft_p90(document):
    return document["ttft_p90_ms"] / 1000


def served(document):
    return document["load"]["served_rps"]


def table(title, head, rows, digits):
    print(f"{title}\n\n{head:>12}" + "".join(f"{name:>14}" for name in POLICIES))
    for label, row in rows:
        print(f"{label:>12}" + "".join(f"{value:14.{digits}f}" for value in row), flush=True)
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--blis", default="target/release/blis")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(args.blis, folder)
        rates = ((rate, runs.spec("shared-prefixes.yaml", "rate: 40", f"rate: {rate}")) for rate in (10, 20, 30, 40, 60))
        rows = [(rate, runs.row(spec, 8, 3, served_tokens, "--horizon 300s")) for rate, spec in rates]
        table("Shared prefixes, 8 instances: 1000 prompt tokens/s served", "requests/s", rows, 1)
        specs = [(f"{rate / 100:.2f}", runs.spec("code-sessions.yaml", "aggregate_rate: 0.25", f"aggregate_rate: {rate / 100}")) for rate in range(10, 45, 5)]
        for title, figure, digits in [("TTFT p90, s", ttft_p90, 1), ("requests/s served", served, 2)]:
            table(f"Code sessions, 10 instances: {title}", "sessions/s", [(rate, runs.row(spec, 10, 6, figure)) for rate, spec in specs], digits)
        spec = specs[3][1]
        blocks = ((count, runs.row(spec, 10, 6, ttft_p90, f"--horizon 600s --total-kv-blocks {count}")) for count in (12000, 16000, 20000, 24000, 32000))
        table("Code sessions, 0.25 per second: TTFT p90, s, by the size of the KV cache", "KV blocks", list(blocks), 1)


if __name__ == "__main__":
    main()
