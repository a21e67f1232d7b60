"""Many candidates on many machines, with Ray: each candidate x scenario x seed is a task, and each core has an actor.

    import ray, blis_sim.ray

    ray.init(address="auto")
    for result in blis_sim.ray.evaluate(sources, "chat"):
        print(result.combined_score)

`python -m blis_sim.ray SUITE` is a command for `blis search --worker-command`: requests of `blis serve --stdio` on
standard input, results on standard output, in the order in which the actors finish them.

Every machine needs an environment with this package, whose program is that of the others. Candidates and a suite
that are files are sent by content. (Files that a suite names, such as traces, must be on every machine.) Results are
put together in the order of candidates, scenarios and seeds, so that they equal those of a single machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from ._binary import binary
from ._evaluation import BANDS, Evaluation, Scenario
from ._host import WALL_S, Host, Request, TaskScenario, _path, host
from ._worker import Worker, WorkerDiedError

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


# Wall limits are observed by the program, and by the search.
LINE_WALL_S = 86400.0


class _LineEvaluator:
    """The state of an actor: one `blis serve` that evaluates one candidate at a time."""

    def __init__(self, suite: str | _File, environment: Mapping[str, str]) -> None:
        os.environ.update(environment)
        self._folder = tempfile.TemporaryDirectory(prefix="blis-ray-")
        name = suite.written_in(self._folder.name) if isinstance(suite, _File) else suite
        self._arguments = ("serve", "--stdio", "--threads", "1", "--suite", name)
        self._worker = self._start()

    def _start(self) -> Worker:
        return Worker(binary(), self._arguments)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply of the program; of another process of it, if the first one dies."""
        try:
            return self._worker.ask(request, LINE_WALL_S)
        except WorkerDiedError:
            self._worker.kill()
            self._worker = self._start()
            return self._worker.ask(request, LINE_WALL_S)


def serve_lines(
    suite: str | os.PathLike[str],
    requests: Iterable[str],
    replies: TextIO,
    *,
    actors: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Replies to lines as `blis serve --stdio --suite SUITE` does, with `actors` actors of Ray, or one for each core.

    Ends after the last of `requests`, when all have their replies. `{"status": true}` has the program and the suite of
    the actors, and their number as `threads`; if the actors differ, an `error`.
    """
    import ray

    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    count = actors if actors is not None else max(1, int(ray.cluster_resources().get("CPU", 1)))
    path = Path(os.fspath(suite))
    sent = _File.read(path) if path.is_file() else os.fspath(suite)
    kind = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=3)(_LineEvaluator)
    all_actors = [kind.remote(sent, dict(environment or {})) for _ in range(count)]
    free: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for actor in all_actors:
        free.put(actor)
    writing = threading.Lock()

    def write(document: Mapping[str, Any]) -> None:
        with writing:
            replies.write(json.dumps(document) + "\n")
            replies.flush()

    def evaluate_line(request: Mapping[str, Any]) -> None:
        actor = free.get()
        try:
            write(ray.get(actor.ask.remote(request)))
        except Exception as error:
            write({"id": request.get("id"), "error": f"no actor has evaluated it: {error}"})
        finally:
            free.put(actor)

    try:
        with ThreadPoolExecutor(count) as threads:
            for line in requests:
                request = _request_of(line)
                if request is None:
                    write({"id": None, "error": "the line is no request"})
                elif request.get("quit"):
                    break
                elif request.get("status"):
                    write(_status(ray.get([actor.ask.remote(request) for actor in all_actors])))
                else:
                    threads.submit(evaluate_line, request)
    finally:
        for actor in all_actors:
            ray.kill(actor)


def _request_of(line: str) -> dict[str, Any] | None:
    try:
        request = json.loads(line)
    except ValueError:
        return None
    return request if isinstance(request, dict) else None


def _status(of_actors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = of_actors[0]
    for other in of_actors:
        if any(other.get(name) != first.get(name) for name in ("host", "suites")):
            return {"error": f"the actors differ: {first.get('host')} and {other.get('host')}, or their suites"}
    return {**first, "threads": len(of_actors)}


def main(arguments: Sequence[str] | None = None) -> None:
    """`python -m blis_sim.ray`."""
    import ray

    parser = argparse.ArgumentParser(
        "python -m blis_sim.ray", description="A command for blis search --worker-command."
    )
    parser.add_argument("suite", help="name or file of the suite")
    parser.add_argument("--address", help="address of the Ray cluster; without one, Ray's default")
    parser.add_argument("--actors", type=int, help="evaluations at a time [default: one for each core of the cluster]")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="variable of the actors, as BLIS_BINARY=/opt/blis",
    )
    given = parser.parse_args(arguments)
    environment = dict(one.partition("=")[::2] for one in given.env)
    # What libraries print must not get between the results.
    with os.fdopen(os.dup(1), "w") as replies:
        os.dup2(2, 1)
        ray.init(address=given.address, log_to_driver=False)
        serve_lines(given.suite, sys.stdin, replies, actors=given.actors, environment=environment)


if __name__ == "__main__":
    # Under its own name, so that actors can import what they are made of.
    from blis_sim.ray import main as run

    run()
