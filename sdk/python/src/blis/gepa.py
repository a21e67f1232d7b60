"""For GEPA 0.1.4: an evaluator whose examples are the scenarios of a suite.

    from gepa.optimize_anything import optimize_anything
    import blis.gepa as task

    optimize_anything(
        seed_candidate=source,
        evaluator=task.evaluator("chat"),
        dataset=task.dataset("chat"),
        valset=task.valset("chat"),
        ...
    )

Each example is a scenario, so that GEPA's Pareto front keeps what is best at one of them. Held-out scenarios are no
examples; at the end, `test_set("chat").report([source, best])` says how candidates do there.
"""

from __future__ import annotations

import json
import os
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ._host import FEEDBACK_BYTES, Host, Request, TaskScenario, host, report
from ._verdict import Scenario, Verdict

Example = dict[str, str]


class Examples(list[Example]):
    """Scenarios as a list, and as a loader of GEPA whose ids are names.

    GEPA numbers the items of a plain list, and its cache knows an example by its number alone: with `cache_evaluation`,
    what a candidate scored in the first training scenario would be taken for the first one of the validation set.
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

# Of these, more is better; of other metrics, less.
MORE_IS_BETTER = ("throughput_rps", "completed_share", "slo_attainment", "cache_hit_rate")
# What a front is kept of besides the score.
OBJECTIVES = ("mean_ttft_ms", "p99_ttft_ms", "mean_e2e_ms", "p99_e2e_ms", "throughput_rps", "completed_share")

# GEPA adds this component for its refiner; it is no part of a policy.
NOT_POLICY = ("refiner_prompt",)


class Evaluator(Protocol):
    """What `optimize_anything` calls."""

    def __call__(self, candidate: Candidate, example: Example | None = None) -> tuple[float, SideInfo]:
        """Score and side information of `candidate` in one scenario, or in all."""


BatchEvaluator = Callable[[Sequence[tuple[Candidate, Example | None]]], list[tuple[float, SideInfo]]]


def dataset(suite: str | os.PathLike[str], **options: Any) -> Examples:
    """The scenarios that a search learns from. Raises HostError if there is no such suite."""
    return _examples(suite, "train", options)


def valset(suite: str | os.PathLike[str], **options: Any) -> Examples:
    """The scenarios that candidates are chosen by."""
    return _examples(suite, "select", options)


class TestSet:
    """The held-out scenarios: nothing that an evaluator could be called with, but a report at the end of a search."""

    __test__ = False

    def __init__(self, suite: str | os.PathLike[str]) -> None:
        self.suite = suite

    def report(self, candidates: Sequence[str | os.PathLike[str]], **options: Any) -> dict[str, Any]:
        """The document of `blis report` on sources or files. Raises HostError."""
        return report(self.suite, candidates, **options)


def test_set(suite: str | os.PathLike[str]) -> TestSet:
    """The held-out scenarios of `suite`."""
    return TestSet(suite)


def evaluator(
    suite: str | os.PathLike[str], *, epoch: int = 0, feedback_bytes: int = FEEDBACK_BYTES, **options: Any
) -> Evaluator:
    """An evaluator for `optimize_anything`, which may call it from any number of threads. It never raises.

    Further `options` are those of `blis.host`.
    """
    judge = host(suite, **options)
    judge.task()

    def evaluate(candidate: Candidate, example: Example | None = None) -> tuple[float, SideInfo]:
        return _judge_all(judge, [(candidate, example)], epoch, feedback_bytes)[0]

    return evaluate


def batch_evaluator(
    suite: str | os.PathLike[str], *, epoch: int = 0, feedback_bytes: int = FEEDBACK_BYTES, **options: Any
) -> BatchEvaluator:
    """The same for all pending pairs at once, as many at a time as the host has workers."""
    judge = host(suite, **options)
    judge.task()

    def evaluate(pairs: Sequence[tuple[Candidate, Example | None]]) -> list[tuple[float, SideInfo]]:
        return _judge_all(judge, pairs, epoch, feedback_bytes)

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
        raise ValueError(f"{api_base} is no http address")

    def ask(prompt: str | list[dict[str, Any]]) -> str:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        body = json.dumps({"model": model, "messages": messages, **parameters}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api_key}"}
        request = urllib.request.Request(url, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                document = json.load(answer)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{url}: {error.code} {error.read(2000).decode(errors='replace')}") from error
        return str(document["choices"][0]["message"]["content"] or "")

    return ask


def _examples(suite: str | os.PathLike[str], split: str, options: Mapping[str, Any]) -> Examples:
    def example(one: TaskScenario) -> Example:
        return {"scenario": one.id, "family": one.family, "stage": split}

    return Examples(example(one) for one in host(suite, **options).task().split(split))


def _id(example: Example) -> str:
    return f"{example['stage']}/{example['scenario']}"


def _judge_all(
    judge: Host, pairs: Sequence[tuple[Candidate, Example | None]], epoch: int, feedback_bytes: int
) -> list[tuple[float, SideInfo]]:
    try:
        requests = [_request(candidate, example, epoch, feedback_bytes) for candidate, example in pairs]
        verdicts = judge.map(requests)
    except Exception:
        # A mistake here or in the examples; an exception would end the search.
        verdicts = [Verdict.failed("host_error", traceback.format_exc(limit=5)) for _ in pairs]
    return [
        (verdict.combined_score, _side_info(verdict, example))
        for verdict, (_, example) in zip(verdicts, pairs, strict=True)
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
    return Request(source, stage=stage, scenario=example["scenario"], epoch=epoch, feedback_bytes=wanted)


def _side_info(verdict: Verdict, example: Example | None) -> SideInfo:
    info: SideInfo = {"scores": _objectives(verdict)}
    if example is not None:
        info["Scenario"] = example.get("scenario", "")
    info["Status"] = verdict.status if verdict.stopped is None else f"{verdict.status}, stopped: {verdict.stopped}"
    for name, text in verdict.artifacts.items():
        info["Error" if name == "error" else name.replace("_", " ").capitalize()] = text
    if verdict.status == "host_error":
        # GEPA does not cache what is marked so: the candidate may be fine.
        info["_gepa_transient_failure"] = True
    return info


def _objectives(verdict: Verdict) -> dict[str, float]:
    """Of every objective a number from 0 to 1, of which more is better; one half is as good as the baseline.

    All of them always, and 0 for what cannot be used: GEPA averages an objective over the examples that have it, so
    that leaving it out where a candidate failed would be a reward.
    """
    runs = verdict.runs(verdict.stage) if verdict.valid else ()
    scores = {"score": verdict.combined_score}
    for name in OBJECTIVES:
        parts = [_relative(name, one) for one in runs]
        scores[name] = sum(parts) / len(parts) if parts else 0.0
    return scores


def _relative(name: str, one: Scenario) -> float:
    own, baseline = one.metrics.get(name), one.baseline.get(name)
    if own is None or baseline is None:
        return 0.0
    if name in MORE_IS_BETTER:
        own, baseline = baseline, own
    return 0.5 if own == baseline else baseline / (own + baseline)
