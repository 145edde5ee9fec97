"""Jobs of this machine that a reboot has ended: they are pending again, never failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from lazerd.memory.book import Record
from lazerd.memory.store import Store
from lazerd.model.events import Event, Evicted, Gone

_KEY = "boot"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Another one after each boot (random(4))."""


def has_rebooted(store: Store) -> bool:
    """Whether the machine was started anew since a daemon last wrote to this store."""
    now, before = _BOOT_ID.read_text(encoding="ascii").strip(), store.meta(_KEY)
    if now != before:
        store.put(meta=[(_KEY, now)])
    return before is not None and now != before


def lost(records: Iterable[Record]) -> Iterator[Event]:
    """What to tell the engine of the jobs that held GPUs."""
    for record in records:
        if record.state in ("setup", "working"):
            yield Evicted(record.job_id)
        if record.holds_gpus:
            yield Gone(record.job_id, max(record.work_s, record.safe_s))
