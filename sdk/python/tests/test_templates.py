"""The templates of `blis evaluate init`."""

from __future__ import annotations

import json
import os
import re
import string
import subprocess
from pathlib import Path

import pytest
import yaml
from policies import LEAST_LOADED

import blis_sim

TEMPLATES = Path(__file__).parents[1] / "templates"
FILES = [path for path in sorted(TEMPLATES.rglob("*")) if path.is_file()]
SEEDS = [path for path in FILES if path.name == "seed.rhai"]
PAGES = [path for path in FILES if path.name in ("interface.md", "system_message.txt")]


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(TEMPLATES)) for path in paths]


def test_copies_are_copies() -> None:
    # Each project is complete, so the interface page and the initial policy have several copies.
    assert len(SEEDS) == len(PAGES) == 4
    assert len({path.read_text() for path in SEEDS}) == 1
    assert len({path.read_text() for path in PAGES}) == 1


@pytest.mark.parametrize("path", FILES, ids=names(FILES))
def test_placeholders(path: Path) -> None:
    text = path.read_text()
    # These are replaced; other doubled braces are those of a Python format, in prompts.
    doubled = set(re.findall(r"\{\{(\w+)\}\}", text))
    assert doubled <= {"suite", "environment"}
    if path.suffix in (".yaml", ".yml"):
        assert list(yaml.safe_load_all(text.replace("{{suite}}", "chat")))
    if path.suffix == ".py":
        compile(text, str(path), "exec")
    if path.suffix == ".sh":
        subprocess.run(["bash", "-n", str(path)], check=True)
        assert os.access(path, os.X_OK)


@pytest.mark.parametrize("path", [path for path in FILES if path.name.endswith("_user.txt")], ids=str)
def test_prompts_can_be_formatted(path: Path) -> None:
    fields = {name for _, name, _, _ in string.Formatter().parse(path.read_text()) if name}
    known = {
        "openevolve": {"fitness_score", "feature_coords", "feature_dimensions", "improvement_areas", "artifacts",
                       "evolution_history", "current_program", "language", "metrics"},
        "skydiscover": {"metrics", "improvement_areas", "previous_attempts", "inspiration_programs", "current_program",
                        "language", "timeout_warning", "task_description"},
    }  # fmt: skip
    assert fields <= known[path.relative_to(TEMPLATES).parts[0]]
    assert "EVOLVE-BLOCK-START" in path.read_text()


def test_slurm_script(tmp_path: Path) -> None:
    """With an sbatch that records its arguments."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >>"$LOG"\necho 7\n')
    sbatch.chmod(0o755)
    script = tmp_path / "slurm.sh"
    script.write_text((TEMPLATES / "cluster" / "slurm.sh").read_text().replace("{{suite}}", "chat"))
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "LOG": str(tmp_path / "log"),
        "SHARDS": "3",
    }
    subprocess.run(["bash", str(script), "a.rhai", "b c.rhai"], check=True, env=environment, cwd=tmp_path)
    log = (tmp_path / "log").read_text()
    assert "--array=0-2" in log
    assert f"--out {tmp_path}/shards  --shard next/12" in log
    assert "b\\ c.rhai" in log
    assert "--dependency=afterany:7" in log
    assert f"evaluate merge {tmp_path}/shards  >{tmp_path}/shards/results.jsonl" in log


def test_slurm_commands(real: None, tmp_path: Path) -> None:
    """With an sbatch that runs its command, shard after shard."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(
        "#!/bin/bash\nset -e\n"
        "for word; do case $word in --array=*) last=${word##*-};; --wrap=*) command=${word#--wrap=};; esac; done\n"
        'for SLURM_ARRAY_TASK_ID in $(seq 0 "${last:-0}"); do eval "$command"; done >&2\necho 7\n'
    )
    sbatch.chmod(0o755)
    script = tmp_path / "slurm.sh"
    script.write_text((TEMPLATES / "cluster" / "slurm.sh").read_text().replace("{{suite}}", "chat"))
    (tmp_path / "least loaded.rhai").write_text(LEAST_LOADED)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SHARDS": "2", "STAGE": "train"}
    suite = Path(__file__).with_name("small.yaml")
    environment |= {"BLIS": os.environ["BLIS_BINARY"], "SUITE": str(suite)}
    command = ["bash", str(script), str(SEEDS[0]), "least loaded.rhai"]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path, capture_output=True)
    lines = (tmp_path / "shards" / "results.jsonl").read_text().splitlines()
    merged = [blis_sim.Evaluation.of(json.loads(line)) for line in lines]
    alone = [blis_sim.host(suite).evaluate(source) for source in (SEEDS[0], LEAST_LOADED)]
    assert [one.numbers() for one in merged] == [one.numbers() for one in alone]


@pytest.mark.parametrize("stage", ["smoke", "train"])
def test_seed_is_a_policy(real: None, stage: str) -> None:
    result = blis_sim.host("chat").evaluate(SEEDS[0], stage=stage)
    assert result.valid, result.artifacts
    # It equals the baseline, which is not as good as the reference, the best built-in policy.
    assert result.stage == stage
    assert blis_sim.BANDS[stage] < result.combined_score < blis_sim.BANDS[stage] + 0.5


def test_examples_of_the_page_are_policies(real: None) -> None:
    examples = re.findall(r"```rhai\n(.*?)```", PAGES[0].read_text(), re.DOTALL)
    assert len(examples) == 2
    for source in examples:
        result = blis_sim.host("chat").evaluate(source, stage="smoke")
        assert result.valid, result.artifacts
