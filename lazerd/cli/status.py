"""`lazer status`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from cachexfs.units import format_duration
from lazerd.cli.asking import client, json_option


@click.command()
@json_option
def status(as_json: bool) -> None:
    """How lazerd, its backend and its queue are."""
    found = client().ask("status")
    click.echo(json.dumps(found, indent=2) if as_json else "\n".join(_lines(found)))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"lazerd {found['version']}, backend {found['backend']}, policy {found['policy']}"
    yield f"jobs: {_counts(found['jobs'])}"
    if found["reasons"]:
        yield f"waiting: {_counts(found['reasons'])}"
    counted = found["since_start"]
    yield (
        f"since the start: {counted['starts']} starts; preemptions: "
        f"{_counts(counted['preemptions'])}; {counted['futile_preemptions']} futile; "
        f"{counted['deferrals']} put off"
    )
    phases = ", ".join(f"{p} {format_duration(s)}" for p, s in counted["gpu_s"].items())
    yield f"GPU time: {phases}"
    for name, value in found["facts"].items():
        if isinstance(value, str | int | float):
            yield f"{name}: {value}"
    if found["not_steered"]:
        yield f"not steered: {', '.join(found['not_steered'])}"
    for problem in found["problems"]:
        action = f" -> {problem['action']}" if problem["action"] else ""
        yield f"! {problem['code']}: {problem['detail']}{action}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
