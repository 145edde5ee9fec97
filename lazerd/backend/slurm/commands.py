"""Running Slurm's commands: a time limit, an environment of our own, errors by the table."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

import trio

from lazerd.backend.slurm.errors import Unreachable
from lazerd.backend.slurm.failures import failure_of

COMMAND_S = 15.0
"""Longer than Slurm's own MessageTimeout (10 s), so that its own sentence is heard first."""

PERSONAL = (
    "SQUEUE_",
    "SINFO_",
    "SCONTROL_",
    "SCANCEL_",
    "SLURM_CLUSTERS",
    "SLURM_JSON",
    "SLURM_YAML",
)
"""What a person sets to change what the commands print."""


class Commands:
    """Slurm's command line tools. `conf` is slurm.conf, "" for the system's."""

    def __init__(self, conf: str = "", limit_s: float = COMMAND_S, at_once: int = 8) -> None:
        self._environment = _environment(os.environ, conf)
        self._limit_s = limit_s
        self._gate = trio.CapacityLimiter(at_once)

    async def run(self, command: Sequence[str]) -> bytes:
        """What it printed; SlurmError when it failed, Unreachable when it took too long."""
        name = " ".join(command[:2])
        async with self._gate:
            try:
                done = await self._within_limit(command)
            except FileNotFoundError:
                raise Unreachable(f"{command[0]} is not installed here") from None
        if done is None:
            raise Unreachable(f"{name} did not answer within {self._limit_s:g} s")
        stderr = done.stderr.decode(errors="replace")
        if done.returncode != 0:
            raise failure_of(name, done.returncode, stderr)
        return bytes(done.stdout)

    async def _within_limit(
        self, command: Sequence[str]
    ) -> subprocess.CompletedProcess[bytes] | None:
        """None when the time ran out; the process is killed then."""
        with trio.move_on_after(self._limit_s):
            return await trio.run_process(
                list(command),
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                env=self._environment,
                deliver_cancel=_kill,
            )
        return None


async def _kill(process: trio.Process) -> None:
    process.kill()


def _environment(inherited: Mapping[str, str], conf: str) -> dict[str, str]:
    """As inherited, less what changes formats; lists of array tasks are never cut short."""
    kept = {key: value for key, value in inherited.items() if not key.startswith(PERSONAL)}
    kept |= {"SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C"}
    if conf:
        kept["SLURM_CONF"] = conf
    return kept
