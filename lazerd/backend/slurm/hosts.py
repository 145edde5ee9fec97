"""Lists of hosts as Slurm writes them: `n[1-3,07],gpu-r[1-2]n[1-4]`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product

from lazerd.backend.slurm.errors import BrokenAnswer
from lazerd.backend.slurm.values import split_outside, text_of

MOST = 100_000
"""A list of more hosts is taken for a broken one; Slurm itself stops at 64k (MAX_SLURM_NODES)."""

_PIECE = re.compile(r"\[([^\]]*)\]")
_SPAN = re.compile(r"(\d+)(?:-(\d+))?")


def hosts_of(text: str) -> tuple[str, ...]:
    """The names in a list, in its order; () for none."""
    names: list[str] = []
    for part in split_outside(text_of(text)):
        for name in _expanded(part):
            names.append(name)
            if len(names) > MOST:
                raise BrokenAnswer(f"the list of hosts {text[:40]!r} has more than {MOST} names")
    return tuple(names)


def joined(names: Iterable[str]) -> str:
    """A list that Slurm reads; not the shortest."""
    return ",".join(names)


def _expanded(part: str) -> Iterator[str]:
    pieces = _PIECE.split(part)
    choices = [
        [piece] if number % 2 == 0 else list(_spans(piece, part))
        for number, piece in enumerate(pieces)
    ]
    if any("[" in piece or "]" in piece for piece in pieces[::2]):
        raise BrokenAnswer(f"{part!r} is no list of hosts")
    for combination in product(*choices):
        yield "".join(combination)


def _spans(text: str, part: str) -> Iterator[str]:
    for span in text.split(","):
        match = _SPAN.fullmatch(span)
        if match is None:
            raise BrokenAnswer(f"{part!r} is no list of hosts")
        first, last = match[1], match[2] or match[1]
        if int(last) - int(first) > MOST:
            raise BrokenAnswer(f"{part[:40]!r} has more than {MOST} names")
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
