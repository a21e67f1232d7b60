"""The pool of workers: no behaviour of a candidate affects other evaluations."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from policies import LEAST_LOADED, ROUND_ROBIN

import blis_sim


def gone(pid: int, within_s: float = 5.0) -> bool:
    """Whether the process ended and was reaped: a zombie still has its pid."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_result(host: blis_sim.Host) -> None:
    result = host.evaluate(LEAST_LOADED)
    assert result.valid
    assert result.stage == "train"
    assert 2 < result.combined_score < 3
    assert set(result.features) == set(blis_sim.FEATURES)
    assert result.numbers()["combined_score"] == result.combined_score
    assert "## scenarios\nscenario" in result.feedback()
    assert [(one.id, one.seed) for one in result.scenarios if one.stage == "train"] == [
        ("two", 11),
        ("two", 12),
        ("three", 11),
        ("three", 12),
    ]


def test_file(host: blis_sim.Host, tmp_path: Path) -> None:
    path = tmp_path / "candidate.rhai"
    path.write_text(LEAST_LOADED)
    assert host.evaluate(path).combined_score == host.evaluate(LEAST_LOADED).combined_score
    assert host.evaluate(str(path)).combined_score == host.evaluate(LEAST_LOADED).combined_score
    for absent in (tmp_path / "absent.rhai", "absent.rhai"):
        assert "cannot be read" in host.evaluate(absent).artifacts["error"]


def test_task(host: blis_sim.Host) -> None:
    task = host.task()
    assert [one.id for one in task.split("train")] == ["two", "three"]
    assert task.split("train")[0].seeds == 2


def test_texts_that_are_not_utf8(host: blis_sim.Host, tmp_path: Path) -> None:
    path = tmp_path / "candidate.rhai"
    path.write_bytes(b"\xff\xfe fn route(r, s) { 0 }")
    assert host.evaluate(path).valid
    assert host.evaluate("fn route(r, s) { 0 } // \udcff").valid


def test_hanging_worker_is_killed(host: blis_sim.Host) -> None:
    host.evaluate(LEAST_LOADED)
    (before,) = host.pids()
    start = time.monotonic()
    result = host.evaluate(LEAST_LOADED + "// HANG", wall_s=0.5)
    assert time.monotonic() - start < 3
    assert result.status == "limit"
    assert result.stopped == "wall"
    assert result.combined_score == 0
    assert "0.5 s" in result.artifacts["error"]
    # The keys equal those of a result of the program.
    assert result.numbers().keys() == host.evaluate(LEAST_LOADED).numbers().keys()
    assert gone(before)
    assert host.evaluate(LEAST_LOADED).valid


def test_first_candidate_hangs(host: blis_sim.Host) -> None:
    result = host.evaluate(LEAST_LOADED + "// HANG", wall_s=0.5)
    assert result.numbers().keys() == host.evaluate(LEAST_LOADED).numbers().keys()


def test_worker_that_stopped_reading(host: blis_sim.Host) -> None:
    # Longer than a pipe holds, so that writing it blocks.
    with blis_sim.Host("chat", workers=1, wall_s=5.0) as one:
        one.evaluate(LEAST_LOADED)
        (pid,) = one.pids()
        os.kill(pid, signal.SIGSTOP)
        assert one.evaluate("// " + "x" * 1_000_000 + LEAST_LOADED, wall_s=0.5).status == "limit"
        assert gone(pid)
    assert host.evaluate("// " + "x" * 1_000_000 + "\n" + LEAST_LOADED).valid


def test_crash(host: blis_sim.Host) -> None:
    result = host.evaluate(LEAST_LOADED + "// CRASH")
    assert result.status == "host_error"
    assert "crash was requested" in result.artifacts["error"]
    assert "exit code 101" in result.artifacts["error"]
    assert host.evaluate(LEAST_LOADED).valid


def test_worker_killed_from_outside(host: blis_sim.Host) -> None:
    host.evaluate(LEAST_LOADED)
    (pid,) = host.pids()
    os.kill(pid, signal.SIGKILL)
    assert host.evaluate(LEAST_LOADED).valid
    assert gone(pid)


def test_second_chance(host: blis_sim.Host, tmp_path: Path) -> None:
    assert host.evaluate(LEAST_LOADED + f"// ONCE {tmp_path / 'was'}").valid


def test_garbage(host: blis_sim.Host) -> None:
    assert host.evaluate(LEAST_LOADED + "// GARBAGE").status == "host_error"
    assert host.evaluate(LEAST_LOADED).valid


def test_busy(host: blis_sim.Host) -> None:
    assert host.evaluate(LEAST_LOADED + "// BUSY").valid


def test_held_out_split_is_refused(host: blis_sim.Host) -> None:
    result = host.evaluate(LEAST_LOADED, stage="test")
    assert result.status == "host_error"
    assert "held out" in result.artifacts["error"]


def test_no_such_suite(fake: None) -> None:
    with blis_sim.Host("nosuch", workers=1) as one:
        with pytest.raises(blis_sim.HostError, match="there is no suite"):
            one.task()
        assert "there is no suite" in one.evaluate(LEAST_LOADED).artifacts["error"]


def test_no_binary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLIS_BINARY", "/nowhere/blis")
    with pytest.raises(blis_sim.BinaryNotFoundError, match="/nowhere/blis"):
        blis_sim.Host("chat")


def test_threads(fake: None) -> None:
    with blis_sim.Host("chat", workers=4, wall_s=10.0) as one:
        requests = [blis_sim.Request(f"{LEAST_LOADED} // {number}\n// SLEEP 0.05") for number in range(40)]
        threads = [threading.Thread(target=one.evaluate_request, args=(request,)) for request in requests[:8]]
        for thread in threads:
            thread.start()
        results = one.map(requests)
        for thread in threads:
            thread.join()
        assert len(one.pids()) <= 4
        alone = [one.evaluate_request(request) for request in requests[:5]]
    assert [result.hashes for result in results[:5]] == [result.hashes for result in alone]
    assert all(result.valid for result in results)


def test_close_while_busy(fake: None) -> None:
    one = blis_sim.Host("chat", workers=2, wall_s=20.0)
    results: list[blis_sim.Evaluation] = []
    thread = threading.Thread(target=lambda: results.append(one.evaluate(LEAST_LOADED + "// HANG")))
    thread.start()
    while not one.pids():
        time.sleep(0.01)
    time.sleep(0.2)
    one.close()
    thread.join(5)
    assert [result.status for result in results] == ["host_error"]
    assert "closed" in one.evaluate(LEAST_LOADED).artifacts["error"]


def test_pool_grows_only_as_needed(fake: None) -> None:
    with blis_sim.Host("chat", workers=8) as one:
        for _ in range(5):
            one.evaluate(LEAST_LOADED)
        assert len(one.pids()) == 1


def test_registry(fake: None) -> None:
    assert blis_sim.host("chat") is blis_sim.host("chat")
    assert blis_sim.host("chat") is not blis_sim.host("chat", wall_s=7)
    blis_sim.host("chat").close()
    assert blis_sim.host("chat").evaluate(LEAST_LOADED).valid


def _in_child(one: blis_sim.Host, pipe: multiprocessing.connection.Connection) -> None:
    result = one.evaluate(ROUND_ROBIN)
    pipe.send((result.valid, one.pids()))
    pipe.close()


def test_fork(host: blis_sim.Host) -> None:
    host.evaluate(LEAST_LOADED)
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = context.Process(target=_in_child, args=(host, theirs))
        child.start()
    valid, pids = mine.recv()
    assert valid
    assert not set(pids) & set(host.pids())
    child.join(10)
    assert child.exitcode == 0
    assert all(gone(pid) for pid in pids)
    # The parent's worker is still running.
    (before,) = host.pids()
    assert host.evaluate(LEAST_LOADED).valid
    assert host.pids() == [before]


def test_forked_child_does_not_keep_workers_alive(fake: None) -> None:
    """A worker ends with its process even if a forked child of that process is still running."""
    script = (
        "import os, sys, time, blis_sim\n"
        "one = blis_sim.Host('chat', workers=1)\n"
        f"one.evaluate({LEAST_LOADED!r})\n"
        "if os.fork() == 0:\n"
        "    os.closerange(1, 3)\n"
        "    time.sleep(20)\n"
        "    os._exit(0)\n"
        "print(one.pids()[0], flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=15)
    # Some containers do not reap orphans, so a zombie counts as ended.
    assert _ended(int(done.stdout))


def _ended(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
        if not done.stdout.strip() or done.stdout.strip().startswith("Z"):
            return True
        time.sleep(0.05)
    return False


def test_exit_leaves_nothing(fake: None) -> None:
    script = (
        "import blis_sim\n"
        "one = blis_sim.host('chat', workers=3)\n"
        f"one.map([blis_sim.Request({LEAST_LOADED!r} + '// SLEEP 0.1')] * 3)\n"
        "print(*one.pids())\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 3
    assert done.stderr == ""
    assert all(_ended(pid) for pid in pids)


def test_no_descriptors_are_lost(fake: None) -> None:
    def opened() -> int:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0

    before = opened()
    for _ in range(3):
        with blis_sim.Host("chat", workers=2, wall_s=5) as one:
            one.evaluate(LEAST_LOADED)
            one.evaluate(LEAST_LOADED + "// HANG", wall_s=0.2)
            one.evaluate(LEAST_LOADED + "// CRASH")
    assert opened() == before


def test_keys_are_not_passed_on(fake: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from blis_sim._worker import _environment

    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("BLIS_NUM_THREADS", "1")
    environment = _environment()
    assert "OPENAI_API_KEY" not in environment
    assert "BLIS_NUM_THREADS" not in environment
    assert "PATH" in environment


def test_numbers_of_a_result_are_finite() -> None:
    document = {"status": "ok", "combined_score": float("nan"), "metrics": {"a": float("inf"), "b": None, "c": True}}
    result = blis_sim.Evaluation.of(document)
    assert result.numbers() == {
        "combined_score": 0.0,
        "a": 0.0,
        "b": 0.0,
        "c": 1.0,
        **dict.fromkeys(blis_sim.FEATURES, 0.0),
    }
    assert blis_sim.Evaluation.of({"status": "unheard-of", "combined_score": 3}).combined_score == 0
