"""The journal: what must be known again after the daemon died. SQLite, beside the data in RAM.

It is as safe as the data it describes and no safer: both survive the death of the daemon, neither
the loss of the node. That is why `synchronous` is off: the kernel has every page that was written,
and nothing here waits for a disk, so it may be called from the event loop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from cachexfs.durability.actions import Action, Slot
from cachexfs.durability.ledger import Entry
from cachexfs.ram.node import Node

SCHEMA = """
-- Single values: 'schema', 'epoch', 'volume'.
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- Every node that is more than a reflection of the shared file system, as MessagePack.
CREATE TABLE IF NOT EXISTS node (ino INTEGER PRIMARY KEY, record BLOB NOT NULL);

-- Names that the mount shows and the shared file system does not have (yet). ino 0: the name is
-- gone here, though the shared file system may still have it. seq: the entry of the ledger after
-- which the shared file system agrees and the row goes; NULL: there is no such entry yet.
CREATE TABLE IF NOT EXISTS binding (
    parent INTEGER NOT NULL, name BLOB NOT NULL, ino INTEGER NOT NULL, seq INTEGER,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;

-- What is still to be done on the shared file system, in order.
CREATE TABLE IF NOT EXISTS entry (seq INTEGER PRIMARY KEY, job TEXT NOT NULL, action BLOB NOT NULL);

-- Orders to peers that no peer has acknowledged yet, in order, as MessagePack.
CREATE TABLE IF NOT EXISTS outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, peer TEXT NOT NULL, message BLOB NOT NULL
);
"""

_nodes = msgspec.msgpack.Decoder(Node)
_actions: msgspec.msgpack.Decoder[Action] = msgspec.msgpack.Decoder(Action)


class Journal:
    """One SQLite file. Every method is atomic; `transaction` makes several of them one."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.executescript(SCHEMA)
        self._depth = 0
        self._after: list[Callable[[], None]] = []
        self._to_save: dict[int, Node] = {}
        self._directories: dict[int, bytes] = {}

    def close(self) -> None:
        """Close the file; the journal cannot be used after that."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing of what is written inside; may be nested, the outermost counts.

        Nothing inside may await: another task's writes would become part of it.
        """
        self._depth += 1
        if self._depth == 1:
            self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            if self._depth == 1:
                self._save_nodes()
        except BaseException:
            self._to_save.clear()
            self._directories.clear()
            self._end("ROLLBACK")
            raise
        self._end("COMMIT")

    def after_commit(self, call: Callable[[], None]) -> None:
        """Do what cannot be rolled back: when the transaction under way is on record, or now.

        A blob that were deleted before would be missed by a journal that still knows its file.
        """
        if self._depth == 0:
            call()
        else:
            self._after.append(call)

    def _end(self, how: str) -> None:
        self._depth -= 1
        if self._depth == 0 and self._db.in_transaction:
            self._db.execute(how)
        if self._depth == 0:
            calls, self._after = self._after, []
            for call in calls if how == "COMMIT" else ():
                call()

    def get(self, key: str) -> str | None:
        """A single value, None when it was never set."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def set(self, key: str, value: str) -> None:
        """Set a single value."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def save_node(self, node: Node) -> None:
        """Write a node: as it is now, or once, as it is at the end of the transaction."""
        self._to_save[node.ino] = node
        if self._depth == 0:
            self._save_nodes()

    def _save_nodes(self) -> None:
        while self._to_save:
            ino, node = self._to_save.popitem()
            record = msgspec.msgpack.encode(node)
            if node.kind == "directory":  # saved with every name in it, and seldom different
                if self._directories.get(ino) == record:
                    continue
                self._directories[ino] = record
            self._db.execute("INSERT OR REPLACE INTO node VALUES (?, ?)", (_signed(ino), record))

    def drop_node(self, ino: int) -> None:
        """Forget a node."""
        self._to_save.pop(ino, None)
        self._directories.pop(ino, None)
        self._db.execute("DELETE FROM node WHERE ino = ?", (_signed(ino),))

    def nodes(self) -> list[Node]:
        """Every node that was saved."""
        return [_nodes.decode(record) for (record,) in self._db.execute("SELECT record FROM node")]

    def save_binding(self, slot: Slot, ino: int, seq: int | None) -> None:
        """Write what a name stands for here."""
        self._db.execute(
            "INSERT OR REPLACE INTO binding VALUES (?, ?, ?, ?)",
            (_signed(slot.parent), slot.name, _signed(ino), seq),
        )

    def drop_binding(self, slot: Slot) -> None:
        """The shared file system speaks for this name again."""
        self._db.execute(
            "DELETE FROM binding WHERE parent = ? AND name = ?", (_signed(slot.parent), slot.name)
        )

    def bindings(self) -> list[tuple[Slot, int, int | None]]:
        """Every binding: name, inode number, entry."""
        rows = self._db.execute("SELECT parent, name, ino, seq FROM binding")
        return [(Slot(_unsigned(p), n), _unsigned(ino), seq) for p, n, ino, seq in rows]

    def add_entry(self, entry: Entry) -> None:
        """Write an entry of the ledger."""
        action = msgspec.msgpack.encode(entry.action)
        self._db.execute("INSERT INTO entry VALUES (?, ?, ?)", (entry.seq, entry.job, action))

    def drop_entry(self, seq: int) -> None:
        """An entry was carried out or cancelled."""
        self._db.execute("DELETE FROM entry WHERE seq = ?", (seq,))

    def entries(self) -> list[Entry]:
        """Every entry that is still to be carried out, in order."""
        rows = self._db.execute("SELECT seq, job, action FROM entry ORDER BY seq")
        return [Entry(seq, job, _actions.decode(action)) for seq, job, action in rows]

    def post(self, peer: str, message: bytes) -> int:
        """Keep an order for a peer until it is acknowledged; returns its number."""
        row = self._db.execute("INSERT INTO outbox (peer, message) VALUES (?, ?)", (peer, message))
        assert row.lastrowid is not None
        return row.lastrowid

    def delivered(self, number: int) -> None:
        """An order was acknowledged."""
        self._db.execute("DELETE FROM outbox WHERE id = ?", (number,))

    def outbox(self, peer: str) -> list[tuple[int, bytes]]:
        """The orders that a peer has not acknowledged, in order, with their numbers."""
        rows = self._db.execute(
            "SELECT id, message FROM outbox WHERE peer = ? ORDER BY id", (peer,)
        )
        return list(rows)


# SQLite's integers are signed, inode numbers are not.
def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _unsigned(number: int) -> int:
    return number + (1 << 64) if number < 0 else number
