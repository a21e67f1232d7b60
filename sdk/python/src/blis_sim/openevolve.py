"""For OpenEvolve 0.4.0: the functions that its evaluator.py must define.

    from blis_sim.openevolve import make

    evaluate, evaluate_stage1, evaluate_stage2 = make("chat", wall_s=30)

Behaviour of its engine with a failing evaluator, and the remedies here:

* a timeout scores more than a negative score, and leaves a thread behind: the wall limit here is below the
  tool's, kills the worker, and scores 0;
* metrics that lack a feature dimension make it drop the candidate and its error: every result has all of them;
* it executes evaluator.py again for each candidate: the workers belong to this package.

Its prompts show every metric and the score, so that it never gets anything of select; `blis evaluate --stage select`
chooses among the best policies at the end.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ._epochs import CANDIDATES_PER_EPOCH, Epochs
from ._evaluation import Evaluation
from ._host import FEEDBACK_BYTES, Host, host

if TYPE_CHECKING:
    from openevolve.evaluation_result import EvaluationResult

# Half of the time limit in the template.
WALL_S = 30.0

# Beside the search, so that a search that continues also continues with its epochs.
EPOCH_FILE = "epochs.txt"

# Stages with results that a prompt may show.
OPEN_STAGES = ("smoke", "train")

Evaluate = Callable[[str], "EvaluationResult"]


class Stages(NamedTuple):
    """The functions that evaluator.py defines, in this order."""

    evaluate: Evaluate
    evaluate_stage1: Evaluate
    evaluate_stage2: Evaluate


def make(
    suite: str | os.PathLike[str],
    *,
    wall_s: float = WALL_S,
    epoch: int | None = None,
    epoch_file: str | os.PathLike[str] = EPOCH_FILE,
    candidates_per_epoch: int = CANDIDATES_PER_EPOCH,
    feedback_bytes: int = FEEDBACK_BYTES,
    last_stage: str = "train",
    **options: Any,
) -> Stages:
    """The evaluation functions of `suite`. Stages 1 and 2 are smoke and train; `evaluate` runs up to `last_stage`.

    Each `candidates_per_epoch` candidates serve other requests; `epoch_file` records which, and `epoch` fixes them.
    Further `options` are those of `blis_sim.host`. Raises HostError or BinaryNotFoundError if no candidate can be
    evaluated, which ends a search before it has begun; the functions themselves never raise.
    """
    from openevolve.evaluation_result import EvaluationResult

    if last_stage not in OPEN_STAGES:
        raise ValueError(f"last_stage is {last_stage!r}; it must be one of {', '.join(OPEN_STAGES)}")
    epochs = Epochs(epoch_file, candidates_per_epoch)
    pool = host(suite, wall_s=wall_s, **options)
    about = pool.task().about

    def at(stage: str, wanted: int) -> Evaluate:
        def evaluate(program_path: str) -> EvaluationResult:
            result = _evaluate(pool, program_path, stage, epoch if epoch is not None else epochs, wanted)
            # Last, because it is always the same; the prompts in files do not contain the suite.
            return EvaluationResult(metrics=result.numbers(), artifacts={**result.artifacts, "task": about})

        return evaluate

    # Texts take longer than simulations. OpenEvolve joins those of the stages, so that stage 2 writes them for the
    # others; a candidate that fails in stage 1 has an error text, which is always written.
    return Stages(at(last_stage, feedback_bytes), at("smoke", 0), at("train", feedback_bytes))


def _evaluate(pool: Host, program_path: str, stage: str, epoch: int | Epochs, feedback_bytes: int) -> Evaluation:
    try:
        number = epoch.of_file(program_path) if isinstance(epoch, Epochs) else epoch
        return pool.evaluate(Path(program_path), stage=stage, epoch=number, feedback_bytes=feedback_bytes)
    except Exception:
        # A defect of this package must not end the search.
        return Evaluation.failed("host_error", traceback.format_exc(limit=5))
