"""Carries a schedule of contention out: writers on another host, the storage host's link."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from tools.experiments.varying.child import Child
from tools.experiments.varying.contention import Segment
from tools.hosts.cluster import Cluster


class Weather:
    """A context manager: it lasts for the block, and the sky is clear after it."""

    def __init__(
        self, cluster: Cluster, noise: Child, segments: Iterator[Segment], rate_bits: int
    ) -> None:
        self.segments: list[tuple[float, Segment]] = []
        self.error: Exception | None = None
        self._cluster = cluster
        self._noise = noise
        self._coming = segments
        self._rate_bits = rate_bits
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Weather:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._noise.say("0")
        self._cluster.limit_storage(f"{self._rate_bits}bit")
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            for segment in self._coming:
                self._begin(segment)
                self.segments.append((time.time(), segment))
                if self._over.wait(segment.lasts_s):
                    return
        except Exception as error:  # told by __exit__
            self.error = error

    def _begin(self, segment: Segment) -> None:
        self._noise.say(str(segment.writers))
        self._cluster.limit_storage(f"{segment.rate_bits}bit")
