"""The mark that lazerd leaves on a job, so that Slurm keeps the state and no second store can differ.

The first word of AdminComment, which only operators can set; what else is there stays behind it.

    lazer:new            held at submission by job_submit.lua, lazerd has not seen it yet
    lazer:line           in line: held, to be started by lazerd only
    lazer:start:2        released for its third start (Restarts was 2)
    lazer:leave:169...   told to go at that time: what ends from then on is put back in line
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

PREFIX = "lazer:"


class Marked(Enum):
    """What the mark says."""

    NOT = ""
    NEW = "new"
    LINE = "line"
    START = "start"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark, its number (Restarts, or a time in seconds since 1970), and the words behind it."""

    kind: Marked
    number: int = 0
    rest: str = ""

    def __str__(self) -> str:
        number = f":{self.number}" if self.kind in (Marked.START, Marked.LEAVE) else ""
        return f"{PREFIX}{self.kind.value}{number} {self.rest}".strip()


def mark_of(admin_comment: str) -> Mark:
    """The mark in an AdminComment; whatever is none is somebody else's text."""
    word, _, rest = admin_comment.strip().partition(" ")
    if not word.startswith(PREFIX):
        return Mark(Marked.NOT, rest=admin_comment.strip())
    name, _, number = word[len(PREFIX) :].partition(":")
    kind = next((kind for kind in Marked if kind.value == name), Marked.NOT)
    return Mark(kind, int(number) if number.isdigit() else 0, rest.strip())
