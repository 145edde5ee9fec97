"""Slurm's short form of many host names, `gpu[001-004,7],head` (scontrol(1), hostlist). Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from cachexfs.errors import ConfigError

MAX_HOSTS = 65_536
"""More than any list that is meant (Slurm's own limit, MAX_SLURM_NODES, is 65,533)."""

_RANGE = re.compile(r"(?P<first>\d+)(?:-(?P<last>\d+))?", re.ASCII)
_PART = re.compile(r"\[([^][]*)\]|([^][]+)")


def expand(text: str) -> list[str]:
    """The host names in order, each once. Raises `ConfigError` for what is no host list."""
    names: dict[str, None] = {}
    for item in _items(text):
        for name in _expand_item(item):
            names[name] = None
            if len(names) > MAX_HOSTS:
                raise ConfigError(f"a host list of more than {MAX_HOSTS} names")
    return list(names)


def _items(text: str) -> Iterator[str]:
    """What the commas outside of brackets separate."""
    depth, item = 0, ""
    for letter in text.strip():
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ConfigError(f"{text!r}: the brackets do not match")
        if letter == "," and depth == 0:
            yield item
            item = ""
        else:
            item += letter
    if depth:
        raise ConfigError(f"{text!r}: the brackets do not match")
    if item:
        yield item


def _expand_item(item: str) -> Iterator[str]:
    if not item or any(letter.isspace() for letter in item):
        raise ConfigError(f"a host list has an empty name or a space in it: {item!r}")
    parts = [
        _numbers(brackets, item) if plain == "" else [plain]
        for brackets, plain in _PART.findall(item)
    ]
    return map("".join, itertools.product(*parts))


def _numbers(ranges: str, item: str) -> list[str]:
    """`001-004,7` -> 001, 002, 003, 004, 7: as many digits as the first number has."""
    numbers: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ConfigError(f"{item!r}: {part!r} is no range of numbers")
        first, last = match["first"], match["last"] or match["first"]
        if not 0 <= int(last) - int(first) < MAX_HOSTS:
            raise ConfigError(f"{item!r}: the range {part!r} is empty or too long")
        numbers += (str(n).zfill(len(first)) for n in range(int(first), int(last) + 1))
    return numbers
