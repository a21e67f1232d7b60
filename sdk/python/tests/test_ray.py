"""Ray on this machine: the results equal those of one process."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from policies import BROKEN, LEAST_LOADED, PREFIX_SHARE, PREFIX_THEN_LOAD

import blis_sim
import blis_sim.ray

ray = pytest.importorskip("ray")

# A core each; Ray counts the cores in its configuration.
ACTORS = 2

SUITE = str(Path(__file__).with_name("small.yaml"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray.init(num_cpus=ACTORS, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    yield
    ray.shutdown()


@pytest.mark.parametrize("program", ["fake", "real"])
@pytest.mark.parametrize("stage", ["smoke", "train", "select"])
def test_same_as_one_machine(program: str, stage: str, cluster: None, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(program)
    # Actors inherit only the given environment from this process.
    binary = str(blis_sim.binary())
    candidates = [LEAST_LOADED, BROKEN, PREFIX_SHARE, PREFIX_THEN_LOAD]
    with blis_sim.ray.Pool(SUITE, actors=ACTORS, environment={"BLIS_BINARY": binary}) as pool:
        many = blis_sim.ray.evaluate(candidates, SUITE, stage=stage, pool=pool)
        again = blis_sim.ray.evaluate(candidates[:1], SUITE, stage=stage, pool=pool, epoch=0)
        # The first call had epoch 0.
        assert pool.next_epoch() == 1
    assert again[0].combined_score == many[0].combined_score
    host = blis_sim.host(SUITE)
    scenarios = host.task().split(stage)
    for candidate, result in zip(candidates, many, strict=True):
        parts = [
            host.evaluate(candidate, stage=stage, scenario=one.id, turn=turn, feedback_bytes=0)
            for one in scenarios
            for turn in range(one.seeds)
        ]
        alone = blis_sim.ray.together(parts, stage)
        assert result.combined_score == alone.combined_score
        assert result.scenarios == alone.scenarios
        assert result.metrics == alone.metrics
        whole = host.evaluate(candidate, stage=stage, feedback_bytes=0)
        assert result.status == whole.status
        # A whole evaluation may stop before a stage, or among seeds; the runs that it has are the same.
        scores = {(row.id, row.seed): row.score for part in parts for row in part.runs(stage)}
        assert {(row.id, row.seed): row.score for row in whole.runs(stage)}.items() <= scores.items()
        if len(whole.runs(stage)) == len(scores):
            assert result.combined_score == pytest.approx(whole.combined_score, abs=1e-9)
    # The score is in the band of the stage.
    assert many[0].combined_score > blis_sim.BANDS[stage]
    assert many[1].status == "rejected"
    assert many[1].combined_score == 0


def test_lines_get_the_results_of_one_process(real: None, cluster: None) -> None:
    requests = [{"status": True}, {"id": "a", "candidate": PREFIX_SHARE, "feedback_bytes": 0}]
    requests += [
        {"id": "b", "candidate": BROKEN},
        {"id": "c", "candidate": LEAST_LOADED, "stage": "smoke", "wall_s": -1},
    ]
    lines = [json.dumps(one) for one in requests] + ["no request"]
    replies = io.StringIO()
    environment = {"BLIS_BINARY": str(blis_sim.binary())}
    blis_sim.ray.serve_lines(SUITE, lines, replies, actors=ACTORS, environment=environment)
    status, *others = [json.loads(line) for line in replies.getvalue().splitlines()]
    assert status["threads"] == ACTORS
    assert list(status["suites"]) == ["small"]
    by_id = {one["id"]: one for one in others}
    alone = blis_sim.host(SUITE).evaluate(PREFIX_SHARE, feedback_bytes=0)
    assert by_id["a"]["hashes"] == alone.hashes
    assert by_id["b"]["status"] == "rejected"
    assert "`wall_s` is -1" in by_id["c"]["error"]
    assert by_id[None]["error"] == "the line is no request"


def test_actors_with_other_programs_are_refused() -> None:
    one = {"host": "blis 1", "suites": {"small": "ab"}, "threads": 1}
    assert blis_sim.ray._status([one, one]) == {**one, "threads": 2}
    for other in ({**one, "host": "blis 2"}, {**one, "suites": {"small": "cd"}}):
        assert "the actors differ" in blis_sim.ray._status([one, other])["error"]


def test_a_search_on_a_cluster_finds_what_it_finds_on_one_machine(real: None, cluster: None) -> None:
    program = str(blis_sim.binary())
    address = ray.get_runtime_context().gcs_address
    worker = [sys.executable, "-m", "blis_sim.ray", SUITE, "--address", address, "--actors", str(ACTORS)]
    worker += ["--env", f"BLIS_BINARY={program}"]
    search = [program, "search", SUITE, "--evaluations", "24", "--output", "json"]
    there = [*search, "--workers", "0", "--worker-command", shlex.join(worker)]
    found = [json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE).stdout) for line in (search, there)]
    for document in found:
        del document["cpu_s"]
    # Its command line lets the search start other programs.
    runs = [document.pop("run") for document in found]
    assert [run["granted"] for run in runs] == [[], ["start-programs"]]
    assert found[0] == found[1]
