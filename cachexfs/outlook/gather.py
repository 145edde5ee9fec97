"""Asking the daemon and reading the store."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cachexfs.client import Client
from cachexfs.control.foresight import Knowledge
from cachexfs.durability.forecast import Model
from cachexfs.durability.paths import Decision
from cachexfs.measurements.record import Record, samples
from cachexfs.measurements.store import Store

FIT_WITH_AT_LEAST = 8
"""Records that are worth a fit of our own, where the daemon has made none yet."""


@dataclass
class Gathered:
    """Everything that a forecast is made of. `notes`: what could not be had, and why."""

    known: Knowledge
    model: Model
    records: list[Record] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def gather(client: Client, below: str) -> Gathered:
    """Of the mount that `client` asks, for what is at and below a path. Raises `CacheXError`."""
    known = Knowledge.of(client.ask("forecast", path=below))
    made = Gathered(known, known.model())
    try:
        store = Store(Path(known.store), readonly=True)
        try:
            made.records = store.records()
            made.decisions = _decisions(store)
        finally:
            store.close()
    except sqlite3.Error as error:
        made.notes.append(f"the measurements in {known.store} cannot be read: {error}")
    _fit_if_never(made)
    return made


def _fit_if_never(made: Gathered) -> None:
    if any(fit.samples for fit in made.known.fits):
        return
    measured = samples(made.records)
    if len(measured) < FIT_WITH_AT_LEAST:
        made.notes.append("little was measured yet: these are the prior's figures")
        return
    try:
        from cachexfs.durability.latency.fitting import fit_all
    except ModuleNotFoundError as error:
        made.notes.append(f"the prior's figures: {error.name} is not installed, so nothing is fit")
        return
    made.model = Model(fit_all(measured), made.known.corrections)
    made.notes.append("fitted for this forecast; the daemon has not made its first fit yet")


def _decisions(store: Store) -> list[Decision]:
    texts = [text for _, _, text in store.decisions()[-5:]]
    return [msgspec.json.decode(text, type=Decision) for text in texts]
