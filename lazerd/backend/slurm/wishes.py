"""What a user tells lazerd: `sbatch --comment="lazer estimate=2h grace=5m signal=USR1"`. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

_TIME = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Wishes:
    """Times in seconds, as in `JobSpec`; None: not said."""

    estimate: float | None = None
    setup: float | None = None
    checkpoint: float | None = None
    grace: float | None = None
    signal: int | None = None
    job_class: str = ""
    priority: int = 0


def wishes_of(comment: str) -> tuple[Wishes, list[str]]:
    """The wishes, and a sentence for each word that is none. Other comments are left alone."""
    first, *words = comment.split() or [""]
    if first.rstrip(":") != "lazer":
        return Wishes(), []
    wishes, broken = Wishes(), []
    for word in words:
        key, _, value = word.partition("=")
        try:
            name = "job_class" if key == "class" else key
            told: dict[str, Any] = {name: _READERS[name](value)}
        except (KeyError, ValueError):
            broken.append(f"{word!r} in the comment is not understood")
        else:
            wishes = replace(wishes, **told)
    return wishes, broken


def signal_of(text: str) -> int:
    """A signal by name, with or without SIG, or by number. ValueError for none."""
    if text.isdigit():
        return int(signal.Signals(int(text)))
    name = text.upper()
    try:
        return int(signal.Signals[name if name.startswith("SIG") else "SIG" + name])
    except KeyError:
        raise ValueError(text) from None


def _time_s(text: str) -> float:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return float(match[1]) * _UNITS[match[2]]


_READERS: dict[str, Callable[[str], object]] = {
    "estimate": _time_s,
    "setup": _time_s,
    "checkpoint": _time_s,
    "grace": _time_s,
    "signal": signal_of,
    "job_class": str,
    "priority": int,
}
assert set(_READERS) == {field.name for field in fields(Wishes)}
