"""How many GPUs: the gres and TRES strings of all releases. Pure.

gpu:4   gpu:a100:4(S:0-1)   gpu:a100:2(IDX:0-1)      what a node has, what a job holds of it
gres:gpu:2   gres/gpu:2   gres/gpu:a100:2             what a job asks for, per node, job or task
cpu=2,mem=4G,node=2,gres/gpu=8,gres/gpu:a100=8        TRES: the plain entry counts all types
"""

from __future__ import annotations

import re

from lazerd.backend.slurm.errors import BrokenAnswer
from lazerd.backend.slurm.values import split_outside, text_of

_GRES = re.compile(
    r"(?:gres[:/])?gpu(?::(?P<type>[A-Za-z_][\w.\-]*))?(?:[:=](?P<count>\d+))?"
    r"(?:\((?P<detail>[^)]*)\))?"
)
_SPAN = re.compile(r"(\d+)(?:-(\d+))?")


def gpus_of(text: str) -> int:
    """GPUs in a gres string; other resources do not count. One where no number is said."""
    total = 0
    for part in split_outside(text_of(text)):
        match = _gpu(part)
        if match is not None:
            total += 1 if match["count"] is None else int(match["count"])
    return total


def gpus_of_tres(text: str) -> int | None:
    """GPUs in a TRES string; None where the site does not track them (AccountingStorageTRES)."""
    typed = None
    for part in split_outside(text_of(text)):
        name, _, count = part.partition("=")
        if name == "gres/gpu" and count.isdigit():
            return int(count)
        if name.startswith("gres/gpu:") and count.isdigit():
            typed = (typed or 0) + int(count)
    return typed


def indexes_of(text: str) -> tuple[int, ...]:
    """Which GPUs of a node: the `IDX` of a gres string; () where none is said."""
    found: list[int] = []
    for part in split_outside(text_of(text)):
        match = _gpu(part)
        if match is not None and (match["detail"] or "").startswith("IDX:"):
            found.extend(_spans(match["detail"][len("IDX:") :], part))
    return tuple(found)


def _gpu(part: str) -> re.Match[str] | None:
    """The parts of a gres that is a GPU; None for another resource."""
    bare = re.sub(r"^gres[:/]", "", part)
    if re.match(r"gpu(?![\w\-])", bare) is None:
        return None
    match = _GRES.fullmatch(part)
    if match is None:
        raise BrokenAnswer(f"{part!r} is no count of GPUs")
    return match


def _spans(text: str, part: str) -> list[int]:
    found: list[int] = []
    for span in text.split(","):
        match = _SPAN.fullmatch(span)
        if match is None:
            if span in ("", "N/A"):
                continue
            raise BrokenAnswer(f"{part!r} names no GPUs")
        found.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found
