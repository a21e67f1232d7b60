"""A simple policy search: random changes to a sum of terms, of which the better one is kept, and then `blis tune` for
the weights.

    python3 examples/policy-search/search.py [--blis target/release/blis] [--evals 200] [--seed 1] [--out DIR]

Starts from round-robin, written in Rhai. `blis serve` evaluates every candidate on the training scenarios of the chat
suite; the held-out scenarios are run once, by `blis evaluate held-out`, at the end.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

SEED = """// @name candidate
// @about Each instance in turn.
fn init() { #{ next: 0 } }
fn route(r, s) {
    let target = this.next % s.len;
    this.next = target + 1;
    target
}
"""

# Terms of a score; each is larger for better instances, and of the order of 1.
TERMS = [
    "fewest_best(s.in_flight)",
    "-s.in_flight / 10.0",
    "-s.in_flight / max(s.in_flight.mean(), 1.0)",
    "fewest_best(s.queue_depth)",
    "-s.queue_depth / 4.0",
    "-s.batch_size / 10.0",
    "-s.kv_utilization",
    "s.free_kv_blocks / s.total_kv_blocks",
    "most_best(s.cached_blocks)",
    "s.cached_blocks / max(r.prompt_blocks, 1)",
    "(s.cached_blocks > 0)",
    "fewest_best(s.preemption_count)",
    "s.cache_hit_rate",
    "-(s.in_flight > s.in_flight.mean() * 1.3)",
    "-(s.queue_depth > 2)",
]


def script(terms):
    """The policy with the terms [(term, weight)]; the weights are parameters, so that they can be tuned."""
    if not terms:
        return SEED
    head = [f"// @param w{i} {weight:.3g} 0 8 weight" for i, (_, weight) in enumerate(terms)]
    sums = "\n    + ".join(f"w{i} * ({term})" for i, (term, _) in enumerate(terms))
    return "\n".join(["// @name candidate", *head, "fn route(r, s) {", f"    {sums}", "}", ""])


def changed(terms, draw):
    """A random change of the policy."""
    terms = list(terms)
    what = draw.random()
    if not terms or (what < 0.4 and len(terms) < 6):
        terms.insert(draw.randint(0, len(terms)), (draw.choice(TERMS), round(draw.uniform(0.2, 3), 2)))
    elif what < 0.55:
        terms.pop(draw.randrange(len(terms)))
    elif what < 0.7:
        index = draw.randrange(len(terms))
        terms[index] = (draw.choice(TERMS), terms[index][1])
    else:
        index = draw.randrange(len(terms))
        term, weight = terms[index]
        terms[index] = (term, round(min(8.0, weight * 2 ** draw.uniform(-1.5, 1.5)), 3))
    return terms


class Evaluator:
    """`blis serve`, with one request at a time."""

    def __init__(self, blis, suite):
        command = [blis, "serve", "--stdio", "--suite", suite]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.requests = 0

    def score(self, source, stage="train"):
        self.requests += 1
        candidate = {"lang": "rhai", "source": source}
        request = {"id": str(self.requests), "candidate": candidate, "stage": stage, "feedback_bytes": 0}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["combined_score"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# Candidates that are evaluated again, under other requests, before one is selected.
FINALISTS = 20


def search(evaluator, evals, draw, log):
    best, best_score = [], evaluator.score(SEED)
    log(f"   1  {best_score:.4f}  round-robin")
    seen = {}
    for turn in range(2, evals - FINALISTS + 1):
        candidate = changed(best, draw)
        # Sometimes two changes at a time: some changes only help together.
        if draw.random() < 0.3:
            candidate = changed(candidate, draw)
        score = evaluator.score(script(candidate))
        seen[script(candidate)] = (score, candidate)
        if score > best_score:
            best, best_score = candidate, score
            log(f"{turn:4}  {score:.4f}  " + " + ".join(f"{weight:g}·{term}" for term, weight in best))
    # The candidate with the best training score may be overfitted, so the best ones are compared under other requests.
    finalists = sorted(seen.values(), key=lambda one: one[0])[-FINALISTS:]
    scored = [(evaluator.score(script(candidate), "select"), candidate) for _, candidate in finalists]
    score, best = max(scored, key=lambda one: one[0])
    log(f"      {score:.4f}  in select: " + " + ".join(f"{weight:g}·{term}" for term, weight in best))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--blis", default="target/release/blis")
    parser.add_argument("--suite", default="chat")
    parser.add_argument("--evals", type=int, default=200, help="candidates of the search")
    parser.add_argument("--tune", type=int, default=100, help="settings that `blis tune` tries for the best candidate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("target/policy-search"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    evaluator = Evaluator(args.blis, args.suite)
    best = search(evaluator, args.evals, random.Random(args.seed), print)
    evaluator.close()
    (args.out / "found.rhai").write_text(script(best))
    if not best:
        sys.exit("nothing better than round-robin was found")
    for command in (
        ["tune", args.out / "found.rhai", "--evals", args.tune, "--write", args.out / "tuned.rhai", "--output", "text"],
        ["evaluate", "held-out", args.out / "tuned.rhai", args.out / "found.rhai", "--output", "text"],
    ):
        print()
        words = [args.blis, *map(str, command), "--suite", args.suite]
        subprocess.run(words, check=True)


if __name__ == "__main__":
    main()
