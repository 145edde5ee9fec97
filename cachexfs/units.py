"""Human units, parsed and printed at the edge only. Inside, names carry their unit."""

from __future__ import annotations

import re

_SIZES = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kib": 1 << 10,
    "kb": 10**3,
    "m": 1 << 20,
    "mib": 1 << 20,
    "mb": 10**6,
    "g": 1 << 30,
    "gib": 1 << 30,
    "gb": 10**9,
    "t": 1 << 40,
    "tib": 1 << 40,
    "tb": 10**12,
}
_DURATIONS = {"ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def _parse(text: str, units: dict[str, float] | dict[str, int], what: str) -> float:
    match = _QUANTITY.fullmatch(text)
    unit = match.group(2).lower() if match else ""
    if match is None or unit not in units:
        raise ValueError(f"{text!r} is not a {what}, such as {_EXAMPLES[what]}")
    return float(match.group(1)) * units[unit]


_EXAMPLES = {"size": '"64GiB"', "duration": '"2s"'}


def parse_size(text: str | int) -> int:
    """`"64GiB"` -> bytes. A bare number is bytes; K, M, G, T alone are powers of 1024."""
    return text if isinstance(text, int) else int(_parse(text, _SIZES, "size"))


def parse_duration(text: str | float) -> float:
    """`"2s"`, `"500ms"`, `"1.5h"` -> seconds. A bare number is seconds."""
    return float(text) if isinstance(text, int | float) else _parse(text, _DURATIONS, "duration")


def format_size(size_bytes: float) -> str:
    """Bytes -> `"1.5 GiB"`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size_bytes) < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def format_duration(seconds: float | None) -> str:
    """Seconds -> `"1.2s"`, `"3m20s"`, `"2h05m"`; None -> `"-"`."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"
