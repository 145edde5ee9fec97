"""The measurements on disk: SQLite in the state directory of the mount. Blocking.

No WAL: a reader without the right to write (`cachexfs forecast` of another user) can open it then.
`synchronous` is off: what the last second measured may be lost with the machine.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from cachexfs.durability.latency.fit import PhaseFit
from cachexfs.durability.lost_work import Lifetime
from cachexfs.measurements.record import KINDS, Record

KEPT = 2000
"""Records of each kind: some days of hourly checkpoints of a hundred files, and half a megabyte."""

_ADDED = {
    "behind_bytes": "INTEGER NOT NULL DEFAULT 0",
    "composed": "TEXT NOT NULL DEFAULT '[]'",
}
"""Columns that stores of earlier versions have not."""

_LISTS = ("quantiles", "composed")

DECISIONS_KEPT = 200
FILE_NAME = "measurements.db"
BUSY_S = 5.0

_COLUMNS = (
    "id", "phase", "size_bytes", "begin_s", "elapsed_s", "state", "source", "path", "job",
    "ahead_bytes", "beside_bytes", "behind_bytes",
)  # fmt: skip

SCHEMA = """
-- One stretch of one file's way; see measurements/record.py. quantiles, composed: JSON lists.
CREATE TABLE IF NOT EXISTS record (
    id INTEGER PRIMARY KEY, phase TEXT NOT NULL, size_bytes INTEGER NOT NULL, begin_s REAL NOT NULL,
    elapsed_s REAL NOT NULL, state TEXT NOT NULL, source TEXT NOT NULL, path TEXT NOT NULL,
    job TEXT NOT NULL, ahead_bytes INTEGER NOT NULL, beside_bytes INTEGER NOT NULL,
    quantiles TEXT NOT NULL, behind_bytes INTEGER NOT NULL DEFAULT 0,
    composed TEXT NOT NULL DEFAULT '[]'
);
CREATE INDEX IF NOT EXISTS record_by_phase ON record (phase, id);

-- The fits in force, as JSON of durability/latency/fit.py.
CREATE TABLE IF NOT EXISTS fit (phase TEXT, source TEXT, fit TEXT NOT NULL,
    PRIMARY KEY (phase, source));

-- Paths that were chosen, as JSON of durability/paths.py.
CREATE TABLE IF NOT EXISTS decision (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, file TEXT NOT NULL,
    decision TEXT NOT NULL
);

-- When this mount's daemon ran: the failures of the node are the boots between which it did not
-- end in order.
CREATE TABLE IF NOT EXISTS lifetime (
    boot TEXT PRIMARY KEY, begin_s REAL NOT NULL, seen_s REAL NOT NULL, orderly INTEGER NOT NULL
);
"""


class Store:
    """One file. One user at a time, from whichever thread."""

    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        where = f"{path.absolute().as_uri()}?mode={'ro' if readonly else 'rwc'}"
        self._db = sqlite3.connect(
            where, uri=True, isolation_level=None, timeout=BUSY_S, check_same_thread=False
        )
        if not readonly:
            self._db.execute("PRAGMA synchronous = OFF")
            self._db.executescript(SCHEMA)
            self._add_missing_columns()

    def close(self) -> None:
        """It cannot be used after that."""
        self._db.close()

    def _add_missing_columns(self) -> None:
        """A store of an earlier version is taken up."""
        known = self._columns()
        for column in _ADDED:
            if column not in known:
                self._db.execute(f"ALTER TABLE record ADD COLUMN {column} {_ADDED[column]}")

    def _columns(self) -> list[str]:
        return [column for _, column, *_ in self._db.execute("PRAGMA table_info(record)")]

    # --- records --------------------------------------------------------------------------------

    def give_up_running(self) -> None:
        """What was running when the last daemon ended took longer than it had been seen to."""
        self._db.execute("UPDATE record SET state = 'given up' WHERE state = 'running'")

    def last_id(self) -> int:
        """The largest id; 0 without records."""
        return int(self._db.execute("SELECT coalesce(max(id), 0) FROM record").fetchone()[0])

    def save(self, records: Iterable[Record]) -> None:
        """Insert, or write over what is there under the same id; then forget what is too old."""
        rows = [
            (
                *(getattr(record, column) for column in _COLUMNS),
                *(json.dumps(getattr(record, column)) for column in _LISTS),
            )
            for record in records
        ]
        marks = ", ".join("?" * (len(_COLUMNS) + len(_LISTS)))
        self._db.execute("BEGIN IMMEDIATE")
        columns = ", ".join((*_COLUMNS, *_LISTS))
        self._db.executemany(f"INSERT OR REPLACE INTO record ({columns}) VALUES ({marks})", rows)
        for kind in KINDS:
            self._db.execute(
                "DELETE FROM record WHERE phase = ? AND id <= (SELECT id FROM record "
                "WHERE phase = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (kind, kind, KEPT),
            )
        self._db.execute("COMMIT")

    def records(self) -> list[Record]:
        """All of them, oldest first. Reads the file of an earlier version too."""
        return self._found("ORDER BY id")

    def newest(self, kind: str, count: int, since_s: float) -> list[Record]:
        """The last of one kind that began since then and ended, in the order of their ends."""
        found = self._found(
            "WHERE phase = ? AND state = 'ended' AND begin_s >= ? ORDER BY id DESC LIMIT ?",
            (kind, since_s, count),
        )
        return sorted(found, key=lambda record: record.begin_s + record.elapsed_s)

    def _found(self, how: str, values: tuple[object, ...] = ()) -> list[Record]:
        known = self._columns()
        columns = [column for column in (*_COLUMNS, *_LISTS) if column in known]
        rows = self._db.execute(f"SELECT {', '.join(columns)} FROM record {how}", values)
        return [_record(dict(zip(columns, row, strict=True))) for row in rows]

    # --- fits -----------------------------------------------------------------------------------

    def save_fits(self, fits: Iterable[PhaseFit]) -> None:
        """Replace all fits."""
        rows = [(fit.phase, fit.source, msgspec.json.encode(fit).decode()) for fit in fits]
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("DELETE FROM fit")
        self._db.executemany("INSERT INTO fit VALUES (?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def fits(self) -> list[PhaseFit]:
        """The fits in force. Those of a version that this one cannot read are left out."""
        found = []
        for (text,) in self._db.execute("SELECT fit FROM fit ORDER BY phase, source"):
            try:
                found.append(msgspec.json.decode(text, type=PhaseFit))
            except msgspec.ValidationError:
                continue
        return found

    # --- decisions ------------------------------------------------------------------------------

    def save_decisions(self, decisions: Iterable[tuple[float, str, str]]) -> None:
        """(when, which file, the decision as JSON); the newest are kept."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(
            "INSERT INTO decision (at_s, file, decision) VALUES (?, ?, ?)", decisions
        )
        self._db.execute(
            "DELETE FROM decision WHERE id <= (SELECT max(id) FROM decision) - ?", (DECISIONS_KEPT,)
        )
        self._db.execute("COMMIT")

    def decisions(self) -> list[tuple[float, str, str]]:
        """(when, which file, the decision as JSON), oldest first."""
        return list(self._db.execute("SELECT at_s, file, decision FROM decision ORDER BY id"))

    # --- lifetimes ------------------------------------------------------------------------------

    def alive(self, boot: str, now_s: float, *, orderly: bool = False) -> None:
        """A daemon of this boot of the machine runs, or ends in order."""
        self._db.execute(
            "INSERT INTO lifetime VALUES (?, ?, ?, ?) ON CONFLICT (boot) DO UPDATE SET "
            "seen_s = excluded.seen_s, orderly = excluded.orderly",
            (boot, now_s, now_s, orderly),
        )

    def lifetimes(self) -> list[Lifetime]:
        """Boots of the machine during which the mount ran, oldest first."""
        rows = self._db.execute(
            "SELECT begin_s, seen_s, orderly FROM lifetime ORDER BY begin_s"
        ).fetchall()
        last = len(rows) - 1
        return [Lifetime(b, s, not orderly and i < last) for i, (b, s, orderly) in enumerate(rows)]


def _record(row: dict[str, Any]) -> Record:
    lists = {column: tuple(json.loads(row[column])) for column in _LISTS if column in row}
    return Record(**{**row, **lists})
