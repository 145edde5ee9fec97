"""What has to be done on the shared file system, in an order that keeps its meaning.

A directory or file is named by its inode number in the mount, and a name by its `Slot`: (inode
number of the directory, name). Paths do not occur: another node may rename a directory meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

NOREPLACE, EXCHANGE = 1, 2
"""RENAME_NOREPLACE and RENAME_EXCHANGE of linux/fs.h: flags of renameat2(2)."""


class Slot(NamedTuple):
    """A name in a directory."""

    parent: int
    name: bytes


class _Action(msgspec.Struct, frozen=True, tag=True):
    ino: int

    def slots_touched(self) -> tuple[Slot, ...]:
        """The names that this action makes, moves or removes."""
        return ()

    def touches(self) -> tuple[int | Slot, ...]:
        """What this action needs for itself alone: the inode and the names."""
        return (self.ino, *self.slots_touched())

    def stands_in(self) -> tuple[int, ...]:
        """The directories that must be there, shared with other actions in them."""
        return tuple(slot.parent for slot in self.slots_touched())


class Publish(_Action, frozen=True):
    """Put the content `version` of a file in place, under all its names."""

    version: int
    slots: tuple[Slot, ...]

    def slots_touched(self) -> tuple[Slot, ...]:
        return self.slots


class Rename(_Action, frozen=True):
    """Move (or, with `exchange`, swap) names."""

    old: Slot
    new: Slot
    exchange: bool = False

    def slots_touched(self) -> tuple[Slot, ...]:
        return (self.old, self.new)


class Link(_Action, frozen=True):
    """A second name for a file."""

    old: Slot
    new: Slot

    def slots_touched(self) -> tuple[Slot, ...]:
        return (self.old, self.new)


class Unlink(_Action, frozen=True):
    """Remove a name of a file."""

    slot: Slot

    def slots_touched(self) -> tuple[Slot, ...]:
        return (self.slot,)


class Rmdir(_Action, frozen=True):
    """Remove an empty directory."""

    slot: Slot

    def slots_touched(self) -> tuple[Slot, ...]:
        return (self.slot,)


class Mkdir(_Action, frozen=True):
    """Make a directory that was taken locally because the shared file system did not answer."""

    slot: Slot

    def slots_touched(self) -> tuple[Slot, ...]:
        return (self.slot,)


class Symlink(_Action, frozen=True):
    """Make a symbolic link."""

    slot: Slot

    def slots_touched(self) -> tuple[Slot, ...]:
        return (self.slot,)


class Attributes(_Action, frozen=True):
    """Bring mode, owner, times and xattrs of a published file or directory up to date."""


Action = Publish | Rename | Link | Unlink | Rmdir | Mkdir | Symlink | Attributes
