"""Pure: what one look at a node's GPUs found. It also travels from `lazer-sensor` to lazerd."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec

Text = Annotated[str, msgspec.Meta(max_length=512)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]


class Health(Enum):
    """How a GPU answers."""

    OK = "ok"
    LOST = "lost"
    """It fell off the bus, needs a reset, or has answered nothing but errors for long."""
    SILENT = "silent"
    """NVML took too long, with it or with one that was asked before."""
    FAILING = "failing"
    """NVML answered with an error."""


class Process(msgspec.Struct, frozen=True):
    """A process that holds a compute context on a GPU.

    `job_id` is "" when it belongs to no job, None when that could not be found out: it is ending,
    stuck in the kernel, or not seen from here. None in the others: NVML does not say.
    """

    pid: Count
    job_id: Text | None = ""
    used_bytes: Count | None = None
    sm_percent: Percent | None = None
    """Share of the time since the reading before in which its kernels ran."""


class GpuReading(msgspec.Struct, frozen=True):
    """One GPU. `index` is NVML's; `detail` says what is wrong when `health` is not OK."""

    index: Count
    uuid: Text = ""
    name: Text = ""
    health: Health = Health.OK
    detail: Text = ""
    mig: bool = False
    processes: tuple[Process, ...] = ()
    unlisted: Text = ""
    """Why the processes cannot be listed; "" when they can."""
    blind: Text = ""
    """Why the processes' utilisation cannot be known; "" when it can."""
    busy_percent: Percent | None = None
    """Utilisation of the whole GPU over NVML's last sample period, whoever caused it."""
    used_bytes: Count | None = None
    """Memory in use, without what the driver reserves and what desktops hold."""


class Reading(msgspec.Struct, frozen=True):
    """All GPUs of a node. `problem` says why there are none, or what is not seen of all of them."""

    gpus: tuple[GpuReading, ...] = ()
    problem: Text = ""
