"""Many candidates on many machines, with Ray: a candidate x scenario x seed is a task, an actor per core does them.

    import ray, blis.ray

    ray.init(address="auto")
    for verdict in blis.ray.evaluate(sources, "chat"):
        print(verdict.combined_score)

Every machine needs this package and the same program. Results are put together in the order of candidates,
scenarios and seeds, so that they are those of a single machine, whoever did what.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ._host import WALL_S, Host, Request, TaskScenario, host
from ._verdict import BANDS, Scenario, Verdict

ORDER_OF_BLAME = ("host_error", "rejected", "trap", "limit", "gate_failed", "ok")


class _Judge:
    """Lives in an actor: one worker on one core."""

    def __init__(self, suite: str, wall_s: float, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        os.environ.update(environment)
        self._host = Host(suite, workers=1, wall_s=wall_s, arguments=arguments)

    def judge(self, request: Request) -> Verdict:
        return self._host.judge(request)


class Pool:
    """Actors that stay for several calls of `evaluate`, `actors` or one for each core of the cluster.

    Their environment is that of Ray's nodes; `environment` adds to it, say BLIS_BINARY.
    """

    def __init__(
        self,
        suite: str | os.PathLike[str],
        *,
        actors: int | None = None,
        wall_s: float = WALL_S,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        import ray

        if not ray.is_initialized():
            ray.init()
        self.suite = os.fspath(suite)
        count = actors if actors is not None else max(1, int(ray.cluster_resources().get("CPU", 1)))
        # An actor that dies with its machine is started elsewhere, and its task done again.
        told = dict(environment or {})
        kind = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=3)(_Judge)
        self._actors = [kind.remote(self.suite, wall_s, tuple(arguments), told) for _ in range(count)]

    def map(self, requests: Sequence[Request]) -> list[Verdict]:
        """Verdicts in the order of `requests`; whichever actor is free takes the next."""
        from ray.util import ActorPool

        verdicts: list[Verdict] = list(
            ActorPool(self._actors).map(lambda actor, request: actor.judge.remote(request), list(requests))
        )
        return verdicts

    def close(self) -> None:
        """Ends the actors."""
        import ray

        for actor in self._actors:
            ray.kill(actor)
        self._actors = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def evaluate(
    candidates: Sequence[str | os.PathLike[str]],
    suite: str | os.PathLike[str],
    *,
    stage: str = "train",
    seeds: Sequence[int] | None = None,
    epoch: int = 0,
    feedback_bytes: int = 0,
    pool: Pool | None = None,
) -> list[Verdict]:
    """Judges `candidates` in all scenarios of one stage, one verdict each, in their order.

    Unlike `Host.evaluate` this runs no earlier stages, and all seeds, where that stops as soon as the answer is clear.
    `seeds` are those of each scenario, in place of the
    suite's. `feedback_bytes` is by part: texts about a single simulation take longer than the simulation. Errors are
    always told.
    """
    scenarios = host(suite).task().split(stage)
    if not scenarios:
        raise ValueError(f"the suite {os.fspath(suite)} has no scenarios of the stage {stage!r}")
    pairs = list(_pairs(scenarios, seeds))
    requests = [
        Request(candidate, stage, scenario, seed, turn, epoch, feedback_bytes)
        for candidate in candidates
        for scenario, seed, turn in pairs
    ]
    if pool is not None:
        parts = pool.map(requests)
    else:
        with Pool(suite) as own:
            parts = own.map(requests)
    step = len(pairs)
    return [together(parts[place : place + step], stage) for place in range(0, len(parts), step)]


def together(parts: Sequence[Verdict], stage: str) -> Verdict:
    """One verdict of those on single scenarios and seeds of a candidate, in the order given.

    The score is computed as in the program: the mean over scenarios of the mean over seeds, in the band of the stage.
    Metrics and features are means over the parts; status and texts are those of the worst.
    """
    worst = min(parts, key=lambda part: ORDER_OF_BLAME.index(part.status))
    rows = [row for part in parts for row in part.runs(stage)]
    by_scenario: dict[str, list[Scenario]] = {}
    for row in rows:
        by_scenario.setdefault(row.id, []).append(row)
    score = 0.0
    if worst.valid and by_scenario:
        means = [sum(row.score for row in own) / len(own) for own in by_scenario.values()]
        score = BANDS[stage] + sum(means) / len(means)
    return replace(
        worst,
        id=None,
        combined_score=score,
        metrics=_means([part.metrics for part in parts]),
        features=_means([part.features for part in parts]),
        scenarios=() if stage == "select" else tuple(rows),
        private={},
        # Of a part only, and so of nothing.
        paired=None,
        hashes={name: value for name, value in worst.hashes.items() if name != "result"},
        cost={"cpu_ms": sum(_cost(part) for part in parts)},
        document={},
    )


def _pairs(
    scenarios: Sequence[TaskScenario], seeds: Sequence[int] | None
) -> Iterator[tuple[str, int | None, int | None]]:
    for one in scenarios:
        if seeds:
            yield from ((one.id, seed, None) for seed in seeds)
        elif one.seeds:
            yield from ((one.id, None, turn) for turn in range(one.seeds))
        else:
            yield one.id, None, None


def _means(several: Sequence[Any]) -> dict[str, float]:
    names = {name: None for one in several for name in one}
    return {name: sum(one.get(name, 0.0) for one in several) / len(several) for name in names}


def _cost(part: Verdict) -> float:
    value = part.cost.get("cpu_ms", 0.0)
    return float(value) if isinstance(value, (int, float)) else 0.0
