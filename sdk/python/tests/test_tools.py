"""The real tools, end to end: each starts from round-robin, gets broken, bad and good policies in turn from a
stand-in for its model, and must find a better one.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from policies import BROKEN, LEAST_LOADED
from stand_in import StandIn

import blis_sim

TEMPLATES = Path(__file__).parents[1] / "templates"
# BLIS_TEST_SUITE=chat takes several times as long.
SUITE = os.environ.get("BLIS_TEST_SUITE", str(Path(__file__).with_name("small.yaml")))


def project(tool: str, folder: Path, **changes: str) -> Path:
    """The project of `blis evaluate init`, with the address of the stand-in model."""
    copy = folder / tool
    shutil.copytree(TEMPLATES / tool, copy)
    for path in copy.rglob("*"):
        if path.is_file():
            text = path.read_text()
            for old, new in {"{{suite}}": SUITE, **changes}.items():
                text = text.replace(old, new)
            path.write_text(text)
    return copy


def run(
    command: list[str], folder: Path, timeout_s: float = 240, **environment: str
) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        env={**os.environ, "PATH": path, "OPENAI_API_KEY": "none", **environment},
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    return done


def scores(before: Path, after: Path | str) -> tuple[float, float]:
    """Scores of the initial and of the best policy, in all training scenarios."""
    host = blis_sim.host(SUITE)
    first, second = host.evaluate(before), host.evaluate(after)
    assert first.valid, first.artifacts
    assert second.valid, second.artifacts
    return first.combined_score, second.combined_score


def show_nothing_of_select(prompts: list[str]) -> None:
    """Neither names nor figures of the scenarios that policies are chosen by."""
    task = blis_sim.host(SUITE).task()
    hidden = {one.id for one in task.split("select")} - {one.id for one in task.split("train")}
    assert hidden
    for prompt in prompts:
        assert not any(name in prompt for name in hidden)
        assert "select_score" not in prompt


def about() -> str:
    text = blis_sim.host(SUITE).task().about
    assert len(text) > 50
    return text


def test_openevolve(real: None, tmp_path: Path) -> None:
    with StandIn() as model:
        changes = {"https://api.openai.com/v1": model.api_base, "checkpoint_interval: 20": "checkpoint_interval: 12"}
        folder = project("openevolve", tmp_path, **changes)
        command = [sys.executable, "-m", "openevolve.cli", "seed.rhai", "evaluator.py", "--config", "config.yaml"]
        run([*command, "--output", "run", "--iterations", "12"], folder)
        prompts = model.prompts
    before, after = scores(folder / "seed.rhai", folder / "run" / "best" / "best_program.rhai")
    assert after > before
    info = json.loads((folder / "run" / "best" / "best_program_info.json").read_text())
    assert info["metrics"]["combined_score"] >= 2
    assert info["language"] == "rhai"
    # The prompts contain the interface page, and the feedback on the parent.
    assert all("# Routing policies in Rhai" in prompt for prompt in prompts)
    assert any(about() in prompt for prompt in prompts)
    show_nothing_of_select(prompts)
    assert any("Feedback of the simulator on the current policy" in prompt for prompt in prompts)
    assert not any("REDACTED" in prompt for prompt in prompts)
    # Failed candidates are kept with all features, so that prompts have their errors. (Repetitions are not programs.)
    (log,) = (folder / "run" / "logs").iterdir()
    text = log.read_text()
    assert "not found in program metrics" not in text
    assert "timed out" not in text
    programs = [
        json.loads(path.read_text())
        for path in (folder / "run" / "checkpoints" / "checkpoint_12" / "programs").iterdir()
    ]
    assert len(programs) >= 8
    assert all(set(blis_sim.FEATURES) <= set(one["metrics"]) for one in programs)
    assert any(one["metrics"]["combined_score"] == 0 for one in programs)


def test_openevolve_full_rewrites(real: None, tmp_path: Path) -> None:
    with StandIn() as model:
        address = {
            "https://api.openai.com/v1": model.api_base,
            "diff_based_evolution: true": "diff_based_evolution: false",
        }
        folder = project("openevolve", tmp_path, **address)
        command = [sys.executable, "-m", "openevolve.cli", "seed.rhai", "evaluator.py", "--config", "config.yaml"]
        run([*command, "--output", "run", "--iterations", "10"], folder)
    before, after = scores(folder / "seed.rhai", folder / "run" / "best" / "best_program.rhai")
    assert after > before


def test_openevolve_goes_on_when_workers_hang_and_die(fake: None, tmp_path: Path) -> None:
    hang, crash = f"// HANG\n{LEAST_LOADED}", f"// CRASH\n{LEAST_LOADED}"
    with StandIn([hang, crash, BROKEN, hang, LEAST_LOADED, crash]) as model:
        changes = {"https://api.openai.com/v1": model.api_base, "wall_s=30": "wall_s=1"}
        folder = project("openevolve", tmp_path, **changes)
        command = [sys.executable, "-m", "openevolve.cli", "seed.rhai", "evaluator.py", "--config", "config.yaml"]
        run([*command, "--output", "run", "--iterations", "12"], folder)
    before, after = scores(folder / "seed.rhai", folder / "run" / "best" / "best_program.rhai")
    assert after > before
    (log,) = (folder / "run" / "logs").iterdir()
    text = log.read_text()
    assert "timed out" not in text
    assert "Shutdown requested" not in text
    assert "Evolution completed" in text


def test_gepa(real: None, tmp_path: Path) -> None:
    with StandIn() as model:
        folder = project("gepa", tmp_path)
        done = run([sys.executable, "search.py", "--max-metric-calls", "60"], folder, OPENAI_API_BASE=model.api_base)
        prompts = model.prompts
    assert "candidates were kept" in done.stdout
    before, after = scores(folder / "seed.rhai", folder / "best.rhai")
    assert after > before
    assert all("# Routing policies in Rhai" in prompt for prompt in prompts)
    assert any(about() in prompt for prompt in prompts)
    show_nothing_of_select(prompts)


@pytest.mark.parametrize("started_by", ["program", "python"])
def test_shinka(real: None, tmp_path: Path, started_by: str) -> None:
    # Locally the program itself is started for each candidate; on Slurm it must be Python.
    changes = {
        "from blis_sim.shinka import job_config, register_languages": "from blis_sim.shinka import register_languages",
        'job_config=job_config(SUITE, time="00:02:00")': "job_config=LocalJobConfig(str(HERE / 'evaluate.py'))",
        "import DatabaseConfig": "import DatabaseConfig; from shinka.launch import LocalJobConfig",
    }
    with StandIn() as model:
        folder = project("shinka", tmp_path, **(changes if started_by == "python" else {}))
        run([sys.executable, "search.py", "--generations", "8"], folder, OPENAI_API_BASE=model.api_base)
        prompts = model.prompts
    assert any("# Routing policies in Rhai" in prompt for prompt in prompts)
    assert any(about() in prompt for prompt in prompts)
    show_nothing_of_select(prompts)
    (database,) = (folder / "run").glob("*.sqlite")
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select combined_score, correct, text_feedback from programs").fetchall()
    # Error texts are in the feedback, and failed candidates do not enter the archive.
    assert any(not correct and "a cluster has no field" in text for _, correct, text in rows)
    assert all(correct == (score > 0) for score, correct, _ in rows)
    before, after = scores(folder / "seed.rhai", folder / "run" / "best" / "main.rhai")
    assert after > before


def test_skydiscover(real: None, tmp_path: Path) -> None:
    with StandIn() as model:
        folder = project("skydiscover", tmp_path, **{"https://api.openai.com/v1": model.api_base})
        command = [sys.executable, "-m", "skydiscover.cli", "seed.rhai", "evaluator.py", "--config", "config.yaml"]
        run([*command, "--output", "run", "--iterations", "8", "--search", "topk"], folder)
        prompts = model.prompts
    before, after = scores(folder / "seed.rhai", folder / "run" / "best" / "best_program.rhai")
    assert after > before
    assert all("# Routing policies in Rhai" in prompt for prompt in prompts)
    assert any(about() in prompt for prompt in prompts)
    show_nothing_of_select(prompts)
