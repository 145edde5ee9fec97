"""NVML through nvidia-ml-py (module pynvml), imported late: a machine without it can be asked too.

The version is pinned from 12.535.108 (the one before it reads process lists with a struct that only
some 535 drivers have) to before 14 (where names may go).

Every call here blocks, and can do so for long (a GPU that is being reset, a driver that is stuck);
`Watch` makes them through `OneAtATime`. What a call answers falls in four kinds, told apart by the
tables below: a value, "nobody" (nothing to report), a refusal (that GPU or driver does not offer
it: the reading goes on without, and says why), and trouble (with the GPU, or the whole library).
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable
from enum import IntEnum
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from lazerd.sensor.errors import NvmlUnavailable
from lazerd.sensor.reading import GpuReading, Health, Process

T = TypeVar("T")


class Code(IntEnum):
    """nvmlReturn_t of nvml.h, as far as it is told apart."""

    SUCCESS = 0
    UNINITIALIZED = 1
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18
    NO_DATA = 21
    ARGUMENT_VERSION_MISMATCH = 25
    GPU_NOT_FOUND = 28


NOBODY = {Code.SUCCESS, Code.NOT_FOUND, Code.NO_DATA}
"""No process ran a kernel. nvidia-ml-py raises SUCCESS as an error when there are no samples."""

REFUSED: dict[int, str] = {
    Code.NOT_SUPPORTED: "is not supported by this GPU",
    Code.NO_PERMISSION: "is not permitted to this user",
    Code.FUNCTION_NOT_FOUND: "is not offered by this driver",
    Code.ARGUMENT_VERSION_MISMATCH: "is not offered by this driver in this version",
}
LOST: dict[int, str] = {
    Code.NOT_FOUND: "GPU is lost (the driver does not find it any more)",
    Code.GPU_IS_LOST: "GPU is lost (it fell off the bus)",
    Code.GPU_NOT_FOUND: "GPU is lost (the driver does not find it any more)",
    Code.RESET_REQUIRED: "GPU needs a reset",
}
LIBRARY: dict[int, str] = {
    Code.UNINITIALIZED: "NVML was shut down",
    Code.DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    Code.LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 is not there or does not load: is the NVIDIA driver "
    "installed, and is this library visible here (in a container: NVIDIA_DRIVER_CAPABILITIES)?",
    Code.LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated without being reloaded",
}
"""Trouble with all of NVML. It is opened again at the next reading."""

FAILING_UNTIL_LOST_S = 10.0
"""For how long a GPU may answer nothing but other errors. One that fell off the bus often shows as
"Unknown Error" only; a passing fault does not last that long."""
CONTRADICTIONS_UNTIL_BLIND = 10
"""Readings in a row in which a GPU was busy and no process was said to be. One or two are the
difference between NVML's two sample periods; where pids are hidden (vGPU, some containers) it is
always so, and then the silence about processes proves nothing."""
CLOCK_SLACK_US = 60_000_000
"""A last sample that is further in the future than that was stamped before the clock was set back;
to ask for later ones only would mean to hear of none for that long."""
TRIES = 3
"""Of a call whose list grew between asking for its size and for its content."""


class Identity(NamedTuple):
    """What is asked for once. From then on a GPU is asked for by its UUID: it keeps its number when
    a driver that was reloaded counts anew, and its name when it is lost."""

    uuid: str
    name: str


class Nvml:
    """The library. Not thread-safe: one call at a time. `now_us` is the wall clock, in
    microseconds, which is what NVML's samples are stamped with; `clock` never goes back."""

    def __init__(
        self,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now_us = now_us
        self._clock = clock
        self._pynvml: ModuleType | None = None
        self._identities: dict[int, Identity] = {}
        self._since_us: dict[int, int] = {}
        self._failing_since_s: dict[int, float] = {}
        self._contradictions: dict[int, int] = {}

    def count(self) -> int:
        """How many GPUs there are; the library is opened if it is not. `NvmlUnavailable`."""
        nvml = self._open()
        try:
            return int(nvml.nvmlDeviceGetCount())
        except nvml.NVMLError as error:
            raise self._unavailable(error) from None

    def read(self, index: int, *, with_work: bool = True) -> GpuReading:
        """One GPU, processes without their jobs. `NvmlUnavailable` when all of NVML is in trouble;
        whatever is wrong with the GPU alone is in the reading.

        `with_work`: also what the processes did since the last reading with it.
        """
        nvml = self._open()
        try:
            reading = self._read(nvml, index, with_work)
        except nvml.NVMLError as error:
            if error.value in LIBRARY:
                raise self._unavailable(error) from None
            return self._troubled(index, error)
        self._failing_since_s.pop(index, None)
        return reading

    def close(self) -> None:
        """Shut NVML down; the next call opens it again."""
        nvml, self._pynvml = self._pynvml, None
        if nvml is not None:
            try:
                nvml.nvmlShutdown()
            except nvml.NVMLError:
                return  # it was not open any more

    # --- the library ------------------------------------------------------------------------------

    def _open(self) -> ModuleType:
        if self._pynvml is not None:
            return self._pynvml
        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
        except Exception as error:
            raise self._unavailable(error) from None
        self._pynvml = nvml
        return nvml

    def _unavailable(self, error: Exception) -> NvmlUnavailable:
        self.close()
        if isinstance(error, ImportError):
            return NvmlUnavailable("the Python package nvidia-ml-py is not installed")
        code = getattr(error, "value", -1)
        return NvmlUnavailable(LIBRARY.get(code, f"NVML says: {str(error)[:400]}"))

    def _troubled(self, index: int, error: Any) -> GpuReading:
        uuid, name = self._identities.get(index, Identity("", ""))
        if error.value in LOST:
            return GpuReading(index, uuid, name, Health.LOST, LOST[error.value])
        now_s = self._clock()
        since_s = now_s - self._failing_since_s.setdefault(index, now_s)
        if since_s < FAILING_UNTIL_LOST_S:
            return GpuReading(index, uuid, name, Health.FAILING, f"NVML says: {error}")
        detail = f"for {since_s:.0f} s NVML has said nothing but: {error}"
        return GpuReading(index, uuid, name, Health.LOST, detail)

    # --- one GPU ----------------------------------------------------------------------------------

    def _read(self, nvml: ModuleType, index: int, with_work: bool) -> GpuReading:
        if index not in self._identities:
            self._identities[index] = self._meet(nvml, index)
        uuid, name = self._identities[index]
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        mode, _ = _ask("MIG mode", lambda: nvml.nvmlDeviceGetMigMode(handle))
        held, unlisted = _ask("listing processes", lambda: _compute_processes(nvml, handle))
        rates, _ = _ask("utilisation", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        busy_percent = None if rates is None else min(100, int(rates.gpu))
        busy, blind = None, ""
        if with_work:
            busy, blind = self._work(nvml, index, handle, bool(held and busy_percent))
        return GpuReading(
            index,
            uuid,
            name,
            mig=bool(mode and mode[0]),
            processes=_processes(held or {}, busy),
            unlisted=unlisted,
            blind=blind,
            busy_percent=busy_percent,
            used_bytes=_used_bytes(nvml, handle),
        )

    def _meet(self, nvml: ModuleType, index: int) -> Identity:
        """The GPU of this index, or another that is new, if that one has another number here."""
        known = {identity.uuid for identity in self._identities.values()}
        for each in (index, *range(nvml.nvmlDeviceGetCount())):
            handle = nvml.nvmlDeviceGetHandleByIndex(each)
            uuid = nvml.nvmlDeviceGetUUID(handle)
            if uuid not in known:
                return Identity(uuid, nvml.nvmlDeviceGetName(handle))
        raise nvml.NVMLError(Code.GPU_NOT_FOUND)

    def _work(
        self, nvml: ModuleType, index: int, handle: Any, is_busy: bool
    ) -> tuple[dict[int, int] | None, str]:
        """Per cent by pid, or None and why that is not known. `is_busy`: somebody works on it."""
        what = "utilisation by process"
        busy, blind = _ask(what, lambda: self._busy_by_pid(nvml, index, handle))
        if busy is None:
            return None, blind
        contradicts = is_busy and not any(busy.values())
        count = self._contradictions.get(index, 0) + 1 if contradicts else 0
        self._contradictions[index] = count
        if count < CONTRADICTIONS_UNTIL_BLIND:
            return busy, ""
        return None, "NVML says that nobody runs kernels, and that the GPU is busy"

    def _busy_by_pid(self, nvml: ModuleType, index: int, handle: Any) -> dict[int, int]:
        """Per cent of the time since the last call in which each process ran kernels."""
        now_us = self._now_us()
        since_us = self._since_us.get(index, now_us)
        if since_us > now_us + CLOCK_SLACK_US:
            since_us = now_us
        self._since_us[index] = since_us
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(handle, since_us)
        except nvml.NVMLError as error:
            if error.value in NOBODY:
                return {}
            raise
        good = [sample for sample in samples if _is_sample(sample, since_us)]
        self._since_us[index] = max((s.timeStamp for s in good), default=since_us)
        return {sample.pid: sample.smUtil for sample in good}


def _ask(what: str, call: Callable[[], T]) -> tuple[T | None, str]:
    """What the call gives and "", or None and why it is refused. Trouble is raised."""
    for left in reversed(range(TRIES)):
        try:
            return call(), ""
        except Exception as error:
            code = getattr(error, "value", None)
            if code == Code.INSUFFICIENT_SIZE and left:
                continue
            if code not in REFUSED:
                raise
            return None, f"{what} {REFUSED[code]}"
    raise AssertionError("unreachable: the last try returns or raises")


def _compute_processes(nvml: ModuleType, handle: Any) -> dict[int, int | None]:
    """Bytes by pid, of processes with a compute context of their own or through MPS."""
    held = _bytes_by_pid(nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle))
    through_mps, _ = _ask("", lambda: nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle))
    return {**_bytes_by_pid(through_mps or ()), **held}


def _bytes_by_pid(found: Iterable[Any]) -> dict[int, int | None]:
    held: dict[int, int | None] = {}
    for process in found:  # with MIG, one pid appears once for each instance
        used = process.usedGpuMemory
        held[process.pid] = used if used is None else used + (held.get(process.pid) or 0)
    return held


def _is_sample(sample: Any, since_us: int) -> bool:
    """The driver fills the array with entries of no process, of earlier times, of absurd values."""
    return bool(sample.pid and sample.timeStamp > since_us and sample.smUtil <= 100)


def _processes(held: dict[int, int | None], busy: dict[int, int] | None) -> tuple[Process, ...]:
    """Those that hold a context. One with samples but without a context has gone meanwhile."""
    return tuple(
        Process(pid, "", used, None if busy is None else busy.get(pid, 0))
        for pid, used in sorted(held.items())
    )


def _used_bytes(nvml: ModuleType, handle: Any) -> int | None:
    # Version 2 counts what the driver reserves apart; drivers before 510 know version 1 only.
    memory, _ = _ask("", lambda: nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2))
    if memory is None:
        memory, _ = _ask("", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    if memory is None:
        return None
    desktops, _ = _ask("", lambda: nvml.nvmlDeviceGetGraphicsRunningProcesses_v3(handle))
    shown = sum(process.usedGpuMemory or 0 for process in desktops or ())
    return max(0, int(memory.used) - shown)
