"""Simulations from Python: the specification is a dictionary, the result a document and tables."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._binary import binary
from ._settings import Settings
from ._table import Row, Table
from ._worker import _environment

Specification = Settings | Mapping[str, Any]
"""Settings by name, as the flags of `blis run`, with `-` or `_`: `{"model": "qwen/qwen3-14b", "rate": 4}`. Keys of a
policy bundle (`routing`, `admission`, …) and `deployment` may stand beside them, as in files for `--config`."""

WALL_S = 3600.0

# Settings that name a YAML file: a dictionary is written to one.
FILES = (
    "workload-spec",
    "policy-config",
    "prices",
    "lora-config",
    "kv-offload-config",
    "hardware-config",
    "coefficients",
)


class SimulationError(RuntimeError):
    """The program refused the specification, or failed. The text is its message, with a hint of what to do."""


@dataclass(frozen=True)
class Run:
    """One simulation."""

    document: Mapping[str, Any]
    """The document of `blis run --output json`, with the fields of docs/json.md."""
    requests: Table
    """A row for each request: arrival, lengths, latencies, instance, status."""

    @property
    def instances(self) -> Table:
        """A row for each instance: requests, tokens, latencies, preemptions. Of a single instance it is the run."""
        instances: Sequence[Row] = self.document.get("instances") or [self.document]
        return Table([_scalars(one) for one in instances])

    def __getitem__(self, name: str) -> Any:
        return _field(self.document, name)


@dataclass(frozen=True)
class Comparison:
    """Policies or deployments under the same requests, seed by seed."""

    document: Mapping[str, Any]
    """The document of `blis compare --output json`."""

    @property
    def figures(self) -> Table:
        """A row for each candidate and figure: its mean over seeds, and the paired difference from the first candidate.

        The difference has a 95 % interval (`low`, `high`) and a `result`; all of them are None for the first candidate.
        """
        rows: list[Row] = []
        for figure, one in self.document["metrics"].items():
            differences = {difference["candidate"]: difference for difference in one["differences"]}
            for candidate, mean in zip(self.document["policies"], one["means"], strict=True):
                difference = differences.get(candidate, {})
                rows.append(
                    {
                        "candidate": candidate,
                        "figure": figure,
                        "unit": one["unit"],
                        "better": one["better"],
                        "mean": mean,
                        "difference": difference.get("mean"),
                        "low": difference.get("low"),
                        "high": difference.get("high"),
                        "result": difference.get("result"),
                    }
                )
        return Table(rows)

    @property
    def seeds(self) -> Table:
        """A row for each candidate and seed, with a column for each figure."""
        metrics = self.document["metrics"]
        return Table(
            [
                {"candidate": candidate, "seed": seed}
                | {figure: one["values"][row][column] for figure, one in metrics.items()}
                for row, candidate in enumerate(self.document["policies"])
                for column, seed in enumerate(self.document["seeds"])
            ]
        )


@dataclass(frozen=True)
class Sweep:
    """Runs over ranges of settings."""

    document: Mapping[str, Any]
    """The document of `blis sweep --output json`."""

    @property
    def points(self) -> Table:
        """A row for each combination of settings: load, GPUs, cost, and each figure of `slo` in ms.

        `meets_slos`: all limits hold. `non_dominated`: no other combination is better in everything. A combination that
        cannot be simulated has the reason in `error`.
        """
        figures = [figure.partition("=")[0] + "_ms" for figure in self.document["figures"]]
        rows: list[Row] = []
        for point in self.document["points"]:
            settings = {one["name"]: _number(one["value"]) for one in point["settings"]}
            measured = dict(point.get("measured") or {})
            values = measured.pop("values_ms", [None] * len(figures))
            others = {name: value for name, value in point.items() if name not in ("settings", "measured")}
            rows.append(settings | measured | dict(zip(figures, values, strict=True)) | others)
        return Table(rows)


@dataclass(frozen=True)
class Calibration:
    """A measured trace beside its simulation."""

    document: Mapping[str, Any]
    """The document of `blis calibrate --output json`."""

    @property
    def errors(self) -> Table:
        """A row for each latency and statistic: measured and simulated (ms), the signed error, its 95 % bounds (%)."""
        rows: list[Row] = []
        for latency, one in self.document.items():
            for statistic in ("mean", "p50", "p90", "p99"):
                if not isinstance(one, Mapping) or not isinstance(one.get(statistic), Mapping):
                    continue
                values = dict(one[statistic])
                interval = values.pop("interval_percent", None) or {}
                bounds = {"low_percent": interval.get("low"), "high_percent": interval.get("high")}
                rows.append({"latency": latency, "statistic": statistic} | values | bounds)
        return Table(rows)

    @property
    def worst(self) -> Table:
        """The requests with the largest errors of the end-to-end latency."""
        return Table([_scalars(one) for one in self.document["worst"]])


def run(specification: Specification, /, *, wall_s: float = WALL_S) -> Run:
    """Simulates a workload: `blis run`.

    `wall_s` is the wall limit, seconds. Raises SimulationError, BinaryNotFoundError.
    """
    return _with_requests("run", specification, wall_s)


def replay(
    specification: Specification,
    trace_header: str | os.PathLike[str],
    trace_data: str | os.PathLike[str],
    /,
    *,
    wall_s: float = WALL_S,
) -> Run:
    """Simulates a recorded trace, a header (YAML) and its requests (CSV): `blis replay`. Raises as `run`."""
    return _with_requests("replay", _with_trace(specification, trace_header, trace_data), wall_s)


def compare(
    specification: Specification,
    policies: Sequence[str | os.PathLike[str]] = (),
    /,
    *,
    vary: Mapping[str, Sequence[Any]] | None = None,
    seeds: int = 5,
    threads: int = 0,
    wall_s: float = WALL_S,
) -> Comparison:
    """Compares under the same requests, seed by seed: `blis compare`.

    `policies` are two or more routing policies: names, scripts, components, lists of scorers, bundles. With `vary`
    whole deployments are compared instead: all combinations of the values of settings. The first is the baseline.
    Results do not depend on `threads` (0: one per core). Raises as `run`.
    """
    words = [*_vary(vary), *_counts(seeds, threads), *(os.fspath(policy) for policy in policies)]
    return Comparison(_document("compare", specification, words, wall_s))


def sweep(
    specification: Specification,
    vary: Mapping[str, Sequence[Any]],
    /,
    *,
    slo: Mapping[str, str] | None = None,
    seeds: int = 5,
    threads: int = 0,
    wall_s: float = WALL_S,
) -> Sweep:
    """Simulates all combinations of the values in `vary`: `blis sweep`.

    `slo` has the figures that are shown and their limits, such as `{"ttft_p90": "500ms", "tpot_p50": "30ms"}`.
    Raises as `run`.
    """
    words = [*_vary(vary), *_counts(seeds, threads)]
    if slo:
        words += ["--slo", ",".join(f"{figure}={limit}" for figure, limit in slo.items())]
    return Sweep(_document("sweep", specification, words, wall_s))


def calibrate(
    specification: Specification,
    trace_header: str | os.PathLike[str],
    trace_data: str | os.PathLike[str],
    /,
    *,
    rtt_ms: float = 0.0,
    fit: bool = False,
    wall_s: float = WALL_S,
) -> Calibration:
    """Compares a measured trace with its simulation, request by request: `blis calibrate`.

    `rtt_ms` is the time between client and server, there and back; with `fit` it is fitted to the first half of the
    requests. Raises as `run`.
    """
    words = ["--rtt-ms", f"{rtt_ms:g}", *(["--fit"] if fit else [])]
    return Calibration(_document("calibrate", _with_trace(specification, trace_header, trace_data), words, wall_s))


def _with_requests(command: str, specification: Specification, wall_s: float) -> Run:
    with tempfile.TemporaryDirectory(prefix="blis-") as folder:
        path = Path(folder) / "results.json"
        document = dict(_document(command, specification, ["--metrics-path", str(path)], wall_s))
        requests = json.loads(path.read_text(encoding="utf-8"))["requests"]
    return Run(document, Table(requests))


def _document(command: str, specification: Specification, words: Sequence[str], wall_s: float) -> Mapping[str, Any]:
    """The document that `blis COMMAND` prints."""
    with tempfile.TemporaryDirectory(prefix="blis-") as folder:
        config = _write(specification, Path(folder))
        line = [str(binary()), command, "--config", str(config), "--output", "json", "--no-progress"]
        try:
            done = subprocess.run([*line, *words], capture_output=True, timeout=wall_s, check=False, env=_environment())
        except subprocess.TimeoutExpired as error:
            raise SimulationError(f"`blis {command}` took more than {wall_s:g} s\nhint: set `wall_s`") from error
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip().replace(str(config), "specification")
        raise SimulationError(message or f"`blis {command}` ended with exit code {done.returncode}")
    document: Mapping[str, Any] = json.loads(done.stdout)
    return document


def _write(specification: Specification, folder: Path) -> Path:
    """Writes a configuration file with a line for each setting, and a file for each dictionary that is one."""
    lines = []
    for name, value in specification.items():
        dashed = name.replace("_", "-")
        if dashed in FILES and isinstance(value, Mapping):
            path = folder / f"{dashed}.yaml"
            path.write_text(_json(name, value), encoding="utf-8")
            value = str(path)
        if value is not None:
            # JSON is YAML; the keys of a bundle are on lines of their own.
            lines.append(f"{name}: {_json(name, value)}\n")
    path = folder / "specification.yaml"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _json(name: str, value: Any) -> str:
    def other(one: Any) -> Any:
        if isinstance(one, os.PathLike):
            return os.fspath(one)
        # A number of numpy.
        item = getattr(one, "item", None)
        if callable(item):
            return item()
        raise SimulationError(
            f"`{name}` has a value of type {type(one).__name__}\nhint: use numbers, texts, lists, paths"
        )

    return json.dumps(value, default=other)


def _with_trace(
    specification: Specification, header: str | os.PathLike[str], data: str | os.PathLike[str]
) -> Specification:
    return {**specification, "trace-header": os.fspath(header), "trace-data": os.fspath(data)}


def _counts(seeds: int, threads: int) -> list[str]:
    return ["--seeds", str(seeds), "--threads", str(threads)]


def _vary(vary: Mapping[str, Sequence[Any]] | None) -> list[str]:
    words = []
    for name, values in (vary or {}).items():
        words += ["--vary", f"{name.replace('_', '-')}={','.join(_text(value) for value in values)}"]
    return words


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(text: str) -> int | float | str:
    """The value of a setting: a number if it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _scalars(row: Mapping[str, Any]) -> Row:
    return {name: value for name, value in row.items() if not isinstance(value, (Mapping, list))}


def _field(document: Mapping[str, Any], name: str) -> Any:
    if name not in document:
        close = difflib.get_close_matches(name, document, n=3)
        hint = f"; similar: {', '.join(close)}" if close else ""
        raise KeyError(f"the document has no field {name!r}{hint}")
    return document[name]
