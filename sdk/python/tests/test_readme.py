"""Projects of `blis evaluate init`, as a reader types them: the commands of their READMEs, in an empty environment.

Each test installs the wheel and a search tool from PyPI: `pytest -m readme`. The model is a stand-in on loopback.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from policies import LEAST_LOADED, PREFIX_THEN_LOAD
from stand_in import StandIn

PACKAGE = Path(__file__).parents[1]
SUITE = Path(__file__).with_name("small.yaml")

pytestmark = pytest.mark.readme


@pytest.fixture(scope="module")
def program(real_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in a folder with its wheel, and with nothing of the repository around it."""
    folder = tmp_path_factory.mktemp("release")
    command = [sys.executable, str(PACKAGE.parent / "dist.py"), "--program", str(real_binary), "--out", str(folder)]
    subprocess.run(command, check=True)
    shutil.copy2(real_binary, folder / "blis")
    return folder / "blis"


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment without this package, its program and its virtual environment."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(Path(sys.executable).resolve())
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BLIS_", "PYTHON", "VIRTUAL_", "RAY_"))
    }
    home = tmp_path / "home"
    home.mkdir()
    # The packages that pip has downloaded before.
    cache = os.environ.get("PIP_CACHE_DIR") or str(Path("~/.cache/pip").expanduser())
    paths = {"PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "PIP_CACHE_DIR": cache}
    return {**kept, **paths, "TOKENIZERS_PARALLELISM": "false"}


def project(program: Path, tool: str, folder: Path) -> Path:
    command = [str(program), "evaluate", "init", tool, str(folder / tool), "--suite", str(SUITE)]
    subprocess.run(command, check=True, capture_output=True)
    return folder / tool


def blocks(folder: Path) -> list[str]:
    """The commands of the README, block by block."""
    text = (folder / "README.md").read_text()
    return re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def type_in(commands: str, folder: Path, environment: dict[str, str], **changes: str) -> str:
    for old, new in changes.items():
        assert re.search(old, commands), (old, commands)
        commands = re.sub(old, new, commands)
    script = ["bash", "-euo", "pipefail", "-c", commands]
    done = subprocess.run(
        script, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=1200
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    return done.stdout


# Few iterations, and the file that has the address of the model.
TOOLS = {
    "openevolve": (r"--iterations \d+", "--iterations 6", "run/best/best_program.rhai"),
    "gepa": (r"--max-metric-calls \d+", "--max-metric-calls 40", "best.rhai"),
    "shinka": (r"--generations \d+", "--generations 6", "run/best/main.rhai"),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_search(program: Path, shell: dict[str, str], tmp_path: Path, tool: str) -> None:
    amount, few, best = TOOLS[tool]
    with StandIn() as model:
        folder = project(program, tool, tmp_path)
        config = folder / "config.yaml"
        if config.is_file():
            config.write_text(config.read_text().replace("https://api.openai.com/v1", model.api_base))
        search, *others = blocks(folder)
        type_in(search, folder, {**shell, "OPENAI_API_BASE": model.api_base}, **{amount: few})
    assert (folder / best).is_file()
    # The commands for the end of a search, in the same shell. The policies of the stand-in have no parameters to tune.
    shutil.copy2(PACKAGE.parents[1] / "policies" / "prefix-then-load.rhai", folder / best)
    ends = "".join(block for block in others if "held-out" in block)
    assert best in ends
    ends = re.sub(r"--evals \d+", "--evals 3", f". venv/bin/activate\n{ends}")
    document = type_in(ends, folder, shell)
    assert "held-prompts" in document
    assert (folder / "tuned.rhai").is_file()


@pytest.fixture
def ended() -> Iterator[dict[str, str]]:
    """A mark in the environment of all processes of a test, by which they are ended."""
    mark = f"BLIS_TEST_RUN={uuid.uuid4()}"
    yield dict([mark.split("=")])
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found through /proc")
def test_two_machines_with_ray(program: Path, shell: dict[str, str], ended: dict[str, str], tmp_path: Path) -> None:
    """Two of Ray's nodes on this machine, each with a core of its own."""
    folder = project(program, "cluster", tmp_path)
    (folder / "a.rhai").write_text(LEAST_LOADED)
    (folder / "b.rhai").write_text(PREFIX_THEN_LOAD)
    environment, head, other, driver = (block for block in blocks(folder) if "ray" in block)
    address = {"ADDRESS_OF_THE_HEAD": "127.0.0.1"}
    # Ray's sockets need a short path.
    with contextlib.ExitStack() as stack:
        shared = shell | ended | {"RAY_TMPDIR": stack.enter_context(short_folder())}
        type_in(environment, folder, shared)
        one_core = {r"(?m)^ray start(.*)$": r"ray start\1 --num-cpus=1 --object-store-memory=100000000"}
        activate = ". venv/bin/activate\n"
        type_in(activate + head, folder, shared, **address, **one_core)
        assert (Path(shell["HOME"]) / ".ray" / "auth_token").is_file()
        type_in(activate + other, folder, shared, **address, **one_core)
        printed = type_in(f"{activate}export RAY_AUTH_MODE=token\n{driver}", folder, shared)
    assert printed.startswith("2 machines, 2 cores\n")
    rows = [line.split() for line in printed.splitlines()[1:]]
    assert [(row[1], row[2]) for row in rows] == [("ok", "a.rhai"), ("ok", "b.rhai")]
    assert all(float(row[0]) > 3 for row in rows)


@contextlib.contextmanager
def short_folder() -> Iterator[str]:
    folder = Path("/tmp") / f"ray-{os.getpid()}"
    folder.mkdir()
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
