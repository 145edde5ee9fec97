"""What the sensors of Slurm's nodes say: that a job works, and that it is really off its GPUs.

A sensor knows jobs by Slurm's number (SLURM_JOB_ID, the cgroup), the daemon by their name on
Slurm's command lines; tasks of arrays differ in the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

from lazerd.backend.protocol import Began, Ended, Gone, Problem, Report, Together, Working
from lazerd.backend.slurm.eyes import Eyes, NoEyes
from lazerd.backend.slurm.records import SlurmJob
from lazerd.sensor.errors import SensorError
from lazerd.sensor.fleet import Fleet
from lazerd.sensor.receiver import Receiver
from lazerd.sensor.secret import read_secret

SECRET_FILE = "/etc/lazer/secret"

UNSEEN_S = 15.0
"""So long is a look waited for that shows the GPUs of a job that has ended; a connected sensor
looks every second or so. Then Slurm's word counts."""

Reports = trio.MemorySendChannel[Report | Together]


def sensors_of(options: Mapping[str, Any]) -> Eyes:
    """As `[slurm.options]` says. ValueError, with the key, when it is wrong."""
    address = options.get("sensors", "")
    if not address:
        return NoEyes()
    try:
        return ClusterSensors(str(address), Path(options.get("secret_file", SECRET_FILE)))
    except (SensorError, ValueError) as error:
        raise ValueError(f"slurm.options.sensors: {error}") from None


class ClusterSensors:
    """The sensors that connect to `address`, HOST:PORT: `lazerd.backend.slurm.eyes.Eyes`.

    SecretError when there is no secret, ValueError when the address is none.
    """

    def __init__(self, address: str, secret_file: Path) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host or None, int(port)
        self._receiver = Receiver(read_secret(secret_file))
        self._fleet = Fleet()
        self._numbers: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._nodes: dict[str, tuple[str, ...]] = {}
        self._ended_s: dict[str, float] = {}
        self.port = 0

    async def watch(
        self, reports: Reports, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen, and report who works."""
        async with trio.open_nursery() as nursery:
            self.port = await nursery.start(self._receiver.serve, self._host, self._port)
            task_status.started()
            async for arrived in self._receiver.reports:
                for number in self._fleet.take(arrived):
                    evidence = self._fleet.evidence(number, trio.current_time())
                    await reports.send(Working(self._names[number], evidence))

    def hear(self, report: Report, job: SlurmJob | None) -> None:
        """What is reported of a job: it is watched from its begin to its end."""
        if isinstance(report, Began) and job is not None:
            self._expect(report.job_id, job)
        elif isinstance(report, Ended | Gone):
            self._forget(report.job_id)

    def is_clear(self, job_id: str) -> bool:
        """Whether a job that Slurm calls ended is off its GPUs, by looks that began after the first
        question. True when there is no sensor to say so."""
        number = self._numbers.get(job_id)
        if number is None or not set(self._nodes[number]) & set(self._receiver.nodes):
            return True
        now_s = trio.current_time()
        since_s = self._ended_s.setdefault(job_id, now_s)
        clear = self._fleet.is_clear(number, since_s)
        return now_s - since_s > UNSEEN_S if clear is None else clear

    def problems(self) -> list[Problem]:
        """Nodes with jobs, and without a sensor."""
        busy = {node for nodes in self._nodes.values() for node in nodes}
        dark = sorted(busy - set(self._receiver.nodes))
        if not dark:
            return []
        action = "Start lazer-sensor there; until then only `lazer working` ends a set-up."
        return [Problem("NoSensor", f"No sensor is connected from {', '.join(dark)}.", action)]

    def _expect(self, job_id: str, job: SlurmJob) -> None:
        number = str(job.number)
        self._numbers[job_id], self._names[number] = number, job_id
        self._nodes[number] = job.nodes
        self._ended_s.pop(job_id, None)
        self._fleet.expect(number, {held.node: held.gpus for held in job.held})

    def _forget(self, job_id: str) -> None:
        number = self._numbers.pop(job_id, None)
        self._ended_s.pop(job_id, None)
        if number is not None:
            self._fleet.forget(number)
            del self._names[number], self._nodes[number]
