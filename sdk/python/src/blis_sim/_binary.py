"""Finds the program `blis`."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path


class BinaryNotFoundError(RuntimeError):
    """The program `blis` is neither installed with the package nor on PATH."""


def binary() -> Path:
    """Path of the program: `BLIS_BINARY`, else the one installed with the package, else the first `blis` on PATH.

    Raises BinaryNotFoundError.
    """
    named = os.environ.get("BLIS_BINARY")
    if named:
        path = Path(named).expanduser()
        if not _runs(path):
            raise BinaryNotFoundError(f"BLIS_BINARY names {named}, which is not an executable file")
        # Absolute: workers outlive changes of the working directory.
        return path.absolute()
    # Installed for all users, for one user, or in a virtual environment whose folder is not on PATH.
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    folders = [Path(sysconfig.get_path("scripts", scheme)) for scheme in schemes]
    for folder in [*folders, Path(sys.executable).parent]:
        path = folder / "blis"
        if _runs(path):
            return path.absolute()
    found = shutil.which("blis")
    if found:
        return Path(found).absolute()
    raise BinaryNotFoundError(
        "the program `blis` was not found\n"
        "hint: `pip install ./sdk/python` installs it; or set BLIS_BINARY, for example to target/release/blis"
    )


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
