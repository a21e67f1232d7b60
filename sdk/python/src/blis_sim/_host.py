"""A pool of worker processes that evaluate candidates and can be killed."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import multiprocessing.util
import os
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ._binary import binary
from ._evaluation import Evaluation, Status
from ._worker import WallLimitError, Worker, WorkerDiedError, _environment

WALL_S = 60.0
FEEDBACK_BYTES = 8000
# A request is tried again if its worker dies: the cause may have been a lack of memory of the machine.
ATTEMPTS = 2
BUSY_S = 0.05

# Invalid in any language: it is rejected at once, with all keys of a result.
NO_POLICY = {"lang": "rhai", "source": "}"}

# The command of the program that runs the held-out split.
HELD_OUT_COMMAND = ("evaluate", "held-out")
HELD_OUT_NAME = "blis evaluate held-out"


class HostError(RuntimeError):
    """No candidate can be evaluated: there is no such suite, or the program does not start."""


@dataclass(frozen=True)
class TaskScenario:
    """A scenario of a suite, in one of its splits."""

    id: str
    family: str
    split: str
    """`smoke`, `train`, `select` or `test`; the last is not for searches."""
    seeds: int = 0
    """Number of seeds in this split; 0 if unknown."""


@dataclass(frozen=True)
class Task:
    """The description of a suite."""

    suite: str
    about: str
    interface: str
    """The interface of policies, for the prompt of a language model."""
    scenarios: tuple[TaskScenario, ...]

    def split(self, name: str) -> tuple[TaskScenario, ...]:
        """The scenarios of one split."""
        return tuple(one for one in self.scenarios if one.split == name)


@dataclass(frozen=True)
class Request:
    """One evaluation of one candidate."""

    candidate: str | os.PathLike[str]
    """The source of a Rhai script, or a file: a Path, or a text that ends with `.rhai` or `.wasm` (a component)."""
    stage: str = "train"
    scenario: str | None = None
    """Only this scenario, instead of all scenarios of the stages."""
    seed: int | None = None
    """Only this seed, instead of those of the suite."""
    turn: int | None = None
    """Only the seed with this index in the scenario, from 0."""
    epoch: int = 0
    """Selects the seeds: each epoch has others."""
    feedback_bytes: int = FEEDBACK_BYTES
    """Maximum size of the feedback texts (UTF-8 bytes); 0 for error texts only."""
    wall_s: float | None = None
    """Wall limit of this evaluation (seconds); None for that of the host."""
    patterns: int = 0
    """Decisions of each kind, drawn at random, of which the feedback has patterns: 16 to 10 000; 0 for none."""
    train_seeds: int | None = None
    """Only the first seeds of each scenario of train, at least 1; None for all."""
    decisions: int = 0
    """Decisions of each kind and scenario, drawn at random, of which `Evaluation.document["decisions"]` has the
    signals and the cost of each alternative that was tried: 16 to 10 000; 0 for none."""


@dataclass(frozen=True)
class _Options:
    suite: str
    workers: int
    wall_s: float
    threads: int
    cache_dir: str | None
    memory_gib: int | None = None
    arguments: tuple[str, ...] = field(default=())


class Host:
    """Evaluates candidates on one suite; may be used from any thread, and from forked children.

    Each evaluation has a worker, a process of `blis serve`, for itself. A worker that exceeds the wall limit is
    killed and replaced, so that a candidate cannot affect the others. Workers are started when they are
    needed; a forked child starts its own.
    """

    def __init__(
        self,
        suite: str | os.PathLike[str],
        *,
        workers: int | None = None,
        wall_s: float = WALL_S,
        threads: int = 1,
        cache_dir: str | os.PathLike[str] | None = None,
        memory_gib: int | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """`suite` is a name or a file; `threads`, `cache_dir` and further `arguments` are passed to `blis serve`.

        `memory_gib` is the limit of memory of an evaluation; None for that of `blis serve`.

        Raises BinaryNotFoundError.
        """
        self._options = _options(suite, workers, wall_s, threads, cache_dir, memory_gib, arguments)
        self._binary = binary()
        # The keys of the metrics, which all results share.
        self._metric_names: dict[str, float] = {}
        self._task: Task | None = None
        self._ids = itertools.count(1)
        self._closed = False
        self._renew()
        _remember(self)

    def _renew(self) -> None:
        """Starts without workers; also in a forked child, where another thread may have held the locks."""
        self._lock = threading.Lock()
        self._free = threading.Semaphore(self._options.workers)
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()

    @property
    def suite(self) -> str:
        """The name or file of the suite."""
        return self._options.suite

    @property
    def workers(self) -> int:
        """Number of evaluations that run at a time."""
        return self._options.workers

    @property
    def wall_s(self) -> float:
        """Wall limit of an evaluation, seconds."""
        return self._options.wall_s

    def evaluate(
        self,
        candidate: str | os.PathLike[str],
        *,
        stage: str = "train",
        scenario: str | None = None,
        seed: int | None = None,
        turn: int | None = None,
        epoch: int = 0,
        feedback_bytes: int = FEEDBACK_BYTES,
        wall_s: float | None = None,
        patterns: int = 0,
        train_seeds: int | None = None,
        decisions: int = 0,
    ) -> Evaluation:
        """Evaluates the source of a script, or a file (see `Request.candidate`). Failures are results as well."""
        return self.evaluate_request(
            Request(
                candidate, stage, scenario, seed, turn, epoch, feedback_bytes, wall_s, patterns, train_seeds, decisions
            )
        )

    def evaluate_request(self, request: Request) -> Evaluation:
        """Evaluates one candidate. Failures are results as well."""
        if request.stage == "test":
            return self._failed("host_error", f"the test split is held out: `{HELD_OUT_NAME}` runs it")
        try:
            candidate = _candidate(request.candidate)
        except OSError as error:
            return self._failed("rejected", f"the candidate cannot be read: {error}")
        source = candidate.get("source", "")
        body = self._body(request, candidate)
        wall_s = self.wall_s if request.wall_s is None else request.wall_s
        try:
            document = self._ask(body, wall_s)
        except WallLimitError:
            reason = f"no result within {wall_s:g} s of wall time; the worker was killed"
            return self._failed("limit", reason, source, stopped="wall")
        except (WorkerDiedError, OSError) as error:
            return self._failed("host_error", f"the worker died: {error}", source, stopped="worker")
        if "status" not in document:
            return self._failed("host_error", f"the worker replied: {document.get('error', document)}", source)
        result = Evaluation.of(document)
        if len(result.metrics) > len(self._metric_names):
            self._metric_names = dict.fromkeys(result.metrics, 0.0)
        return result.with_metrics(self._metric_names)

    def map(self, requests: Iterable[Request]) -> list[Evaluation]:
        """Evaluates several candidates at a time; the results are in the order of the requests."""
        pending = list(requests)
        if len(pending) < 2:
            return [self.evaluate_request(one) for one in pending]
        with ThreadPoolExecutor(min(self.workers, len(pending)), thread_name_prefix="blis") as threads:
            return list(threads.map(self.evaluate_request, pending))

    def task(self) -> Task:
        """The description of the suite. Raises HostError, with the reason, if there is no such suite."""
        if self._task is None:
            try:
                document = self._ask({"task": True}, self.wall_s)
            except WallLimitError as error:
                raise HostError(f"{self._binary} did not reply within {self.wall_s:g} s") from error
            except (WorkerDiedError, OSError) as error:
                raise HostError(f"{self._binary} cannot serve the suite {self.suite}: {error}") from error
            if "scenarios" not in document:
                raise HostError(f"{self._binary} replied: {document.get('error', document)}")
            self._task = _task(document)
        return self._task

    def close(self) -> None:
        """Ends all workers. Evaluations after that fail with `host_error`."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = self._all - set(idle)
            self._all = set()
        for worker in idle:
            worker.close()
        # Their pipes belong to the threads that wait for them, which get a host error and close them.
        for worker in busy:
            worker.stop()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pids(self) -> list[int]:
        """Ids of the worker processes that are running."""
        with self._lock:
            return sorted(worker.pid for worker in self._all)

    def _failed(self, status: Status, reason: str, source: str = "", *, stopped: str | None = None) -> Evaluation:
        result = Evaluation.failed(status, reason, stopped=stopped)
        result = replace(result, features={**result.features, "source_lines": _source_lines(source)})
        return result.with_metrics(self._names())

    def _names(self) -> Mapping[str, float]:
        """The keys of the metrics of this host; evaluates an invalid candidate if there was no result so far."""
        if not self._metric_names and not self._closed:
            with contextlib.suppress(WallLimitError, WorkerDiedError, OSError):
                body = {"candidate": NO_POLICY, "stage": "smoke"}
                known = Evaluation.of(self._ask(body, min(self.wall_s, 10.0))).metrics
                self._metric_names = dict.fromkeys(known, 0.0)
        return self._metric_names

    def _body(self, request: Request, candidate: Mapping[str, str]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "candidate": candidate,
            "stage": request.stage,
            "epoch": request.epoch,
            "feedback_bytes": request.feedback_bytes,
        }
        if request.scenario is not None and request.turn is not None:
            body["example_id"] = f"{request.scenario}#{request.turn}"
        elif request.scenario is not None:
            body["scenario"] = request.scenario
        if request.seed is not None:
            body["seed"] = request.seed
        if request.patterns:
            body["patterns"] = request.patterns
        if request.train_seeds is not None:
            body["train_seeds"] = request.train_seeds
        if request.decisions:
            body["decisions"] = request.decisions
        return body

    def _ask(self, body: Mapping[str, Any], wall_s: float) -> dict[str, Any]:
        """The reply of a worker. The limit applies to its work, not to the wait for a free worker."""
        with self._free:
            deadline = time.monotonic() + wall_s
            for attempt in range(1, ATTEMPTS + 1):
                worker = self._take()
                try:
                    reply = self._send(worker, body, deadline)
                except WorkerDiedError:
                    self._drop(worker)
                    if attempt == ATTEMPTS or self._closed:
                        raise
                except BaseException:
                    # Out of time, or interrupted: the worker may still be busy.
                    self._drop(worker)
                    raise
                else:
                    self._return(worker)
                    return reply
        raise AssertionError

    def _send(self, worker: Worker, body: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        """The reply of `worker`, which may still be busy with an abandoned request."""
        while True:
            request = {"id": str(next(self._ids)), **body}
            reply = worker.ask(request, deadline - time.monotonic())
            if reply.get("error") != "busy":
                return reply
            wait = reply.get("retry_after_s")
            time.sleep(min(max(wait if isinstance(wait, (int, float)) else BUSY_S, BUSY_S), 1.0))

    def _take(self) -> Worker:
        dead: list[Worker] = []
        try:
            with self._lock:
                if self._closed:
                    raise WorkerDiedError("the host is closed")
                while self._idle:
                    # The one used last: its memory is warm, and fewer workers are started.
                    worker = self._idle.pop()
                    if worker.alive():
                        return worker
                    self._all.discard(worker)
                    dead.append(worker)
                # In a forked child this is the first worker that must be ended at exit.
                _hook_exit()
                worker = Worker(self._binary, self._arguments())
                self._all.add(worker)
                return worker
        finally:
            for one in dead:
                one.kill()

    def _return(self, worker: Worker) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(worker)
                return
        worker.close()

    def _drop(self, worker: Worker) -> None:
        with self._lock:
            self._all.discard(worker)
        worker.kill()

    def _arguments(self) -> list[str]:
        options = self._options
        arguments = ["serve", "--stdio", "--suite", options.suite, "--threads", str(options.threads)]
        if options.cache_dir is not None:
            arguments += ["--cache", options.cache_dir]
        if options.memory_gib is not None:
            arguments += ["--worker-memory-gib", str(options.memory_gib)]
        return [*arguments, *options.arguments]

    def _forked(self) -> None:
        for worker in self._all:
            worker.abandon()
        self._renew()


def held_out(
    suite: str | os.PathLike[str],
    candidates: Sequence[str | os.PathLike[str]],
    *,
    wall_s: float = 3600.0,
    arguments: Sequence[str] = (),
) -> dict[str, Any]:
    """The document of `blis evaluate held-out`: `candidates` on the held-out split of `suite`.

    For the end of a search, not during it. Candidates are sources of Rhai scripts or paths, as for `Host.evaluate`.
    `wall_s` is the wall limit of the whole call, seconds. Raises HostError.
    """
    with tempfile.TemporaryDirectory(prefix="blis-") as folder:
        files = []
        for index, candidate in enumerate(candidates):
            path = _path(candidate)
            if path is None:
                path = Path(folder) / f"candidate-{index + 1}.rhai"
                path.write_text(str(candidate), encoding="utf-8", errors="replace")
            files.append(str(path))
        options = ["--suite", os.fspath(suite), "--output", "json"]
        command = [str(binary()), *HELD_OUT_COMMAND, *options, *arguments, *files]
        try:
            done = subprocess.run(command, capture_output=True, timeout=wall_s, check=False, env=_environment())
        except subprocess.TimeoutExpired as error:
            raise HostError(f"`{HELD_OUT_NAME}` took more than {wall_s:g} s") from error
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip()
        raise HostError(message or f"`{HELD_OUT_NAME}` ended with exit code {done.returncode}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _options(
    suite: str | os.PathLike[str],
    workers: int | None,
    wall_s: float,
    threads: int,
    cache_dir: str | os.PathLike[str] | None,
    memory_gib: int | None,
    arguments: Sequence[str],
) -> _Options:
    name = os.fspath(suite)
    # Workers are started later, possibly from another folder.
    if Path(name).is_file():
        name = str(Path(name).absolute())
    if wall_s <= 0:
        raise ValueError(f"wall_s is {wall_s}: it must be above 0")
    count = workers if workers is not None else _cores()
    if count < 1:
        raise ValueError(f"workers is {count}: at least one is needed")
    if memory_gib is not None and memory_gib < 1:
        raise ValueError(f"memory_gib is {memory_gib}: at least 1 is needed")
    cache = None if cache_dir is None else str(Path(cache_dir).absolute())
    return _Options(name, count, float(wall_s), threads, cache, memory_gib, tuple(arguments))


def _cores() -> int:
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _candidate(candidate: str | os.PathLike[str]) -> dict[str, str]:
    path = _path(candidate)
    if path is not None:
        if path.suffix == ".wasm":
            return {"lang": "wasm", "path": str(path.absolute())}
        # By content: tools delete the file as soon as they have the result or time out.
        return {"lang": "rhai", "source": path.read_bytes().decode(errors="replace")}
    # Half of a surrogate pair is valid in a Python string only.
    return {"lang": "rhai", "source": str(candidate).encode(errors="replace").decode()}


def _path(candidate: str | os.PathLike[str]) -> Path | None:
    """The file of a candidate, or None for the source of a script, which never ends with a file name."""
    is_path = isinstance(candidate, os.PathLike) or ("\n" not in candidate and candidate.endswith((".rhai", ".wasm")))
    return Path(candidate) if is_path else None


def _source_lines(source: str) -> float:
    """The feature that needs no simulation, so that failed candidates do not share one cell of a map."""
    lines = (line.strip() for line in source.splitlines())
    return float(sum(1 for line in lines if line and not line.startswith("//")))


def _task(document: Mapping[str, Any]) -> Task:
    scenarios = []
    for one in document["scenarios"]:
        splits = one.get("splits") or [one.get("split") or ""]
        seeds = one.get("seeds") or {}
        scenarios += [
            TaskScenario(str(one["id"]), str(one.get("family", "")), str(split), int(seeds.get(split, 0)))
            for split in splits
        ]
    return Task(
        suite=str(document.get("suite", "")),
        about=str(document.get("about", "")),
        interface=str(document.get("interface", "")),
        scenarios=tuple(scenarios),
    )


# Hosts belong to this module, not to that of the caller: OpenEvolve executes evaluator.py for every candidate.
_registry: dict[_Options, Host] = {}
_registry_lock = threading.Lock()
_hosts: weakref.WeakSet[Host] = weakref.WeakSet()
_pid_of_exit_hook = 0


def host(
    suite: str | os.PathLike[str],
    *,
    workers: int | None = None,
    wall_s: float = WALL_S,
    threads: int = 1,
    cache_dir: str | os.PathLike[str] | None = None,
    memory_gib: int | None = None,
    arguments: Sequence[str] = (),
) -> Host:
    """The host of a suite in this process: the same one for the same options."""
    options = _options(suite, workers, wall_s, threads, cache_dir, memory_gib, arguments)
    with _registry_lock:
        found = _registry.get(options)
        if found is None or found._closed:
            found = Host(
                options.suite,
                workers=options.workers,
                wall_s=options.wall_s,
                threads=options.threads,
                cache_dir=options.cache_dir,
                memory_gib=options.memory_gib,
                arguments=options.arguments,
            )
            _registry[options] = found
        return found


def _remember(one: Host) -> None:
    _hosts.add(one)


def _hook_exit() -> None:
    """Workers end with their process. Children of multiprocessing never run functions registered with atexit."""
    global _pid_of_exit_hook
    if _pid_of_exit_hook == os.getpid():
        return
    if _pid_of_exit_hook == 0:
        atexit.register(_close_all)
    _pid_of_exit_hook = os.getpid()
    multiprocessing.util.Finalize(None, _close_all, exitpriority=1)


def _close_all() -> None:
    for one in list(_hosts):
        one.close()


def _after_fork() -> None:
    global _registry_lock
    _registry_lock = threading.Lock()
    for one in list(_hosts):
        one._forked()


os.register_at_fork(after_in_child=_after_fork)
