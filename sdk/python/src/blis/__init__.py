"""Evaluates routing policies for LLM inference on the BLIS simulator.

    >>> import blis
    >>> result = blis.host("chat").evaluate("fn route(r, s) { -s.effective_load }")
    >>> result.status, result.combined_score

`blis.openevolve`, `blis.gepa`, `blis.shinka` and `blis.skydiscover` are adapters for the search tools of these names,
`blis.ray` distributes evaluations over many machines.
"""

from ._binary import BinaryNotFoundError, binary
from ._host import Host, HostError, Request, Task, TaskScenario, host, report
from ._result import BANDS, FEATURES, Paired, Result, Scenario

__all__ = [
    "BANDS",
    "FEATURES",
    "BinaryNotFoundError",
    "Host",
    "HostError",
    "Paired",
    "Request",
    "Result",
    "Scenario",
    "Task",
    "TaskScenario",
    "binary",
    "host",
    "report",
]
