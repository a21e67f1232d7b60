"""For ShinkaEvolve 0.0.7: the language Rhai, and the evaluation of one candidate by one process.

    python -m blis.shinka --program_path P --results_dir D [--suite S]

writes D/metrics.json and D/correct.json. `blis shinka-evaluate` does the same without starting Python;
`job_config` has ShinkaEvolve call that.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._binary import binary
from ._host import FEEDBACK_BYTES, WALL_S, Host
from ._verdict import Verdict

# What ShinkaEvolve knows of a language, in five dictionaries of `shinka.utils.languages`.
LANGUAGE = "rhai"
EXTENSION = "rhai"
COMMENT = "//"
# Models that do not know Rhai call it Rust. The last one is what ShinkaEvolve itself shows where it asks for a whole
# program: it forgets to fill it in.
FENCES = ("rhai", "rust", "rs", "javascript", "js", "{language}")


# Part of the score, and shown nowhere by itself.
HIDDEN = ("select_score",)


def register_languages() -> None:
    """Tells ShinkaEvolve of Rhai. To be called in its process before a runner is made; again is harmless."""
    from shinka.utils import languages

    marker = r"^\s*//\s*EVOLVE-BLOCK-{}\s*$"
    patterns = (re.compile(marker.format("START")), re.compile(marker.format("END")))
    examples = (f"{COMMENT} EVOLVE-BLOCK-START", f"{COMMENT} EVOLVE-BLOCK-END")
    languages._LANGUAGE_EXTENSIONS[LANGUAGE] = EXTENSION
    languages._EVOLVE_COMMENT_PREFIXES[LANGUAGE] = COMMENT
    languages._LANGUAGE_FENCE_TAGS[LANGUAGE] = FENCES
    languages._EVOLVE_MARKER_PATTERNS[LANGUAGE] = patterns
    languages._EVOLVE_MARKER_EXAMPLES[LANGUAGE] = examples


def job_config(suite: str | os.PathLike[str], *, time: str = "00:02:00", **arguments: Any) -> Any:
    """A LocalJobConfig that runs `blis shinka-evaluate` for each candidate; `time` is the tool's limit, hh:mm:ss."""
    from shinka.launch import LocalJobConfig

    # A file is found from wherever the job runs.
    name = str(Path(suite).absolute()) if Path(suite).is_file() else os.fspath(suite)
    return LocalJobConfig(
        eval_program_path="shinka-evaluate",
        python_executable=str(binary()),
        extra_cmd_args={"suite": name, **arguments},
        time=time,
    )


def write(verdict: Verdict, folder: Path) -> None:
    """Writes what ShinkaEvolve reads. Of this only `private` is kept from the model."""
    private = {name: value for name, value in verdict.private.items() if isinstance(value, (int, float))}
    metrics = {
        "combined_score": verdict.combined_score,
        "public": {
            name: value for name, value in {**verdict.metrics, **verdict.features}.items() if name not in HIDDEN
        },
        "private": private,
        "text_feedback": verdict.feedback(),
        "extra_data": {"status": verdict.status, "stage": verdict.stage, "hashes": dict(verdict.hashes)},
    }
    # Candidates that are not correct stay out of its archive.
    correct = {"correct": verdict.valid, "error": None if verdict.valid else verdict.artifacts.get("error", "")}
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in (("metrics.json", metrics), ("correct.json", correct)):
        # Whole or not at all: the tool may look at any moment.
        path = folder / f".{name}.{os.getpid()}"
        path.write_text(json.dumps(document, indent=1), encoding="utf-8")
        path.replace(folder / name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 whenever there is a verdict, of an invalid candidate too."""
    parser = argparse.ArgumentParser(prog="python -m blis.shinka", description="Judges one candidate.")
    parser.add_argument("--program_path", type=Path, required=True)
    parser.add_argument("--results_dir", type=Path, required=True)
    parser.add_argument("--suite", default=os.environ.get("BLIS_SUITE", "chat"))
    parser.add_argument("--stage", choices=("smoke", "train", "select"), default="select")
    parser.add_argument("--epoch", type=int, default=0)
    parser.add_argument("--wall_s", type=float, default=WALL_S)
    parser.add_argument("--feedback_bytes", type=int, default=FEEDBACK_BYTES)
    options = parser.parse_args(arguments)
    try:
        with Host(options.suite, workers=1, wall_s=options.wall_s) as judge:
            verdict = judge.evaluate(
                options.program_path,
                stage=options.stage,
                epoch=options.epoch,
                feedback_bytes=options.feedback_bytes,
            )
    except Exception:
        verdict = Verdict.failed("host_error", traceback.format_exc(limit=5))
    write(verdict, options.results_dir)
    if verdict.status == "host_error":
        print(verdict.artifacts.get("error", ""), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
