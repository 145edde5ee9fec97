"""The values that Slurm prints: numbers, times, durations, lists. Pure.

Since 23.02 the JSON wraps numbers: `{"set": true, "infinite": false, "number": 5}`; before, they
are plain, with null for "not set". In text, `UNLIMITED`, `INFINITE`, `Unknown`, `N/A`, `None` and
`(null)` say that there is no number.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any

from lazerd.backend.slurm.errors import BrokenAnswer

NOTHING = frozenset({"", "(null)", "None", "none", "N/A", "n/a", "Unknown", "NONE"})
ENDLESS = frozenset({"UNLIMITED", "INFINITE", "infinite", "unlimited"})
NO_VAL = 0xFFFFFFFE
"""What Slurm's 32 bits hold for "not set"; 0xFFFFFFFF is infinite (slurm.h). JSON leaks them."""

_DURATION = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_SECONDS = re.compile(r"(\d+)(?:\s*(sec|secs|s|min|mins|m))?", re.IGNORECASE)
_UNITS = {"s": 1.0, "m": 60.0}


def text_of(value: Any) -> str:
    """A string; "" for what Slurm prints when there is none."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BrokenAnswer(f"a text was expected, not {value!r}")
    return "" if value in NOTHING else value


def number_of(value: Any) -> float | None:
    """A number, plain or wrapped; None: not set; `math.inf`: no limit."""
    if isinstance(value, dict):
        if value.get("infinite"):
            return math.inf
        return number_of(value.get("number")) if value.get("set") else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BrokenAnswer(f"a number was expected, not {value!r}")
    if isinstance(value, str):
        return _number_of_text(value)
    if value in (NO_VAL, NO_VAL + 1):
        return None if value == NO_VAL else math.inf
    return float(value)


def _number_of_text(text: str) -> float | None:
    if text in ENDLESS:
        return math.inf
    if text in NOTHING:
        return None
    try:
        return float(text)
    except ValueError:
        raise BrokenAnswer(f"a number was expected, not {text!r}") from None


def count_of(value: Any, default: int = 0) -> int:
    """A number of things; `default` where none is set. `2-4`, a range, counts as its start."""
    if isinstance(value, str) and re.fullmatch(r"\d+-\d+", value):
        value = value.split("-")[0]
    number = number_of(value)
    return default if number is None or math.isinf(number) else int(number)


def is_yes(value: Any) -> bool:
    """A flag: JSON's booleans, `1` and `0`, `YES` and `NO`."""
    if isinstance(value, dict):
        return bool(number_of(value))
    return value is True or str(value).upper() in ("1", "YES", "TRUE")


def words_of(value: Any) -> tuple[str, ...]:
    """Words in capitals, of a list (23.02 and later) or joined by `+` (text, and before)."""
    words = value if isinstance(value, list) else str(value or "").split("+")
    return tuple(str(word).strip().upper() for word in words if word)


def duration_s(text: str) -> float | None:
    """Seconds of `MM`, `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM`, `D-HH:MM:SS`; inf for no limit."""
    if text in ENDLESS:
        return math.inf
    if text in NOTHING:
        return None
    match = _DURATION.fullmatch(text)
    if match is None:
        raise BrokenAnswer(f"a duration was expected, not {text!r}")
    days, *rest = match.groups()
    fields = [int(field) for field in rest if field is not None]
    if days is not None:
        hours, minutes, seconds = (*fields, 0, 0)[:3]
        return float(((int(days) * 24 + hours) * 60 + minutes) * 60 + seconds)
    if len(fields) == 1:
        return fields[0] * 60.0
    hours, minutes, seconds = (0, *fields)[-3:]
    return float((hours * 60 + minutes) * 60 + seconds)


def interval_s(text: str) -> float | None:
    """Seconds of a setting in `scontrol show config`: `30 sec`, `5 min`, `00:05:00`, `45`."""
    text = text.strip()
    match = _SECONDS.fullmatch(text)
    if match is None:
        return duration_s(text)
    return int(match[1]) * _UNITS[(match[2] or "s")[0].lower()]


def instant_s(text: str) -> float | None:
    """Seconds since 1970 of `2026-11-30T13:41:09` (the machine's zone) or of a plain number."""
    if text in NOTHING:
        return None
    if text.isdigit():
        return float(text) or None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise BrokenAnswer(f"a time was expected, not {text!r}") from None


def settings_of(text: str) -> dict[str, str]:
    """`a=1,b,c=x` as a dictionary; what has no value is "". Commas in brackets do not divide."""
    pairs = (part.partition("=") for part in split_outside(text_of(text)))
    return {key.strip(): value for key, _, value in pairs if key.strip()}


def split_outside(text: str) -> list[str]:
    """Divided at commas that are outside of brackets and parentheses."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part for part in parts if part]
