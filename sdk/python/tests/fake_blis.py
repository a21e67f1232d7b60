"""Replaces the program in tests where a real one cannot be made to misbehave: it hangs, crashes and writes garbage.

Comments in the candidate request this: `// HANG`, `// DEAF` (hangs and reads nothing more), `// CRASH`, `// GARBAGE`,
`// BUSY` (once), `// SLEEP seconds`, `// ONCE file` (dies unless the file is there, which it then makes). Anything
else with a function `route` is scored by its words. Standard library only, started with `python -SE`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

STAGES = ("smoke", "train", "select")
SCENARIOS = (
    ("one", "light", "smoke"),
    ("two", "light", "train"),
    ("three", "heavy", "train"),
    ("four", "light", "select"),
    ("five", "heavy", "select"),
    ("secret", "heavy", "test"),
)
SEEDS = (11, 12)
FEATURES = ("source_lines", "ops_per_decision", "distinct_signals_read", "shed_frac", "imbalance", "constants")
WORDS = {"effective_load": 0.08, "queue_depth": 0.05, "cached_blocks": 0.12, "kv_utilization": 0.03}


def result(request: dict[str, Any]) -> dict[str, Any]:
    candidate = request["candidate"]
    source = candidate.get("source") or Path(candidate["path"]).read_text()
    document: dict[str, Any] = {
        "schema": 2,
        "id": request.get("id"),
        "status": "ok",
        "combined_score": 0.0,
        "stage": "static",
        "stopped": None,
        # The program has no metric for the epoch; tests see by it which one was requested.
        "metrics": {
            "smoke_score": 0.0,
            "train_score": 0.0,
            "mean_ttft_ms": 0.0,
            "epoch": float(request.get("epoch", 0)),
        },
        "paired": None,
        "scenarios": [],
        "gates": {"conservation": True, "finite": True, "failed": []},
        "features": dict.fromkeys(FEATURES, 0.0),
        "artifacts": {},
        "private": {"scenarios": []},
        "hashes": {"candidate": hashlib.sha256(source.encode()).hexdigest(), "suite": "s", "host": "fake"},
        "cost": {"cpu_ms": 1.0, "wall_ms": 1.0, "cache": "miss", "ops": 0},
    }
    document["features"]["source_lines"] = float(len(source.splitlines()))
    if "fn route(" not in source or source.count("{") != source.count("}"):
        document["status"] = "rejected"
        document["artifacts"]["error"] = "syntax error at line 1: there is no function `route`"
        return document
    skill = 0.4 + sum(worth for word, worth in WORDS.items() if word in source)
    for stage in STAGES[: STAGES.index(request.get("stage", "train")) + 1]:
        if request.get("scenario") and stage != request.get("stage"):
            continue
        document["stage"] = stage
        rows = []
        for name, family, split in SCENARIOS:
            if split != stage or request.get("scenario") not in (None, name):
                continue
            for seed in SEEDS if request.get("seed") is None else [request["seed"]]:
                share = skill + (seed % 7) / 1000
                score = share / (1 - share)
                figures = {"mean_ttft_ms": 100.0 * (1 - skill), "throughput_rps": 10.0 * skill}
                even = {"mean_ttft_ms": 50.0, "throughput_rps": 5.0}
                rows.append({"id": name, "stage": stage, "family": family, "seed": seed, "score": score,
                             "metrics": figures, "reference": even})  # fmt: skip
        own: dict[str, list[float]] = {}
        for row in rows:
            own.setdefault(str(row["id"]), []).append(float(str(row["score"])))
        means = [sum(map(math.log, scores)) / len(scores) for scores in own.values()]
        score = math.exp(sum(means) / len(means))
        document["combined_score"] = 1.0 + STAGES.index(stage) + score / (1 + score)
        if stage != "select":
            document["metrics"][f"{stage}_score"] = score
        (document["private"] if stage == "select" else document)["scenarios"] += rows
    document["artifacts"]["scenarios"] = "scenario  candidate  reference\ntwo  1  2"
    return document


def misbehave(source: str, request: dict[str, Any], state: dict[str, int]) -> bool:
    """Misbehaves as `source` requests; returns whether the reply has been replaced."""
    if "// HANG" in source or "// DEAF" in source:
        time.sleep(1000)
    if "// CRASH" in source:
        print("thread main panicked: crash was requested", file=sys.stderr, flush=True)
        os._exit(101)
    if "// GARBAGE" in source:
        print("{this is no JSON", flush=True)
        return True
    if "// BUSY" in source and not state.get("was_busy"):
        state["was_busy"] = 1
        print(json.dumps({"id": request["id"], "error": "busy", "retry_after_s": 0.01}), flush=True)
        return True
    once = re.search(r"// ONCE (\S+)", source)
    if once and not Path(once[1]).exists():
        Path(once[1]).touch()
        os._exit(9)
    sleep = re.search(r"// SLEEP ([\d.]+)", source)
    if sleep:
        time.sleep(float(sleep[1]))
    return False


def serve(arguments: list[str]) -> int:
    suite = arguments[arguments.index("--suite") + 1]
    if suite == "nosuch":
        print("there is no suite `nosuch`", file=sys.stderr)
        return 2
    state: dict[str, int] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("example_id"):
            request["scenario"], turn = request["example_id"].split("#")
            request["seed"] = SEEDS[int(turn)]
        if request.get("task"):
            scenarios = [{"id": i, "family": f, "splits": [s], "seeds": {s: len(SEEDS)}} for i, f, s in SCENARIOS[:-1]]
            print(json.dumps({"suite": suite, "scenarios": scenarios, "about": "a", "interface": "i"}), flush=True)
            continue
        if request.get("quit"):
            return 0
        source = request["candidate"].get("source", "")
        if not misbehave(source, request, state):
            print(json.dumps(result(request)), flush=True)
    return 0


def held_out(arguments: list[str]) -> int:
    against = [{"name": "round-robin", "pairs": 2, "mean": 0.1, "ci95": None}]
    own = {"name": arguments[-1], "score": 0.6, "scores": [0.6], "against": against}
    suite = arguments[arguments.index("--suite") + 1]
    print(json.dumps({"suite": suite, "scenarios": ["secret"], "policies": [own]}))
    return 0


if __name__ == "__main__":
    sys.exit(held_out(sys.argv[3:]) if sys.argv[1:3] == ["evaluate", "held-out"] else serve(sys.argv[2:]))
