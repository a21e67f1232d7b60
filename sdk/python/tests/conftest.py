"""The program under test: the real one named by BLIS_BINARY, and a fake one that misbehaves on request."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import blis_sim
from blis_sim import _host

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def fake_binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fake") / "blis"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -SE "{HERE / "fake_blis.py"}" "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture(scope="session")
def real_binary() -> Path:
    """The real program. Without it, the tests that need it are skipped."""
    path = os.environ.get("BLIS_BINARY", "")
    if not path:
        pytest.skip("BLIS_BINARY names no program")
    return Path(path).absolute()


@pytest.fixture
def fake(fake_binary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BLIS_BINARY", str(fake_binary))
    yield
    forget_hosts()


@pytest.fixture
def real(real_binary: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("BLIS_BINARY", str(real_binary))
    # The cache of each test starts empty.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    forget_hosts()


def forget_hosts() -> None:
    """Closes all hosts: the next test may use another program."""
    for host in list(_host._registry.values()):
        host.close()
    _host._registry.clear()


@pytest.fixture
def host(fake: None) -> Iterator[blis_sim.Host]:
    with blis_sim.Host("chat", workers=2, wall_s=5.0) as one:
        yield one
