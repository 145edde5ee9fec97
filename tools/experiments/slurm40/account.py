"""What became of the jobs, from what they wrote. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from tools.experiments.slurm40.workload import Job

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a job; seconds since 1970. `worked_s` None: it never came to work."""

    restart: int
    began_s: float
    worked_s: float | None
    ended_s: float
    is_done: bool
    saved_s: float | None
    gpus: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Account:
    """One way, summed up. Times in seconds."""

    way: str
    jobs: int
    ended: int
    preemptions: int
    futile: int
    killed: int
    jct_mean_s: float
    jct_p50_s: float
    jct_max_s: float
    high_mean_s: float
    low_mean_s: float
    makespan_s: float
    setup_gpu_s: float
    doubled: int

    def row(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def runs_of(lines: Iterable[str]) -> list[Run]:
    """The starts of one job, from its log. A gang begins with its first process, ends with its
    last."""
    by_restart: dict[int, list[Line]] = defaultdict(list)
    for text in lines:
        line = json.loads(text)
        by_restart[line["restart"]].append(line)
    return [_run(restart, group) for restart, group in sorted(by_restart.items())]


def _run(restart: int, lines: Sequence[Line]) -> Run:
    first = [line for line in lines if line["rank"] == 0]
    worked = [line["at_s"] for line in first if line["what"] == "work"]
    told = [line["done_s"] for line in first if line["what"] == "told"]
    gpus = {
        (line["node"], gpu) for line in lines for gpu in line["gpus"].split(",") if line["gpus"]
    }
    return Run(
        restart=restart,
        began_s=min(line["at_s"] for line in lines),
        worked_s=min(worked) if worked else None,
        ended_s=max(line["at_s"] for line in lines),
        is_done=any(line["what"] == "done" for line in first),
        saved_s=told[0] if told else None,
        gpus=frozenset(gpus),
    )


def doubled(runs: Mapping[int, Sequence[Run]]) -> list[str]:
    """Where two jobs had the same GPU at the same time: a sentence for each."""
    held = sorted(
        (gpu, run.began_s, run.ended_s, job)
        for job, of_job in runs.items()
        for run in of_job
        for gpu in run.gpus
    )
    found = []
    for (gpu, _, end_s, one), (other_gpu, begin_s, _, other) in pairwise(held):
        if gpu == other_gpu and begin_s < end_s:
            found.append(f"{gpu[0]} GPU {gpu[1]}: job {other} began before job {one} had ended")
    return found


def account(
    way: str, jobs: Sequence[Job], submitted_s: Mapping[int, float], runs: Mapping[int, list[Run]]
) -> Account:
    """The numbers of one way."""
    ends = {j: of_job[-1].ended_s for j, of_job in runs.items() if of_job and of_job[-1].is_done}
    jct = {number: end_s - submitted_s[number] for number, end_s in ends.items()}
    high = [jct[job.number] for job in jobs if job.is_high and job.number in jct]
    low = [jct[job.number] for job in jobs if not job.is_high and job.number in jct]
    put_out = [run for of_job in runs.values() for run in of_job if not run.is_done]
    times = sorted(jct.values()) or [float("nan")]
    gpus = {job.number: job.nodes * job.gpus for job in jobs}
    return Account(
        way=way,
        jobs=len(jobs),
        ended=len(ends),
        preemptions=len(put_out),
        futile=sum(run.worked_s is None for run in put_out),
        killed=sum(run.saved_s is None for run in put_out),
        jct_mean_s=_mean(times),
        jct_p50_s=times[len(times) // 2],
        jct_max_s=times[-1],
        high_mean_s=_mean(high),
        low_mean_s=_mean(low),
        makespan_s=max(ends.values(), default=0.0) - min(submitted_s.values()),
        setup_gpu_s=sum(
            gpus[number] * ((run.worked_s or run.ended_s) - run.began_s)
            for number, of_job in runs.items()
            for run in of_job
        ),
        doubled=len(doubled(runs)),
    )


def table(accounts: Sequence[Account]) -> str:
    """As Markdown."""
    heads = (
        "way", "ended", "preemptions", "futile", "not saved", "completion mean", "median", "high",
        "low", "makespan", "set-up GPU-s", "GPUs doubled",
    )  # fmt: skip
    rows = [
        (
            a.way, f"{a.ended}/{a.jobs}", a.preemptions, a.futile, a.killed,
            f"{a.jct_mean_s:.1f} s", f"{a.jct_p50_s:.1f} s", f"{a.high_mean_s:.1f} s",
            f"{a.low_mean_s:.1f} s", f"{a.makespan_s:.0f} s", f"{a.setup_gpu_s:.0f}", a.doubled,
        )
        for a in accounts
    ]  # fmt: skip
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
