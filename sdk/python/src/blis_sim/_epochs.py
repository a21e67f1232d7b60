"""Epochs of a search: which requests a candidate is evaluated on.

A search that sees the same requests again and again fits to them. So the first candidates have epoch 0, the next
ones 1, and so on, and each epoch draws other requests. All candidates of an epoch serve the same requests. A candidate
keeps its epoch: a second evaluation of it, or a later stage, repeats the first one.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover - not a Unix system
    fcntl = None  # type: ignore[assignment]

CANDIDATES_PER_EPOCH = 50
GENERATIONS_PER_EPOCH = 10

# Bytes of the hash of a candidate, as hexadecimal digits and a line end.
_DIGITS = 32
_LINE = _DIGITS + 1


class Epochs:
    """The epochs of the candidates of one search, in a file that all its processes share.

    The file has a line for each different candidate, in the order of their first evaluations. A search that continues
    with the same file continues with its epochs; without the file it begins with epoch 0.
    """

    def __init__(self, file: str | os.PathLike[str], size: int = CANDIDATES_PER_EPOCH) -> None:
        """`size`: number of candidates of an epoch. Raises OSError if the file cannot be written."""
        if size < 1:
            raise ValueError(f"an epoch has at least 1 candidate, not {size}")
        # Absolute: a tool may change its working directory.
        self.file = Path(file).absolute()
        self.size = size
        # A search must not begin if its epochs cannot be recorded.
        self.file.open("ab").close()

    def of(self, source: str | bytes) -> int:
        """The epoch of a candidate, by its source."""
        data = source.encode("utf-8", errors="replace") if isinstance(source, str) else source
        line = hashlib.sha256(data).hexdigest()[:_DIGITS].encode() + b"\n"
        with self.file.open("a+b") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            known = file.read()
            lines = [known[start : start + _LINE] for start in range(0, len(known), _LINE)]
            if line in lines:
                return lines.index(line) // self.size
            file.write(line)
            return len(lines) // self.size

    def of_file(self, path: str | os.PathLike[str]) -> int:
        """The epoch of the candidate in a file; 0 if it cannot be read, which its evaluation reports."""
        try:
            source = Path(path).read_bytes()
        except OSError:
            return 0
        return self.of(source)


def epoch_of_folder(results_dir: str | os.PathLike[str]) -> int:
    """The epoch of the generation that a folder of ShinkaEvolve names, as in `run/gen_12/results`; 0 for others."""
    numbers = [part[4:] for part in Path(results_dir).parts if part.startswith("gen_") and part[4:].isdecimal()]
    return int(numbers[-1]) // GENERATIONS_PER_EPOCH if numbers else 0
