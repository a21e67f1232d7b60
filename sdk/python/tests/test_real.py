"""The program itself, through the package."""

from __future__ import annotations

import math
import os
import signal
import subprocess
from pathlib import Path

import pytest
from policies import BAD, LEAST_LOADED, PREFIX_SHARE

import blis_sim

TEMPLATES = Path(__file__).parents[1] / "templates"


@pytest.fixture
def suite(real: None) -> blis_sim.Host:
    return blis_sim.host("chat", wall_s=600)


@pytest.mark.parametrize("name", BAD)
def test_bad_candidates(suite: blis_sim.Host, name: str) -> None:
    result = suite.evaluate(BAD[name], stage="smoke")
    assert result.status in ("rejected", "trap", "limit")
    assert result.combined_score == 0
    assert result.artifacts["error"]
    good = suite.evaluate(LEAST_LOADED, stage="smoke")
    assert result.numbers().keys() == good.numbers().keys()
    # The result is that of the program: no worker was killed.
    assert result.stopped not in ("wall", "worker")


def test_equal_candidates_have_equal_results(suite: blis_sim.Host) -> None:
    requests = [blis_sim.Request(PREFIX_SHARE, feedback_bytes=0)] * 6
    results = suite.map(requests)
    assert len({result.hashes["result"] for result in results}) == 1
    assert results[0].valid


def test_score_is_the_mean_of_scenarios(suite: blis_sim.Host) -> None:
    result = suite.evaluate(PREFIX_SHARE, feedback_bytes=0)
    by_scenario: dict[str, list[float]] = {}
    for one in result.runs("train"):
        by_scenario.setdefault(one.id, []).append(math.log(one.score))
        assert one.reference
    means = [sum(scores) / len(scores) for scores in by_scenario.values()]
    ratio = math.exp(sum(means) / len(means))
    assert result.combined_score == pytest.approx(2 + ratio / (1 + ratio), abs=1e-9)


def test_texts_are_in_order(suite: blis_sim.Host) -> None:
    result = suite.evaluate(LEAST_LOADED)
    assert next(iter(result.artifacts)) == "scenarios"
    assert sum(len(text.encode()) for text in result.artifacts.values()) <= 8000


def test_patterns_over_decisions_are_part_of_the_feedback(suite: blis_sim.Host) -> None:
    result = suite.evaluate(LEAST_LOADED, patterns=32)
    assert result.artifacts["patterns"].startswith("routing in ")
    assert " of 32 decisions drawn at random" in result.artifacts["patterns"]
    assert result.document["patterns"][0]["decisions"] == 32
    assert suite.evaluate(LEAST_LOADED).document.get("patterns") is None
    refused = suite.evaluate(LEAST_LOADED, patterns=8)
    assert refused.status == "host_error"
    assert "`patterns` is 8 decisions" in refused.artifacts["error"]


def test_decisions_have_signals_and_the_costs_of_their_alternatives(suite: blis_sim.Host) -> None:
    result = suite.evaluate(LEAST_LOADED, stage="smoke", decisions=16)
    decisions = result.document["decisions"]
    assert len(decisions) == 16 * len({one["scenario"] for one in decisions})
    for one in decisions:
        assert one["kind"] == "routing"
        assert len(one["rows"]) == len(one["costs_s"]) >= 2
        assert max(one["rows"]) < len(one["columns"]["queue_depth"])
        assert one["numbers"]["input_tokens"] > 0
    assert suite.evaluate(LEAST_LOADED, stage="smoke").document.get("decisions") is None


def test_train_can_be_restricted_to_its_first_seeds(suite: blis_sim.Host) -> None:
    runs = suite.evaluate(LEAST_LOADED, train_seeds=1).scenarios
    trained = [one.id for one in runs if one.stage == "train"]
    assert trained
    assert len(trained) == len(set(trained))
    assert len([one for one in suite.evaluate(LEAST_LOADED).scenarios if one.stage == "train"]) > len(trained)


def test_task(suite: blis_sim.Host) -> None:
    task = suite.task()
    assert task.split("train")
    assert task.split("select")
    # The held-out split is not part of the description.
    assert not task.split("test")
    assert "route" in task.interface


def test_suite_from_a_file(real: None, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "schema: 1\nname: mine\nweights: mean_e2e:1\nrun: {model: meta-llama/llama-3.1-8b-instruct, num-instances: 2, "
        "num-requests: 100, rate: 20}\nscenarios: [{name: only, splits: [smoke, train, select]}]\n"
    )
    with blis_sim.Host(tmp_path / "mine.yaml", workers=1) as host:
        assert host.evaluate(LEAST_LOADED).valid
        assert [one.id for one in host.task().split("train")] == ["only"]


def test_killed_in_between(suite: blis_sim.Host) -> None:
    before = suite.evaluate(LEAST_LOADED, feedback_bytes=0)
    for pid in suite.pids():
        os.kill(pid, signal.SIGKILL)
    assert suite.evaluate(LEAST_LOADED, feedback_bytes=0).hashes == before.hashes


def test_cache(real: None, tmp_path: Path) -> None:
    with blis_sim.Host("chat", workers=1, cache_dir=tmp_path / "results") as host:
        first = host.evaluate(LEAST_LOADED, stage="smoke")
        second = host.evaluate(LEAST_LOADED, stage="smoke")
    assert (first.cost["cache"], second.cost["cache"]) == ("miss", "hit")
    assert first.hashes == second.hashes


def test_held_out(real: None, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "schema: 1\nname: mine\nweights: mean_e2e:1\nseeds: {test: 2}\nrun: {model: meta-llama/llama-3.1-8b-instruct, "
        "num-instances: 2, num-requests: 100, rate: 20}\nscenarios: [{name: only, splits: [smoke, train]}, "
        "{name: held, splits: [test], run: {rate: 30}}]\n"
    )
    (tmp_path / "named.rhai").write_text(LEAST_LOADED)
    document = blis_sim.held_out(tmp_path / "mine.yaml", [PREFIX_SHARE, tmp_path / "named.rhai"])
    assert document["suite"] == "mine"
    assert document["scenarios"] == ["held"]
    with pytest.raises(blis_sim.HostError):
        blis_sim.held_out("nosuch", [PREFIX_SHARE])


@pytest.mark.parametrize("tool", ["openevolve", "gepa", "shinka", "skydiscover", "cluster"])
def test_init(real_binary: Path, tmp_path: Path, tool: str) -> None:
    folder = tmp_path / "project"
    command = [str(real_binary), "evaluate", "init", tool, str(folder), "--suite", "long-context"]
    subprocess.run(command, check=True, capture_output=True)
    for template in (TEMPLATES / tool).rglob("*"):
        if template.is_file():
            written = (folder / template.relative_to(TEMPLATES / tool)).read_text()
            expected = template.read_text().replace("{{suite}}", "long-context")
            before, _, after = expected.partition("{{environment}}")
            assert written.startswith(before)
            assert written.endswith(after.replace("{{environment}}", ""))
