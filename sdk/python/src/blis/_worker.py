"""One `blis serve` process, spoken to through pipes, one request at a time."""

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
ANSWER_BYTES_MAX = 64 << 20
QUIT_S = 1.0

# Candidates see no environment, but native ones could: keys of language models are none of their business. What is
# left finds the home folder (compiled components are kept there) and says how to log.
PASSED_ON = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ")
PASSED_ON_PREFIXES = ("BLIS_", "LC_", "RUST_", "XDG_")
# ShinkaEvolve sets it for the linear-algebra library of the same name.
NOT_PASSED_ON = ("BLIS_NUM_THREADS",)


class WorkerDiedError(RuntimeError):
    """The process ended before it had answered."""


class WallLimitError(RuntimeError):
    """The process did not answer in time."""


class Worker:
    """A process in a group of its own, so that it and whatever it started can be killed together.

    Pipes are read and written without blocking: a process that hangs may also have stopped reading, and a long
    request would then wait for ever.
    """

    def __init__(self, binary: Path, arguments: Sequence[str]) -> None:
        self._said = b""
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
        """Of the process."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], wall_s: float) -> dict[str, Any]:
        """The answer to `request`, which is the one with its id, or with none.

        Raises WallLimitError or WorkerDiedError, after which the worker is of no use.
        """
        deadline = time.monotonic() + wall_s
        wanted = request.get("id")
        to_send = json.dumps(request).encode() + b"\n"
        while True:
            line = self._line(to_send, deadline)
            to_send = b""
            try:
                answer = json.loads(line)
            except ValueError as error:
                raise WorkerDiedError(f"its answer is no JSON: {line[:200]!r}") from error
            # An answer to something else is what was left by a request that nobody waits for.
            if isinstance(answer, dict) and (wanted is None or answer.get("id") in (wanted, None)):
                return answer

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
                elif not self._overhear(stderr):
                    poll.unregister(stderr)

    def _send(self, descriptor: int, unsent: memoryview) -> memoryview:
        try:
            return unsent[os.write(descriptor, unsent[:READ_BYTES]) :]
        except BlockingIOError:
            return unsent
        except OSError as error:
            raise WorkerDiedError(self.last_words() or str(error)) from error

    def _receive(self, descriptor: int) -> None:
        try:
            got = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        if not got:
            raise WorkerDiedError(self.last_words())
        self._pending += got
        if len(self._pending) > ANSWER_BYTES_MAX:
            raise WorkerDiedError("its answer has no end")

    def _overhear(self, descriptor: int) -> bool:
        try:
            got = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return True
        self._said = (self._said + got)[-STDERR_BYTES:]
        return bool(got)

    def last_words(self) -> str:
        """The end of what it wrote to stderr, and how it ended."""
        with contextlib.suppress(OSError, ValueError):
            while self._process.stderr is not None and self._overhear(self._process.stderr.fileno()):
                if not select.select([self._process.stderr], [], [], 0.05)[0]:
                    break
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        said = self._said.decode(errors="replace").strip()
        code = self._process.returncode
        ended = "" if code is None else f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return "\n".join(part for part in (ended, said) if part)

    def alive(self) -> bool:
        """Whether it has not ended, as far as one can tell without asking."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Ends it and whatever it started. Whoever waits for its answer notices."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Ends it and whatever it started, and collects it."""
        self.stop()
        self._process.wait()
        self._close()

    def close(self) -> None:
        """Ends it in good order: it reads the end of its input."""
        stdin = self._process.stdin
        with contextlib.suppress(OSError):
            if stdin is not None:
                stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(QUIT_S)
        # Whatever is left of its group, itself included.
        self.kill()

    def abandon(self) -> None:
        """In a forked child: lets go of the parent's pipes, so that the worker still notices when the parent ends."""
        self._close()
        # It is not this process's child to wait for.
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
