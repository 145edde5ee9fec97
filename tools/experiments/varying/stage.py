"""One run on a cluster that is made for it and removed, whatever happens."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from cachexfs.config import Config
from cachexfs.ram import tmpfs
from tools.benchmarks.memory import touch
from tools.experiments.varying.child import Child, SaverChild
from tools.experiments.varying.contention import WRITERS, schedule
from tools.experiments.varying.findings import Findings
from tools.experiments.varying.lanes import Lanes
from tools.experiments.varying.load import Watch
from tools.experiments.varying.plan import (
    HOST_OF,
    LEVELS,
    OTHER_CORE,
    SAVING_CORE,
    Place,
    Plan,
)
from tools.experiments.varying.weather import Weather
from tools.hosts import netns
from tools.hosts.cluster import Cluster
from tools.hosts.errors import ClusterError
from tools.hosts.host import Host
from tools.hosts.spec import STORAGE, address
from tools.hosts.system import module

LISTENS_S = 20.0
SETTLES_S = 3.0
"""Between two profiles: what is queued on the storage host's link drains."""
Say = Callable[[str], None]


def perform(findings: Findings, say: Say) -> None:
    """Carry a plan out, from nothing to nothing. Raises `CacheXError` for what prevents it, with
    what was found until then in `findings`."""
    begin, plan = time.monotonic(), findings.plan
    findings.machine = _machine()
    base = {"base": os.environ["CACHEXFS_CLUSTERS"]} if "CACHEXFS_CLUSTERS" in os.environ else {}
    cluster = Cluster(
        nodes=max(LEVELS) + 1, pfs="gluster", ram_bytes=plan.ram_bytes, configure=_configured,
        **base,
    )  # fmt: skip
    say("a cluster of four hosts and a storage host comes up")
    with cluster, contextlib.ExitStack() as stack:
        lanes = _lanes(plan, cluster, stack)
        noise = _noise(cluster, stack)
        storage = netns.pids([cluster.spec.namespace(STORAGE)])
        _pin(cluster, storage)
        watch = Watch(_bricks_first(storage))
        lanes.warm_up()
        watch.start()
        stack.callback(watch.stop)
        findings.loads, findings.samples = watch.loads, lanes.samples
        _profiles(findings, lanes, noise, begin, say)
    findings.took_s = time.monotonic() - begin


def _profiles(findings: Findings, lanes: Lanes, noise: Child, begin: float, say: Say) -> None:
    plan, cluster = findings.plan, lanes.cluster
    for number, profile in enumerate(plan.profiles):
        left_s = begin + 60 * plan.minutes - time.monotonic()
        until = time.monotonic() + left_s / (len(plan.profiles) - number)
        say(f"{profile}, for {until - time.monotonic():.0f} s")
        segments = schedule(profile, plan.rate_bits, plan.seed)
        with Weather(cluster, noise, segments, plan.rate_bits) as weather:
            findings.weather[profile] = weather.segments
            lanes.drive(profile, until)
        time.sleep(SETTLES_S)


def _configured(config: Config) -> Config:
    """Each host's level of fsync."""
    level = LEVELS.get(int(config.node.name.removeprefix("host")), "captured")
    return msgspec.structs.replace(
        config,
        mount=msgspec.structs.replace(config.mount, fsync=level),
        # What is removed as soon as it is saved sends nothing to the storage host.
        policy=msgspec.structs.replace(
            config.policy, path="both" if level == "durable" else "replica"
        ),
    )


def _lanes(plan: Plan, cluster: Cluster, stack: contextlib.ExitStack) -> Lanes:
    """The savers, their directories, and the plain end of a copy to a peer."""
    work = cluster.spec.home / "experiment"
    work.mkdir()
    touch(2 * plan.ram_bytes)
    fast_host, slow_host = cluster.host(HOST_OF["replicated"]), cluster.host(HOST_OF["direct"])
    fast = SaverChild(fast_host, SAVING_CORE, plan.layers, work / "fast.log")
    stack.callback(fast.end)
    slow = SaverChild(slow_host, OTHER_CORE, plan.layers, work / "slow.log")
    stack.callback(slow.end)
    copy_to = _receiver(cluster.host(HOST_OF["noise"]), work, stack)
    fast.ready()
    slow.ready()
    return Lanes(plan, cluster, fast, slow, _directories(plan, cluster), copy_to)


def _directories(plan: Plan, cluster: Cluster) -> dict[Place, str]:
    """Of each place; the mounts' as a job makes them: through the mount."""
    native = cluster.spec.hosts / "tmpfs"  # which all hosts see, and `down` unmounts
    native.mkdir()
    tmpfs.mount(native, plan.ram_bytes, huge_pages=True)
    found: dict[Place, str] = {"tmpfs": str(native), "copy": str(native)}
    places: tuple[Place, ...] = ("captured", "replicated", "durable")
    for place in places:
        host = cluster.host(HOST_OF[place])
        directory = host.mountpoint / f"job-{place}"
        host.exec(["mkdir", directory])
        host.exec(["ls", directory])
        found[place] = str(directory)
    direct = cluster.host(HOST_OF["direct"])
    direct.exec(["mkdir", direct.source / "job-direct"])
    found["direct"] = str(direct.source / "job-direct")
    return found


def _receiver(host: Host, work: Path, stack: contextlib.ExitStack) -> str:
    """HOST:PORT of a process that takes files and fsyncs them on the peer's disk."""
    directory, printed = host.store / "plain", work / "receiver"
    directory.mkdir(parents=True)
    at = address("peers", host.number)
    command = module("tools.benchmarks.receiver", directory, at)
    process = host.popen(["taskset", "-c", str(OTHER_CORE), *command], printed)
    stack.callback(process.kill)
    deadline = time.monotonic() + LISTENS_S
    while not (text := printed.read_text()).endswith("\n"):
        if time.monotonic() > deadline:
            raise ClusterError(f"the plain receiver does not listen: {text}")
        time.sleep(0.05)
    return f"{at}:{text.strip()}"


def _noise(cluster: Cluster, stack: contextlib.ExitStack) -> Child:
    host = cluster.host(HOST_OF["noise"])
    log = cluster.spec.home / "experiment/noise.log"
    noise = Child(host, "noise", [OTHER_CORE, host.source, WRITERS], log)
    stack.callback(noise.end)
    return noise


def _pin(cluster: Cluster, storage: list[int]) -> None:
    """The storage host and the clients of its file system to the second core.

    The daemon that captures works while the program waits for it, so it gets the program's core:
    on the other one it would wait for what belongs to other hosts. One that flushes while others
    are measured stays on the second; one that replicates, and the peers, may use both.
    """
    clients = [pid for host in cluster.hosts for pid in _clients(host)]
    capturing, flushing = (
        int(cluster.host(HOST_OF[place]).report()["pid"]) for place in ("captured", "durable")
    )
    for pid in [*storage, *clients, flushing]:
        _pin_process(pid, OTHER_CORE)
    _pin_process(capturing, SAVING_CORE)
    _pin_process(os.getpid(), OTHER_CORE)


def _clients(host: Host) -> Iterator[int]:
    """The processes that serve a host's mount of the shared file system."""
    for pid in host.place.pids():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"glusterfs" in words[0]:
                yield pid


def _pin_process(pid: int, core: int) -> None:
    with contextlib.suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(task.name), {core})


def _bricks_first(pids: list[int]) -> list[int]:
    def is_brick(pid: int) -> bool:
        with contextlib.suppress(OSError):
            return b"--brick-name" in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False

    return sorted(pids, key=lambda pid: not is_brick(pid))


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release().split('-')[0]}"
