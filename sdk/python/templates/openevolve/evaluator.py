"""OpenEvolve runs this file again for every candidate; the module `blis_sim` keeps the workers."""

from blis_sim.openevolve import make

# Half of `evaluator.timeout` in config.yaml: a candidate that takes longer scores 0, and the search goes on.
evaluate, evaluate_stage1, evaluate_stage2, evaluate_stage3 = make("{{suite}}", wall_s=30)
