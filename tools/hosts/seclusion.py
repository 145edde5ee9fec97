"""A mount namespace for a host, in which one path leads to the host's own shared file system.

What is mounted below the directory `hosts` goes on being shared with everybody, so that a host's
mounts are seen from outside. All other mounts become private here. And those of our kind that
belong to somebody else are dropped from here: this copy would keep a file system alive whose owner
has unmounted it.

The functions with an underscore run inside, in a process of their own:

    python -m tools.hosts.seclusion hold HOSTS
    python -m tools.hosts.seclusion show SOURCE PATH

A process that sleeps, on the switch and not on the host, keeps the namespace. Binding it to a file
as `unshare --mount=FILE` does was refused now and then (EINVAL, Linux 6.18) where the caller was
in a mount namespace of its own, as in a container: it asks that namespaces be numbered by age.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tools.hosts import mounts, netns
from tools.hosts.place import Place
from tools.hosts.system import module, system

_MS_BIND, _MS_PRIVATE = 1 << 12, 1 << 18  # mount(2)
_MNT_DETACH = 2  # umount2(2)
_OURS = ("fuse.cachexfs", "fuse.cachexfs-storage")
_OUR_RAM = "cachexfs-ram"

_MODULE = "tools.hosts.seclusion"
_libc = ctypes.CDLL(None, use_errno=True)


def create(file: Path, hosts: Path, switch: str) -> None:
    """Make a namespace; `file` gets the pid of the process that keeps it."""
    outside = ["nsenter", f"--net={netns.file_of(switch)}", "unshare", "--mount"]
    told = system(*outside, "--propagation", "unchanged", *module(_MODULE, "hold", hosts))
    file.write_text(told)


def show(place: Place, source: Path, path: Path) -> None:
    """Let `path` lead to what is mounted at `source`, on this host and nowhere else."""
    system(*place.inside(module(_MODULE, "show", source, path)))


def _hold(hosts: Path) -> None:
    _seclude(hosts)
    if (pid := os.fork()) != 0:
        print(pid)
        return
    os.setsid()
    os.chdir("/")
    for fd in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    os.execvp("sleep", ["sleep", "infinity"])


def _seclude(hosts: Path) -> None:
    others = [each for each in mounts.everything() if not each.path.is_relative_to(hosts)]
    for mount in others:
        _libc.mount(None, os.fsencode(mount.path), None, _MS_PRIVATE, None)
    # After all are private, for no unmount may reach the outside. A path leads to the uppermost of
    # several mounts only, and one below it is still shared, so those stay.
    paths = [each.path for each in others]
    for mount in reversed(others):
        if _is_of_our_kind(mount, hosts.parent.parent) and paths.count(mount.path) == 1:
            _libc.umount2(os.fsencode(mount.path), _MNT_DETACH)


def _is_of_our_kind(mount: mounts.Mounted, base: Path) -> bool:
    of_a_cluster = mount.is_fuse and mount.path.is_relative_to(base)
    return of_a_cluster or mount.fs_type in _OURS or mount.source == _OUR_RAM


def _show(source: Path, path: Path) -> None:
    # Not umount(8): where nothing is mounted on `path` it takes it for the name of a device, and
    # unmounts what has that name; and our mounts have it.
    for _ in mounts.at(path):
        _libc.umount2(os.fsencode(path), _MNT_DETACH)
    for arguments in ((os.fsencode(source), _MS_BIND), (None, _MS_PRIVATE)):
        origin, flags = arguments
        if _libc.mount(origin, os.fsencode(path), None, flags, None) != 0:
            sys.exit(f"{source} cannot be shown at {path}: {os.strerror(ctypes.get_errno())}")


_VERBS: dict[str, Callable[..., None]] = {"hold": _hold, "show": _show}

if __name__ == "__main__":
    _VERBS[sys.argv[1]](*map(Path, sys.argv[2:]))
