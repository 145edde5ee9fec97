"""The mark that lazerd leaves on a job: Slurm keeps the state, so no second store can differ.

The first word of AdminComment, which only operators can set; what else is there stays behind it.

    lazer:new            held at submission by job_submit.lua, lazerd has not seen it yet
    lazer:line           in line: held, to be started by lazerd only
    lazer:wait           released behind a begin time far away, so that Slurm settles its dependency
    lazer:start:2        released for its third start (Restarts was 2), its nodes named by lazerd
    lazer:start:2:own    the same, but the user names its nodes: they are not lazerd's to clear
    lazer:leave:169...   told to go at that time: what ends from then on is put back in line
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

PREFIX = "lazer:"


class Marked(Enum):
    """What the mark says."""

    NOT = ""
    NEW = "new"
    LINE = "line"
    WAIT = "wait"
    START = "start"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark, its number (Restarts, or a time in seconds since 1970), and the words behind it.

    `own`: the nodes that the job requires are its user's.
    """

    kind: Marked
    number: int = 0
    rest: str = ""
    own: bool = False

    def __str__(self) -> str:
        number = f":{self.number}" if self.kind in (Marked.START, Marked.LEAVE) else ""
        own = ":own" if self.own else ""
        return f"{PREFIX}{self.kind.value}{number}{own} {self.rest}".strip()


_KINDS = {kind.value: kind for kind in Marked if kind is not Marked.NOT}


@lru_cache(maxsize=1024)
def mark_of(admin_comment: str) -> Mark:
    """The mark in an AdminComment; whatever is none is somebody else's text."""
    word, _, rest = admin_comment.strip().partition(" ")
    if not word.startswith(PREFIX):
        return Mark(Marked.NOT, rest=admin_comment.strip())
    name, *more = word[len(PREFIX) :].split(":")
    kind = _KINDS.get(name, Marked.NOT)
    number = next((int(part) for part in more if part.isdigit()), 0)
    return Mark(kind, number, rest.strip(), "own" in more)
