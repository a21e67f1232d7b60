"""For SkyDiscover: an evaluator in Python, and the command for its containers.

    from blis_sim.skydiscover import make

    evaluate = make("chat", wall_s=30)

    python -m blis_sim.skydiscover PATH train|test [--suite S]

The command writes one JSON object to stdout and ends with 0 whenever there is a result: SkyDiscover discards the
object otherwise. `train` runs the stages up to train. `test` is for the end of a search: it runs `blis evaluate
held-out`, with a score from 0 to 1.
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
from ._epochs import CANDIDATES_PER_EPOCH, Epochs
from ._evaluation import Evaluation, held_out_scores
from ._host import FEEDBACK_BYTES, Host, HostError, held_out, host

# Half of the time limit in the template.
WALL_S = 30.0

# Beside the search, so that a search that continues also continues with its epochs.
EPOCH_FILE = "epochs.txt"

# Stages with results that a prompt may show.
OPEN_STAGES = ("smoke", "train")


def make(
    suite: str | os.PathLike[str],
    *,
    wall_s: float = WALL_S,
    stage: str = "train",
    epoch: int | None = None,
    epoch_file: str | os.PathLike[str] = EPOCH_FILE,
    candidates_per_epoch: int = CANDIDATES_PER_EPOCH,
    feedback_bytes: int = FEEDBACK_BYTES,
    **options: Any,
) -> Callable[[str], Any]:
    """`evaluate(path)` for evaluator.py. It never raises.

    Each `candidates_per_epoch` candidates serve other requests; `epoch_file` records which, and `epoch` fixes them.

    It returns an EvaluationResult of SkyDiscover 0.1.0, because from a dictionary the tool reads the metrics only and
    does not show the artifacts to the model; without SkyDiscover, the dictionary of `as_dict`.

    Raises HostError or BinaryNotFoundError if no candidate can be evaluated.
    """
    if stage not in OPEN_STAGES:
        raise ValueError(f"stage is {stage!r}; it must be one of {', '.join(OPEN_STAGES)}")
    epochs = Epochs(epoch_file, candidates_per_epoch)
    pool = host(suite, wall_s=wall_s, **options)
    about = pool.task().about
    kind: Callable[..., Any] | None = None
    with contextlib.suppress(ImportError):
        from skydiscover.evaluation.evaluation_result import EvaluationResult

        kind = EvaluationResult

    def evaluate(program_path: str) -> Any:
        try:
            number = epochs.of_file(program_path) if epoch is None else epoch
            result = pool.evaluate(Path(program_path), stage=stage, epoch=number, feedback_bytes=feedback_bytes)
        except Exception:
            result = Evaluation.failed("host_error", traceback.format_exc(limit=5))
        document = as_dict(result)
        # The prompts in files do not contain the suite.
        document["artifacts"]["task"] = about
        if kind is None:
            return document
        artifacts = document.pop("artifacts")
        return kind(metrics=document, artifacts=artifacts)

    return evaluate


def evaluate(path: str, suite: str | os.PathLike[str] = "chat", **options: Any) -> dict[str, Any]:
    """Evaluates the file at `path`. No behaviour of a candidate raises an exception."""
    wall_s = options.pop("wall_s", WALL_S)
    stage = options.pop("stage", "train")
    return as_dict(host(suite, wall_s=wall_s, **options).evaluate(Path(path), stage=stage))


def as_dict(result: Evaluation) -> dict[str, Any]:
    """Score and metrics side by side, texts under `artifacts`.

    An invalid candidate also has `error`, which SkyDiscover shows to the model for a repair.
    """
    document: dict[str, Any] = {**result.numbers(), "artifacts": dict(result.artifacts)}
    if not result.valid:
        document["error"] = result.artifacts.get("error", result.status)
    return document


def as_container_result(result: Evaluation) -> dict[str, Any]:
    """The document that an evaluate.sh writes."""
    status = "success" if result.valid else "timeout" if result.status == "limit" else "error"
    return {
        "status": status,
        "combined_score": result.combined_score,
        "metrics": result.numbers(),
        "artifacts": dict(result.artifacts),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if there is a result, 1 if no candidate could be evaluated."""
    parser = argparse.ArgumentParser(prog="python -m blis_sim.skydiscover", description="Evaluates one candidate.")
    parser.add_argument("path", type=Path)
    parser.add_argument("mode", choices=("train", "test"))
    parser.add_argument("--suite", default=os.environ.get("BLIS_SUITE", "chat"))
    parser.add_argument("--wall_s", type=float, default=WALL_S)
    parser.add_argument("--epoch_file", default=os.environ.get("BLIS_EPOCHS", EPOCH_FILE), help="record of the epochs")
    options = parser.parse_args(arguments)
    try:
        with Host(options.suite, workers=1, wall_s=options.wall_s) as pool:
            # Before the held-out split, which has no epochs, every candidate serves the same requests.
            epoch = Epochs(options.epoch_file).of_file(options.path) if options.mode == "train" else 0
            result = pool.evaluate(options.path, stage="train", epoch=epoch)
    except (BinaryNotFoundError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    if result.status == "host_error":
        print(result.artifacts.get("error", ""), file=sys.stderr)
        return 1
    # A candidate that failed in train is not run on the held-out split.
    wants_held_out = options.mode == "test" and result.valid
    print(json.dumps(_held_out(options.suite, options.path) if wants_held_out else as_container_result(result)))
    return 0


def _held_out(suite: str, path: Path) -> dict[str, Any]:
    """The score is above 0 here; 1 is as good as the reference."""
    try:
        document = held_out(suite, [path])
    except HostError as error:
        # The candidate was valid in train, so the suite and the program are valid as well.
        return {"status": "error", "combined_score": 0.0, "metrics": {}, "artifacts": {"error": str(error)}}
    score, metrics = held_out_scores(document)
    return {"status": "success", "combined_score": score, "metrics": metrics, "artifacts": {}}


if __name__ == "__main__":
    sys.exit(main())
