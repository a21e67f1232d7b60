"""The evaluation result of a candidate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

Status = Literal["ok", "rejected", "trap", "limit", "gate_failed", "host_error"]
Stage = Literal["static", "smoke", "train", "select"]

STATUSES: tuple[Status, ...] = ("ok", "rejected", "trap", "limit", "gate_failed", "host_error")

FEATURES: tuple[str, ...] = (
    "source_lines",
    "ops_per_decision",
    "distinct_signals_read",
    "shed_frac",
    "imbalance",
    "constants",
)
"""Properties of a candidate in every result, 0 where they are unknown."""

ARTIFACTS: tuple[str, ...] = (
    "error",
    "scenarios",
    "better_policies",
    "patterns",
    "worst_minute",
    "worst_decisions",
    "situations",
    "anomalies",
    "limits",
)
"""Texts of a result, most important first: tools that cut texts cut the end."""

BANDS: dict[str, float] = {"static": 0.0, "smoke": 1.0, "train": 2.0, "select": 3.0}
"""Lower ends of the score bands, each 1 wide: a score s becomes s / (1 + s), and 1 is as good as the reference."""

# In a document of `blis evaluate held-out`: the candidates, then the policies that they are compared with.
HELD_OUT_POLICIES = "policies"


@dataclass(frozen=True)
class Paired:
    """The candidate against the reference, seed by seed; differences are those of the score from 1."""

    reference: str
    n: int
    diff_mean: float
    ci95: tuple[float, float] | None
    p_better: float | None


@dataclass(frozen=True)
class Scenario:
    """One simulation."""

    id: str
    stage: str
    family: str
    seed: int
    score: float
    """Above 0; 1 is as good as the reference."""
    metrics: Mapping[str, float]
    reference: Mapping[str, float]
    """The same metrics of the reference; empty if unknown."""


@dataclass(frozen=True)
class Evaluation:
    """The evaluation result of a candidate. `combined_score`, `metrics` and `features` are always finite numbers."""

    id: str | None
    status: Status
    combined_score: float
    """0 if the candidate cannot be used; 1 to 2 after smoke, 2 to 3 after train, 3 to 4 after select."""
    stage: str
    stopped: str | None
    metrics: Mapping[str, float]
    paired: Paired | None
    scenarios: tuple[Scenario, ...]
    gates: Mapping[str, Any]
    features: Mapping[str, float]
    artifacts: Mapping[str, str]
    """Feedback for the author of the next candidate, most important first."""
    private: Mapping[str, Any]
    """For people; must not become part of a prompt."""
    hashes: Mapping[str, str]
    cost: Mapping[str, Any]
    """Resources used: the only part that differs between equal calls."""
    document: Mapping[str, Any] = field(repr=False)
    """The whole document as received."""

    @property
    def valid(self) -> bool:
        """Whether the candidate is a valid policy."""
        return self.status == "ok"

    def numbers(self) -> dict[str, float]:
        """Score, metrics and features in one flat dictionary, with the same keys for every result of a host."""
        return {"combined_score": self.combined_score, **self.metrics, **self.features}

    def runs(self, stage: str) -> tuple[Scenario, ...]:
        """The simulations of one stage. Those of select are private: they must not become part of a prompt."""
        hidden = (_scenario(one) for one in _list(self.private.get("scenarios")))
        return tuple(one for one in (*self.scenarios, *hidden) if one.stage == stage)

    def feedback(self) -> str:
        """The artifacts as one text."""
        parts = [f"## {name.replace('_', ' ')}\n{text.rstrip()}" for name, text in self.artifacts.items()]
        return "\n\n".join(parts)

    def with_metrics(self, names: Mapping[str, float]) -> Evaluation:
        """The same with the missing keys of `names`: maps of solutions reject a candidate that lacks a key."""
        missing = {name: value for name, value in names.items() if name not in self.metrics}
        return replace(self, metrics={**self.metrics, **missing}) if missing else self

    @classmethod
    def failed(cls, status: Status, reason: str, *, stopped: str | None = None, stage: str = "static") -> Evaluation:
        """The result of a candidate that the program could not evaluate, or not in time."""
        text = reason.strip() or "no reason is known"
        document = {
            "schema": 2,
            "id": None,
            "status": status,
            "combined_score": 0.0,
            "stage": stage,
            "stopped": stopped,
            "artifacts": {"error": text},
        }
        return cls.of(document)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Evaluation:
        """The result in a document. Missing and invalid numbers become 0, missing texts empty."""
        status = document.get("status")
        known: Status = cast("Status", status) if status in STATUSES else "host_error"
        score = _number(document.get("combined_score"))
        return cls(
            id=_text_or_none(document.get("id")),
            status=known,
            combined_score=min(max(score, 0.0), 4.0) if known == "ok" else 0.0,
            stage=str(document.get("stage") or "static"),
            stopped=_text_or_none(document.get("stopped")),
            metrics=_numbers(document.get("metrics")),
            paired=_paired(document.get("paired")),
            scenarios=tuple(_scenario(one) for one in _list(document.get("scenarios"))),
            gates=_mapping(document.get("gates")),
            features={name: _number(_mapping(document.get("features")).get(name)) for name in FEATURES},
            artifacts=_texts(_mapping(document.get("artifacts"))),
            private=_mapping(document.get("private")),
            hashes={name: str(value) for name, value in _mapping(document.get("hashes")).items()},
            cost=_mapping(document.get("cost")),
            document=dict(document),
        )


def held_out_scores(document: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
    """Score (1 is the reference) and metrics of the first candidate in a document of `blis evaluate held-out`."""
    own = document[HELD_OUT_POLICIES][0]
    metrics = {name: _number(score) for name, score in zip(document["scenarios"], own["scores"], strict=True)}
    metrics |= {f"more_than_{other['name']}": _number(other["mean"]) for other in own["against"]}
    return _number(own["score"]), metrics


def _texts(value: Mapping[str, Any]) -> dict[str, str]:
    names = [*ARTIFACTS, *(name for name in value if name not in ARTIFACTS)]
    return {name: str(value[name]) for name in names if value.get(name)}


def _paired(value: object) -> Paired | None:
    if not isinstance(value, Mapping):
        return None
    interval = value.get("ci95")
    ends = tuple(_number(end) for end in interval) if isinstance(interval, (list, tuple)) else ()
    better = value.get("p_better")
    return Paired(
        reference=str(value.get("reference", "")),
        n=int(_number(value.get("n"))),
        diff_mean=_number(value.get("diff_mean")),
        ci95=(ends[0], ends[1]) if len(ends) == 2 else None,
        p_better=None if better is None else _number(better),
    )


def _scenario(value: object) -> Scenario:
    one = _mapping(value)
    seed = one.get("seed")
    return Scenario(
        id=str(one.get("id", "")),
        stage=str(one.get("stage", "")),
        family=str(one.get("family", "")),
        # Seeds have up to 64 bits, which a float cannot represent.
        seed=seed if isinstance(seed, int) else 0,
        score=_number(one.get("score")),
        metrics=_numbers(one.get("metrics")),
        reference=_numbers(one.get("reference")),
    )


def _number(value: object) -> float:
    if isinstance(value, (int, float)) and math.isfinite(value):
        # -0 becomes 0: prompts would show it as -0.0000.
        return float(value) + 0.0
    return 0.0


def _numbers(value: object) -> dict[str, float]:
    return {name: _number(number) for name, number in _mapping(value).items()}


def _mapping(value: object) -> dict[str, Any]:
    return {str(name): entry for name, entry in value.items()} if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)
