"""`cachexfs restart`: the mount stays, the daemon is another one."""

from __future__ import annotations

import time

import click

from cachexfs.client import of_path
from cachexfs.errors import CacheXError, NoSuchMount, NotRunning

_READY_S = 30.0


@click.command()
@click.argument("mountpoint", type=str)
def restart(mountpoint: str) -> None:
    """Swap the daemon of MOUNTPOINT for a new one, for instance of a new version.

    Returns when the new one answers. Programs do not notice.
    """
    client, below = of_path(mountpoint)
    if below:
        raise NoSuchMount(f"{mountpoint} is below the mount point {client.mountpoint}")
    before = client.ask("report")["mounts"][0]["pid"]
    client.ask("handover")
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        try:
            if client.ask("report")["mounts"][0]["pid"] != before:
                return
        except NotRunning:
            pass
        time.sleep(0.05)
    raise CacheXError(f"no new daemon answers for {client.mountpoint}; see its daemon.log")
