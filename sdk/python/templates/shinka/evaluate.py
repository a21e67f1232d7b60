"""The same as `blis evaluate shinka-evaluate`, for jobs that must start with Python: ShinkaEvolve's on Slurm do."""

import sys

from blis_sim.shinka import main

if __name__ == "__main__":
    sys.exit(main(["--suite", "{{suite}}", *sys.argv[1:]]))
