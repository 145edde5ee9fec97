"""`python -m tools.experiments.slurm40 --out DIR [--way NAME ...] [--jobs N]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.slurm_cluster import why_not_here
from tools.experiments.slurm40.account import table
from tools.experiments.slurm40.run import run_way
from tools.experiments.slurm40.ways import WAYS
from tools.experiments.slurm40.workload import JOBS, workload


def main() -> int:
    """Run the ways, print the table; 1 when a job did not end."""
    parser = argparse.ArgumentParser(description="Forty jobs: lazerd beside Slurm's preemption.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--way", choices=list(WAYS), action="append")
    parser.add_argument("--jobs", type=int, default=JOBS)
    asked = parser.parse_args()
    if why := why_not_here():
        print(why, file=sys.stderr)
        return 1
    jobs = workload(asked.jobs)
    made = []
    for name in asked.way or list(WAYS):
        made.append(run_way(WAYS[name], jobs, asked.out.resolve() / name))
        print(table(made[-1:]), flush=True)
    (asked.out / "table.md").write_text(table(made) + "\n")
    print(table(made))
    return 0 if all(one.ended == one.jobs and not one.doubled for one in made) else 1


if __name__ == "__main__":
    sys.exit(main())
