"""Paths from the wire. They are bytes, so every name that Linux allows survives, UTF-8 or not.

A path that passes has one spelling: names of 1 to 255 bytes joined by single slashes. So two paths
are the same file exactly when they are the same bytes, and no path leaves the volume.
"""

from __future__ import annotations

MAX_PATH_BYTES = 4095
"""PATH_MAX of Linux without the final zero byte."""
MAX_NAME_BYTES = 255
"""NAME_MAX of Linux."""


class BadPath(ValueError):
    """A path that no honest sender sends; `str()` says what is wrong with it."""


def check(path: bytes) -> bytes:
    """`path` itself, if it names something below the volume's root. Raises `BadPath`."""
    if not path:
        raise BadPath("an empty path")
    return check_prefix(path)


def check_prefix(path: bytes) -> bytes:
    """As `check`, but the empty path, which is the root, passes too."""
    if len(path) > MAX_PATH_BYTES:
        raise BadPath(f"a path of {len(path)} bytes: at most {MAX_PATH_BYTES}")
    if path and (wrong := next(filter(None, map(_fault, path.split(b"/"))), None)):
        raise BadPath(f"{path[:200]!r}: {wrong}")
    return path


def _fault(name: bytes) -> str | None:
    if not name:
        return "an empty name (absolute, doubled or final slash)"
    if name in (b".", b".."):
        return f"{name.decode()} is not a name"
    if b"\0" in name:
        return "a zero byte"
    return f"a name over {MAX_NAME_BYTES} bytes" if len(name) > MAX_NAME_BYTES else None


def ancestors(path: bytes) -> list[bytes]:
    """The directories above `path`, outermost first, without the root."""
    names = path.split(b"/")
    return [b"/".join(names[:depth]) for depth in range(1, len(names))]
