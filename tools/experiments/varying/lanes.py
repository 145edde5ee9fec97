"""Who saves where, in turns: a slow lane and a fast one beside it, under the same contention.

What waits for the shared file system takes its turns on the second core, one save after the other.
Meanwhile the first core saves to memory and through the mounts that answer from it, again and
again: at every moment of a slow save, good or bad, there are fast ones to hold it against. A file
is removed once it is saved, which takes its flush back: none of these saves adds to the contention,
and no RAM tier fills up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from statistics import median

from tools.experiments.varying.child import SaverChild
from tools.experiments.varying.findings import Sample
from tools.experiments.varying.plan import (
    FAST,
    HOST_OF,
    SLOW,
    WRITERS,
    Place,
    Plan,
    Profile,
    Writer,
)
from tools.experiments.varying.saver import Order
from tools.hosts.cluster import Cluster
from tools.hosts.host import Host

QUIET_S = 3.0
"""For a mount to put away what was just removed. In a stall it may wait for the shared file
system, and the next save does not wait for that."""
PAUSE_S = 0.1
_LOOK_EVERY_S = 0.05
Turn = tuple[Place, Writer]


@dataclass
class Lanes:
    """Of one run. `paths`: directory of each place."""

    plan: Plan
    cluster: Cluster
    fast: SaverChild
    slow: SaverChild
    paths: dict[Place, str]
    copy_to: str
    samples: list[Sample] = field(default_factory=list)
    _count: int = 0

    def drive(self, profile: Profile, until: float) -> None:
        """Save until `until` (time.monotonic()), and until the last slow save is over."""
        over = threading.Event()
        failures: list[BaseException] = []

        def slow_lane() -> None:
            try:
                self._slow(profile, until)
            except BaseException as error:
                failures.append(error)
            finally:
                over.set()

        thread = threading.Thread(target=slow_lane, daemon=True)
        thread.start()
        for turn in cycle(fast_turns()):
            if over.is_set():
                break
            self._save(self.fast, profile, turn)
            time.sleep(PAUSE_S)
        thread.join()
        if failures:
            raise failures[0]

    def warm_up(self) -> None:
        """One save of each kind but the slow ones, not counted."""
        for turn in dict.fromkeys(fast_turns()):
            self._save(self.fast, None, turn)

    def _slow(self, profile: Profile, until: float) -> None:
        """No save begins that is expected to end too late; one that has begun is counted."""
        took: list[float] = []
        for turn in cycle(slow_turns()):
            if time.monotonic() + (median(took) if took else 0.0) > until:
                return
            took.append(self._save(self.slow, profile, turn))

    def _save(self, saver: SaverChild, profile: Profile | None, turn: Turn) -> float:
        place, writer = turn
        self._count += 1
        path = f"{self.paths[place]}/save-{self._count}-{writer}"
        order = Order(
            path=path, writer=writer, size_bytes=self.plan.size_bytes,
            copy_to=self.copy_to if place == "copy" else "",
        )  # fmt: skip
        answer = saver.ask(order)
        saver.ask(Order(path=path, remove=True))
        if place in HOST_OF and place != "direct":
            wait_until_quiet(self.cluster.host(HOST_OF[place]))
        if profile is not None:
            self.samples.append(Sample.of(profile, writer, place, answer))
        return answer.took_s


def slow_turns() -> Iterator[Turn]:
    """Every place with every writer, and the writers one after the other."""
    return iter([(place, writer) for place in SLOW for writer in WRITERS])


def fast_turns() -> list[Turn]:
    """The same for the fast lane."""
    return [(place, writer) for turn in FAST for writer in WRITERS for place in turn]


def wait_until_quiet(host: Host, limit_s: float = QUIET_S) -> None:
    """Until a mount has nothing on its way, or for so long."""
    deadline = time.monotonic() + limit_s
    while not _is_quiet(host) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)


def _is_quiet(host: Host) -> bool:
    report = host.report()
    return not report["pending"] and not any(peer["behind_bytes"] for peer in report["peers"])
