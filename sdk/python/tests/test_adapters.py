"""The adapters without the engines of their tools: results for valid, invalid, hanging and crashing candidates."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from policies import BROKEN, LEAST_LOADED, PREFIX_SHARE, ROUND_ROBIN

import blis_sim
import blis_sim.gepa
import blis_sim.openevolve
import blis_sim.shinka
import blis_sim.skydiscover
from blis_sim._epochs import Epochs, epoch_of_folder

HANG = LEAST_LOADED + "// HANG"
CRASH = LEAST_LOADED + "// CRASH"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a search are written into the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    def candidate(source: str) -> str:
        path = tmp_path / "candidate.rhai"
        path.write_text(source)
        return str(path)

    return candidate


def test_openevolve_never_raises(fake: None, write: Callable[[str], str]) -> None:
    stages = blis_sim.openevolve.make("chat", wall_s=0.5)
    good = stages.evaluate(write(LEAST_LOADED))
    assert 2 < good.metrics["combined_score"] < 3
    assert list(good.artifacts) == ["scenarios", "task"]
    for source in (BROKEN, HANG, CRASH, ""):
        for function in stages:
            result = function(write(source))
            assert result.metrics["combined_score"] == 0
            # If a key is missing, OpenEvolve drops the candidate and its error.
            assert result.metrics.keys() == good.metrics.keys()
            assert all(math.isfinite(value) for value in result.metrics.values())
            assert result.artifacts["error"]
    missing = stages.evaluate("/nowhere/candidate.rhai")
    assert missing.metrics.keys() == good.metrics.keys()


def test_openevolve_stages_are_bands(fake: None, write: Callable[[str], str]) -> None:
    path = write(LEAST_LOADED)
    stages = blis_sim.openevolve.make("chat")
    scores = [function(path).metrics["combined_score"] for function in stages[1:]]
    assert [int(score) for score in scores] == [1, 2]


def test_no_adapter_shows_select(fake: None, write: Callable[[str], str], tmp_path: Path) -> None:
    path = write(LEAST_LOADED)
    for tool in (blis_sim.openevolve, blis_sim.skydiscover):
        name = {"last_stage" if tool is blis_sim.openevolve else "stage": "select"}
        with pytest.raises(ValueError, match="it must be one of smoke, train"):
            tool.make("chat", **name)
    shown = [one(path) for one in blis_sim.openevolve.make("chat")] + [blis_sim.skydiscover.make("chat")(path)]
    for result in shown:
        assert result.metrics["combined_score"] < 3
        assert not any("select" in name for name in result.metrics)
        assert not any(name in text for name in ("four", "five") for text in result.artifacts.values())
    with pytest.raises(SystemExit):
        blis_sim.shinka.main(["--program_path", path, "--results_dir", str(tmp_path), "--stage", "select"])


def test_epochs_rotate(fake: None, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.rhai" for number in range(7)]
    for number, file in enumerate(files):
        file.write_text(f"{LEAST_LOADED}// {number}")
    stages = blis_sim.openevolve.make("chat", epoch_file="a.txt", candidates_per_epoch=3)
    seen = [[stage(str(file)).metrics["epoch"] for stage in stages] for file in files]
    # All stages of a candidate have the same epoch, and so do all candidates of the epoch.
    assert seen == [[epoch] * 3 for epoch in (0, 0, 0, 1, 1, 1, 2)]
    # A search that continues, and one in another process, continue with the epochs.
    again = blis_sim.skydiscover.make("chat", epoch_file="a.txt", candidates_per_epoch=3)
    assert [again(str(file)).metrics["epoch"] for file in files[2:4]] == [0, 1]
    assert blis_sim.openevolve.make("chat", epoch=5).evaluate(str(files[0])).metrics["epoch"] == 5
    out = tmp_path / "run" / "gen_42" / "results"
    assert blis_sim.shinka.main(["--program_path", str(files[0]), "--results_dir", str(out), "--suite", "chat"]) == 0
    assert json.loads((out / "metrics.json").read_text())["public"]["epoch"] == 4


def test_epochs_of_several_threads(tmp_path: Path) -> None:
    numbers: list[int] = []

    def work(thread: int) -> None:
        epochs = Epochs(tmp_path / "epochs.txt", 10)
        numbers.extend(epochs.of(f"{thread} {number}") for number in range(25))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == sorted([*range(10)] * 10)
    assert epoch_of_folder("/x/gen_19/results") == 1
    assert epoch_of_folder("/x/gen_a/results") == 0
    with pytest.raises(OSError, match="nowhere"):
        Epochs(tmp_path / "nowhere" / "epochs.txt")


def test_openevolve_evaluator_is_executed_again_and_again(fake: None, write: Callable[[str], str]) -> None:
    source = "from blis_sim.openevolve import make\nevaluate, *_ = make('chat', wall_s=7)"
    for _ in range(5):
        space: dict[str, Any] = {}
        exec(source, space)
        assert space["evaluate"](write(LEAST_LOADED)).metrics["combined_score"] > 2
    assert len(blis_sim.host("chat", wall_s=7).pids()) == 1


def test_openevolve_says_at_once_that_there_is_no_suite(fake: None) -> None:
    with pytest.raises(blis_sim.HostError, match="there is no suite"):
        blis_sim.openevolve.make("nosuch")


def test_openevolve_from_two_threads(fake: None, write: Callable[[str], str]) -> None:
    stages = blis_sim.openevolve.make("chat")
    path = write(LEAST_LOADED)
    results: list[float] = []

    def work() -> None:
        results.extend(stages.evaluate_stage2(path).metrics["combined_score"] for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 1
    assert len(results) == 20


def test_gepa(fake: None) -> None:
    evaluate = blis_sim.gepa.evaluator("chat", wall_s=0.5)
    train, val = blis_sim.gepa.dataset("chat"), blis_sim.gepa.valset("chat")
    assert [one["scenario"] for one in train[:4]] == ["two", "three", "two", "three"]
    # GEPA's cache identifies examples by their ids alone.
    assert train.all_ids()[:3] == ["train/two@0", "train/three@0", "train/two@1"]
    assert len(set(train.all_ids())) == len(train) == 32
    assert val.all_ids() == ["select/four@0", "select/five@0"]
    assert train.fetch(["train/three@0"]) == [train[1]]
    # Every pass over the scenarios has other requests, which are the same for all candidates.
    requests = [blis_sim.gepa._request(LEAST_LOADED, one, 0, 0) for one in train]
    assert [request.epoch for request in requests] == [number // 2 for number in range(32)]
    score, info = evaluate(PREFIX_SHARE, example=train[0])
    assert 2 < score < 3
    assert info["Scenario"] == "two"
    assert info["scores"]["mean_ttft_ms"] > 0.5
    assert evaluate({"route": PREFIX_SHARE, "refiner_prompt": "no code"}, example=train[0])[0] == score
    assert 3 < evaluate(PREFIX_SHARE, example=val[0])[0] < 4
    assert evaluate(PREFIX_SHARE)[0] > 2
    for source in (BROKEN, HANG, CRASH, ""):
        score, bad = evaluate(source, example=train[0])
        assert score == 0
        # GEPA averages an objective over the examples that have it: it must be present and 0.
        assert bad["scores"].keys() == info["scores"].keys()
        assert not any(bad["scores"].values())
        assert bad["Error"]
    assert "_gepa_transient_failure" in evaluate(CRASH, example=train[0])[1]
    assert "_gepa_transient_failure" not in evaluate(HANG, example=train[0])[1]


def test_gepa_batch(fake: None) -> None:
    pairs = [(source, example) for source in (LEAST_LOADED, BROKEN) for example in blis_sim.gepa.dataset("chat")]
    results = blis_sim.gepa.batch_evaluator("chat")(pairs)
    evaluate = blis_sim.gepa.evaluator("chat")
    assert results == [evaluate(source, example) for source, example in pairs]


def test_gepa_never_evaluates_what_is_held_out(fake: None) -> None:
    score, info = blis_sim.gepa.evaluator("chat")(LEAST_LOADED, example={"scenario": "secret", "stage": "test"})
    assert score == 0
    assert "held out" in info["Error"]
    assert not isinstance(blis_sim.gepa.test_set("chat"), list)
    assert blis_sim.gepa.test_set("chat").evaluate([ROUND_ROBIN])["suite"] == "chat"


def test_shinka_command(fake: None, write: Callable[[str], str], tmp_path: Path) -> None:
    out = tmp_path / "results"
    arguments = ["--program_path", write(LEAST_LOADED), "--results_dir", str(out), "--suite", "chat"]
    assert blis_sim.shinka.main(arguments) == 0
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics.keys() == {"combined_score", "public", "private", "text_feedback", "extra_data"}
    assert 2 < metrics["combined_score"] < 3
    assert "scenarios" in metrics["text_feedback"]
    assert json.loads((out / "correct.json").read_text()) == {"correct": True, "error": None}
    write(BROKEN)
    assert blis_sim.shinka.main(arguments) == 0
    assert json.loads((out / "correct.json").read_text())["correct"] is False
    write(CRASH)
    assert blis_sim.shinka.main(arguments) == 1
    assert json.loads((out / "metrics.json").read_text())["combined_score"] == 0


def test_shinka_knows_rhai() -> None:
    from shinka.edit.apply_full import apply_full_patch
    from shinka.utils import languages

    blis_sim.shinka.register_languages()
    blis_sim.shinka.register_languages()
    assert languages.normalize_language("Rhai") == "rhai"
    assert languages.get_language_extension("rhai") == "rhai"
    assert languages.get_evolve_comment_prefix("rhai") == "//"
    assert languages.get_code_fence_languages("rhai")[:2] == ("rhai", "rust")
    start, end = languages.get_evolve_marker_patterns("rhai")
    assert start.match("  // EVOLVE-BLOCK-START")
    assert end.match("// EVOLVE-BLOCK-END")
    original = "// EVOLVE-BLOCK-START\n1\n// EVOLVE-BLOCK-END\n"
    for tag in ("rhai", "rust", "{language}"):
        reply = f"<CODE>\n```{tag}\n// EVOLVE-BLOCK-START\n2\n// EVOLVE-BLOCK-END\n```\n</CODE>"
        assert "\n2\n" in apply_full_patch(reply, original_str=original, language="rhai")[0]


def test_skydiscover(fake: None, write: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    evaluate = blis_sim.skydiscover.make("chat", wall_s=0.5)
    result = evaluate(write(LEAST_LOADED))
    assert 2 < result.metrics["combined_score"] < 3
    assert "artifacts" not in result.metrics
    assert "scenarios" in result.artifacts
    for source in (BROKEN, HANG, CRASH):
        bad = evaluate(write(source))
        assert bad.metrics["combined_score"] == 0
        # With this key SkyDiscover requests a repair from the model, and shows the text.
        assert isinstance(bad.metrics["error"], str)
    document = blis_sim.skydiscover.evaluate(write(LEAST_LOADED), "chat")
    assert 2 < document["combined_score"] < 3
    assert "scenarios" in document["artifacts"]

    assert blis_sim.skydiscover.main([write(LEAST_LOADED), "train", "--suite", "chat"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["status"] == "success"
    assert 2 < shown["combined_score"] < 3
    assert blis_sim.skydiscover.main([write(BROKEN), "train", "--suite", "chat"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "error"
    assert blis_sim.skydiscover.main([write(HANG), "train", "--suite", "chat", "--wall_s", "0.5"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "timeout"
    assert blis_sim.skydiscover.main([write(CRASH), "train", "--suite", "chat"]) == 1
    capsys.readouterr()
    assert blis_sim.skydiscover.main([write(LEAST_LOADED), "test", "--suite", "chat"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "status": "success",
        "combined_score": 0.6,
        "metrics": {"secret": 0.6, "more_than_round-robin": 0.1},
        "artifacts": {},
    }
    assert blis_sim.skydiscover.main([write(BROKEN), "test", "--suite", "chat"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "error"
