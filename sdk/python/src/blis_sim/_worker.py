"""One `blis serve` process, connected by pipes, with one request at a time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

STDERR_BYTES = 8192
READ_BYTES = 1 << 16
REPLY_BYTES_MAX = 64 << 20
QUIT_S = 1.0

# Native candidates could read the environment, so keys of language models are not passed on. The remaining variables
# locate the home folder (the cache of compiled components) and configure logging.
PASSED_ON = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ")
PASSED_ON_PREFIXES = ("BLIS_", "LC_", "RUST_", "XDG_")
# ShinkaEvolve sets it for the linear-algebra library of the same name.
NOT_PASSED_ON = ("BLIS_NUM_THREADS",)


class WorkerDiedError(RuntimeError):
    """The process ended before its reply."""


class WallLimitError(RuntimeError):
    """The process did not reply in time."""


class Worker:
    """A process in a group of its own, so that it can be killed together with all processes that it started.

    Pipes are read and written without blocking: a process that hangs may also have stopped reading, and writing a long
    request would block.
    """

    def __init__(self, binary: Path, arguments: Sequence[str]) -> None:
        self._stderr = b""
        self._pending = b""
        self._process: subprocess.Popen[bytes] = subprocess.Popen(
            [str(binary), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            # Ctrl-C in a terminal is for the search; the workers end with it.
            start_new_session=True,
        )
        for pipe in self._pipes():
            os.set_blocking(pipe.fileno(), False)

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], wall_s: float) -> dict[str, Any]:
        """The reply to `request`: the one with its id, or without an id.

        Raises WallLimitError or WorkerDiedError, after which the worker cannot be used.
        """
        deadline = time.monotonic() + wall_s
        wanted = request.get("id")
        to_send = json.dumps(request).encode() + b"\n"
        while True:
            line = self._line(to_send, deadline)
            to_send = b""
            try:
                reply = json.loads(line)
            except ValueError as error:
                raise WorkerDiedError(f"its reply is not JSON: {line[:200]!r}") from error
            # A reply with another id belongs to an abandoned request.
            if isinstance(reply, dict) and (wanted is None or reply.get("id") in (wanted, None)):
                return reply

    def _line(self, to_send: bytes, deadline: float) -> bytes:
        stdin, stdout, stderr = (pipe.fileno() for pipe in self._pipes())
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        poll.register(stderr, select.POLLIN)
        if to_send:
            poll.register(stdin, select.POLLOUT)
        unsent = memoryview(to_send)
        while True:
            line, found, rest = self._pending.partition(b"\n")
            if found:
                self._pending = rest
                if line.strip():
                    return line
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                raise WallLimitError
            for descriptor, _ in poll.poll(max(1, int(left * 1000))):
                if descriptor == stdin:
                    unsent = self._send(stdin, unsent)
                    if not unsent:
                        poll.unregister(stdin)
                elif descriptor == stdout:
                    self._receive(stdout)
                elif not self._read_stderr(stderr):
                    poll.unregister(stderr)

    def _send(self, descriptor: int, unsent: memoryview) -> memoryview:
        try:
            return unsent[os.write(descriptor, unsent[:READ_BYTES]) :]
        except BlockingIOError:
            return unsent
        except OSError as error:
            raise WorkerDiedError(self.diagnosis() or str(error)) from error

    def _receive(self, descriptor: int) -> None:
        try:
            got = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        if not got:
            raise WorkerDiedError(self.diagnosis())
        self._pending += got
        if len(self._pending) > REPLY_BYTES_MAX:
            raise WorkerDiedError("its reply is too long")

    def _read_stderr(self, descriptor: int) -> bool:
        try:
            got = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return True
        self._stderr = (self._stderr + got)[-STDERR_BYTES:]
        return bool(got)

    def diagnosis(self) -> str:
        """Exit code or signal of the process, and the end of its standard error."""
        with contextlib.suppress(OSError, ValueError):
            while self._process.stderr is not None and self._read_stderr(self._process.stderr.fileno()):
                if not select.select([self._process.stderr], [], [], 0.05)[0]:
                    break
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        stderr = self._stderr.decode(errors="replace").strip()
        code = self._process.returncode
        ended = "" if code is None else f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return "\n".join(part for part in (ended, stderr) if part)

    def alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Kills the process group. A thread that waits for the reply gets an error."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kills the process group and reaps the process."""
        self.stop()
        self._process.wait()
        self._close()

    def close(self) -> None:
        """Ends the process by closing its input."""
        stdin = self._process.stdin
        with contextlib.suppress(OSError):
            if stdin is not None:
                stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(QUIT_S)
        # Kills the rest of the group, and the process if it is still running.
        self.kill()

    def abandon(self) -> None:
        """In a forked child: closes the pipes of the parent, so that the worker ends with the parent."""
        self._close()
        # The worker is not a child of this process.
        self._process.returncode = 0

    def _pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        return process.stdin, process.stdout, process.stderr

    def _close(self) -> None:
        for pipe in self._pipes():
            with contextlib.suppress(OSError):
                pipe.close()


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name not in NOT_PASSED_ON and (name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES))
    }
