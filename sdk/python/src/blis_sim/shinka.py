"""For ShinkaEvolve 0.0.7: the language Rhai, and the evaluation of one candidate by one process.

    python -m blis_sim.shinka --program_path P --results_dir D [--suite S]

writes D/metrics.json and D/correct.json. `blis evaluate shinka-evaluate` does the same without Python; `job_config`
makes ShinkaEvolve call it.
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
from ._epochs import epoch_of_folder
from ._evaluation import Evaluation
from ._host import FEEDBACK_BYTES, WALL_S, Host

# The properties of a language, in five dictionaries of `shinka.utils.languages`.
LANGUAGE = "rhai"
EXTENSION = "rhai"
COMMENT = "//"
# Models often tag Rhai as Rust. The last one is what the prompt of ShinkaEvolve for a whole program shows: it does not
# fill in the name.
FENCES = ("rhai", "rust", "rs", "javascript", "js", "{language}")


def register_languages() -> None:
    """Registers Rhai in ShinkaEvolve. Must be called in its process before a runner is created; may be repeated."""
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
    """A LocalJobConfig that runs `blis evaluate shinka-evaluate` for each candidate, without Python.

    `time` is the wall limit of ShinkaEvolve for one candidate, hh:mm:ss; `arguments` are further flags of the command.
    """
    from shinka.launch import LocalJobConfig

    # Absolute, so that a job in another folder finds the file.
    name = str(Path(suite).absolute()) if Path(suite).is_file() else os.fspath(suite)
    # ShinkaEvolve starts an interpreter with one argument, the script, before its flags. `env -S` splits this argument.
    return LocalJobConfig(
        eval_program_path=f"-S{_quoted(str(binary()))} evaluate shinka-evaluate",
        python_executable="/usr/bin/env",
        extra_cmd_args={"suite": name, **arguments},
        time=time,
    )


def _quoted(word: str) -> str:
    """`word` in single quotes, as `env -S` reads them: backslashes escape there too, unlike in a shell."""
    return "'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"


def write(result: Evaluation, folder: Path) -> None:
    """Writes the files that ShinkaEvolve reads. Only `private` is not shown to the model."""
    private = {name: value for name, value in result.private.items() if isinstance(value, (int, float))}
    metrics = {
        "combined_score": result.combined_score,
        "public": {**result.metrics, **result.features},
        "private": private,
        "text_feedback": result.feedback(),
        "extra_data": {"status": result.status, "stage": result.stage, "hashes": dict(result.hashes)},
    }
    # Incorrect candidates do not enter its archive.
    correct = {"correct": result.valid, "error": None if result.valid else result.artifacts.get("error", "")}
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in (("metrics.json", metrics), ("correct.json", correct)):
        # Written completely or not at all: the tool may read at any time.
        path = folder / f".{name}.{os.getpid()}"
        path.write_text(json.dumps(document, indent=1), encoding="utf-8")
        path.replace(folder / name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 whenever there is a result, also that of an invalid candidate."""
    parser = argparse.ArgumentParser(prog="python -m blis_sim.shinka", description="Evaluates one candidate.")
    parser.add_argument("--program_path", type=Path, required=True)
    parser.add_argument("--results_dir", type=Path, required=True)
    parser.add_argument("--suite", default=os.environ.get("BLIS_SUITE", "chat"))
    # Prompts show the score, so select is for the end of a search.
    parser.add_argument("--stage", choices=("smoke", "train"), default="train")
    parser.add_argument("--epoch", type=int, help="default: one for every ten generations")
    parser.add_argument("--wall_s", type=float, default=WALL_S)
    parser.add_argument("--feedback_bytes", type=int, default=FEEDBACK_BYTES)
    options = parser.parse_args(arguments)
    try:
        with Host(options.suite, workers=1, wall_s=options.wall_s) as pool:
            result = pool.evaluate(
                options.program_path,
                stage=options.stage,
                epoch=epoch_of_folder(options.results_dir) if options.epoch is None else options.epoch,
                feedback_bytes=options.feedback_bytes,
            )
    except Exception:
        result = Evaluation.failed("host_error", traceback.format_exc(limit=5))
    write(result, options.results_dir)
    if result.status == "host_error":
        print(result.artifacts.get("error", ""), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
