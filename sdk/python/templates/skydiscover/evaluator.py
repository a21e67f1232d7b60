"""The evaluator that SkyDiscover calls for each candidate."""

from pathlib import Path

from blis_sim.skydiscover import make

# Half of `evaluator.timeout` in config.yaml: a candidate that takes longer scores 0, and the search goes on.
evaluate = make(
    "{{suite}}",
    wall_s=30,
    # Every 50 candidates serve other requests. Delete the file before a new search.
    epoch_file=Path(__file__).with_name("epochs.txt"),
    candidates_per_epoch=50,
)
