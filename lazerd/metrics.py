"""The tally and the queue for Prometheus, over HTTP. prometheus-client is imported when asked for.

Numbers are copied by the daemon's own task every few seconds: the thread that answers a scrape
never looks into the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import trio

from lazerd.conduct.tally import PHASES, Tally
from lazerd.errors import LazerError
from lazerd.memory.book import Record

EVERY_S = 2.0


class Metrics:
    """What is shown; `update` brings it up to date."""

    def __init__(
        self, tally: Tally, reasons_of: Callable[[Sequence[Record]], Sequence[str]]
    ) -> None:
        from prometheus_client import CollectorRegistry, Gauge
        from prometheus_client.metrics import Counter as Total

        self.registry = CollectorRegistry()
        self._tally, self._reasons_of = tally, reasons_of
        self._shown: Counter[tuple[Any, ...]] = Counter()

        def gauge(name: str, text: str, *labels: str) -> Any:
            return Gauge(f"lazer_{name}", text, labels, registry=self.registry)

        def total(name: str, text: str, *labels: str) -> Any:
            return Total(f"lazer_{name}", text, labels, registry=self.registry)

        self._jobs = gauge("jobs", "Jobs that have not ended", "state")
        self._pending = gauge("pending_jobs", "Jobs that wait, by reason", "reason")
        self._totals = {
            "submitted": total("submitted", "Jobs submitted"),
            "starts": total("starts", "Starts of jobs, those after a preemption counted"),
            "preemptions": total("preemptions", "Jobs told to go, by kind", "kind"),
            "futile": total("futile_preemptions", "Jobs preempted before they worked"),
            "deferrals": total("deferrals", "Jobs for which a preemption was put off"),
            "deferrals_ended": total("deferrals_ended", "How that ended", "how"),
            "gpu_seconds": total("gpu_seconds", "GPU time by phase of the job", "phase"),
        }

    def update(self, records: Sequence[Record]) -> None:
        """Copy what has been counted."""
        tally = self._tally
        states: Counter[str] = Counter(record.state for record in records)
        reasons = Counter(filter(None, self._reasons_of(records)))
        for family, counts in ((self._jobs, states), (self._pending, reasons)):
            family.clear()
            for label, count in counts.items():
                family.labels(label).set(count)
        self._add("submitted", (), tally.submitted)
        self._add("starts", (), tally.starts)
        self._add("futile", (), tally.futile)
        self._add("deferrals", (), tally.deferrals)
        for name, counts_by in (
            ("preemptions", tally.preemptions),
            ("deferrals_ended", tally.deferrals_ended),
        ):
            for label, count in counts_by.items():
                self._add(name, (label,), count)
        for phase in PHASES:
            self._add("gpu_seconds", (phase,), tally.gpu_s[phase])

    def _add(self, name: str, labels: tuple[str, ...], now: float) -> None:
        total = self._totals[name]
        target = total.labels(*labels) if labels else total
        target.inc(max(0.0, now - self._shown[name, labels]))
        self._shown[name, labels] = now  # type: ignore[assignment]


async def serve(
    metrics: Metrics,
    address: str,
    port: int,
    records: Callable[[], Sequence[Record]],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer scrapes until cancelled. Raises `LazerError` when the port is taken."""
    with _listening(metrics, address, port):
        task_status.started()
        while True:
            metrics.update(records())
            await trio.sleep(EVERY_S)


@contextmanager
def _listening(metrics: Metrics, address: str, port: int) -> Any:
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, address, metrics.registry)
    except OSError as error:
        raise LazerError(f"daemon.metrics_port {port}: {error.strerror}") from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
