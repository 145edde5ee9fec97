"""The manifest: which replica has which data file. SQLite, and nothing but rows.

    replica   one row per (volume, path). `record` is the `Replica` in MessagePack; the columns
              beside it are what is searched for. `data` is the number of the data file (NULL for
              what has no content); hard links share one. A row of kind "gone" is a tombstone.
              `by` is the session whose order made the row: within a session the order of arrival
              decides, across sessions the clocks do.
    session   what was carried out for an owner's link: the last order's id, and the refused ones.

Not for two threads at a time; the store's lock sees to that. Every method that writes runs inside
`transaction`, and the data files that it orphans are in `garbage` after the commit.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from cachexfs.peers import paths
from cachexfs.peers.messages import Replica
from cachexfs.peers.refusal import Refusal
from cachexfs.peers.replicas import settles

_SCHEMA = """
CREATE TABLE IF NOT EXISTS replica (
  volume TEXT NOT NULL, path BLOB NOT NULL, record BLOB NOT NULL, kind TEXT NOT NULL,
  closed_at_ns INTEGER NOT NULL, durable INTEGER NOT NULL, data INTEGER, by BLOB NOT NULL,
  PRIMARY KEY (volume, path));
CREATE INDEX IF NOT EXISTS replica_data ON replica (data);
CREATE INDEX IF NOT EXISTS replica_age ON replica (durable, closed_at_ns);
CREATE TABLE IF NOT EXISTS session (
  session BLOB PRIMARY KEY, done_id INTEGER NOT NULL, refused BLOB NOT NULL,
  used_at_ns INTEGER NOT NULL);
"""
_BELOW = "volume = ? AND (path = ? OR (path > ? AND path < ?))"
_COLUMNS = "record, path, data, by"
REMEMBERED_REFUSALS = 256
"""More than a sender has unanswered at a time (`sender.WINDOW_ORDERS`)."""

_replicas = msgspec.msgpack.Decoder(Replica)
_refusals = msgspec.msgpack.Decoder(list[tuple[int, str, str]])


class Row(NamedTuple):
    """A replica (its path is the row's), its data file and the session that put it there."""

    replica: Replica
    data: int | None
    by: bytes


class Progress(NamedTuple):
    """How far the orders of a session were carried out; `refused` as (id, code, detail)."""

    done_id: int = 0
    refused: list[tuple[int, str, str]] = []


class Manifest:
    """Raises `sqlite3.Error` from everything that touches the disk, `OSError` when it is made."""

    def __init__(self, path: Path) -> None:
        # SQLite would make it with the umask's mode, and gives its other files the same one.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        os.close(os.open(path, flags, 0o600))
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_SCHEMA)
        self.garbage: set[int] = set()

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; on disk when the block is left."""
        before = set(self.garbage)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._keep_referenced()
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self.garbage = before
            raise

    def take_garbage(self) -> set[int]:
        """Data files without a row, since the last call; the caller deletes them."""
        taken, self.garbage = self.garbage, set()
        return taken

    # --- questions ------------------------------------------------------------------------------

    def get(self, volume: str, path: bytes) -> Row | None:
        """The row of a path, a tombstone included."""
        query = f"SELECT {_COLUMNS} FROM replica WHERE volume = ? AND path = ?"
        row = self._db.execute(query, (volume, path)).fetchone()
        return _row(row) if row else None

    def below(self, volume: str, prefix: bytes, after: bytes, count: int) -> list[Row]:
        """Up to `count` rows of `prefix` and what is below it, by path, beyond `after`."""
        where, values = (_BELOW, _range(volume, prefix)) if prefix else ("volume = ?", (volume,))
        query = f"SELECT {_COLUMNS} FROM replica WHERE {where} AND path > ? ORDER BY path LIMIT ?"
        return [_row(row) for row in self._db.execute(query, (*values, after, count))]

    def volumes(self) -> list[str]:
        """The volumes that have a replica, by name."""
        query = "SELECT DISTINCT volume FROM replica WHERE kind != 'gone' ORDER BY volume"
        return [name for (name,) in self._db.execute(query)]

    def not_durable(self, count: int) -> list[Replica]:
        """Files that the shared file system may not have, oldest close first."""
        query = (
            f"SELECT {_COLUMNS} FROM replica WHERE NOT durable AND data IS NOT NULL "
            "ORDER BY closed_at_ns LIMIT ?"
        )
        return [_row(row).replica for row in self._db.execute(query, (count,))]

    def latest_ns(self) -> int:
        """The latest close or deletion; 0 when there is none."""
        (latest,) = self._db.execute("SELECT max(closed_at_ns) FROM replica").fetchone()
        return latest or 0

    def data_files(self) -> set[int]:
        """Every data file that some row refers to."""
        query = "SELECT DISTINCT data FROM replica WHERE data IS NOT NULL"
        return {number for (number,) in self._db.execute(query)}

    def progress(self, session: bytes) -> Progress:
        """How far this session's orders were carried out."""
        query = "SELECT done_id, refused FROM session WHERE session = ?"
        row = self._db.execute(query, (session,)).fetchone()
        return Progress(row[0], _refusals.decode(row[1])) if row else Progress()

    # --- changes, inside a transaction ----------------------------------------------------------

    def put(self, replica: Replica, data: int | None, by: bytes) -> bool:
        """Replace what the path has; False (nothing done) when that, or a deletion, is newer."""
        if data is not None:
            self.garbage.add(data)
        if self.settled(replica, by):
            return False
        if replica.kind == "directory":
            self._delete(replica.volume, replica.path)
        else:
            self._take_below(replica.volume, replica.path)
        self._insert(Row(replica, data, by))
        return True

    def settled(self, replica: Replica, by: bytes) -> bool:
        """Whether putting this replica would change nothing."""
        if self._deleted_later(replica, by):
            return True
        held = self.get(replica.volume, replica.path)
        return held is not None and held.replica.kind != "gone" and settles(held.replica, replica)

    def rename(self, volume: str, old: bytes, new: bytes, by: bytes) -> None:
        """Move a subtree, replacing what is there. Raises `Refusal` (NotFound, BadPath).

        Of what is not held here it is known all the same that the new name is there again.
        """
        if new.startswith(old + b"/"):
            raise Refusal("BadPath", "a directory cannot be renamed into itself")
        self._unbury(volume, new)
        moved = self._live(volume, old)
        if old == new:
            return
        self._take_below(volume, old)
        self._take_below(volume, new)
        for row in moved:
            self._insert(_moved(row, old, new, by))
        self._bury(volume, old, max(row.replica.closed_at_ns for row in moved), by)

    def exchange(self, volume: str, old: bytes, new: bytes, by: bytes) -> None:
        """Swap two subtrees. Raises `Refusal` (NotFound, BadPath)."""
        if new.startswith(old + b"/") or old.startswith(new + b"/"):
            raise Refusal("BadPath", "a directory cannot be exchanged with what is in it")
        self._unbury(volume, old)
        self._unbury(volume, new)
        here, there = self._live(volume, old), self._live(volume, new)
        self._take_below(volume, old)
        self._take_below(volume, new)
        for row in here:
            self._insert(_moved(row, old, new, by))
        for row in there if old != new else []:
            self._insert(_moved(row, new, old, by))

    def unlink(self, volume: str, path: bytes, at_ns: int, by: bytes) -> None:
        """Delete a subtree, except what is newer and not of this session; leave a tombstone."""
        kept = [
            row
            for row in self._take_below(volume, path)
            if row.by != by and row.replica.closed_at_ns > at_ns
        ]
        for row in kept:
            self._insert(row)
        if not any(row.replica.path == path for row in kept):
            self._bury(volume, path, at_ns, by)

    def link(self, volume: str, old: bytes, new: bytes, by: bytes) -> None:
        """A second row with the same data file. Raises `Refusal` (NotFound)."""
        self._unbury(volume, new)
        held = self._one(volume, old)
        if old != new:
            self._take_below(volume, new)
            self._insert(_moved(held, old, new, by))

    def replace(self, volume: str, path: bytes, **changes: object) -> None:
        """Change fields of a replica. Raises `Refusal` (NotFound)."""
        held = self._one(volume, path)
        self._delete(volume, path)
        self._insert(held._replace(replica=msgspec.structs.replace(held.replica, **changes)))

    def mark_durable(self, volume: str, path: bytes, version: int) -> None:
        """This version needs its replica no more; another one is left as it is."""
        if self._one(volume, path).replica.version == version:
            self.replace(volume, path, durable=True)

    def evict_oldest_durable(self) -> bool:
        """Delete the durable row that was closed first; False when there is none."""
        query = (
            f"SELECT volume, {_COLUMNS} FROM replica WHERE durable AND data IS NOT NULL "
            "ORDER BY closed_at_ns LIMIT 1"
        )
        found = self._db.execute(query).fetchone()
        if found is None:
            return False
        self._delete(found[0], bytes(found[2]))
        return True

    def advance(self, session: bytes, progress: Progress, now_ns: int) -> None:
        """Remember how far a session is."""
        refused = msgspec.msgpack.encode(progress.refused[-REMEMBERED_REFUSALS:])
        self._db.execute(
            "INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?)",
            (session, progress.done_id, refused, now_ns),
        )

    def forget_before(self, at_ns: int) -> None:
        """Drop tombstones and sessions that are older."""
        self._db.execute("DELETE FROM replica WHERE kind = 'gone' AND closed_at_ns < ?", (at_ns,))
        self._db.execute("DELETE FROM session WHERE used_at_ns < ?", (at_ns,))

    # --- within ---------------------------------------------------------------------------------

    def _one(self, volume: str, path: bytes) -> Row:
        held = self.get(volume, path)
        if held is None or held.replica.kind == "gone":
            raise Refusal("NotFound", f"{path!r} is not held here")
        return held

    def _live(self, volume: str, path: bytes) -> list[Row]:
        rows = [row for row in self.below(volume, path, b"", -1) if row.replica.kind != "gone"]
        if not rows:
            raise Refusal("NotFound", f"{path!r} is not held here")
        return rows

    def _deleted_later(self, replica: Replica, by: bytes) -> bool:
        for path in (*paths.ancestors(replica.path), replica.path):
            row = self.get(replica.volume, path)
            gone = row is not None and row.replica.kind == "gone" and row.by != by
            if row is not None and gone and row.replica.closed_at_ns >= replica.closed_at_ns:
                return True
        return False

    def _bury(self, volume: str, path: bytes, at_ns: int, by: bytes) -> None:
        self._delete(volume, path)
        tombstone = Replica(
            volume=volume, path=path, kind="gone", owner="", version=0, closed_at_ns=at_ns
        )
        self._insert(Row(tombstone, None, by))

    def _unbury(self, volume: str, path: bytes) -> None:
        """A name is there again, and what is below it: tombstones must not outlast that."""
        query = f"DELETE FROM replica WHERE {_BELOW} AND kind = 'gone'"
        self._db.execute(query, _range(volume, path))

    def _insert(self, row: Row) -> None:
        replica = row.replica
        self._db.execute(
            "INSERT INTO replica VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                replica.volume, replica.path, msgspec.msgpack.encode(replica), replica.kind,
                replica.closed_at_ns, replica.durable, row.data, row.by,
            ),
        )  # fmt: skip

    def _delete(self, volume: str, path: bytes) -> None:
        query = "DELETE FROM replica WHERE volume = ? AND path = ? RETURNING data"
        self._orphan(self._db.execute(query, (volume, path)).fetchall())

    def _take_below(self, volume: str, path: bytes) -> list[Row]:
        rows = self.below(volume, path, b"", -1)
        query = f"DELETE FROM replica WHERE {_BELOW} RETURNING data"
        self._orphan(self._db.execute(query, _range(volume, path)).fetchall())
        return [row for row in rows if row.replica.kind != "gone"]

    def _orphan(self, deleted: list[tuple[int | None]]) -> None:
        self.garbage.update(data for (data,) in deleted if data is not None)

    def _keep_referenced(self) -> None:
        query = "SELECT 1 FROM replica WHERE data = ? LIMIT 1"
        self.garbage -= {d for d in self.garbage if self._db.execute(query, (d,)).fetchone()}


def _row(columns: tuple[bytes, bytes, int | None, bytes]) -> Row:
    record, path, data, by = columns
    return Row(msgspec.structs.replace(_replicas.decode(record), path=path), data, by)


def _moved(row: Row, old: bytes, new: bytes, by: bytes) -> Row:
    path = new + row.replica.path[len(old) :]
    is_elsewhere = row.replica.path == old and old.rpartition(b"/")[0] != new.rpartition(b"/")[0]
    parent = 0 if is_elsewhere else row.replica.parent  # below a directory it is the same one
    return Row(msgspec.structs.replace(row.replica, path=path, parent=parent), row.data, by)


def _range(volume: str, path: bytes) -> tuple[str, bytes, bytes, bytes]:
    # "0" is the byte after "/": what lies between is what begins with path + "/".
    return volume, path, path + b"/", path + b"0"
