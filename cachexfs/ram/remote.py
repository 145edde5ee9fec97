"""What another node has and the shared file system has not yet, as the mount knows it."""

from __future__ import annotations

import msgspec


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """One name, and what it stands for at its owner: see `cachexfs.peers.messages.Entry`.

    `stamp` tells entries of one name apart; `version` is of the content, `path` what the members
    that hold a copy know it by, `ino` what the owner knows it by. `at`: the object is on the shared
    file system under another name, the number of its directory there and the name.
    """

    kind: str
    owner: str
    stamp: int
    version: int
    path: bytes
    address: str = ""
    ino: int = 0
    holders: tuple[str, ...] = ()
    size_bytes: int = 0
    crcs: bytes = b""
    mode: int = 0
    uid: int = 0
    gid: int = 0
    atime_ns: int = 0
    mtime_ns: int = 0
    xattrs: dict[bytes, bytes] = {}
    target: bytes = b""
    at: tuple[int, bytes] | None = None

    @property
    def identity(self) -> tuple[str, str, int, int]:
        """The same for two names of one content."""
        return self.owner, self.kind, self.ino, self.version
