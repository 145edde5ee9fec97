"""How much of the store's room is taken. Pure; the store's lock guards it."""

from __future__ import annotations


class Room:
    """Bytes by file name; `limit_bytes` None: only the disk is the limit."""

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._sizes: dict[str, int] = {}

    def take(self, name: str, size_bytes: int) -> None:
        """`name` has this many bytes now."""
        self.drop(name)
        self._sizes[name] = size_bytes
        self.used_bytes += size_bytes

    def drop(self, name: str) -> None:
        """`name` is gone."""
        self.used_bytes -= self._sizes.pop(name, 0)

    def rename(self, old: str, new: str) -> None:
        """The bytes of `old` are called `new`."""
        self.take(new, self._sizes.get(old, 0))
        self.drop(old)

    def size_of(self, name: str) -> int:
        """The bytes of `name`; 0 when it is not there."""
        return self._sizes.get(name, 0)

    def free_bytes(self, disk_free_bytes: int) -> int:
        """What can still be stored, with this much free on the disk."""
        if self.limit_bytes is None:
            return disk_free_bytes
        return max(0, min(disk_free_bytes, self.limit_bytes - self.used_bytes))
