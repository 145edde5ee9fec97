"""`cachexfs status`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from cachexfs import __version__, mountstate
from cachexfs.cli.options import config_option, json_option
from cachexfs.client import SOCKET_NAME, Client, all_mounts, of_path
from cachexfs.config import load
from cachexfs.errors import CacheXError, NoSuchMount, NotRunning

_PLUGIN_CODES = {"ok": 0, "degraded": 1, "critical": 2}
"""The states as monitoring plug-ins report them: OK, WARNING, CRITICAL (3 is UNKNOWN)."""
_UNKNOWN = 3
_WATCH_S = 1.0


@click.command()
@click.argument("mountpoint", required=False, type=str)
@config_option
@json_option
@click.option("--check", is_flag=True, help="One line, and exit code 0, 1, 2 or 3.")
@click.option("--watch", is_flag=True, help="Again every second, until interrupted.")
def status(
    mountpoint: str | None, config_file: Path | None, as_json: bool, check: bool, watch: bool
) -> None:
    """How safe everything is: all mounts of this node, or MOUNTPOINT."""
    if check:
        sys.exit(_check(mountpoint, config_file))
    while True:
        report = gather(mountpoint, config_file)
        text = json.dumps(report, indent=2) if as_json else _as_text(report)
        if watch and not as_json:
            click.clear()
        click.echo(text)
        if not watch:
            return
        time.sleep(_WATCH_S)


def gather(mountpoint: str | None, config_file: Path | None) -> dict[str, Any]:
    """The report of all mounts, or of one. Raises `NotRunning`, `NoSuchMount`."""
    clients = [_client(mountpoint)] if mountpoint else _clients(config_file)
    mounts, failed = [], []
    for client in clients:
        try:
            mounts += client.ask("report")["mounts"]
        except NotRunning as error:
            failed.append(error)
    if not mounts:
        raise failed[0] if failed else NotRunning("no mount of CacheX-FS is running here")
    return {"schema": 1, "version": __version__, "mounts": mounts}


def _client(mountpoint: str) -> Client:
    client, below = of_path(mountpoint)
    if below:
        raise NoSuchMount(f"{mountpoint} is not a mount point; {client.mountpoint} is")
    return client


def _clients(config_file: Path | None) -> list[Client]:
    """The daemons below the configured state directory, and those of every mount that is there."""
    state_dir = Path(load(config_file).node.state_dir)
    clients = {str(c.socket_path): c for c in all_mounts(state_dir)}
    for mountpoint in _mounted():
        here = mountstate.directory_of(state_dir, mountpoint) / SOCKET_NAME
        if str(here) in clients:
            continue
        try:
            client, _ = of_path(mountpoint)
        except CacheXError as error:
            click.echo(f"cachexfs: {error}", err=True)
            continue
        clients.setdefault(str(client.socket_path), client)
    return list(clients.values())


def _mounted() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    fields = [line.split() for line in lines if " - fuse.cachexfs " in line]
    return [os.fsdecode(f[4].encode().decode("unicode_escape").encode("latin-1")) for f in fields]


def _as_text(report: dict[str, Any]) -> str:
    import msgspec

    from cachexfs.status.report import Report
    from cachexfs.status.text import of_report

    return of_report(msgspec.convert(report, Report))


def _check(mountpoint: str | None, config_file: Path | None) -> int:
    try:
        mounts = gather(mountpoint, config_file)["mounts"]
    except CacheXError as error:
        click.echo(f"CACHEXFS UNKNOWN - {error}")
        return _UNKNOWN
    worst = max((mount["state"] for mount in mounts), key=_PLUGIN_CODES.__getitem__)
    unsafe = sum(mount["unsafe_bytes"] for mount in mounts)
    codes = sorted({problem["code"] for mount in mounts for problem in mount["problems"]})
    word = ("OK", "WARNING", "CRITICAL")[_PLUGIN_CODES[worst]]
    click.echo(f"CACHEXFS {word} - {', '.join(codes) or 'no problems'} | unsafe={unsafe}B")
    return _PLUGIN_CODES[worst]
