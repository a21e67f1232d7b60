"""For GEPA 0.1.4: an evaluator whose examples are the scenarios of a suite.

    from gepa.optimize_anything import optimize_anything
    import blis_sim.gepa as task

    optimize_anything(
        seed_candidate=source,
        evaluator=task.evaluator("chat"),
        dataset=task.dataset("chat"),
        valset=task.valset("chat"),
        ...
    )

Each example is a scenario in an epoch, so that GEPA's Pareto front keeps the best candidates of each. Each pass over
the scenarios of train has an epoch of its own, with other requests; candidate and parent are compared on the same ones.
GEPA reflects on train alone: what select shows decides which candidates are kept, and is in no prompt. Held-out
scenarios are not examples; at the end, `test_set("chat").evaluate([source, best])` runs candidates there.
"""

from __future__ import annotations

import json
import os
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ._evaluation import Evaluation, Scenario
from ._host import FEEDBACK_BYTES, Host, Request, TaskScenario, held_out, host

Example = dict[str, str]

# Passes over the scenarios of train until the first requests come again.
EPOCHS = 16


class Examples(list[Example]):
    """Scenarios as a list, and as a loader of GEPA with names as ids.

    GEPA numbers the items of a plain list, and its cache identifies an example by its number alone. With
    `cache_evaluation`, the score in the first training scenario would be taken for that in the first of validation.
    """

    def all_ids(self) -> list[str]:
        """Unique over all splits."""
        return [_id(one) for one in self]

    def fetch(self, ids: Sequence[str]) -> list[Example]:
        """The examples with these ids, in their order."""
        by_id = {_id(one): one for one in self}
        return [by_id[one] for one in ids]


SideInfo = dict[str, Any]
Candidate = str | Mapping[str, str]

# Metrics where more is better; for the others, less is better.
MORE_IS_BETTER = ("throughput_rps", "completed_share", "slo_attainment", "cache_hit_rate")
# Objectives of the Pareto front besides the score.
OBJECTIVES = ("mean_ttft_ms", "p99_ttft_ms", "mean_e2e_ms", "p99_e2e_ms", "throughput_rps", "completed_share")

# GEPA adds this component for its refiner; it is not part of a policy.
NOT_POLICY = ("refiner_prompt",)


class Evaluator(Protocol):
    """The function that `optimize_anything` calls."""

    def __call__(self, candidate: Candidate, example: Example | None = None) -> tuple[float, SideInfo]:
        """Score and side information of `candidate` in one scenario, or in all."""


BatchEvaluator = Callable[[Sequence[tuple[Candidate, Example | None]]], list[tuple[float, SideInfo]]]


def dataset(suite: str | os.PathLike[str], *, epochs: int = EPOCHS, **options: Any) -> Examples:
    """The scenarios that a search learns from, in each of `epochs` epochs.

    Raises HostError if there is no such suite.
    """
    return _examples(suite, "train", epochs, options)


def valset(suite: str | os.PathLike[str], **options: Any) -> Examples:
    """The scenarios that candidates are selected by. Their requests stay the same, so that all are comparable."""
    return _examples(suite, "select", 1, options)


class TestSet:
    """The held-out scenarios, for the end of a search: they are not examples, so that no search can use them."""

    __test__ = False

    def __init__(self, suite: str | os.PathLike[str]) -> None:
        self.suite = suite

    def evaluate(self, candidates: Sequence[str | os.PathLike[str]], **options: Any) -> dict[str, Any]:
        """The document of `blis evaluate held-out` for sources or files. Raises HostError."""
        return held_out(self.suite, candidates, **options)


def test_set(suite: str | os.PathLike[str]) -> TestSet:
    """The held-out scenarios of `suite`."""
    return TestSet(suite)


def evaluator(
    suite: str | os.PathLike[str], *, epoch: int = 0, feedback_bytes: int = FEEDBACK_BYTES, **options: Any
) -> Evaluator:
    """An evaluator for `optimize_anything`, which may call it from any number of threads. It never raises.

    `epoch` is for calls without an example; examples have their own.
    Further `options` are those of `blis_sim.host`.
    """
    pool = host(suite, **options)
    pool.task()

    def evaluate(candidate: Candidate, example: Example | None = None) -> tuple[float, SideInfo]:
        return _evaluate_all(pool, [(candidate, example)], epoch, feedback_bytes)[0]

    return evaluate


def batch_evaluator(
    suite: str | os.PathLike[str], *, epoch: int = 0, feedback_bytes: int = FEEDBACK_BYTES, **options: Any
) -> BatchEvaluator:
    """The same for several pairs, as many at a time as the host has workers."""
    pool = host(suite, **options)
    pool.task()

    def evaluate(pairs: Sequence[tuple[Candidate, Example | None]]) -> list[tuple[float, SideInfo]]:
        return _evaluate_all(pool, pairs, epoch, feedback_bytes)

    return evaluate


def chat_model(
    api_base: str,
    model: str,
    *,
    api_key: str = "none",
    timeout_s: float = 600.0,
    **parameters: Any,
) -> Callable[[str | list[dict[str, Any]]], str]:
    """A reflection model behind any OpenAI-compatible address; GEPA's own needs litellm."""
    url = api_base.rstrip("/") + "/chat/completions"
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{api_base} is not an http address")

    def ask(prompt: str | list[dict[str, Any]]) -> str:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        body = json.dumps({"model": model, "messages": messages, **parameters}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api_key}"}
        request = urllib.request.Request(url, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as reply:
                document = json.load(reply)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{url}: {error.code} {error.read(2000).decode(errors='replace')}") from error
        return str(document["choices"][0]["message"]["content"] or "")

    return ask


def _examples(suite: str | os.PathLike[str], split: str, epochs: int, options: Mapping[str, Any]) -> Examples:
    def example(one: TaskScenario, epoch: int) -> Example:
        return {"scenario": one.id, "family": one.family, "stage": split, "epoch": str(epoch)}

    scenarios = host(suite, **options).task().split(split)
    return Examples(example(one, epoch) for epoch in range(epochs) for one in scenarios)


def _id(example: Example) -> str:
    return f"{example['stage']}/{example['scenario']}@{example.get('epoch', '0')}"


def _evaluate_all(
    pool: Host, pairs: Sequence[tuple[Candidate, Example | None]], epoch: int, feedback_bytes: int
) -> list[tuple[float, SideInfo]]:
    try:
        requests = [_request(candidate, example, epoch, feedback_bytes) for candidate, example in pairs]
        results = pool.map(requests)
    except Exception:
        # A defect here or an invalid example; an exception would end the search.
        results = [Evaluation.failed("host_error", traceback.format_exc(limit=5)) for _ in pairs]
    return [
        (result.combined_score, _side_info(result, example))
        for result, (_, example) in zip(results, pairs, strict=True)
    ]


def _request(candidate: Candidate, example: Example | None, epoch: int, feedback_bytes: int) -> Request:
    # Components of a candidate are parts of one script, say `route` and `admit`.
    parts = [candidate] if isinstance(candidate, str) else [t for n, t in candidate.items() if n not in NOT_POLICY]
    source = "\n".join(parts)
    if example is None:
        return Request(source, epoch=epoch, feedback_bytes=feedback_bytes)
    stage = example.get("stage", "train")
    # GEPA reflects on training examples alone, and texts take longer than simulations.
    wanted = feedback_bytes if stage == "train" else 0
    number = int(example.get("epoch", epoch))
    return Request(source, stage=stage, scenario=example["scenario"], epoch=number, feedback_bytes=wanted)


def _side_info(result: Evaluation, example: Example | None) -> SideInfo:
    info: SideInfo = {"scores": _objectives(result)}
    if example is not None:
        info["Scenario"] = example.get("scenario", "")
    info["Status"] = result.status if result.stopped is None else f"{result.status}, stopped: {result.stopped}"
    for name, text in result.artifacts.items():
        info["Error" if name == "error" else name.replace("_", " ").capitalize()] = text
    if result.status == "host_error":
        # GEPA does not cache results with this mark: the candidate may be valid.
        info["_gepa_transient_failure"] = True
    return info


def _objectives(result: Evaluation) -> dict[str, float]:
    """Each objective as a number from 0 to 1, where more is better; one half is as good as the reference.

    All objectives are present, with 0 for an invalid candidate: GEPA averages an objective over the examples that have
    it, so that leaving it out where a candidate failed would be a reward.
    """
    runs = result.runs(result.stage) if result.valid else ()
    scores = {"score": result.combined_score}
    for name in OBJECTIVES:
        parts = [_relative(name, one) for one in runs]
        scores[name] = sum(parts) / len(parts) if parts else 0.0
    return scores


def _relative(name: str, one: Scenario) -> float:
    own, reference = one.metrics.get(name), one.reference.get(name)
    if own is None or reference is None:
        return 0.0
    if name in MORE_IS_BETTER:
        own, reference = reference, own
    # The ratio s = reference / own as s / (1 + s), as in the band of a stage.
    return 0.5 if own == reference else reference / (own + reference)
