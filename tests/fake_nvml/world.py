"""A fake NVML for tests: GPUs, processes, samples and faults that a test sets while things run.

    pytest_plugins = ["tests.fake_nvml.fixture"]

    def test_lost(fake_nvml: FakeNvml) -> None:
        fake_nvml.gpus[0].processes[pid] = Held(used_bytes=1 << 30, sm_percent=80)
        fake_nvml.faults.append(Fault("MemoryInfo", gpu=1, code=GPU_IS_LOST))
        fake_nvml.write()          # in force from here on, in this process and in others
        subprocess.Popen([...], env=fake_nvml.environment())

nvidia-ml-py loads "libnvidia-ml.so.1". In this process the fake is loaded before it, under that
name; other processes find it through LD_LIBRARY_PATH. nvml.c says what it understands.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "FAKE_NVML_FILE"

NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, GPU_IS_LOST, UNKNOWN = 3, 4, 9, 15, 999


@dataclass
class Held:
    """What a process holds and does on a GPU; `sm_percent` None: it has run nothing lately.

    `at_us` stamps the sample, in microseconds of the wall clock; None: at the time of the call.
    """

    used_bytes: int = 1 << 30
    sm_percent: int | None = None
    at_us: int | None = None


@dataclass
class FakeGpu:
    """A GPU; its memory in use is that of its processes and `used_bytes` besides."""

    uuid: str
    used_bytes: int = 2 << 20
    reserved_bytes: int = 600 << 20
    mig: bool = False
    util_percent: int = 0
    processes: dict[int, Held] = field(default_factory=dict)
    through_mps: dict[int, Held] = field(default_factory=dict)
    desktops: dict[int, int] = field(default_factory=dict)

    def lines(self, index: int) -> Iterator[str]:
        held = {**self.processes, **self.through_mps}
        used = self.used_bytes + sum(h.used_bytes for h in held.values())
        used += sum(self.desktops.values())
        yield (
            f"gpu {index} uuid={self.uuid} name=Fake-H100 total={80 << 30} used={used} "
            f"reserved={self.reserved_bytes} mig={self.mig:d} util={self.util_percent}"
        )
        yield from (
            f"process {index} pid={p} used={h.used_bytes}" for p, h in self.processes.items()
        )
        yield from (f"mps {index} pid={p} used={h.used_bytes}" for p, h in self.through_mps.items())
        yield from (f"graphics {index} pid={p} used={used}" for p, used in self.desktops.items())
        for pid, h in held.items():
            at = "" if h.at_us is None else f" at={h.at_us}"
            if h.sm_percent is not None:
                yield f"sample {index} pid={pid} sm={h.sm_percent}{at}"


@dataclass(frozen=True)
class Fault:
    """A call, "*" for all, that fails with `code` or takes `ms`; of one GPU, or None: of all."""

    call: str = "*"
    gpu: int | None = None
    code: int | None = None
    ms: int | None = None

    def line(self) -> str:
        where = "*" if self.gpu is None else self.gpu
        if self.code is not None:
            return f"error {where} call={self.call} code={self.code}"
        return f"slow {where} call={self.call} ms={self.ms}"


class FakeNvml:
    """The world that the fake library shows; `write` makes a change of it known."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.library = library
        self.file = folder / "nvml.txt"
        self.gpus: list[FakeGpu] = []
        self.faults: list[Fault] = []
        self.extra: list[str] = []
        """Lines as nvml.c takes them."""

    def has(self, gpus: int) -> None:
        """As many empty GPUs, without faults."""
        self.gpus = [FakeGpu(f"GPU-{n:08x}") for n in range(gpus)]
        self.faults, self.extra = [], []
        self.write()

    def write(self) -> None:
        """In force when it returns, for calls that begin later."""
        lines = [line for n, gpu in enumerate(self.gpus) for line in gpu.lines(n)]
        lines += [fault.line() for fault in self.faults] + self.extra
        new = self.file.with_suffix(".new")
        new.write_text("\n".join(lines) + "\n")
        new.replace(self.file)

    def environment(self) -> dict[str, str]:
        """For another process that is to see the same."""
        return {
            **os.environ,
            VARIABLE: str(self.file),
            "LD_LIBRARY_PATH": str(self.library.parent),
        }
