"""Many candidates on many machines, with Ray: each candidate x scenario x seed is a task, and each core has an actor.

    import ray, blis_sim.ray

    ray.init(address="auto")
    for result in blis_sim.ray.evaluate(sources, "chat"):
        print(result.combined_score)

Every machine needs an environment with this package, whose program is that of the others. Candidates and a suite
that are files are sent by content. (Files that a suite names, such as traces, must be on every machine.) Results are
put together in the order of candidates, scenarios and seeds, so that they equal those of a single machine.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ._evaluation import BANDS, Evaluation, Scenario
from ._host import WALL_S, Host, Request, TaskScenario, _path, host

# As in the program: the score of a run in which no request completed, and the top of a band.
LOWEST = 1e-6
MOST = 0.999

BY_SEVERITY = ("host_error", "rejected", "trap", "limit", "gate_failed", "ok")


@dataclass(frozen=True)
class _File:
    """A file of this machine, as it is sent."""

    name: str
    content: bytes

    @classmethod
    def read(cls, path: Path) -> _File:
        return cls(path.name, path.read_bytes())

    def written_in(self, folder: str) -> str:
        path = Path(folder) / self.name
        path.write_bytes(self.content)
        return str(path)


class _Evaluator:
    """The state of an actor: one worker on one core."""

    def __init__(
        self, suite: str | _File, wall_s: float, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        os.environ.update(environment)
        self._folder = tempfile.TemporaryDirectory(prefix="blis-ray-")
        name = suite.written_in(self._folder.name) if isinstance(suite, _File) else suite
        self._host = Host(name, workers=1, wall_s=wall_s, arguments=arguments)

    def evaluate_request(self, request: Request, component: _File | None) -> Evaluation:
        if component is None:
            return self._host.evaluate_request(request)
        with tempfile.TemporaryDirectory(prefix="blis-ray-") as folder:
            return self._host.evaluate_request(replace(request, candidate=Path(component.written_in(folder))))


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
        # An actor that dies with its machine is started elsewhere, and its task repeated.
        self._calls = 0
        added = dict(environment or {})
        kind = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=3)(_Evaluator)
        sent = _File.read(Path(self.suite)) if Path(self.suite).is_file() else self.suite
        self._actors = [kind.remote(sent, wall_s, tuple(arguments), added) for _ in range(count)]

    def next_epoch(self) -> int:
        """0 at first, 1 more at each call: every generation of a search is evaluated on other requests."""
        self._calls += 1
        return self._calls - 1

    def map(self, requests: Sequence[Request]) -> list[Evaluation]:
        """Results in the order of `requests`; the next free actor takes the next request."""
        from ray.util import ActorPool

        pool = ActorPool(self._actors)
        results: list[Evaluation] = list(
            pool.map(lambda actor, sent: actor.evaluate_request.remote(*sent), [_sent(request) for request in requests])
        )
        return results

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


def _sent(request: Request) -> tuple[Request, _File | None]:
    """The request without files of this machine, and the component that it evaluates."""
    path = _path(request.candidate)
    try:
        if path is None:
            return request, None
        if path.suffix == ".wasm":
            return replace(request, candidate=path.name), _File.read(path)
        return replace(request, candidate=path.read_bytes().decode(errors="replace")), None
    except OSError:
        # The worker reports the file that cannot be read.
        return request, None


def evaluate(
    candidates: Sequence[str | os.PathLike[str]],
    suite: str | os.PathLike[str],
    *,
    stage: str = "train",
    seeds: Sequence[int] | None = None,
    epoch: int | None = None,
    feedback_bytes: int = 0,
    pool: Pool | None = None,
) -> list[Evaluation]:
    """Evaluates `candidates` in all scenarios of one stage, one result each, in their order.

    Without `epoch`, each call with the same `pool` has an epoch of its own, with other requests: pass the candidates of
    a generation together, and so that they are comparable, their parents. Without a pool it is 0.

    Unlike `Host.evaluate`, this runs no earlier stages and always all seeds. `seeds` replaces those of the suite, for
    each scenario. `feedback_bytes` is per part: texts about a single simulation take longer than the simulation. Error
    texts are always included.
    """
    scenarios = host(suite).task().split(stage)
    if not scenarios:
        raise ValueError(f"the suite {os.fspath(suite)} has no scenarios of the stage {stage!r}")
    pairs = list(_pairs(scenarios, seeds))
    if epoch is None:
        epoch = 0 if pool is None else pool.next_epoch()
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
    return [together(parts[start : start + step], stage) for start in range(0, len(parts), step)]


def together(parts: Sequence[Evaluation], stage: str) -> Evaluation:
    """Merges the results of a candidate on single scenarios and seeds, in the given order.

    The score s is computed as in the program: the geometric mean over scenarios of the geometric mean over seeds, and
    s / (1 + s) in the band of the stage.
    Metrics and features are means over the parts; status and texts are those of the worst.
    """
    worst = min(parts, key=lambda part: BY_SEVERITY.index(part.status))
    rows = [row for part in parts for row in part.runs(stage)]
    by_scenario: dict[str, list[Scenario]] = {}
    for row in rows:
        by_scenario.setdefault(row.id, []).append(row)
    score = 0.0
    if worst.valid and by_scenario:
        means = [sum(_log(row.score) for row in own) / len(own) for own in by_scenario.values()]
        ratio = math.exp(sum(means) / len(means))
        score = BANDS[stage] + min(ratio / (1 + ratio), MOST)
    return replace(
        worst,
        id=None,
        combined_score=score,
        metrics=_means([part.metrics for part in parts]),
        features=_means([part.features for part in parts]),
        scenarios=() if stage == "select" else tuple(rows),
        private={},
        # A comparison of the parts has no counterpart for the whole.
        paired=None,
        hashes={name: value for name, value in worst.hashes.items() if name != "result"},
        cost={"cpu_ms": sum(_cost(part) for part in parts)},
        document={},
    )


def _log(score: float) -> float:
    return math.log(max(score, LOWEST))


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


def _cost(part: Evaluation) -> float:
    value = part.cost.get("cpu_ms", 0.0)
    return float(value) if isinstance(value, (int, float)) else 0.0
