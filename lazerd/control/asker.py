"""Who asks: the kernel says so (SO_PEERCRED), and nobody else is believed."""

from __future__ import annotations

import grp
import os
import pwd
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

import trio

_UCRED = struct.Struct("iII")
"""struct ucred of unix(7): pid, uid, gid."""


@dataclass(frozen=True, slots=True)
class Asker:
    """One end of a connection. An operator sees and may touch everybody's jobs."""

    uid: int
    gid: int
    is_operator: bool = False

    @property
    def name(self) -> str:
        """The user's name, or the number of one without."""
        return name_of(self.uid)

    def groups(self) -> tuple[int, ...]:
        """The user's supplementary groups, as a login would give them."""
        try:
            return tuple(os.getgrouplist(pwd.getpwuid(self.uid).pw_name, self.gid))
        except KeyError:
            return (self.gid,)


def asker_of(operators: str) -> Callable[[trio.socket.SocketType], Asker]:
    """Reads who is at the other end; `operators` is the group whose members are operators."""

    def read(link: trio.socket.SocketType) -> Asker:
        packed = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        _, uid, gid = _UCRED.unpack(packed)
        everything = uid in (0, os.geteuid()) or _is_member(uid, gid, operators)
        return Asker(uid, gid, everything)

    return read


def name_of(uid: int) -> str:
    """The name of a user."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def uid_of(name: str) -> int:
    """The number of a user; -1, whom nobody is, for a name that is not known here."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return int(name) if name.isdecimal() else -1


def _is_member(uid: int, gid: int, group: str) -> bool:
    if not group:
        return False
    try:
        found = grp.getgrnam(group)
    except KeyError:
        return False
    return gid == found.gr_gid or name_of(uid) in found.gr_mem
