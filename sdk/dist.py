#!/usr/bin/env python3
"""Builds what is distributed into target/dist: an archive with the program, and a wheel of the Python package.

    sdk/dist.py [--profile dist|release|dev] [--program FILE] [--out DIR]

blis-VERSION-TARGET.tar.gz has the program, shell completions, manual pages, licences and README. The wheel
blis_sim-VERSION-py3-none-PLATFORM.whl has the same program; `pip install ./sdk/python` takes it where it lies.

Needs cargo, and Python 3.10 or later. If this Python has no maturin, that is installed from PyPI into target/python.
`--program` packs a program that is already built, without cargo building anything.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "sdk" / "python"
sys.path.insert(0, str(PACKAGE / "backend"))

import blis_build  # noqa: E402
import licences  # noqa: E402

# Where the script of each shell is looked for by that shell.
COMPLETIONS = {
    "bash": "blis.bash", "zsh": "_blis", "fish": "blis.fish", "powershell": "blis.ps1", "elvish": "blis.elv",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds an archive and a wheel.")
    parser.add_argument("--profile", default="dist", help="profile of cargo; dist is optimised most and builds longest")
    parser.add_argument("--program", type=Path, help="pack this program instead of building one")
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "dist", help="folder for the files; target/dist")
    options = parser.parse_args()
    out = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    licences.write(PACKAGE / licences.FILE)
    # Timestamp of all files, for reproducible builds: that of the last commit.
    os.environ.setdefault("SOURCE_DATE_EPOCH", licences.output("git", "log", "-1", "--format=%ct").strip())
    wheel = build_wheel(options.profile, options.program and options.program.absolute(), out)
    archive = write_archive(wheel, out)
    for path in (archive, wheel):
        print(f"{path.stat().st_size / 2**20:6.1f} MiB  {path}")


def build_wheel(profile: str, program: Path | None, out: Path) -> Path:
    """The wheel in `out`, by maturin."""
    # Without those of an earlier build: one of another platform tag would stay beside the new one.
    for old in out.glob(f"blis_sim-{blis_build.version()}-*.whl"):
        old.unlink()
    command = [python_with_maturin(), "-m", "maturin", "build", "--profile", profile, "--out", str(out)]
    with tempfile.TemporaryDirectory(prefix="blis-dist-") as folder:
        environment = dict(os.environ)
        if program is not None:
            environment["PATH"] = f"{cargo_with(program, Path(folder))}{os.pathsep}{os.environ['PATH']}"
            environment.pop("CARGO", None)
        subprocess.run(command, check=True, cwd=PACKAGE, env=environment)
    (wheel,) = out.glob(f"blis_sim-{blis_build.version()}-*.whl")
    return wheel


def python_with_maturin() -> str:
    """A Python that has maturin: this one, else that of a virtual environment."""
    if importlib.util.find_spec("maturin"):
        return sys.executable
    folder = ROOT / "target" / "python" / "maturin"
    python = folder / "bin" / "python"
    if not python.is_file():
        venv.create(folder, with_pip=True)
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", blis_build.MATURIN], check=True
    )
    return str(python)


def cargo_with(program: Path, folder: Path) -> Path:
    """A folder with a `cargo` for maturin that reports a stripped copy of `program` instead of building it."""
    copy = folder / "blis"
    if not shutil.which("strip") or subprocess.run(["strip", "-o", copy, program], check=False).returncode != 0:
        shutil.copy2(program, copy)
    manifest = ROOT / "host" / "Cargo.toml"
    metadata = json.loads(licences.output("cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"))
    (package,) = (one for one in metadata["packages"] if Path(one["manifest_path"]) == manifest)
    (target,) = (one for one in package["targets"] if one["kind"] == ["bin"])
    artifact = {
        "reason": "compiler-artifact", "package_id": package["id"], "manifest_path": str(manifest), "target": target,
        "profile": {
            "opt_level": "3", "debuginfo": 0, "debug_assertions": False, "overflow_checks": False, "test": False,
        },
        "features": [], "filenames": [str(copy)], "executable": str(copy), "fresh": True,
    }  # fmt: skip
    lines = "\n".join(json.dumps(one) for one in (artifact, {"reason": "build-finished", "success": True}))
    cargo = folder / "bin" / "cargo"
    cargo.parent.mkdir()
    cargo.write_text(
        f"#!/bin/sh\ncase $1 in\nrustc | build) printf '%s\\n' {shlex.quote(lines)} ;;\n"
        f'*) exec {shlex.quote(shutil.which("cargo") or "cargo")} "$@" ;;\nesac\n'
    )
    cargo.chmod(0o755)
    return cargo.parent


def write_archive(wheel: Path, out: Path) -> Path:
    """The archive in `out`, with the program of `wheel`. Equal contents make equal bytes."""
    name = f"blis-{blis_build.version()}-{licences.target()}"
    with tempfile.TemporaryDirectory(prefix="blis-dist-") as temporary:
        folder = Path(temporary) / name
        completions, pages = folder / "completions", folder / "man" / "man1"
        completions.mkdir(parents=True)
        program = folder / "blis"
        with zipfile.ZipFile(wheel) as content_of_wheel:
            (script,) = (one for one in content_of_wheel.namelist() if one.endswith(".data/scripts/blis"))
            program.write_bytes(content_of_wheel.read(script))
        program.chmod(0o755)
        for shell, file in COMPLETIONS.items():
            (completions / file).write_bytes(subprocess.check_output([program, "completions", shell]))
        subprocess.run([program, "man", pages], check=True, stdout=subprocess.DEVNULL)
        for path in (ROOT / "README.md", ROOT / "LICENSE", PACKAGE / licences.FILE):
            shutil.copyfile(path, folder / path.name)
        rust = licences.of_rust()
        if rust is not None:
            shutil.copyfile(rust, folder / "LICENSE-RUST-LIBRARY.html")
        archive = out / f"{name}.tar.gz"
        time = int(os.environ["SOURCE_DATE_EPOCH"])
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for path in sorted(folder.rglob("*")):
                member = tar.gettarinfo(path, f"{name}/{path.relative_to(folder)}")
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                member.mtime = time
                member.mode = 0o755 if path.is_dir() or path == program else 0o644
                with path.open("rb") if path.is_file() else io.BytesIO() as content:
                    tar.addfile(member, content if path.is_file() else None)
        archive.write_bytes(gzip.compress(buffer.getvalue(), compresslevel=6, mtime=time))
    return archive


if __name__ == "__main__":
    main()
