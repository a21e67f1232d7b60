"""Simulates LLM inference services, and evaluates policies for them, with the simulator BLIS.

    >>> import blis_sim
    >>> run = blis_sim.run({"model": "qwen/qwen3-14b", "rate": 4, "num_requests": 200})
    >>> run["ttft_p99_ms"], run.requests.pandas()

`run`, `replay`, `compare`, `sweep` and `calibrate` are the commands of these names, with dictionaries for flags.

    >>> result = blis_sim.host("chat").evaluate("fn route(r, s) { -s.effective_load }")
    >>> result.status, result.combined_score

`blis_sim.openevolve`, `blis_sim.gepa`, `blis_sim.shinka` and `blis_sim.skydiscover` are adapters for the search tools
OpenEvolve, GEPA, ShinkaEvolve and SkyDiscover; `blis_sim.ray` distributes evaluations over many machines.
"""

from ._binary import BinaryNotFoundError, binary
from ._evaluation import BANDS, FEATURES, Evaluation, Paired, Scenario
from ._host import Host, HostError, Request, Task, TaskScenario, held_out, host
from ._settings import Settings
from ._simulation import (
    Calibration,
    Comparison,
    Run,
    SimulationError,
    Specification,
    Sweep,
    calibrate,
    compare,
    replay,
    run,
    sweep,
)
from ._table import Table

__all__ = [
    "BANDS",
    "FEATURES",
    "BinaryNotFoundError",
    "Calibration",
    "Comparison",
    "Evaluation",
    "Host",
    "HostError",
    "Paired",
    "Request",
    "Run",
    "Scenario",
    "Settings",
    "SimulationError",
    "Specification",
    "Sweep",
    "Table",
    "Task",
    "TaskScenario",
    "binary",
    "calibrate",
    "compare",
    "held_out",
    "host",
    "replay",
    "run",
    "sweep",
]
