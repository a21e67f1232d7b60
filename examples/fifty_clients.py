"""Writes fifty-clients.yaml beside this file: the specification whose generation docs/workloads.md measures."""

from pathlib import Path

PROCESSES = ["poisson", "gamma, cv: 2", "weibull, cv: 1.5", "constant"]
CLASSES = ["critical", "standard", "batch"]

lines = [
    "# Fifty clients: every arrival process, three classes, ten system prompts; 1000 requests per second together.",
    "# Written by fifty_clients.py.",
    'version: "2"',
    "seed: 42",
    "aggregate_rate: 1000",
    "num_requests: 1000000",
    "clients:",
]
for n in range(50):
    lines += [
        f"  - id: client-{n}",
        f"    slo_class: {CLASSES[n % 3]}",
        f"    rate_fraction: {1 + n % 5}",
        f"    prefix_group: g{n % 10}",
        f"    prefix_length: {64 * (n % 10 + 1)}",
        f"    arrival: {{ process: {PROCESSES[n % 4]} }}",
        "    input_distribution: { type: lognormal, params: { mu: 6, sigma: 0.8 } }",
        "    output_distribution: { type: exponential, params: { mean: 200 } }",
    ]
Path(__file__).with_name("fifty-clients.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
