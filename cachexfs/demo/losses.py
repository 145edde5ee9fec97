"""Loss curves as the training program prints them, compared bit by bit. Pure."""

from __future__ import annotations

from collections.abc import Iterable

Curve = dict[int, str]
"""Step -> loss in hexadecimal, which equals another exactly when all bits do."""


def parse(text: str) -> Curve:
    """The lines `STEP LOSS`; a last line that is cut off is left out."""
    whole = text[: text.rfind("\n") + 1]
    return {int(step): loss for step, loss in (line.split() for line in whole.splitlines())}


def difference(reference: Curve, other: Curve, steps: Iterable[int]) -> str | None:
    """The first of `steps` at which they differ, as a sentence; None when they are equal."""
    for step in steps:
        if step not in other:
            return f"step {step} is missing"
        if reference.get(step) != other[step]:
            return f"at step {step} the loss is {other[step]}, not {reference.get(step)}"
    return None


def shown(curve: Curve, step: int) -> str:
    """The loss of a step, for a person."""
    return f"{float.fromhex(curve[step]):.6f}"
