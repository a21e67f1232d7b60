"""For SkyDiscover: an evaluator in Python, and the command that its containers call.

    from blis.skydiscover import make

    evaluate = make("chat", wall_s=30)

    python -m blis.skydiscover PATH train|test [--suite S]

The command writes one JSON object to stdout and ends with 0 whenever there is a verdict: SkyDiscover discards the
object otherwise. `train` runs the stages up to train. `test` is for the end of a search: `blis report` on the held-out
split, with a score from 0 to 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ._binary import BinaryNotFoundError
from ._host import FEEDBACK_BYTES, Host, HostError, host, report
from ._verdict import Verdict

# Half of what the template gives the tool.
WALL_S = 30.0


def make(
    suite: str | os.PathLike[str],
    *,
    wall_s: float = WALL_S,
    stage: str = "select",
    epoch: int = 0,
    feedback_bytes: int = FEEDBACK_BYTES,
    **options: Any,
) -> Callable[[str], Any]:
    """`evaluate(path)` for evaluator.py. It never raises.

    It answers with an EvaluationResult of SkyDiscover 0.1.0, which takes a dictionary for metrics alone and would not
    show its artifacts to the model; without SkyDiscover, with the dictionary of `as_dict`.

    Raises HostError or BinaryNotFoundError if nothing can be judged at all.
    """
    judge = host(suite, wall_s=wall_s, **options)
    about = judge.task().about
    kind: Callable[..., Any] | None = None
    with contextlib.suppress(ImportError):
        from skydiscover.evaluation.evaluation_result import EvaluationResult

        kind = EvaluationResult

    def evaluate(program_path: str) -> Any:
        try:
            verdict = judge.evaluate(Path(program_path), stage=stage, epoch=epoch, feedback_bytes=feedback_bytes)
        except Exception:
            verdict = Verdict.failed("host_error", traceback.format_exc(limit=5))
        document = as_dict(verdict)
        # The prompts in files do not know the suite.
        document["artifacts"]["task"] = about
        if kind is None:
            return document
        artifacts = document.pop("artifacts")
        return kind(metrics=document, artifacts=artifacts)

    return evaluate


def evaluate(path: str, suite: str | os.PathLike[str] = "chat", **options: Any) -> dict[str, Any]:
    """Judges the file at `path`. Never raises for what a candidate does."""
    wall_s = options.pop("wall_s", WALL_S)
    stage = options.pop("stage", "select")
    return as_dict(host(suite, wall_s=wall_s, **options).evaluate(Path(path), stage=stage))


def as_dict(verdict: Verdict) -> dict[str, Any]:
    """Score and metrics side by side, texts under `artifacts`; of an invalid one `error`, which the tool has mended."""
    document: dict[str, Any] = {**verdict.numbers(), "artifacts": dict(verdict.artifacts)}
    if not verdict.valid:
        document["error"] = verdict.artifacts.get("error", verdict.status)
    return document


def as_container_result(verdict: Verdict) -> dict[str, Any]:
    """What an evaluate.sh writes."""
    status = "success" if verdict.valid else "timeout" if verdict.status == "limit" else "error"
    return {
        "status": status,
        "combined_score": verdict.combined_score,
        "metrics": verdict.numbers(),
        "artifacts": dict(verdict.artifacts),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if there is a verdict, 1 if nothing could be judged."""
    parser = argparse.ArgumentParser(prog="python -m blis.skydiscover", description="Judges one candidate.")
    parser.add_argument("path", type=Path)
    parser.add_argument("mode", choices=("train", "test"))
    parser.add_argument("--suite", default=os.environ.get("BLIS_SUITE", "chat"))
    parser.add_argument("--wall_s", type=float, default=WALL_S)
    options = parser.parse_args(arguments)
    try:
        with Host(options.suite, workers=1, wall_s=options.wall_s) as judge:
            verdict = judge.evaluate(options.path, stage="train")
    except BinaryNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    if verdict.status == "host_error":
        print(verdict.artifacts.get("error", ""), file=sys.stderr)
        return 1
    # What failed in train need not be tried on what is held out.
    held_out = options.mode == "test" and verdict.valid
    print(json.dumps(_held_out(options.suite, options.path) if held_out else as_container_result(verdict)))
    return 0


def _held_out(suite: str, path: Path) -> dict[str, Any]:
    """The score is from 0 to 1 here; one half is as good as the baseline."""
    try:
        document = report(suite, [path])
    except HostError as error:
        # It did well in train, so that the suite and the program are as they should be.
        return {"status": "error", "combined_score": 0.0, "metrics": {}, "artifacts": {"error": str(error)}}
    own = document["contestants"][0]
    metrics = dict(zip(document["scenarios"], own["scores"], strict=True))
    metrics |= {f"more_than_{other['name']}": other["mean"] for other in own["against"]}
    return {"status": "success", "combined_score": own["score"], "metrics": metrics, "artifacts": {}}


if __name__ == "__main__":
    sys.exit(main())
