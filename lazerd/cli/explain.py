"""`lazer explain`: the screen that a waiting user wants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from cachexfs.units import format_duration
from lazerd.cli.asking import client, job_argument, json_option
from lazerd.cli.table import gpu_time, when

MOMENTS = {
    "now": "now",
    "checkpoint": "after the next checkpoint",
    "completion": "when running jobs end",
    "setup_end": "when a set-up has ended",
    "burst_end": "when the burst is over",
}
SHOWN = 12
"""Decisions that fit on a screen; --json has more."""


@click.command()
@job_argument
@json_option
def explain(job: str, as_json: bool) -> None:
    """Why a job waits, until when, what going now would cost, what was decided before."""
    found = client().ask("explain", job=job)
    click.echo(json.dumps(found, indent=2) if as_json else "\n".join(lines(found)))


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The screen, line by line."""
    name = f" ({found['name']})" if found["name"] else ""
    yield f"Job {found['job']}{name} of {found['user']}, {found['gpus']} GPUs"
    yield f"  {_state(found)}"
    if found["sentence"]:
        yield f"  {found['reason']}: {found['sentence']}."
    if found["weighing"]:
        yield from _weighed(found["weighing"])
    yield from _work(found)
    if found["decisions"]:
        yield "  What was decided:"
        for decision in found["decisions"][-SHOWN:]:
            yield f"    {when(decision['at'])}  {_decided(decision)}"


def _state(found: dict[str, Any]) -> str:
    since = format_duration(found["in_state_s"])
    state = found["state"]
    if state in ("pending", "held"):
        return f"{state} for {since}, submitted {when(found['submitted_at'])}"
    if state == "ended":
        code = "?" if found["exit_code"] is None else found["exit_code"]
        how = "cancelled" if found["cancelled"] else f"ended with exit code {code}"
        detail = f": {found['detail']}" if found["detail"] else ""
        return f"{how} at {when(found['ended_at'])}{detail}"
    where = f" on {found['where']}" if found["where"] else ""
    protected = "; it is not preempted before that is over" if state == "setup" else ""
    evidence = f" ({found['evidence']})" if state == "working" and found["evidence"] else ""
    return f"{state} for {since}{where}{evidence}{protected}"


def _weighed(weighing: dict[str, Any]) -> Iterator[str]:
    """What was weighed, in the words of whoever waits."""
    chosen = weighing["chosen"]
    for candidate in (chosen, *weighing["others"]):
        mark = "->" if candidate is chosen else "  "
        victims = f", job {', '.join(candidate['victims'])} goes" if candidate["victims"] else ""
        yield (
            f"  {mark} {_moment(candidate)}: {format_duration(candidate['delay_s'])} of delay, "
            f"{gpu_time(candidate['lost_gpu_s'])} lost{victims}"
        )
    yield (
        f"     It has waited {format_duration(weighing['waited_s'])}, and need not wait longer "
        f"than {format_duration(weighing['limit_s'])} for running jobs to end."
    )


def _moment(candidate: dict[str, Any]) -> str:
    words = MOMENTS.get(candidate["moment"], str(candidate["moment"]))
    if candidate["moment"] == "now" or candidate["in_s"] is None:
        return words
    return f"{words}, in {format_duration(candidate['in_s'])}"


def _work(found: dict[str, Any]) -> Iterator[str]:
    estimate = found["estimate_s"]
    of = f" of about {format_duration(estimate)}" if estimate is not None else ""
    preempted = found["preemptions"]
    yield (
        f"  Work: {format_duration(found['worked_s'])}{of}; preempted {preempted} times, "
        f"{found['futile_preemptions']} of them in set-up"
    )
    if found["safe_checkpoint_at"] is not None:
        yield f"  Last safe checkpoint: {when(found['safe_checkpoint_at'])}"
    spent = ", ".join(f"{phase} {format_duration(s)}" for phase, s in found["gpu_s"].items())
    yield f"  GPU time: {spent}"


def _decided(decision: dict[str, Any]) -> str:
    return _DECIDED.get(decision["kind"], _other)(decision)


def _started(decision: dict[str, Any]) -> str:
    where = ", ".join(f"{gpus} GPUs of node {node}" for node, gpus in decision["placement"])
    return f"started on {where}"


def _preempted(decision: dict[str, Any]) -> str:
    if decision["beneficiary"] is None:
        return "told to go by an operator"
    return f"told to go for job {decision['beneficiary']}{_numbers(decision['weighing'])}"


def _preempts(decision: dict[str, Any]) -> str:
    return f"job {decision['victim']} was told to go for it{_numbers(decision['weighing'])}"


def _numbers(weighing: dict[str, Any] | None) -> str:
    if not weighing:
        return ""
    chosen = weighing["chosen"]
    return (
        f": {gpu_time(chosen['lost_gpu_s'])} lost; waiting would have taken "
        f"{format_duration(weighing['relief_s'])}, "
        f"going costs {format_duration(weighing['price_s'])}"
    )


def _other(decision: dict[str, Any]) -> str:
    return _PLAIN.get(decision["kind"], str(decision["kind"]))


_PLAIN = {
    "Stuck": "it does not go away; its GPUs are out of service",
    "Kill": "told to go: it was cancelled",
}
_DECIDED = {"Start": _started, "Preempted": _preempted, "Preempts": _preempts}
