"""Evaluates candidates on all machines of a Ray cluster: `python with_ray.py a.rhai b.rhai`."""

import argparse
from pathlib import Path

import blis_sim.ray
import ray

SUITE = "{{suite}}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("candidates", nargs="+", type=Path, metavar="CANDIDATE")
    arguments.add_argument("--stage", choices=["smoke", "train", "select"], default="select")
    options = arguments.parse_args()

    # The cluster of `ray start` on this machine.
    ray.init(address="auto", log_to_driver=False)
    nodes = sum(node["Alive"] for node in ray.nodes())
    print(f"{nodes} machines, {int(ray.cluster_resources()['CPU'])} cores")
    for path, result in zip(options.candidates, blis_sim.ray.evaluate(options.candidates, SUITE, stage=options.stage)):
        print(f"{result.combined_score:.4f}  {result.status:<12}  {path}")
        if not result.valid:
            print(result.artifacts["error"])


if __name__ == "__main__":
    main()
