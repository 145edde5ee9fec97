"""The store: one SQLite file with what the engine was told, what it decided, and every job.

Each cycle is written whole, in one transaction, before anything that it decided is done: a daemon
that dies comes back to the state from which it acted. Its calls block; the daemon makes them in a
thread, one at a time.

`synchronous=FULL`: an answer to `lazer submit` is a promise that a power cut must not take back.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lazerd.errors import LazerError, StoreDamaged, StoreFull

FILE = "lazer.db"
LOCK = "lock"
SCHEMA_VERSION = "1"
KEPT_JOBS = 50_000
"""Jobs that have ended and are still in the history; the oldest go first."""
MIN_ROOM_BYTES = 64 << 10
"""Below this the store does not open: the first commit would fail."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (
  key TEXT PRIMARY KEY, value TEXT NOT NULL);
-- What the engine was told since the snapshot, and what it answered. Replayed, it answers the same.
CREATE TABLE IF NOT EXISTS cycle (
  seq INTEGER PRIMARY KEY, at_s REAL NOT NULL, events TEXT NOT NULL, actions TEXT NOT NULL);
-- The engine after cycle `seq`; only a daemon with the same fingerprint can read it.
CREATE TABLE IF NOT EXISTS snapshot (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  seq INTEGER NOT NULL, fingerprint TEXT NOT NULL, engine BLOB NOT NULL);
-- Every job as people see it (lazerd/memory/book.py); ended_s is NULL while it lives.
CREATE TABLE IF NOT EXISTS job (
  job_id TEXT PRIMARY KEY, number INTEGER NOT NULL, uid INTEGER NOT NULL,
  ended_s REAL, record TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS job_ended ON job (ended_s, number);
-- What was decided about a job, with the numbers that it rests on.
CREATE TABLE IF NOT EXISTS decision (
  number INTEGER PRIMARY KEY, job_id TEXT NOT NULL, at_s REAL NOT NULL,
  kind TEXT NOT NULL, numbers TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS decision_job ON decision (job_id, number);
"""


@dataclass(frozen=True, slots=True)
class Cycle:
    """One call of the engine."""

    seq: int
    at_s: float
    events: str
    actions: str


@dataclass(frozen=True, slots=True)
class Row:
    """One job."""

    job_id: str
    number: int
    uid: int
    ended_s: float | None
    record: str


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision about one job."""

    job_id: str
    at_s: float
    kind: str
    numbers: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The engine after a cycle."""

    seq: int
    fingerprint: str
    engine: bytes


class Store:
    """An open store. Raises `StoreFull`, `StoreDamaged`."""

    def __init__(self, directory: Path, *, max_pages: int = 0) -> None:
        self.path = directory / FILE
        self._lock = _lock(directory)
        try:
            self._db = self._open(max_pages)
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Let another daemon open it."""
        self._db.close()
        os.close(self._lock)

    # --- what a daemon finds -------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        """A fact about the whole store."""
        with self._reading():
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def snapshot(self) -> Snapshot | None:
        """The engine as it was written down last."""
        with self._reading():
            row = self._db.execute("SELECT seq, fingerprint, engine FROM snapshot").fetchone()
        return None if row is None else Snapshot(*row)

    def cycles(self) -> Iterator[Cycle]:
        """The cycles since then, in order."""
        with self._reading():
            rows = self._db.execute("SELECT seq, at_s, events, actions FROM cycle ORDER BY seq")
            yield from (Cycle(*row) for row in rows)

    def living(self) -> list[Row]:
        """The jobs that have not ended, in the order of their submission."""
        return self._jobs("WHERE ended_s IS NULL ORDER BY number", ())

    def ended(self, limit: int, uid: int | None = None) -> list[Row]:
        """The jobs that ended last, the latest first; of one user, or of all."""
        mine, of = ("AND uid = ?", (uid,)) if uid is not None else ("", ())
        tail = f"WHERE ended_s IS NOT NULL {mine} ORDER BY ended_s DESC, number DESC LIMIT ?"
        return self._jobs(tail, (*of, limit))

    def job(self, job_id: str) -> Row | None:
        """One job, living or ended."""
        found = self._jobs("WHERE job_id = ?", (job_id,))
        return found[0] if found else None

    def last_number(self) -> int:
        """The highest number that a job was given."""
        with self._reading():
            row = self._db.execute("SELECT max(number) FROM job").fetchone()
        return int(row[0] or 0)

    def decisions(self, job_id: str, limit: int = 50) -> list[Decision]:
        """What was decided about a job, the latest last."""
        with self._reading():
            rows = self._db.execute(
                "SELECT job_id, at_s, kind, numbers FROM decision WHERE job_id = ? "
                "ORDER BY number DESC LIMIT ?",
                (job_id, limit),
            ).fetchall()
        return [Decision(*row) for row in reversed(rows)]

    # --- what a daemon writes ------------------------------------------------------------------

    def commit(
        self,
        cycle: Cycle,
        rows: Iterable[Row] = (),
        decisions: Iterable[Decision] = (),
        meta: Iterable[tuple[str, str]] = (),
    ) -> None:
        """One cycle and all that follows from it, or nothing."""
        with self._writing():
            self._db.execute(
                "INSERT INTO cycle VALUES (?, ?, ?, ?)",
                (cycle.seq, cycle.at_s, cycle.events, cycle.actions),
            )
            self._put(rows, decisions, meta)

    def put(self, rows: Iterable[Row] = (), meta: Iterable[tuple[str, str]] = ()) -> None:
        """Facts that no cycle comes with."""
        with self._writing():
            self._put(rows, (), meta)

    def compact(self, snapshot: Snapshot) -> None:
        """The engine instead of the cycles that led to it; the oldest history goes."""
        with self._writing():
            self._db.execute(
                "INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?, ?)",
                (snapshot.seq, snapshot.fingerprint, snapshot.engine),
            )
            self._db.execute("DELETE FROM cycle WHERE seq <= ?", (snapshot.seq,))
            self._db.execute(
                "DELETE FROM job WHERE ended_s IS NOT NULL AND number <= "
                "(SELECT number FROM job WHERE ended_s IS NOT NULL "
                "ORDER BY number DESC LIMIT 1 OFFSET ?)",
                (KEPT_JOBS,),
            )
            self._db.execute("DELETE FROM decision WHERE job_id NOT IN (SELECT job_id FROM job)")

    # --- small steps ---------------------------------------------------------------------------

    def _put(
        self,
        rows: Iterable[Row],
        decisions: Iterable[Decision],
        meta: Iterable[tuple[str, str]],
    ) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO job VALUES (?, ?, ?, ?, ?)",
            ((r.job_id, r.number, r.uid, r.ended_s, r.record) for r in rows),
        )
        self._db.executemany(
            "INSERT INTO decision (job_id, at_s, kind, numbers) VALUES (?, ?, ?, ?)",
            ((d.job_id, d.at_s, d.kind, d.numbers) for d in decisions),
        )
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta)

    def _jobs(self, tail: str, values: tuple[object, ...]) -> list[Row]:
        with self._reading():
            rows = self._db.execute(
                f"SELECT job_id, number, uid, ended_s, record FROM job {tail}", values
            ).fetchall()
        return [Row(*row) for row in rows]

    def _open(self, max_pages: int) -> sqlite3.Connection:
        with self._explaining():
            db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(db, max_pages)
            except BaseException:
                db.close()
                raise
        return db

    def _prepare(self, db: sqlite3.Connection, max_pages: int) -> None:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        if max_pages:
            db.execute(f"PRAGMA max_page_count={max_pages}")
        found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        db.executescript(_SCHEMA)
        db.execute("INSERT OR IGNORE INTO meta VALUES ('schema', ?)", (SCHEMA_VERSION,))
        version = db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()[0]
        if version != SCHEMA_VERSION:
            raise LazerError(f"{self.path} is of another version of lazerd (schema {version})")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._explaining():
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._explaining():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _explained(self, error: sqlite3.Error) -> LazerError:
        text = str(error)
        if "full" in text or (isinstance(error, sqlite3.OperationalError) and self._is_tight()):
            return StoreFull(
                f"there is no room for the store {self.path}: free some; nothing in it is lost"
            )
        if isinstance(error, sqlite3.OperationalError) and "malformed" not in text:
            return LazerError(f"the store {self.path} cannot be used: {text}")
        return StoreDamaged(
            f"the store {self.path} is damaged ({text}); it is left as it is: restore a copy, or "
            "let `lazerd --set-aside-store` move it aside and begin with an empty one"
        )

    def _is_tight(self) -> bool:
        room = os.statvfs(self.path.parent)
        return room.f_bavail * room.f_frsize < MIN_ROOM_BYTES


def set_aside(directory: Path) -> Path | None:
    """Move the store aside, whole; answers where to, None when there is none."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = directory / f"{FILE}.{stamp}"
    if not (directory / FILE).exists():
        return None
    for suffix in ("", "-wal", "-shm"):
        source = directory / f"{FILE}{suffix}"
        if source.exists():
            source.rename(f"{aside}{suffix}")
    return aside


def _lock(directory: Path) -> int:
    """Held for life, so that there is one daemon for a store. Raises `LazerError`."""
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        lock = os.open(directory / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LazerError(f"{directory}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise LazerError(f"another lazerd runs with {directory}") from None
    return lock
