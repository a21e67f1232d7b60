"""Does the same as `blis evaluate shinka-evaluate`, for ShinkaEvolve's jobs on Slurm, which start with Python."""

import sys

from blis_sim.shinka import main

if __name__ == "__main__":
    sys.exit(main(["--suite", "{{suite}}", *sys.argv[1:]]))
