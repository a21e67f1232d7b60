"""The archive and the wheel of `sdk/dist.py`, and that an installation takes this wheel."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import blis_build
import licences
import pytest

PACKAGE = Path(__file__).parents[1]
VERSION = blis_build.version()


@pytest.fixture(scope="module")
def folder(real_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of `sdk/dist.py` for the program under test, without a build."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, str(PACKAGE.parent / "dist.py"), "--program", str(real_binary), "--out", str(out)]
    subprocess.run(command, check=True)
    return out


def wheel_in(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_wheel(folder: Path) -> None:
    with zipfile.ZipFile(wheel_in(folder)) as wheel:
        names = wheel.namelist()
        metadata = Parser().parsestr(wheel.read(f"blis_sim-{VERSION}.dist-info/METADATA").decode())
    assert metadata["Name"] == "blis-sim"
    assert metadata["Version"] == VERSION
    assert metadata.get_all("License-File") == ["LICENSE", licences.FILE]
    # `blis` on PyPI is another package: neither its distribution nor its module may be touched.
    assert {name.split("/")[0] for name in names} == {
        "blis_sim",
        f"blis_sim-{VERSION}.data",
        f"blis_sim-{VERSION}.dist-info",
    }
    modules = {path.name for path in (PACKAGE / "src" / "blis_sim").iterdir() if path.is_file()}
    assert modules == {name.removeprefix("blis_sim/") for name in names if name.startswith("blis_sim/")}
    assert f"blis_sim-{VERSION}.data/scripts/blis" in names


def test_archive(folder: Path) -> None:
    (archive,) = folder.glob("*.tar.gz")
    root = f"blis-{VERSION}-{licences.target()}"
    assert archive.name == f"{root}.tar.gz"
    with tarfile.open(archive) as tar:
        members = {member.name.removeprefix(f"{root}/"): member for member in tar.getmembers()}
        texts = tar.extractfile(members[licences.FILE])
        assert texts is not None
        assert b"\nclap 4." in texts.read()
    expected = ["blis", "README.md", "LICENSE", "completions/blis.bash", "completions/_blis", "completions/blis.fish"]
    expected += ["man/man1/blis.1", "man/man1/blis-run.1", "man/man1/blis-evaluate-held-out.1"]
    assert set(expected) <= members.keys()
    assert all(members[name].size > 0 for name in expected)
    assert members["blis"].mode == 0o755


def test_an_installation_takes_the_wheel(folder: Path, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    # Without a network, and without cargo: nothing can be built.
    environment = {**os.environ, "BLIS_DIST": str(folder), "CARGO": "/nowhere", "CARGO_HOME": str(tmp_path)}
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(PACKAGE)], check=True, env=environment)
    assert (tmp_path / "site" / "blis_sim" / "__init__.py").is_file()
    done = subprocess.run([tmp_path / "site" / "bin" / "blis", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:2] == ["blis", VERSION]


def test_a_wheel_that_does_not_fit_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BLIS_DIST", str(tmp_path))
    assert blis_build.find_wheel() is None
    assert blis_build.get_requires_for_build_wheel() == [blis_build.MATURIN]
    (tmp_path / "blis_sim-9.9.9-py3-none-any.whl").touch()
    assert blis_build.find_wheel() is None
    (tmp_path / f"blis_sim-{VERSION}-py3-none-win_arm64.whl").touch()
    assert blis_build.find_wheel() is None
    assert "for another platform" in capsys.readouterr().out
    here = tmp_path / f"blis_sim-{VERSION}-py3-none-{native_tag()}.whl"
    here.touch()
    assert blis_build.find_wheel() == here
    assert blis_build.get_requires_for_build_wheel() == []
    # Older than a source, so that its program is that of another state of the repository.
    os.utime(here, (0, 0))
    assert blis_build.find_wheel() is None
    assert "is newer" in capsys.readouterr().out


def native_tag() -> str:
    system, machine = platform.system(), platform.machine()
    return f"linux_{machine}" if system == "Linux" else f"macosx_11_0_{machine}"


@pytest.mark.skipif(platform.system() != "Linux" or platform.libc_ver()[0] != "glibc", reason="tags of glibc")
def test_platform_tags() -> None:
    machine = platform.machine()
    taken = [f"linux_{machine}", f"manylinux_2_17_{machine}", f"manylinux2014_{machine}"]
    others = [f"manylinux_9_0_{machine}", "manylinux_2_17_other", f"musllinux_1_2_{machine}", f"macosx_11_0_{machine}"]
    others += ["win_amd64", "any"]
    assert all(blis_build.runs_here(tag) for tag in taken)
    assert not any(blis_build.runs_here(tag) for tag in others)
