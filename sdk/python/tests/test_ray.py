"""Ray on this machine: the results equal those of one process."""

from __future__ import annotations

import os
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
