"""Ten thousand evaluations through `blis serve`: memory stays flat, equal candidates get equal results, and every request gets its reply.

    python3 tests/soak.py [--blis target/release/blis] [--evals 10000]

Not part of the tests: it takes half a minute on two cores with a release build.
"""

import argparse
import json
import random
import subprocess
import sys
import threading
import time

CANDIDATES = [
    "fn route(r, s) { -s.in_flight }",
    "fn route(r, s) { most_best(s.cached_blocks) * WEIGHT - s.in_flight / 5.0 }",
    "fn init() { #{ n: 0 } }\nfn route(r, s) { this.n += 1; this.n % s.len }",
    "fn route(r, s) { loop { } }",
    "fn route(r, s) { 99 }",
    "fn route(",
]


def resident(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--blis", default="target/release/blis")
    parser.add_argument("--evals", type=int, default=10_000)
    args = parser.parse_args()
    command = [args.blis, "serve", "--stdio", "--suite", "chat", "--threads", "2", "--queue", "200"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    draw, free = random.Random(1), threading.Semaphore(150)
    sources, results, sizes, start = {}, {}, [], time.time()
    failed = []

    def listen():
        for number, line in enumerate(server.stdout, 1):
            document = json.loads(line)
            result = (document["status"], document["combined_score"], document["hashes"]["result"])
            if results.setdefault(sources.pop(document["id"]), result) != result:
                failed.append(document["id"])
            free.release()
            if number % max(args.evals // 10, 1) == 0:
                sizes.append(resident(server.pid))
                print(f"{number:6} evaluated, {sizes[-1]:.0f} MiB, {time.time() - start:.1f} s", flush=True)
            if number == args.evals:
                return

    listener = threading.Thread(target=listen)
    listener.start()
    for number in range(args.evals):
        free.acquire()
        source = draw.choice(CANDIDATES).replace("WEIGHT", str(draw.randint(1, 8)))
        sources[str(number)] = source
        request = {"id": str(number), "candidate": source, "stage": "smoke", "feedback_bytes": 0}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
    listener.join()
    server.stdin.close()
    code = server.wait()
    # The first tenth fills what is kept; after that nothing may be added with every evaluation.
    grown = sizes[-1] - sizes[0]
    print(f"exit code {code}, {len(results)} different candidates, {grown:+.0f} MiB since the first tenth")
    if failed or code or grown > 30:
        sys.exit(f"different results for equal candidates: {failed[:5]}" if failed else "memory grew, or it failed")


if __name__ == "__main__":
    main()
