"""What is measured of a replay: the keys of results.json."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from tools.replay.case import Case
from tools.replay.spans import Outcome

Row = dict[str, Any]
"""One object of results.json."""

KEYS = (
    "trace", "gpus", "setup", "estimate", "checkpoint_s", "policy", "jobs", "preemptions", "futile",
    "barren", "futile_gpu_s", "setup_gpu_s", "lost_gpu_s", "used_gpu_s", "jct_mean_s", "jct_p50_s",
    "jct_p99_s", "wait_mean_s", "makespan_s", "utilisation", "events", "wall_s",
)  # fmt: skip
TIMED = "wall_s"
"""The one key whose value differs from run to run."""


def measure(case: Case, policy: str, outcome: Outcome) -> Row:
    """Everything in KEYS, in that order.

    Completion time (`jct`) is finish minus submission. `wait_mean_s` is the time without GPUs, also
    after preemptions. `used_gpu_s` is all GPU time from placement to release, whatever for;
    `utilisation` its share of all GPUs over `makespan_s`, from the first submission to the last
    finish. `barren` counts the futile ones too.
    """
    jct_s = sorted(outcome.completion_s())
    gpu_s = outcome.gpu_seconds()
    makespan_s = max(outcome.finished_s) - min(outcome.submitted_s)
    values = (
        case.label(), case.gpus, case.setup, case.estimate, case.checkpoint_s, policy, len(jct_s),
        sum(span.preempted for span in outcome.spans), sum(span.futile for span in outcome.spans),
        sum(span.barren for span in outcome.spans), gpu_s.futile, gpu_s.setup, gpu_s.lost,
        gpu_s.used, fmean(jct_s), quantile(jct_s, 0.5), quantile(jct_s, 0.99),
        fmean(outcome.waiting_s()), makespan_s, gpu_s.used / (case.gpus * makespan_s),
        outcome.events, round(outcome.wall_s, 3),
    )  # fmt: skip
    return dict(zip(KEYS, values, strict=True))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Between the two nearest of the ordered values, in proportion (Hyndman and Fan's type 7)."""
    at = (len(ordered) - 1) * share
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)
