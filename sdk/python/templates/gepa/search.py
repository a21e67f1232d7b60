"""A search with GEPA: each scenario of the suite is an example."""

import argparse
import os
from pathlib import Path

import blis_sim
import blis_sim.gepa as task
from gepa.optimize_anything import EngineConfig, GEPAConfig, ReflectionConfig, optimize_anything

SUITE = "{{suite}}"
HERE = Path(__file__).resolve().parent


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--max-metric-calls", type=int, default=400, help="evaluations of one scenario each")
    arguments.add_argument("--run-dir", type=Path, default=HERE / "run", help="folder; a run that was interrupted continues")
    options = arguments.parse_args()

    # Any OpenAI-compatible address; or reflection_lm="openai/…" below, with `pip install gepa[full]`.
    model = task.chat_model(
        os.environ.get("OPENAI_API_BASE", "https://api.openai.com/v1"),
        os.environ.get("MODEL", "gpt-5-mini"),
        api_key=os.environ.get("OPENAI_API_KEY", "none"),
    )
    host = blis_sim.host(SUITE, wall_s=30)
    page = (HERE / "interface.md").read_text()
    result = optimize_anything(
        seed_candidate=(HERE / "seed.rhai").read_text(),
        evaluator=task.evaluator(SUITE, wall_s=30),
        dataset=task.dataset(SUITE, wall_s=30),
        valset=task.valset(SUITE, wall_s=30),
        objective="A routing policy in Rhai with the highest score in every scenario. Reply with the whole script.",
        background=f"{page}\n## The task\n\n{host.task().about}",
        config=GEPAConfig(
            engine=EngineConfig(
                run_dir=str(options.run_dir),
                max_metric_calls=options.max_metric_calls,
                max_workers=host.workers,
                # About half of all calls repeat an earlier one.
                cache_evaluation=True,
                # A single failure must not end a run.
                raise_on_exception=False,
            ),
            reflection=ReflectionConfig(reflection_lm=model, reflection_minibatch_size=3),
        ),
    )
    best = HERE / "best.rhai"
    best.write_text(result.best_candidate)
    print(f"{len(result.candidates)} candidates were kept; the best scores {max(result.val_aggregate_scores):.4f}: {best}")


if __name__ == "__main__":
    main()
