"""The evaluator that SkyDiscover calls for each candidate."""

from blis_sim.skydiscover import make

# Half of `evaluator.timeout` in config.yaml: a candidate that takes longer scores 0, and the search goes on.
evaluate = make("{{suite}}", wall_s=30)
