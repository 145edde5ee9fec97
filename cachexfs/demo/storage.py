"""The demo's shared storage: a directory seen through FUSE, which can be made to fail.

    python -m cachexfs.demo.storage BACKING MOUNTPOINT

Runs until its standard input ends, then unmounts. Each line read there is a JSON list of faults
(`cachexfs.demo.faults.Fault`) that takes the place of those in force, or `null` to leave them; each
is answered by one line, a `Report`, when the new faults are in force. The first line written says
that the mount is there, or why not.

Faults wait in tasks of their own, so an operation that hangs holds up no other. Nothing is cached
by the kernel, so that each call of a program meets the fault of that moment.
"""

from __future__ import annotations

import functools
import logging
import os
import resource
import signal
import sys
from pathlib import Path

import msgspec
import pyfuse3
import trio

from cachexfs.demo.backing import Backing
from cachexfs.demo.faults import Fault, Report
from cachexfs.demo.gate import Gate
from cachexfs.demo.mountpoints import detach
from cachexfs.demo.operations import Storage

FS_TYPE = "fuse.cachexfs-storage"
MAX_TASKS = 1000
"""Operations that may hang at once before the others are held up."""


async def _obey(gate: Gate) -> None:
    """Take orders until standard input ends."""
    rest = b""
    async with trio.lowlevel.FdStream(os.dup(0)) as stream:
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                _say(_order(gate, line))


def _order(gate: Gate, line: bytes) -> Report:
    try:
        faults = msgspec.json.decode(line, type=list[Fault] | None)
    except msgspec.MsgspecError as error:
        return Report(error=str(error))
    if faults is not None:
        gate.set(faults)
    return gate.report()


def _say(report: Report) -> None:
    os.write(1, msgspec.json.encode(report) + b"\n")


async def _serve(gate: Gate) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(functools.partial(pyfuse3.main, max_tasks=MAX_TASKS))
        nursery.start_soon(_end_on_signal, nursery.cancel_scope)
        _say(gate.report())
        await _obey(gate)
        nursery.cancel_scope.cancel()


async def _end_on_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()


def main(backing: str, mountpoint: str) -> int:
    """Mount, obey, unmount."""
    logging.basicConfig(format="storage: %(message)s")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    os.umask(0)
    gate = Gate()
    try:
        pyfuse3.init(Storage(Backing(Path(backing)), gate), mountpoint, _options())
    except (OSError, RuntimeError) as error:
        _say(Report(error=f"cannot mount {backing} on {mountpoint}: {error}"))
        return 1
    try:
        trio.run(_serve, gate)
    finally:
        # By another process: while something hangs, unmounting waits for this one to end.
        detach(Path(mountpoint))
    return 0


def _options() -> set[str]:
    options = {"fsname=storage", f"subtype={FS_TYPE.removeprefix('fuse.')}", "default_permissions"}
    return options | {"allow_other"} if os.geteuid() == 0 else options


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:3]))  # threads that hang in the backing directory are given up
