"""Evaluates routing policies for LLM inference on the BLIS simulator.

    >>> import blis_sim
    >>> result = blis_sim.host("chat").evaluate("fn route(r, s) { -s.effective_load }")
    >>> result.status, result.combined_score

`blis_sim.openevolve`, `blis_sim.gepa`, `blis_sim.shinka` and `blis_sim.skydiscover` are adapters for the search tools
OpenEvolve, GEPA, ShinkaEvolve and SkyDiscover; `blis_sim.ray` distributes evaluations over many machines.
"""

from ._binary import BinaryNotFoundError, binary
from ._evaluation import BANDS, FEATURES, Evaluation, Paired, Scenario
from ._host import Host, HostError, Request, Task, TaskScenario, held_out, host

__all__ = [
    "BANDS",
    "FEATURES",
    "BinaryNotFoundError",
    "Evaluation",
    "Host",
    "HostError",
    "Paired",
    "Request",
    "Scenario",
    "Task",
    "TaskScenario",
    "binary",
    "held_out",
    "host",
]
