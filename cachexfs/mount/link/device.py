"""System calls on /dev/fuse: open it, mount with it, register backing files."""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct

from cachexfs.mount.link import codec

_MAGIC = 229
_BACKING_MAP = struct.Struct("=iIQ")  # struct fuse_backing_map: fd, flags, padding
_BACKING_OPEN = (1 << 30) | (_BACKING_MAP.size << 16) | (_MAGIC << 8) | 1
_BACKING_CLOSE = (1 << 30) | (4 << 16) | (_MAGIC << 8) | 2
"""FUSE_DEV_IOC_BACKING_OPEN and _CLOSE of linux/fuse.h: _IOW(229, 1, ...), _IOW(229, 2, uint32)."""

_MNT_DETACH = 2
_FLAGS = {"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024}
"""MS_* of linux/mount.h."""


def open_device() -> int:
    """A new, unmounted connection to the kernel. Raises OSError."""
    return os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def mount(device: int, source: str, mountpoint: str, options: frozenset[str]) -> None:
    """Mount on `mountpoint` what answers at `device`. Raises OSError."""
    flags = _FLAGS["nosuid"] | _FLAGS["nodev"]
    for option in options & _FLAGS.keys():
        flags |= _FLAGS[option]
    data = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    data += ",allow_other,default_permissions"
    arguments = (source.encode(), os.fsencode(mountpoint), b"fuse.cachexfs", flags, data.encode())
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), mountpoint)


def unmount(mountpoint: str) -> None:
    """Take the mount out of the tree at once; it ends when nobody uses it. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(mountpoint), _MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), mountpoint)


def register(device: int, fd: int) -> int:
    """Register an open file as a backing file; returns its id. Raises OSError.

    EPERM without CAP_SYS_ADMIN; ELOOP for a file on a stacked file system; EOPNOTSUPP where the
    kernel did not agree to passthrough.
    """
    packed = bytearray(_BACKING_MAP.pack(fd, 0, 0))
    return int(fcntl.ioctl(device, _BACKING_OPEN, packed, True))


def unregister(device: int, backing_id: int) -> None:
    """Give a backing id up; files that are open with it go on. Raises OSError."""
    fcntl.ioctl(device, _BACKING_CLOSE, struct.pack("=I", backing_id))


def is_mounted(device: int) -> bool:
    """Whether the connection still has its mount. Asks nobody, and takes no request."""
    poll = select.poll()
    poll.register(device, 0)
    return not poll.poll(0)


def ask_again(device: int) -> None:
    """Let the kernel send every unanswered request again. Raises OSError."""
    os.write(device, codec.resend())
