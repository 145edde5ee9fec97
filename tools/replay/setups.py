"""How long a job sets up after each placement, before it executes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tools.replay.draws import normal
from tools.replay.errors import OptionError
from tools.replay.traces import TraceJob

SETUP_FORMS = "const:SECONDS, log2:BASE:STEP or lognorm:MEDIAN:SIGMA"


@dataclass(frozen=True)
class Setup:
    """A model of set-up times; `text` is the option that it came from."""

    text: str
    seconds: Callable[[TraceJob], int]


def parse_setup(text: str, seed: int) -> Setup:
    """`const:1200`: always so many seconds. `log2:60:180`: 60 and 180 more for each doubling of
    the GPUs. `lognorm:600:1`: drawn once for each job, with that median and sigma.

    In whole seconds. Raises OptionError.
    """
    name, *fields = text.split(":")
    try:
        arity, make = _MODELS[name]
        values = [float(field) for field in fields]
    except (KeyError, ValueError):
        raise OptionError(f"--setup {text}: not {SETUP_FORMS}") from None
    if len(values) != arity or not all(0 <= value < math.inf for value in values):
        raise OptionError(f"--setup {text}: not {SETUP_FORMS}, in numbers that are not negative")
    return Setup(text, make(values, seed))


def _const(values: list[float], seed: int) -> Callable[[TraceJob], int]:
    seconds = round(values[0])
    return lambda job: seconds


def _log2(values: list[float], seed: int) -> Callable[[TraceJob], int]:
    base, step = values
    return lambda job: round(base + step * math.log2(job.gpus))


def _lognorm(values: list[float], seed: int) -> Callable[[TraceJob], int]:
    median, sigma = values
    return lambda job: round(median * math.exp(sigma * normal(seed, "setup", job.id)))


_MODELS: dict[str, tuple[int, Callable[[list[float], int], Callable[[TraceJob], int]]]] = {
    "const": (1, _const),
    "log2": (2, _log2),
    "lognorm": (2, _lognorm),
}
