"""The licences of the crates that are part of the program, as one text: `python3 licences.py [FILE]`.

Names, versions and SPDX expressions are those of `cargo metadata`, texts those of the packages in cargo's registry.
Equal texts are printed once, with the crates that they belong to.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
# The name is one that maturin puts into a wheel as a licence (PEP 639).
FILE = "LICENSE-DEPENDENCIES.txt"

LICENCE_FILE = re.compile(r"(un)?licen[cs]e|copying|copyright|notice", re.IGNORECASE)
# Sources and settings with such a name.
NOT_A_TEXT = {".rs", ".py", ".toml", ".json", ".html", ".yml", ".yaml", ".sh"}


def write(path: Path) -> None:
    """Writes the text to `path`; leaves an equal file alone, so that it does not become newer."""
    text = licences()
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def target() -> str:
    """Target triple of the compiler."""
    found = re.search(r"^host: (.+)$", output("rustc", "-vV"), re.MULTILINE)
    if found is None:
        raise RuntimeError("`rustc -vV` names no host")
    return found[1]


def licences() -> str:
    """The licences of all crates that are compiled into the program for this target."""
    crates = dependencies()
    lines = [
        "The program `blis` contains these crates, each under its licence (an SPDX expression). Their sources are at",
        "https://crates.io/crates/NAME/VERSION. The texts below are those of the packages.",
        "",
    ]
    width = max(len(_name(one)) for one in crates)
    lines += [f"{_name(one):{width}}  {one['license'] or 'see the text'}" for one in crates]
    lines += [f"{'Rust standard library':{width}}  MIT OR Apache-2.0 (https://github.com/rust-lang/rust)"]
    texts: dict[str, tuple[str, list[str]]] = {}
    without = []
    for one in crates:
        files = _files(one)
        if not files:
            without.append(_name(one))
        for path in files:
            text = path.read_text(encoding="utf-8", errors="replace").strip()
            # Line breaks and indentation differ between packages.
            _, names = texts.setdefault(" ".join(text.split()), (text, []))
            if _name(one) not in names:
                names.append(_name(one))
    if without:
        lines += ["", "Without a text in the package, under the licence above: " + ", ".join(without)]
    for text, names in texts.values():
        lines += ["", "=" * 100, ", ".join(names), "=" * 100, "", text]
    return "\n".join(lines) + "\n"


def dependencies() -> list[dict[str, Any]]:
    """Packages of `cargo metadata` that are compiled into the program, by name: no build scripts, no test tools."""
    manifest = ("--locked", "--manifest-path", str(ROOT / "host" / "Cargo.toml"))
    # `cargo metadata` also lists optional packages that no feature enables.
    tree = output("cargo", "tree", *manifest, "--edges", "normal", "--prefix", "none", "--format", "{p}")
    linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    metadata = json.loads(output("cargo", "metadata", *manifest, "--format-version", "1"))
    packages = [one for one in metadata["packages"] if (one["name"], f"v{one['version']}") in linked]
    return sorted((one for one in packages if one["source"]), key=lambda one: (one["name"], one["version"]))


def of_rust() -> Path | None:
    """The notices of Rust's standard library, if they are installed with the compiler."""
    path = Path(output("rustc", "--print", "sysroot").strip()) / "share" / "doc" / "rust" / "COPYRIGHT-library.html"
    return path if path.is_file() else None


def _name(package: dict[str, Any]) -> str:
    return f"{package['name']} {package['version']}"


def _files(package: dict[str, Any]) -> list[Path]:
    """Licence files of a package, those of code that it contains included."""
    folder = Path(package["manifest_path"]).parent
    files = {path for path in folder.rglob("*") if LICENCE_FILE.match(path.name) and path.suffix not in NOT_A_TEXT}
    if package["license_file"]:
        files.add(folder / package["license_file"])
    return sorted(path for path in files if path.is_file())


def output(*command: str) -> str:
    """What a command prints, run at the root of the repository. Raises RuntimeError if it fails."""
    environment = {**os.environ, "CARGO_TERM_COLOR": "never"}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, cwd=ROOT, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"`{' '.join(command[:2])}` ended with exit code {done.returncode}")
    return done.stdout.decode()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write(Path(sys.argv[1]))
    else:
        sys.stdout.write(licences())
