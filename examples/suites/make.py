"""Writes the suites of this folder: what their scenarios have in common stands here once.

    python3 examples/suites/make.py        writes the suites beside it, a file each, and that of examples/discoveries

The lines that `blis suite rebase` writes are kept. After a change that matters, run it on each file.
"""

from pathlib import Path

HERE = Path(__file__).parent

# Seconds of each scenario: caches and queues fill, and then all figures are measured. In a few seconds most requests meet
# empty caches. Arrivals are random, so that the last one may come a little earlier.
WARMUP_S = 30
MEASURED_S = 240
MARGIN = 1.1


def workload(rate, *parts):
    """`rate`, and a specification with so many requests per second; `parts` are clients and cohorts."""
    lines = ['version: "2"', f"aggregate_rate: {rate}"]
    for key in ("clients", "cohorts"):
        those = [part for kind, part in parts if kind == key]
        if those:
            lines.append(f"{key}:")
            lines += [f"  - {{{part}}}" for part in those]
    return rate, lines


def lengths(prompt, output, spread=0.4):
    most = 4 * prompt
    return (
        f"input_distribution: {{type: gaussian, params: {{mean: {prompt}, std_dev: {round(spread * prompt)}, min: 10, max: {most}}}}}, "
        f"output_distribution: {{type: exponential, params: {{mean: {output}}}}}"
    )


def arrival(cv):
    return "arrival: {process: poisson}" if cv == 1 else f"arrival: {{process: gamma, cv: {cv}}}"


def agents(count, share, prefix, prompt=200, output=120, cv=1, name="agents", slo=None):
    """So many clients, each with a system prompt of its own."""
    slo = f"slo_class: {slo}, " if slo else ""
    return (
        "cohorts",
        f"id: {name}, population: {count}, rate_fraction: {share}, {slo}prefix_group: {name}, prefix_length: {prefix}, "
        f"prefix_sharing: per_member, {arrival(cv)}, {lengths(prompt, output)}",
    )


def client(name, share, prefix=0, prompt=300, output=200, cv=1, slo=None, spread=0.4, tenant=None):
    slo = f"slo_class: {slo}, " if slo else ""
    tenant = f"tenant_id: {tenant}, " if tenant else ""
    group = f"prefix_group: {name}, prefix_length: {prefix}, " if prefix else ""
    return (
        "clients",
        f"id: {name}, rate_fraction: {share}, {slo}{tenant}{group}{arrival(cv)}, {lengths(prompt, output, spread)}",
    )


def scenario(name, family, splits, work, rounds=1, measured=MEASURED_S, warmup=WARMUP_S, **run):
    """`rounds`: requests for each arrival, on average; more than 1 with sessions. `measured` and `warmup`: seconds."""
    rate, spec = work
    run["num_requests"] = round(rate * rounds * (warmup + measured) * MARGIN)
    flags = ", ".join(f"{key.replace('_', '-')}: {value}" for key, value in run.items())
    lines = [f"  - name: {name}", f"    family: {family}", f"    splits: [{splits}]", f"    run: {{{flags}}}"]
    lines.append("    workload: |")
    lines += [f"      {line}" for line in spec]
    return lines


# The keys of `blis suite rebase`, a line each.
REBASED = ("version:", "reference:", "rebased:")


def write(name, head, scenarios, path=None):
    """Writes the suite to `path`; beside this file if it is not set."""
    path = path or HERE / f"{name}.yaml"
    known = path.read_text().splitlines() if path.exists() else []
    kept = "".join(f"{line}\n" for line in known if line.startswith(REBASED))
    head = head.strip().replace(f"name: {name}\n", f"name: {name}\n{kept}", 1)
    text = head + "\nscenarios:\n" + "\n".join(line for one in scenarios for line in one) + "\n"
    path.write_text(f"# Written by make.py, and `blis suite rebase`.\n{text}")


CHAT = """
schema: 1
name: chat
about: >
  Four H100 instances serve chat with an 8B model. Requests begin with a system prompt of 1000 to 8000 tokens that
  some others share. An instance that has it in its KV cache serves them with a shorter TTFT; no instance has room for
  all prompts, and a long queue lengthens the TTFT. The router's signals of queues are up to 50 ms old.
baseline: round-robin
reference_policies: [least-loaded, weighted, epp-default, token-aware, cache-and-load, prefix-affinity]
decides: [routing]
weights: "mean_ttft:0.25, p99_ttft:0.25, mean_e2e:0.3, p99_e2e:0.2"
seeds: {smoke: 1, train: 3, select: 3, test: 6}
run:
  model: meta-llama/llama-3.1-8b-instruct
  hardware: H100
  tp: 1
  num-instances: 4
  total-kv-blocks: 6000
  snapshot-refresh-interval: 50000
  warmup: 30s
"""

TIERS = """
schema: 1
name: slo-tiers
about: >
  Four H100 instances serve an 8B model for three SLO classes whose requests have the same lengths: lengths do not show
  the priority. The load exceeds what can be served, by a tenth all the time or by more in bursts. Candidates decide the admission,
  routing, priority and scheduling of requests; without a decision they are served first come, first served. Requests of
  batch may be shed, which costs their value, a fifth of all; those of the other classes may not. What counts most is the value of
  the requests that meet their targets: a TTFT far below its target is worth little.
baseline: round-robin
reference_policies:
  - least-loaded
  - weighted
  - token-aware
  - tier-shed
  - gaie-legacy
  - priority-fcfs
  - slo-based + priority-fcfs
  - sjf
decides: [admission, routing, priority, scheduling]
weights: "slo_attainment:0.5, goodput:0.3, critical.p90_ttft:0.05, standard.p90_ttft:0.05, mean_e2e:0.1"
classes:
  critical: {value: 4}
  standard: {value: 2}
  batch: {value: 1}
seeds: {smoke: 1, train: 3, select: 3, test: 6}
gates: {worst_class: 3.0}
run:
  model: meta-llama/llama-3.1-8b-instruct
  hardware: H100
  tp: 1
  num-instances: 4
  max-num-seqs: 32
  slo-ttft: "critical=300ms,standard=1500ms,batch=8s"
  slo-e2e: "critical=6s,standard=15s,batch=60s"
  snapshot-refresh-interval: 50000
  warmup: 30s
"""

GATEWAY = """
schema: 1
name: gateway
about: >
  Four H100 instances serve an 8B model for three SLO classes, behind flow control: requests wait in the gateway while the service is
  full, in bands by priority. On the instances they are served first come, first served, so that what is dispatched too early
  delays critical requests. Candidates decide the admission, how full the service is, up to where each band is
  served, the order in a band, and which request in flight is ended for one of higher priority. Requests of batch may be shed, which costs
  their value; those of the other classes may not. What counts most is the value of the requests that meet their targets.
baseline: round-robin
reference_policies:
  - tier-shed
  - gaie-legacy
  - probabilistic
  - latency-slo
  - saturation/concurrency
  - saturation/never
  - priority-holdback
  - soft-reflective
  - slo-deadline
  - edf
  - lowest-priority-newest
decides: [admission, saturation, ceilings, ordering, eviction]
weights: "slo_attainment:0.5, goodput:0.3, critical.p90_ttft:0.05, standard.p90_ttft:0.05, mean_e2e:0.1"
classes:
  critical: {value: 4}
  standard: {value: 2}
  batch: {value: 1}
seeds: {smoke: 1, train: 3, select: 3, test: 6}
gates: {worst_class: 3.0}
run:
  model: meta-llama/llama-3.1-8b-instruct
  hardware: H100
  tp: 1
  num-instances: 4
  max-num-seqs: 64
  flow-control: true
  in-flight-eviction: true
  max-concurrency: 48
  usage-limit-threshold: 0.5
  slo-targets: "critical=300ms,standard=1500ms,batch=8s"
  slo-ttft: "critical=300ms,standard=1500ms,batch=8s"
  slo-e2e: "critical=8s,standard=20s,batch=60s"
  snapshot-refresh-interval: 50000
  warmup: 30s
"""

TENANTS = """
schema: 1
name: tenants
about: >
  Two H100 instances serve an 8B model for tenants of one priority, behind flow control. Small tenants ask for less than their share all
  the time; large ones ask for far more, in bursts or for minutes. Served first come, first served, all wait behind the large ones and miss
  their targets; served fairly, those that ask for little meet theirs, and the large ones wait for themselves. Candidates decide from which
  tenant the next request is dispatched, and the order of a tenant's requests. Every request is served in the end, and how late counts as
  well, so that no tenant is served at the expense of another without end.
baseline: round-robin
reference_policies:
  - global-strict
  - fairness/round-robin
  - program-aware
  - virtual-token-counter
  - fairness/weighted
  - edf
  - slo-deadline
decides: [fairness, ordering]
weights: "slo_attainment:0.45, p99_ttft:0.25, mean_ttft:0.2, mean_e2e:0.1"
seeds: {smoke: 1, train: 3, select: 3, test: 6}
gates: {worst_class: 3.0}
run:
  model: meta-llama/llama-3.1-8b-instruct
  hardware: H100
  tp: 1
  num-instances: 2
  max-num-seqs: 64
  flow-control: true
  saturation-detector: concurrency
  max-concurrency: 48
  per-band-capacity: 0
  request-ttl: 0
  slo-targets: "2s"
  slo-ttft: "2s"
  slo-e2e: "20s"
  snapshot-refresh-interval: 50000
  warmup: 30s
"""

OVERLOAD = """
schema: 1
name: overload
about: >
  Four H100 instances serve an 8B model for tenants of three SLO classes, with requests of equal lengths, behind flow control, in
  overload. In every class a large tenant asks for several times as much as each small one: served in the order of arrival, the requests of all
  wait behind its requests. Candidates decide the admission, from which tenant of a class the next request is dispatched, and, on the
  instances, which requests run first. Requests of batch may be shed, which costs their value, a tenth of all; those of the other classes may
  not. What counts most is the value of the requests that meet their targets.
baseline: round-robin
reference_policies:
  - tier-shed
  - gaie-legacy
  - probabilistic
  - latency-slo
  - fairness/round-robin
  - program-aware
  - virtual-token-counter
  - priority-fcfs
  - sjf
decides: [admission, fairness, scheduling]
weights: "slo_attainment:0.5, goodput:0.25, critical.p90_ttft:0.05, standard.p90_ttft:0.1, mean_e2e:0.1"
classes:
  critical: {value: 4}
  standard: {value: 2}
  batch: {value: 1}
seeds: {smoke: 1, train: 3, select: 3, test: 6}
gates: {worst_class: 3.0}
run:
  model: meta-llama/llama-3.1-8b-instruct
  hardware: H100
  tp: 1
  num-instances: 4
  max-num-seqs: 48
  flow-control: true
  saturation-detector: concurrency
  max-concurrency: 64
  priority-policy: class
  slo-targets: "critical=300ms,standard=1500ms,batch=8s"
  slo-ttft: "critical=300ms,standard=1500ms,batch=8s"
  slo-e2e: "critical=8s,standard=20s,batch=60s"
  snapshot-refresh-interval: 50000
  warmup: 30s
"""

LONG = """
schema: 1
name: long-context
about: >
  Four H100 instances serve an 8B model whose prompts have thousands of tokens, as in the published Mooncake traces: rounds
  of a session repeat its conversation so far, some requests share documents, and the KV cache holds only a part of them.
baseline: round-robin
reference_policies: [least-loaded, weighted, epp-default, token-aware, cache-and-load, prefix-affinity]
decides: [routing]
weights: "mean_ttft:0.3, p99_ttft:0.3, mean_e2e:0.25, p99_e2e:0.15"
seeds: {smoke: 1, train: 3, select: 3, test: 6}
run:
  model: meta-llama/llama-3.1-8b-instruct
  hardware: H100
  tp: 1
  num-instances: 4
  total-kv-blocks: 12000
  snapshot-refresh-interval: 50000
  warmup: 30s
"""


KV = """
schema: 1
name: {name}
about: >
{about}
baseline: round-robin
reference_policies: {policies}
decides: [kv-cache]
weights: "mean_ttft:0.5, p99_ttft:0.2, mean_e2e:0.3"
seeds: {{smoke: 1, train: 3, select: 3, test: 6}}
gates: {{worst_class: 3.0}}
run:
  model: meta-llama/llama-3.1-8b-instruct
  hardware: H100
  tp: 1
  num-instances: 1
  total-kv-blocks: 6000
  warmup: 30s
"""

EVICTION = KV.format(
    name="kv-eviction",
    policies="[lru, arc, lfu, slru, workload-aware]",
    about="""\
  One H100 serves an 8B model for tenants whose prompts are used again in different ways, as the types of requests of the published
  Bailian traces are: chats with a minute between rounds, agents that come back after seconds, documents that are sent once. Host memory
  behind the GPU has room for a part of them. Candidates decide which chunk makes room, which are stored and loaded; the link is fast,
  so that what counts is what is still there when it is used again.""",
)

OFFLOAD = KV.format(
    name="kv-offload",
    policies="[lru, arc, lfu, slru, workload-aware]",
    about="""\
  One H100 serves an 8B model for chats, agents and single documents. Host memory has room for most of what is used again, behind a link
  that is slow: loading takes as long as computing anew, or longer, and what is written delays what is read. Candidates decide which chunks
  are stored, and whether a request loads what was found or computes it, beside what makes room.""",
)


SHARED = """
schema: 1
name: shared-prefix
about: >
  Four H100 instances serve an 8B model for chats and for retrieval: chats begin with a system prompt that some others share, and end
  with a short question; retrieval has thousands of tokens of passages that no other request has. What is not cached is computed, and
  delays the decode steps and the prompts behind it on its instance; no instance has room for all prefixes. The router's signals are up to 50 ms old, so that it
  sends requests before it sees what the previous ones have done to queues and caches.
baseline: round-robin
reference_policies: [least-loaded, weighted, epp-default, token-aware, cache-and-load, prefix-affinity]
decides: [routing]
weights: "mean_ttft:0.6, p99_ttft:0.2, mean_e2e:0.2"
seeds: {smoke: 1, train: 3, select: 3, test: 6}
run:
  model: meta-llama/llama-3.1-8b-instruct
  hardware: H100
  tp: 1
  num-instances: 4
  total-kv-blocks: 8000
  snapshot-refresh-interval: 50000
  warmup: 30s
"""

AGENTIC = """
schema: 1
name: agentic
about: >
  Four H100 instances serve an 8B model for sessions of coding agents: every round repeats the conversation so far, prompts grow to
  tens of thousands of tokens, the next round follows a tool call of seconds, and some sessions begin with the same instructions. A
  round that is sent to another instance computes everything again; the KV cache holds a part of the sessions. The first minutes are
  left out: until every instance has the instructions that sessions share, policies that follow the cache send all to a few.
baseline: round-robin
reference_policies: [least-loaded, weighted, epp-default, token-aware, cache-and-load, prefix-affinity]
decides: [routing]
weights: "mean_ttft:0.6, p99_ttft:0.2, mean_e2e:0.2"
seeds: {smoke: 1, train: 3, select: 3, test: 6}
run:
  model: meta-llama/llama-3.1-8b-instruct
  hardware: H100
  tp: 1
  num-instances: 4
  total-kv-blocks: 10000
  snapshot-refresh-interval: 50000
  warmup: 240s
"""

STALE = """
schema: 1
name: stale-signals
about: >
  Six instances, in some scenarios of two kinds of GPU, serve an 8B model, and the router sees their queues and caches with an age of up to two seconds: what it knows at once
  is what it has sent itself. Prompts of very different lengths share prefixes with some others.
baseline: round-robin
reference_policies: [least-loaded, weighted, epp-default, token-aware, cache-and-load, prefix-affinity]
decides: [routing]
weights: "mean_ttft:0.6, p99_ttft:0.2, mean_e2e:0.2"
seeds: {smoke: 1, train: 3, select: 3, test: 6}
run:
  model: meta-llama/llama-3.1-8b-instruct
  hardware: H100
  tp: 1
  num-instances: 6
  total-kv-blocks: 8000
  snapshot-refresh-interval: 1000000
  cache-signal-delay: 1000000
  warmup: 30s
"""

FILTER = """
schema: 1
name: affinity-filter
about: >
  Four H100 instances serve an 8B model; a request goes to the instance with the fewest uncached prompt tokens in flight of those that a filter
  keeps. Chats share system prompts, many of them the same one, beside retrieval with thousands of tokens of its own. Candidates
  decide which instances are kept; without a filter all are.
baseline: token-load:1
reference_policies: [token-aware, epp-default]
decides: [routing-filter]
weights: "mean_ttft:0.6, p99_ttft:0.2, mean_e2e:0.2"
seeds: {smoke: 1, train: 3, select: 3, test: 6}
gates: {completed: 0.05}
run:
  model: meta-llama/llama-3.1-8b-instruct
  hardware: H100
  tp: 1
  num-instances: 4
  total-kv-blocks: 8000
  snapshot-refresh-interval: 50000
  routing-policy: weighted
  routing-scorers: token-load:1
  warmup: 30s
"""


def shared():
    def both(rate, chats, passages, cv=1):
        """`chats`: system prompts, share, tokens of a system prompt."""
        return workload(rate, agents(*chats, cv=cv), *passages)

    def passages(share, prompt, count=12, cv=1, prefix=1024):
        """Retrieval: the instructions are shared, the passages are not."""
        shape = f"{arrival(cv)}, {lengths(prompt, 120, 0.5)}"
        group = f"prefix_group: retrieval, prefix_length: {prefix}, prefix_sharing: per_member"
        return [("cohorts", f"id: retrieval, population: {count}, rate_fraction: {share}, {group}, {shape}")]

    def one(name, family, splits, work, **run):
        return scenario(name, family, splits, work, measured=90, **run)

    return [
        one("both", "both", "smoke, train", both(40, (40, 2, 3072), passages(0.2, 6000))),
        one("both-busy", "both", "train", both(52, (40, 2, 3072), passages(0.2, 5000))),
        one("retrieval", "retrieval", "train", both(30, (32, 1, 2048), passages(0.5, 3500, 16))),
        one("bursts", "bursts", "train", both(38, (32, 2, 4096), passages(0.15, 6000, cv=3), cv=3)),
        one("long-passages", "long-passages", "train", both(36, (40, 2, 3072), passages(0.1, 12000))),
        one("both-2", "both", "select", both(46, (36, 2, 3584), passages(0.2, 5500))),
        one("retrieval-2", "retrieval", "select", both(32, (40, 1, 2048), passages(0.4, 4000, 20))),
        one("bursts-2", "bursts", "select", both(40, (36, 2, 3072), passages(0.15, 5000, cv=2.5), cv=2.5)),
        one("held-both", "both", "test", both(44, (44, 2, 2560), passages(0.25, 5000))),
        one("held-retrieval", "retrieval", "test", both(28, (28, 1, 2560), passages(0.6, 3500, 14))),
        one("held-bursts", "bursts", "test", both(36, (36, 2, 3072), passages(0.2, 6000, cv=4), cv=4)),
        one("held-long", "long-passages", "test", both(38, (36, 2, 3584), passages(0.08, 14000))),
        one("held-a100", "other-gpu", "test", both(18, (36, 2, 3072), passages(0.2, 5000)), hardware="A100-SXM"),
        one("held-eight", "eight-instances", "test", both(84, (72, 2, 3072), passages(0.2, 6000)), num_instances=8),
        one("held-14b", "other-model", "test", both(22, (36, 2, 3072), passages(0.2, 5000)), model="qwen/qwen3-14b"),
    ]


def agentic():
    def sessions(rounds, opening, think, shared=0, name="sessions", output=150):
        group = f"prefix_group: {name}, prefix_length: {shared}, " if shared else ""
        return (
            "clients",
            f"id: {name}, rate_fraction: 1, {group}arrival: {{process: poisson}}, reasoning: {{multi_turn: {{max_rounds: {rounds}, "
            f"think_time_us: {think * 1000000}, context_growth: accumulate}}}}, closed_loop: false, {lengths(opening, output)}",
        )

    def one(name, family, splits, work, rounds, **run):
        return scenario(name, family, splits, work, rounds=rounds, measured=120, warmup=240, **run)

    return [
        one("coding", "coding", "smoke, train", workload(1.6, sessions(10, 1200, 4, 2048)), 10),
        one("long-rounds", "long-rounds", "train", workload(1.5, sessions(6, 2600, 6)), 6),
        one("quick-tools", "quick-tools", "train", workload(1.5, sessions(14, 800, 1, 2048)), 14),
        one("two-kinds", "two-kinds", "train", workload(2, sessions(12, 700, 2, 2048), sessions(4, 3000, 8, name="reviews")), 8),
        one("coding-2", "coding", "select", workload(1.7, sessions(9, 1300, 5, 3072)), 9),
        one("two-kinds-2", "two-kinds", "select", workload(1.9, sessions(10, 900, 3), sessions(5, 2400, 6, name="reviews")), 7.5),
        one("held-coding", "coding", "test", workload(1.4, sessions(12, 1100, 4, 2048)), 12),
        one("held-long", "long-rounds", "test", workload(1.5, sessions(5, 3200, 5)), 5),
        one("held-two", "two-kinds", "test", workload(2, sessions(12, 800, 2, 2048), sessions(4, 2600, 10, name="reviews")), 8),
        one("held-a100", "other-gpu", "test", workload(0.8, sessions(10, 1200, 4, 2048)), 10, hardware="A100-SXM"),
        one("held-eight", "eight-instances", "test", workload(3.2, sessions(10, 1200, 4, 2048)), 10, num_instances=8),
    ]


def stale():
    def mixed(rate, count, prefix, prompt, cv=1):
        return workload(
            rate,
            agents(count, 2, prefix, prompt=prompt, output=120, cv=cv),
            client("long", 0.3, prompt=6000, output=150, cv=cv, spread=0.5),
        )

    def one(name, family, splits, work, measured=90, **run):
        return scenario(name, family, splits, work, measured=measured, **run)

    slow = {"snapshot_refresh_interval": 2000000, "cache_signal_delay": 2000000}
    two_gpus = {"num_instances": 3, "group": '"hardware=A100-SXM,tp=1,instances=3"'}
    return [
        one("second", "second", "smoke, train", mixed(48, 36, 3072, 600), 60),
        one("two-seconds", "two-seconds", "train", mixed(46, 36, 3072, 600), 360, **slow),
        one("bursts", "bursts", "train", mixed(38, 36, 2048, 800, cv=3), 60),
        one("a100", "other-gpu", "train", mixed(20, 30, 3072, 500), hardware="A100-SXM"),
        one("two-gpus", "two-gpus", "smoke, train", mixed(32, 36, 3072, 600), 60, **two_gpus),
        one("second-2", "second", "select", mixed(50, 44, 2560, 500), 360),
        one("bursts-2", "bursts", "select", mixed(40, 30, 3072, 700, cv=2.5)),
        one("two-gpus-2", "two-gpus", "select", mixed(30, 40, 2560, 700), **two_gpus),
        one("held-second", "second", "test", mixed(46, 40, 3584, 700)),
        one("held-two", "two-seconds", "test", mixed(48, 32, 2560, 700), **slow),
        one("held-bursts", "bursts", "test", mixed(36, 40, 3072, 800, cv=4)),
        one("held-a100", "other-gpu", "test", mixed(19, 36, 2560, 700), hardware="A100-SXM"),
        one("held-two-gpus", "two-gpus", "test", mixed(31, 32, 3072, 650), **two_gpus),
    ]


DISAGGREGATION = """
schema: 1
name: disaggregation
about: >
  Two H100 instances prefill for two that decode an 8B model. Chats have a system prompt of thousands of tokens that the instance that decodes has
  in its KV cache, so that prefilling elsewhere costs two hops and a transfer for little; documents have nothing cached, and each of their prompts holds up the
  outputs of the instance that computes it. Candidates decide whether a request is prefilled elsewhere, and on which instances it is prefilled and decoded.
baseline: disaggregation/never
reference_policies:
  - disaggregation/never
  - always
  - prefix-threshold
  - edpp
decides: [disaggregation]
weights: "mean_ttft:0.3, p99_ttft:0.2, mean_itl:0.25, p99_itl:0.1, mean_e2e:0.15"
seeds: {smoke: 1, train: 3, select: 3, test: 6}
run:
  model: meta-llama/llama-3.1-8b-instruct
  hardware: H100
  tp: 1
  prefill-instances: 2
  decode-instances: 2
  decode-routing-scorers: precise-prefix-cache:2,active-requests:1
  prefill-routing-scorers: precise-prefix-cache:1,token-load:2
  snapshot-refresh-interval: 50000
  warmup: 30s
"""


def chat():
    popular = client("popular", 1, 2048)
    mixed = (agents(24, 1, 4096, cv=3), popular)
    return [
        scenario("many-prompts", "many-prompts", "smoke, train", workload(70, agents(48, 1, 4096))),
        scenario("popular-prompt", "popular-prompt", "train", workload(80, *mixed)),
        scenario("quiet", "many-prompts", "train", workload(25, agents(48, 1, 4096))),
        scenario("bursts", "bursts", "train", workload(50, agents(32, 1, 4096, cv=3))),
        scenario("long-bursts", "bursts", "train", workload(60, agents(44, 1, 3072, cv=4))),
        scenario("many-prompts-2", "many-prompts", "select", workload(85, agents(40, 1, 4096))),
        scenario("popular-prompt-2", "popular-prompt", "select", workload(60, agents(30, 2, 3072, cv=2), popular)),
        scenario("bursts-2", "bursts", "select", workload(65, agents(36, 1, 4096, cv=3.5))),
        scenario("short-prompts", "short-prompts", "select", workload(110, agents(60, 1, 1024))),
        scenario("held-many", "many-prompts", "test", workload(75, agents(56, 1, 3584, prompt=250, output=140))),
        scenario("held-popular", "popular-prompt", "test", workload(90, agents(20, 1, 5120, cv=2.5), popular)),
        scenario("held-bursts", "bursts", "test", workload(60, agents(40, 1, 4096, cv=4))),
        scenario("held-a100", "other-gpu", "test", workload(30, agents(40, 1, 3072)), hardware="A100-SXM"),
        scenario("held-eight", "eight-instances", "test", workload(150, agents(96, 1, 4096)), num_instances=8),
    ]


def tiers():
    def three(scale=1.0, cv=1, output=220):
        return (
            client("critical", 1 * scale, slo="critical", prompt=400, output=output, cv=cv),
            client("standard", 2, slo="standard", prompt=400, output=output, cv=cv),
            client("batch", 2, slo="batch", prompt=400, output=output, cv=cv),
        )

    return [
        scenario("overload", "overload", "smoke, train", workload(78, *three())),
        scenario("bursts", "bursts", "train", workload(66, *three(cv=3))),
        scenario("enough", "enough", "train", workload(62, *three())),
        scenario("overload-2", "overload", "select", workload(80, *three(1.5))),
        scenario("bursts-2", "bursts", "select", workload(68, *three(cv=2.5))),
        scenario("held-overload", "overload", "test", workload(66, *three(output=260))),
        scenario("held-bursts", "bursts", "test", workload(66, *three(0.7, cv=4))),
        scenario("held-urgent", "many-urgent", "test", workload(76, *three(4))),
    ]


def gateway():
    def three(scale=1.0, cv=1, output=220):
        shape = {"prompt": 800, "output": output, "cv": cv}
        return (
            client("critical", scale, slo="critical", **shape),
            client("standard", 2, slo="standard", **shape),
            client("batch", 2, slo="batch", **shape),
        )

    return [
        scenario("overload", "overload", "smoke, train", workload(90, *three())),
        scenario("bursts", "bursts", "train", workload(76, *three(cv=3))),
        scenario("enough", "enough", "train", workload(60, *three())),
        scenario("overload-2", "overload", "select", workload(92, *three(1.5))),
        scenario("bursts-2", "bursts", "select", workload(78, *three(cv=2.5))),
        scenario("held-overload", "overload", "test", workload(78, *three(output=260))),
        scenario("held-bursts", "bursts", "test", workload(76, *three(0.7, cv=4))),
        scenario("held-critical", "many-critical", "test", workload(86, *three(4))),
    ]


def tenants():
    def small(count, share, **shape):
        return [client(f"small-{i}", share, tenant=f"small-{i}", **shape) for i in range(1, count + 1)]

    def large(share, count=1, cv=1, **shape):
        return [
            client(f"large-{i}", share, tenant=f"large-{i}", cv=cv, **shape) for i in range(1, count + 1)
        ]

    return [
        scenario("unequal", "unequal", "smoke, train", workload(57, *small(3, 1), *large(9))),
        scenario("bursts", "bursts", "train", workload(50, *small(4, 1), *large(3, count=2, cv=6))),
        scenario("outputs", "outputs", "train", workload(51, *small(6, 1, output=100), *large(1.2, count=2, output=500))),
        scenario("unequal-2", "unequal", "select", workload(57, *small(2, 1), *large(4, count=2))),
        scenario("bursts-2", "bursts", "select", workload(52, *small(6, 1), *large(4, count=2, cv=5))),
        scenario("held-unequal", "unequal", "test", workload(57, *small(5, 1), *large(14))),
        scenario("held-bursts", "bursts", "test", workload(48, *small(3, 1), *large(2, count=3, cv=8))),
        scenario("held-outputs", "outputs", "test", workload(44, *small(5, 1, output=80), *large(1, count=3, output=500))),
    ]


def overload():
    def class_of(slo, share, small, large, count=1, cv=1, **shape):
        tenants = [("small", i, 1) for i in range(1, small + 1)] + [("large", i, large) for i in range(1, count + 1)]
        whole = sum(part for *_, part in tenants)
        return [
            client(
                f"{slo}-{size}-{i}", round(share * part / whole, 4), slo=slo, tenant=f"{slo}-{size}-{i}", prompt=800,
                cv=cv if size == "large" else 1, **shape,
            )
            for size, i, part in tenants
        ]

    def three(small=4, large=6, critical=1.0, standard=3.4, cv=3, output=220):
        shape = {"small": small, "large": large, "output": output, "cv": cv}
        return (
            *class_of("critical", critical, **shape),
            *class_of("standard", standard, **shape),
            *class_of("batch", 1.2, **shape),
        )

    def one(name, family, splits, work, measured=105):
        return scenario(name, family, splits, work, measured=measured)

    return [
        one("unequal", "unequal", "smoke, train", workload(90, *three())),
        one("bursts", "bursts", "train", workload(78, *three(small=3, large=5, cv=8)), 150),
        one("critical", "many-critical", "train", workload(86, *three(large=4, critical=2.5, standard=2))),
        one("long-outputs", "long-outputs", "smoke, train", workload(72, *three(small=6, large=9, output=290)), 240),
        one("short-outputs", "short-outputs", "train", workload(106, *three(small=5, large=4, cv=4, output=160)), 90),
        one("many-tenants", "many-tenants", "train", workload(82, *three(small=10, critical=1.6, standard=2.8, cv=6, output=240))),
        one("unequal-2", "unequal", "select", workload(92, *three(small=6, large=8, cv=2.5))),
        one("bursts-2", "bursts", "select", workload(80, *three(cv=7)), 150),
        one("long-outputs-2", "long-outputs", "select", workload(76, *three(small=5, large=7, cv=4, output=270)), 240),
        scenario("held-unequal", "unequal", "test", workload(80, *three(small=5, large=10, output=260))),
        scenario("held-bursts", "bursts", "test", workload(76, *three(small=3, large=4, cv=10))),
        scenario("held-critical", "many-critical", "test", workload(84, *three(small=5, critical=3, standard=1.6, cv=4))),
    ]


def long():
    def sessions(rounds, opening, name="sessions"):
        return (
            "clients",
            f"id: {name}, rate_fraction: 1, arrival: {{process: poisson}}, reasoning: {{multi_turn: {{max_rounds: {rounds}, "
            f"think_time_us: 4000000, context_growth: accumulate}}}}, closed_loop: false, {lengths(opening, 200)}",
        )

    documents = agents(20, 1, 12288, prompt=400, output=160, name="documents")
    return [
        scenario("documents", "documents", "smoke, train", workload(10, documents)),
        scenario("sessions", "sessions", "train", workload(1.6, sessions(6, 2500)), rounds=6),
        scenario("both", "both", "train", workload(7, documents, sessions(4, 2000)), rounds=2.5),
        scenario("documents-2", "documents", "select", workload(12, agents(28, 1, 10240, name="documents"))),
        scenario("sessions-2", "sessions", "select", workload(2, sessions(5, 3000)), rounds=5),
        scenario("held-documents", "documents", "test", workload(11, agents(24, 1, 14336, name="documents"))),
        scenario("held-sessions", "sessions", "test", workload(1.1, sessions(8, 2000)), rounds=8),
        scenario("held-a100", "other-gpu", "test", workload(2.4, documents, sessions(4, 2000)), rounds=2.5, hardware="A100-SXM"),
    ]


def talks(name, share, rounds, opening, prompt, output, think_s, cv=1):
    """Sessions of a tenant, with so many rounds on average and this think time; open loop."""
    turns = (
        f"max_rounds: {max(4 * rounds, 2)}, rounds_distribution: {{type: exponential, params: {{mean: {rounds}, min: 1}}}}, "
        f"think_time_ms_distribution: {{type: exponential, params: {{mean: {1000 * think_s}, min: 500}}}}, "
        f"opening_distribution: {{type: gaussian, params: {{mean: {opening}, std_dev: {opening // 2}, min: 200, max: {3 * opening}}}}}, "
        "context_growth: accumulate"
    )
    return (
        "clients",
        f"id: {name}, tenant_id: {name}, rate_fraction: {share}, {arrival(cv)}, reasoning: {{multi_turn: {{{turns}}}}}, "
        f"closed_loop: false, {lengths(prompt, output, 0.5)}",
    )


def chats(share, rounds=4, opening=3000, think_s=50, cv=1):
    return talks("chats", share, rounds, opening, 200, 200, think_s, cv)


def tool_agents(share, rounds=10, opening=8000, think_s=6, cv=1):
    return talks("agents", share, rounds, opening, 600, 120, think_s, cv)


def documents(share, prompt=8000, cv=1):
    return client("documents", share, prompt=prompt, output=150, cv=cv, spread=0.5, tenant="documents")


def eviction():
    usual = (chats(3), tool_agents(1), documents(2))
    quick = (tool_agents(2), documents(3, 6000))

    def at(name, family, splits, work, tier, rounds=3.9, **run):
        return scenario(name, family, splits, work, rounds, kv_offloading_size=tier, **run)

    return [
        at("mixed", "mixed", "smoke, train", workload(1, *usual), 30),
        at("small-tier", "small-tier", "train", workload(0.8, *usual), 15),
        at("agents", "agents", "train", workload(0.8, *quick), 15, rounds=4.6),
        at("chats", "chats", "train", workload(1.4, chats(3), documents(1)), 40, rounds=3.3),
        at("mixed-2", "mixed", "select", workload(0.9, chats(2), tool_agents(1), documents(2)), 30, rounds=4),
        at("small-tier-2", "small-tier", "select", workload(0.8, chats(4, think_s=30), tool_agents(1), documents(2)), 12),
        at("bursts-2", "bursts", "select", workload(0.7, chats(3, cv=3), tool_agents(1, cv=3), documents(2, cv=3)), 20),
        at("held-mixed", "mixed", "test", workload(0.9, chats(3, think_s=40), tool_agents(1, think_s=8), documents(3)), 30, rounds=3.5),
        at("held-small-tier", "small-tier", "test", workload(0.8, chats(2), tool_agents(1, rounds=8), documents(2)), 12, rounds=3.6),
        at("held-bursts", "bursts", "test", workload(0.7, chats(3, cv=4), tool_agents(1, cv=2), documents(3, cv=4)), 25, rounds=3.5),
        at("held-slow-agents", "slow-agents", "test", workload(0.7, chats(2, think_s=20), tool_agents(1, think_s=30), documents(2)), 30, rounds=4),
        at("held-a100", "other-gpu", "test", workload(0.35, *usual), 15, hardware="A100-SXM"),
    ]


def offload():
    usual = (chats(3), tool_agents(1), documents(2))

    def at(name, family, splits, work, tier, bandwidth, rounds=3.9, **run):
        run |= {"kv_offloading_size": tier, "kv_offloading_bandwidth": bandwidth}
        return scenario(name, family, splits, work, rounds, **run)

    return [
        at("slow", "slow", "smoke, train", workload(0.7, *usual), 60, 2),
        at("quiet", "quiet", "train", workload(0.4, *usual), 60, 2),
        at("medium", "medium", "train", workload(0.8, *usual), 60, 4),
        at("small-tier", "small-tier", "train", workload(0.7, *usual), 20, 3),
        at("slow-2", "slow", "select", workload(0.7, chats(2), tool_agents(1), documents(2)), 60, 2.5),
        at("medium-2", "medium", "select", workload(0.8, chats(4), tool_agents(1), documents(2)), 60, 5),
        at("bursts-2", "bursts", "select", workload(0.55, chats(3, cv=3), tool_agents(1, cv=3), documents(2, cv=3)), 60, 3),
        at("held-slow", "slow", "test", workload(0.7, chats(3, think_s=40), tool_agents(1, think_s=8), documents(3)), 60, 2, rounds=3.5),
        at("held-very-slow", "very-slow", "test", workload(0.55, *usual), 60, 1.2),
        at("held-medium", "medium", "test", workload(0.8, chats(2), tool_agents(1, rounds=8), documents(2)), 60, 4, rounds=3.6),
        at("held-fast", "fast", "test", workload(0.8, *usual), 60, 12),
        at("held-a100", "other-gpu", "test", workload(0.3, *usual), 60, 1, hardware="A100-SXM"),
    ]


CEILINGS = """
schema: 1
name: ceilings
about: >
  Two H100 instances generate code with a 14B model for two SLO classes, behind flow control, with as many requests as can be served, or more:
  those in the gateway wait for each other, by class, and those on the instances for whatever was dispatched before them. Candidates decide
  up to which saturation each class is dispatched. What counts most is how long the critical requests wait.
baseline: ceilings/static
reference_policies: [priority-holdback, soft-reflective]
decides: [ceilings]
weights: "critical.p90_ttft:0.4, critical.mean_ttft:0.2, standard.p90_ttft:0.1, goodput:0.1, mean_e2e:0.2"
classes:
  critical: {value: 4}
  standard: {value: 2}
seeds: {smoke: 1, train: 3, select: 3, test: 6}
gates: {worst_class: 3.0}
run:
  model: qwen/qwen3-14b
  hardware: H100
  tp: 1
  num-instances: 2
  flow-control: true
  slo-ttft: "critical=1s,standard=20s"
  warmup: 30s
"""


def disaggregation():
    def chats(count, prefix=4096):
        return agents(count, 1, prefix, prompt=150, output=160, name="chats")

    def documents(share=1.0, prompt=6000, cv=1):
        return client("documents", share, prompt=prompt, output=200, cv=cv)

    return [
        scenario("mixed", "mixed", "smoke, train", workload(16, chats(16), documents(0.5))),
        scenario("chats", "chats", "train", workload(24, chats(24))),
        scenario("documents", "documents", "train", workload(8, documents())),
        scenario("bursts", "bursts", "train", workload(12, chats(16), documents(0.4, cv=4))),
        scenario("slow-network", "slow-network", "smoke, train", workload(15, chats(20, 3072), documents(0.5, 5000)), pd_transfer_bandwidth=2),
        scenario("mixed-2", "mixed", "select", workload(14, chats(20), documents(0.8))),
        scenario("bursts-2", "bursts", "select", workload(13, chats(12), documents(0.3, cv=5))),
        scenario("slow-network-2", "slow-network", "select", workload(13, chats(16), documents(0.3, 5000)), pd_transfer_bandwidth=1.8),
        scenario("held-mixed", "mixed", "test", workload(15, chats(18, 5120), documents(0.6, prompt=5000))),
        scenario("held-chats", "chats", "test", workload(28, chats(28))),
        scenario("held-documents", "documents", "test", workload(7, documents(prompt=7000))),
        scenario("held-bursts", "bursts", "test", workload(12, chats(14), documents(0.5, cv=3))),
        scenario("held-ethernet", "slow-network", "test", workload(14, chats(16), documents(0.4)), pd_transfer_link="ethernet"),
    ]


def affinity():
    def popular(rate, share, cv=1):
        """`share` of one system prompt, relative to that of forty others."""
        retrieval = client("retrieval", 0.4, prompt=5000, output=120, cv=cv, spread=0.5)
        return workload(rate, agents(40, 1, 3072, cv=cv), client("popular", share, 4096, prompt=200, output=120, cv=cv), retrieval)

    def one(name, family, splits, work, **run):
        return scenario(name, family, splits, work, measured=60, **run)

    return [
        one("popular", "popular", "smoke, train", popular(50, 0.5)),
        one("very-popular", "very-popular", "train", popular(60, 2)),
        one("bursts", "bursts", "train", popular(40, 0.5, cv=3)),
        one("popular-2", "popular", "select", popular(54, 0.8)),
        one("held-popular", "popular", "test", popular(56, 0.6)),
        one("held-bursts", "bursts", "test", popular(38, 1, cv=3.5)),
        one("held-a100", "other-gpu", "test", popular(22, 0.6), hardware="A100-SXM"),
    ]


def ceilings():
    def code(rate, prompt=6000, output=400, critical=1.0, cv=1):
        """Two classes, of which the first has `critical` times as many requests as the other."""
        shares = {"critical": critical, "standard": 2.0}
        return workload(rate, *(client(name, share, prompt=prompt, output=output, cv=cv, slo=name) for name, share in shares.items()))

    return [
        scenario("code", "code", "smoke, train", code(3.5)),
        scenario("code-bursts", "bursts", "train", code(3.2, cv=3)),
        scenario("many-critical", "many-critical", "train", code(3.8, critical=2)),
        scenario("short-prompts", "short-prompts", "train", code(19, prompt=1200, output=300)),
        scenario("code-2", "code", "select", code(4.4, prompt=5500)),
        scenario("code-bursts-2", "bursts", "select", code(3.4, cv=2.5)),
        scenario("held-code", "code", "test", code(3.7, prompt=6500)),
        scenario("held-bursts", "bursts", "test", code(3, cv=4)),
        scenario("held-a100", "other-gpu", "test", code(1.9), hardware="A100-SXM"),
    ]


write("chat", CHAT, chat())
write("disaggregation", DISAGGREGATION, disaggregation())
write("slo-tiers", TIERS, tiers())
write("long-context", LONG, long())
write("gateway", GATEWAY, gateway())
write("tenants", TENANTS, tenants())
write("overload", OVERLOAD, overload())
write("kv-eviction", EVICTION, eviction())
write("kv-offload", OFFLOAD, offload())
write("shared-prefix", SHARED, shared())
write("agentic", AGENTIC, agentic())
write("stale-signals", STALE, stale())
write("affinity-filter", FILTER, affinity(), HERE.parent / "discoveries" / "affinity-filter" / "suite.yaml")
write("ceilings", CEILINGS, ceilings(), HERE.parent / "discoveries" / "ceilings" / "suite.yaml")
