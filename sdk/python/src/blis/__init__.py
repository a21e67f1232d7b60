"""Judges routing policies for LLM inference on the BLIS simulator.

    >>> import blis
    >>> verdict = blis.host("chat").evaluate("fn route(r, s) { -s.effective_load }")
    >>> verdict.status, verdict.combined_score

`blis.openevolve`, `blis.gepa`, `blis.shinka` and `blis.skydiscover` connect the search tools of these names,
`blis.ray` many machines.
"""

from ._binary import BinaryNotFoundError, binary
from ._host import Host, HostError, Request, Task, TaskScenario, host, report
from ._verdict import BANDS, FEATURES, Paired, Scenario, Verdict

__all__ = [
    "BANDS",
    "FEATURES",
    "BinaryNotFoundError",
    "Host",
    "HostError",
    "Paired",
    "Request",
    "Scenario",
    "Task",
    "TaskScenario",
    "Verdict",
    "binary",
    "host",
    "report",
]
