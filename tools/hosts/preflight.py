"""What a cluster needs of the machine, said in one sentence each, before anything is made."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tools.hosts.errors import ClusterError
from tools.hosts.spec import PfsKind

TOOLS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
    "umount": "mount",
}
GLUSTER_TOOLS = {
    "glusterd": "glusterfs-server",
    "glusterfs": "glusterfs-client",
    "gluster": "glusterfs-cli",
}
"""Program -> the package of Debian and Ubuntu that brings it."""


def must_be_root() -> None:
    """Raises `ClusterError`."""
    if os.geteuid() != 0:
        raise ClusterError("only root can make hosts out of namespaces: run this as root")


def missing(pfs: PfsKind) -> str:
    """What is missing on this machine, in a sentence; "" when a cluster can be had."""
    tools = {**TOOLS, **(GLUSTER_TOOLS if pfs == "gluster" else {})}
    lacking = [tool for tool in tools if shutil.which(tool) is None]
    if lacking:
        packages = " ".join(dict.fromkeys(tools[tool] for tool in lacking))
        return f"{', '.join(lacking)} missing: apt-get install {packages}"
    if not Path("/dev/fuse").exists():
        return "there is no /dev/fuse: load the fuse module, or pass the device in"
    return ""


def check(pfs: PfsKind) -> None:
    """Raises `ClusterError` for what is missing."""
    must_be_root()
    if sentence := missing(pfs):
        raise ClusterError(sentence)
