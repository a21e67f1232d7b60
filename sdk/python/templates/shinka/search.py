"""A search with ShinkaEvolve, in which the language Rhai is registered first."""

import argparse
import os
from pathlib import Path

import blis_sim
from blis_sim.shinka import job_config, register_languages

register_languages()

from shinka.core import EvolutionConfig, ShinkaEvolveRunner  # noqa: E402
from shinka.database import DatabaseConfig  # noqa: E402

SUITE = "{{suite}}"
HERE = Path(__file__).resolve().parent

# ShinkaEvolve's own instructions, which show Python, follow it in the prompt.
FORM = """
## Form

Examples below may show Python; the language is Rhai. Begin code blocks with ```rhai. Comments are `//`.
"""


def model() -> str:
    """A model of ShinkaEvolve's list, or any behind an OpenAI-compatible address."""
    name, address = os.environ.get("MODEL", "gpt-5-mini"), os.environ.get("OPENAI_API_BASE")
    if address is None:
        return name
    key = "?api_key_env=OPENAI_API_KEY" if os.environ.get("OPENAI_API_KEY") else ""
    return f"local/{name}@{address}{key}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--generations", type=int, default=100)
    arguments.add_argument("--run-dir", type=Path, default=HERE / "run")
    arguments.add_argument("--evaluations", type=int, default=2, help="at a time")
    options = arguments.parse_args()

    page = (HERE / "interface.md").read_text()
    with blis_sim.Host(SUITE, workers=1) as host:
        about = host.task().about

    runner = ShinkaEvolveRunner(
        evo_config=EvolutionConfig(
            task_sys_msg=f"{page}\n## The task\n\n{about}\n{FORM}",
            language="rhai",
            init_program_path=str(HERE / "seed.rhai"),
            results_dir=str(options.run_dir),
            num_generations=options.generations,
            llm_models=[model()],
            llm_dynamic_selection=None,
            llm_kwargs={"temperatures": [0.7], "max_tokens": 8192},
            patch_types=["diff", "full", "cross"],
            patch_type_probs=[0.6, 0.3, 0.1],
            # Without it the prompt has numbers, but neither errors nor scenarios.
            use_text_feedback=True,
            # Both need further models: embeddings to find duplicates, another model for summaries.
            embedding_model=None,
            meta_rec_interval=None,
        ),
        # `blis evaluate shinka-evaluate` per candidate, without Python. The wall limit of the program is much shorter.
        job_config=job_config(SUITE, time="00:02:00"),
        db_config=DatabaseConfig(num_islands=2, archive_size=40),
        max_evaluation_jobs=options.evaluations,
        max_proposal_jobs=options.evaluations,
        max_db_workers=1,
    )
    runner.run()


if __name__ == "__main__":
    main()
