"""Simulations with specifications as dictionaries, by the program itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import blis_sim

ROOT = Path(__file__).parents[3]
SMALL: blis_sim.Specification = {"model": "qwen/qwen3-14b", "rate": 8, "num_requests": 60, "output_tokens": 40}

pytestmark = pytest.mark.usefixtures("real")


def test_a_run_has_a_document_and_a_row_for_each_request() -> None:
    run = blis_sim.run({**SMALL, "num-instances": 2, "enable_prefix_caching": False, "seed": None})
    assert run["completed_requests"] == 60
    assert len(run.requests) == 60
    assert set(run.requests.column("status")) == {"completed"}
    assert [row["instance_id"] for row in run.instances] == ["instance_0", "instance_1"]
    assert sum(run.instances.column("completed_requests")) == 60
    # Equal specifications have equal results.
    again = blis_sim.run({**SMALL, "num-instances": 2, "enable_prefix_caching": False})
    assert again.requests.column("e2e_ms") == run.requests.column("e2e_ms")
    assert len(blis_sim.run(SMALL).instances) == 1
    with pytest.raises(KeyError, match="ttft_p99_ms"):
        run["ttft_p99"]
    with pytest.raises(KeyError, match="handled_by"):
        run.requests.column("instance")


def test_files_may_be_dictionaries(tmp_path: Path) -> None:
    length = {"type": "constant", "params": {"value": 40}}
    client = {
        "id": "chat",
        "rate_fraction": 1.0,
        "arrival": {"process": "poisson"},
        "input_distribution": length,
        "output_distribution": length,
    }
    workload = {"version": "2", "seed": 1, "aggregate_rate": 20, "num_requests": 30, "clients": [client]}
    run = blis_sim.run({"model": "qwen/qwen3-14b", "workload_spec": workload})
    assert set(run.requests.column("num_prefill_tokens")) == {40}
    # The keys of a bundle stand beside the settings.
    rejected = blis_sim.run({**SMALL, "admission": {"policy": "reject-all"}})
    assert rejected["rejected_requests"] == 60
    (tmp_path / "workload.yaml").write_text("broken: [")
    with pytest.raises(blis_sim.SimulationError, match=r"workload\.yaml:"):
        blis_sim.run({"model": "qwen/qwen3-14b", "workload_spec": tmp_path / "workload.yaml"})


def test_mistakes_are_errors_with_a_hint() -> None:
    with pytest.raises(blis_sim.SimulationError, match=r"specification:2:1: there is no setting `rat`(.|\n)*`rate`"):
        blis_sim.run({"model": "qwen/qwen3-14b", "rat": 8})
    with pytest.raises(blis_sim.SimulationError, match="no-such-model"):
        blis_sim.run({**SMALL, "model": "no-such-model"})
    with pytest.raises(blis_sim.SimulationError, match="`rate` has a value of type object"):
        blis_sim.run({**SMALL, "rate": object()})
    with pytest.raises(blis_sim.SimulationError, match=r"more than 0\.0001 s\nhint: set `wall_s`"):
        blis_sim.run(SMALL, wall_s=0.0001)


def test_policies_and_deployments_are_compared() -> None:
    comparison = blis_sim.compare({**SMALL, "num_instances": 2}, ["round-robin", "weighted"], seeds=3, threads=1)
    rows = [row for row in comparison.figures if row["figure"] == "mean_ttft"]
    assert [row["candidate"] for row in rows] == ["round-robin", "weighted"]
    assert rows[0]["difference"] is None
    assert rows[1]["mean"] - rows[0]["mean"] == pytest.approx(rows[1]["difference"])
    assert rows[1]["low"] <= rows[1]["difference"] <= rows[1]["high"]
    assert len(comparison.seeds) == 6
    means = [row["mean_ttft"] for row in comparison.seeds if row["candidate"] == "weighted"]
    assert sum(means) / 3 == pytest.approx(rows[1]["mean"])
    deployments = blis_sim.compare(SMALL, vary={"num_instances": [1, 2]}, seeds=2, threads=1)
    assert {row["candidate"] for row in deployments.seeds} == {"num-instances=1", "num-instances=2"}


def test_a_sweep_has_a_row_for_each_point() -> None:
    sweep = blis_sim.sweep(
        {**SMALL, "num_requests": 300},
        {"num-instances": [1, 2], "enable-prefix-caching": [True, False]},
        slo={"ttft_p90": "500ms", "tpot_p50": "1ms"},
        seeds=1,
        threads=1,
    )
    assert [row["num-instances"] for row in sweep.points] == [1, 1, 2, 2]
    assert sweep.points.column("enable-prefix-caching") == ["true", "false"] * 2
    assert all(row["tpot_p50_ms"] > 1 and row["meets_slos"] is False for row in sweep.points)


def test_a_trace_is_replayed_and_calibrated() -> None:
    trace = [ROOT / "examples/calibrate/trace.yaml", ROOT / "examples/calibrate/trace.csv"]
    service = {
        "model": "meta-llama/llama-3.1-8b-instruct",
        "hardware": "RTX-PRO-6000",
        "max_num_seqs": 128,
        "max_num_batched_tokens": 2048,
    }
    assert blis_sim.replay(service, *trace)["completed_requests"] == 300
    calibration = blis_sim.calibrate(service, *trace)
    mean = next(row for row in calibration.errors if (row["latency"], row["statistic"]) == ("e2e", "mean"))
    assert abs(mean["error_percent"]) < 2
    assert mean["low_percent"] < mean["error_percent"] < mean["high_percent"]
    assert len(calibration.worst) == 10


def test_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    requests = blis_sim.run(SMALL).requests
    frame = requests.pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(requests.columns)
    assert frame["e2e_ms"].tolist() == requests.column("e2e_ms")
    other = requests.polars()
    assert isinstance(other, polars.DataFrame)
    assert other["e2e_ms"].to_list() == requests.column("e2e_ms")


def test_other_programs_read_the_parquet_of_a_timeline(real_binary: Path, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    run = [str(real_binary), "run", "--model", "qwen/qwen3-14b", "--num-instances", "2", "--rate", "5"]
    run += ["--num-requests", "200"]
    for form in ("csv", "parquet"):
        timeline = str(tmp_path / f"over.{form}")
        subprocess.run([*run, "--timeline", timeline, "--log", "error"], check=True, capture_output=True)
    read = polars.read_parquet(tmp_path / "over.parquet")
    assert (read["arrivals"].sum(), read["completions"].sum()) == (200, 200)
    assert read["instance"].unique().sort().to_list() == ["cluster", "instance_0", "instance_1"]
    assert read.equals(polars.read_csv(tmp_path / "over.csv", schema=read.schema))


def test_without_the_library_the_error_says_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['pandas'] = sys.modules['polars'] = None\n"
        "import blis_sim\n"
        "for make in (blis_sim.Table([{'a': 1}]).pandas, blis_sim.Table([]).polars):\n"
        "    try: make()\n"
        "    except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'blis-sim[pandas]'" in done.stdout
    assert "pip install 'blis-sim[polars]'" in done.stdout


def test_a_table_is_a_sequence_of_rows() -> None:
    table = blis_sim.Table([{"a": 1}, {"a": 2, "b": 3}])
    assert table.columns == ("a", "b")
    assert table[0] == {"a": 1, "b": None}
    assert list(table[1:]) == [{"a": 2, "b": 3}]
    assert repr(table) == "Table(2 rows: a, b)"
