"""What the tables of docs/replay.md compare: the cells (a trace on a cluster), and the policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tools.replay.case import Case

# The Philly trace is dense from this day on.
# Set-ups are known, so that no policy suffers from what it has still to learn.
PHILLY = Case("philly.csv.gz", 384, "const:1200", since="2017-10-06", known_setups=True)
GANGS = replace(PHILLY, gpus=320, min_gpus=2)
KALOS = Case("kalos_completed_large_jobs.csv", 1024, "const:3600", compress=4.0, known_setups=True)
MURI = Case("muri/trace1.csv.gz", 128, "const:1200", known_setups=True)

CELLS: Mapping[str, Case] = {
    **{
        f"philly-{gpus}-{setup}": replace(PHILLY, gpus=gpus, setup=f"const:{setup}")
        for gpus in (384, 512)
        for setup in (60, 300, 1200)
    },
    "gangs-320-1200": GANGS,
    "gangs-x2-512-1800": replace(GANGS, gpus=512, setup="const:1800", compress=2.0),
    "kalos-x4-1024-3600": KALOS,
    "kalos-x4-1024-growing": replace(KALOS, setup="log2:60:180"),
    **{
        f"muri-{number}-{gpus}-1200": replace(MURI, trace=f"muri/trace{number}.csv.gz", gpus=gpus)
        for number, gpus in enumerate((128, 384, 64, 128), start=1)
    },
}

EAGER = ("srtf/eager", "srsf/eager", "las/eager")
NEVER_FUTILE = ("fifo", "sjf", "srtf/nosetup", "srsf/nosetup", "las/nosetup", "srsf/exempt:3600")


@dataclass(frozen=True)
class Table:
    """Every policy on every cell, under one assumption about estimates and checkpoints."""

    name: str
    title: str
    cells: Mapping[str, Case]
    policies: tuple[str, ...]
    best: str = "lazer"
    """The policy that the others are compared with."""

    def runs(self) -> Iterator[tuple[str, str, Case]]:
        """The name of a cell, a policy, and the case."""
        for name, case in self.cells.items():
            for policy in self.policies:
                yield name, policy, case


def _losing(checkpoint_s: int) -> dict[str, Case]:
    return {name: replace(case, checkpoint_s=checkpoint_s) for name, case in CELLS.items()}


def _guessing(estimate: str) -> dict[str, Case]:
    return {name: replace(case, estimate=estimate) for name, case in CELLS.items()}


def _drawn(setup: str) -> dict[str, Case]:
    """One cell for each trace, with set-ups drawn for each job."""
    names = ("philly-512-300", "gangs-320-1200", "kalos-x4-1024-growing", *_MURI)
    return {
        f"{name.rpartition('-')[0]}-lognormal": replace(
            CELLS[name], setup=setup, known_setups=False
        )
        for name in names
    }


_MURI = tuple(name for name in CELLS if name.startswith("muri"))
_SAME_INFORMATION = ("sjf", "srtf/eager", "srtf/nosetup", "srsf/eager", "srsf/nosetup", "lazer")
TABLES: tuple[Table, ...] = (
    Table(
        "known",
        "Known durations, a preemption loses no work",
        CELLS,
        (*NEVER_FUTILE, *EAGER, "srsf/exempt:300", "lazer"),
    ),
    *(
        Table(
            f"checkpoint-{interval_s}",
            f"Known durations, a checkpoint every {interval_s:,} s of work",
            _losing(interval_s),
            (*_SAME_INFORMATION, "las/eager"),
        )
        for interval_s in (1800, 3600)
    ),
    *(
        Table(
            f"noise-{sigma}",
            f"Estimates with a log-normal error, sigma {sigma}",
            _guessing(f"noise:{sigma}"),
            _SAME_INFORMATION,
        )
        for sigma in ("0.5", "1", "2")
    ),
    Table(
        "learned",
        "Known durations, set-ups have to be learned",
        {name: replace(case, known_setups=False) for name, case in CELLS.items()},
        ("srsf/nosetup", "lazer"),
    ),
    Table(
        "lognormal",
        "Known durations, set-ups that differ from job to job and have to be learned",
        _drawn("lognorm:600:1"),
        _SAME_INFORMATION,
    ),
    Table(
        "none",
        "No estimates",
        _guessing("none"),
        tuple(
            f"{order}/{variant}"
            for order in ("las", "gittins")
            for variant in ("eager", "nosetup", "lazer")
        ),
        best="gittins/lazer",
    ),
)


def _sweep() -> dict[str, Case]:
    """Load by the number of GPUs, set-up, and the least gang: small cells, quickly done."""
    # GPUs for which the work alone is 0.8, 1.0 and 1.2 of what they can do.
    short, long = (300, 1200, 3600), (1200, 3600, 7200, 14400)
    traces = {
        "gangs-2": (GANGS, (382, 305, 254), short),
        "gangs-8": (replace(PHILLY, min_gpus=8), (275, 220, 183), short),
        "kalos-x4": (KALOS, (1056, 1024), (300, *long)),
        "kalos-x8": (replace(KALOS, compress=8.0), (1400,), long),
        "philly": (PHILLY, (384,), (1200,)),
    }
    return {
        f"{name}-{gpus}-{setup}": replace(case, gpus=gpus, setup=f"const:{setup}")
        for name, (case, sizes, setups) in traces.items()
        for gpus in sizes
        for setup in setups
    }


def sweep_policies(setup_s: int) -> tuple[str, ...]:
    """The eager ones, and those with an exempt time just under the set-up."""
    exempt = f"exempt:{setup_s * 9 // 10}"
    return (*EAGER, f"srsf/{exempt}", f"las/{exempt}")


SWEEP: Mapping[str, Case] = _sweep()


def located(case: Case, traces: Path) -> Case:
    """The case with its trace in that directory."""
    return replace(case, trace=str(traces / case.trace))
