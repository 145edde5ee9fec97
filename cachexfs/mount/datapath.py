"""Which way the bytes of an open file take: past the daemon, or through it. Pure.

The kernel keeps all opens of an inode in one mode, and answers EIO to an open in the other; so an
inode that is open decides for the next open, and only a fresh one is free.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class DataPath(Enum):
    """How reads and writes of an open file are served."""

    PASSTHROUGH = "passthrough"
    PORTABLE = "portable"


class Use(NamedTuple):
    """How an inode is open at the moment."""

    passthrough: bool
    opens: int


class Wish(NamedTuple):
    """What an open asks for, and what is there to serve it."""

    writing: bool
    in_ram: bool
    """The bytes are a blob in the RAM tier, which the kernel can use as it is."""
    tier_is_full: bool
    """A writer past the daemon could not be held back, so it goes through it."""
    can_back: bool
    """The file that has the bytes now can be a backing file."""


class Choice(NamedTuple):
    """The path, and whether the file must be brought into the RAM tier for it first.

    `afresh`: the inode is open for reading with the source's file as its backing, which cannot be
    written; the name gets a new inode, and the kernel is asked to look it up again.
    """

    path: DataPath
    copy_first: bool = False
    afresh: bool = False


_PORTABLE = Choice(DataPath.PORTABLE)
_PASSTHROUGH = Choice(DataPath.PASSTHROUGH)


def choose(available: bool, use: Use, wish: Wish) -> Choice:
    """The path for one more open. `available`: the kernel takes files of the RAM tier."""
    if use.passthrough:
        return _join(wish)
    if use.opens or not available:
        return _PORTABLE
    if wish.writing:
        return _write(wish)
    return _PASSTHROUGH if wish.can_back else _PORTABLE


def _join(wish: Wish) -> Choice:
    """One more open of an inode that is in passthrough mode: there is no other way."""
    if wish.writing and not wish.in_ram:
        return Choice(DataPath.PASSTHROUGH, afresh=True)
    return _PASSTHROUGH


def _write(wish: Wish) -> Choice:
    if wish.tier_is_full or (wish.in_ram and not wish.can_back):
        return _PORTABLE
    return Choice(DataPath.PASSTHROUGH, copy_first=not wish.in_ram)
