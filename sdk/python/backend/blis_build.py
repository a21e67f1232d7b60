"""Build backend of the package (PEP 517): a wheel of `sdk/dist.py` that fits is taken, else maturin builds one.

A wheel in `target/dist` (BLIS_DIST names another folder) fits if it has the version of the repository, runs on this
platform, and is newer than every source. Without one, maturin builds the program with cargo, in the profile of
`pyproject.toml` (BLIS_PROFILE names another, for example `release`, which builds faster).

Standard library only, and no import of the package: pip runs this file in an environment of its own.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sysconfig
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import licences

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent
ROOT = PACKAGE.parents[1]
MATURIN = "maturin>=1.9,<2"

# Everything that is compiled or copied into a wheel.
SOURCES = (
    "Cargo.toml", "Cargo.lock", "LICENSE", "hardware", "host", "model_configs", "policies", "examples/suites", "sdk",
)  # fmt: skip
# Folders without sources, and what the build itself writes.
NOT_SOURCES = ("target", "tests", "benches", "fuzz", "__pycache__", licences.FILE)

# Names of manylinux tags before they stated the version of glibc.
OLD_MANYLINUX = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}

Settings = Mapping[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Requirements of `build_wheel`: none where a wheel lies, so that an installation needs no network."""
    return [] if find_wheel() else [MATURIN]


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Name of the wheel in `wheel_directory`: a copy of the one that fits, else a new one."""
    found = find_wheel()
    if found is not None:
        print(f"taking {found}")
        shutil.copy2(found, wheel_directory)
        return found.name
    import maturin

    _prepare()
    return str(maturin.build_wheel(wheel_directory, config_settings, metadata_directory))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    """Name of the .dist-info folder in `metadata_directory`."""
    found = find_wheel()
    if found is None:
        import maturin

        return str(maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings))
    with zipfile.ZipFile(found) as wheel:
        names = [name for name in wheel.namelist() if name.split("/")[0].endswith(".dist-info")]
        wheel.extractall(metadata_directory, names)
    return names[0].split("/")[0]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """Requirements of `build_editable`, which always builds."""
    return [MATURIN]


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Name of an editable wheel in `wheel_directory`."""
    import maturin

    _prepare()
    return str(maturin.build_editable(wheel_directory, config_settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Refused: the program is built from the whole repository, most of which is outside the package's folder."""
    raise NotImplementedError("there is no source distribution; build a wheel: sdk/dist.py")


def _prepare() -> None:
    """Writes the licence texts for the wheel, and passes BLIS_PROFILE on to maturin."""
    licences.write(PACKAGE / licences.FILE)
    profile = os.environ.get("BLIS_PROFILE")
    if profile:
        os.environ["MATURIN_PEP517_ARGS"] = f"{os.environ.get('MATURIN_PEP517_ARGS', '')} --profile {profile}".strip()


def version() -> str:
    """Version of the workspace, which is that of the program and of the package."""
    text = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    found = re.search(r'^\[workspace\.package\]\n(?:(?!\[).*\n)*?version = "([^"]+)"', text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{ROOT / 'Cargo.toml'} has no version in [workspace.package]")
    return found[1]


def find_wheel() -> Path | None:
    """The wheel that fits, or None. Writes the reason for each wheel of this version that does not."""
    folder = Path(os.environ.get("BLIS_DIST") or ROOT / "target" / "dist")
    for wheel in sorted(folder.glob(f"blis_sim-{version()}-*.whl")):
        newest = max(_sources(), key=lambda path: path.stat().st_mtime)
        tags = wheel.stem.split("-")[-1].split(".")
        if not any(runs_here(tag) for tag in tags):
            print(f"not taking {wheel}: it is for another platform")
        elif newest.stat().st_mtime > wheel.stat().st_mtime:
            print(f"not taking {wheel}: {newest.relative_to(ROOT)} is newer")
        else:
            return wheel
    return None


def runs_here(tag: str) -> bool:
    """Whether wheels with this platform tag (PEP 425, 600, 656) run on this machine."""
    here = re.sub(r"[-.]", "_", sysconfig.get_platform())
    machine = platform.machine()
    if tag == here:
        return True
    if found := re.fullmatch(r"(manylinux(?:1|2010|2014)|manylinux_(\d+)_(\d+))_(\w+)", tag):
        needed = OLD_MANYLINUX.get(found[1]) or (int(found[2]), int(found[3]))
        return found[4] == machine and (_glibc() or (0, 0)) >= needed
    if found := re.fullmatch(r"musllinux_\d+_\d+_(\w+)", tag):
        return found[1] == machine and _glibc() is None and here.startswith("linux")
    if found := re.fullmatch(r"macosx_(\d+)_(\d+)_(\w+)", tag):
        release = tuple(int(part) for part in platform.mac_ver()[0].split(".")[:2] if part)
        return found[3] in (machine, "universal2") and release >= (int(found[1]), int(found[2]))
    return False


def _glibc() -> tuple[int, ...] | None:
    """Version of the C library, if it is glibc."""
    try:
        name, release = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (AttributeError, ValueError, OSError):
        return None
    return tuple(int(part) for part in release.split(".")[:2]) if name == "glibc" else None


def _sources() -> Iterator[Path]:
    for name in SOURCES:
        path = ROOT / name
        if path.is_file():
            yield path
        for folder, folders, files in os.walk(path):
            folders[:] = [one for one in folders if one not in NOT_SOURCES and not one.startswith(".")]
            yield from (Path(folder, file) for file in files if file not in NOT_SOURCES)
