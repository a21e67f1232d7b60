"""The notebooks in examples/notebooks: they run, and their recorded outputs are what they print.

BLIS_RECORD=1 writes the outputs anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[3] / "examples/notebooks").glob("*.ipynb"))


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path) -> None:
    reason = "not installed: the registry lacks it"
    nbclient = pytest.importorskip("nbclient", reason=reason)
    nbformat = pytest.importorskip("nbformat", reason=reason)
    pytest.importorskip("ipykernel", reason=reason)
    pytest.importorskip("pandas", reason=reason)
    file = path.read_text(encoding="utf-8")
    recorded = json.loads(file)
    notebook = nbformat.reads(file, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    made = json.loads(nbformat.writes(notebook))
    for old, new in zip(recorded["cells"], made["cells"], strict=True):
        if new["cell_type"] == "code":
            # The cell as it lies in the file, with its number and its texts only.
            old |= {"execution_count": new["execution_count"], "outputs": [_text_only(one) for one in new["outputs"]]}
    text = json.dumps(recorded, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("BLIS_RECORD"):
        path.write_text(text, encoding="utf-8")
    else:
        assert text == file, "BLIS_RECORD=1 writes the outputs anew"


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["compare-routing", "plan-capacity", "replay-and-calibrate"]


def _text_only(output: dict[str, Any]) -> dict[str, Any]:
    if "data" not in output:
        return output
    lines = "".join(output["data"]["text/plain"]).splitlines(keepends=True)
    return {**output, "data": {"text/plain": lines}}
