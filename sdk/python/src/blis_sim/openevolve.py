"""For OpenEvolve 0.4.0: the functions that its evaluator.py must define.

    from blis_sim.openevolve import make

    evaluate, evaluate_stage1, evaluate_stage2, evaluate_stage3 = make("chat", wall_s=30)

Behaviour of its engine with a failing evaluator, and the remedies here:

* a timeout scores more than a negative score, and leaves a thread behind: the wall limit here is below the
  tool's, kills the worker, and scores 0;
* metrics that lack a feature dimension make it drop the candidate and its error: every result has all of them;
* it executes evaluator.py again for each candidate: the workers belong to this package.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ._evaluation import Evaluation
from ._host import FEEDBACK_BYTES, Host, host

if TYPE_CHECKING:
    from openevolve.evaluation_result import EvaluationResult

# Half of the time limit in the template.
WALL_S = 30.0

Evaluate = Callable[[str], "EvaluationResult"]


class Stages(NamedTuple):
    """The functions that evaluator.py defines, in this order."""

    evaluate: Evaluate
    evaluate_stage1: Evaluate
    evaluate_stage2: Evaluate
    evaluate_stage3: Evaluate


def make(
    suite: str | os.PathLike[str],
    *,
    wall_s: float = WALL_S,
    epoch: int = 0,
    feedback_bytes: int = FEEDBACK_BYTES,
    last_stage: str = "select",
    **options: Any,
) -> Stages:
    """The evaluation functions of `suite`. Stages 1, 2, 3 are smoke, train and select; `evaluate` runs up to the last.

    Further `options` are those of `blis_sim.host`. Raises HostError or BinaryNotFoundError if no candidate can be
    evaluated, which ends a search before it has begun; the functions themselves never raise.
    """
    from openevolve.evaluation_result import EvaluationResult

    pool = host(suite, wall_s=wall_s, **options)
    about = pool.task().about

    def at(stage: str, wanted: int) -> Evaluate:
        def evaluate(program_path: str) -> EvaluationResult:
            result = _evaluate(pool, program_path, stage, epoch, wanted)
            # Last, because it is always the same; the prompts in files do not contain the suite.
            return EvaluationResult(metrics=result.numbers(), artifacts={**result.artifacts, "task": about})

        return evaluate

    # Texts take longer than simulations. OpenEvolve joins those of the stages, so that stage 2 writes them for the
    # others; a candidate that fails in stage 1 has an error text, which is always written.
    return Stages(at(last_stage, feedback_bytes), at("smoke", 0), at("train", feedback_bytes), at("select", 0))


def _evaluate(pool: Host, program_path: str, stage: str, epoch: int, feedback_bytes: int) -> Evaluation:
    try:
        return pool.evaluate(Path(program_path), stage=stage, epoch=epoch, feedback_bytes=feedback_bytes)
    except Exception:
        # A defect of this package must not end the search.
        return Evaluation.failed("host_error", traceback.format_exc(limit=5))
