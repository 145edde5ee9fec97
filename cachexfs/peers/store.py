"""The replica store: a directory with the manifest, whole data files and parts under way.

    lock           held (flock) by the one process that uses the store
    manifest.db    `cachexfs.peers.manifest`
    data/N         content of a replica; N counts up and is never taken from the wire
    parts/S.part   content under way; S is a digest
    parts/R.draft  content that came ahead of its offer (`cachexfs.peers.draft`); R is random

What is on disk at each step of a put, and who repairs it after a crash:
1. `parts/S.part` has some chunks: the next offer of the same content goes on from there; a part
   that nobody asks for is swept when the store opens, or when room is needed, and so is a draft.
2. fsynced and renamed to `data/N`, no row: an orphan, swept when the store opens.
3. the directory is fsynced, the row committed: stored. Only now is it acknowledged.
4. the data file of the row that was replaced has no row any more: as in 2.

Everything here blocks, so it is called in threads; `_lock` makes the manifest, the room and the set
of open parts one at a time, while content is written and fsynced outside of it.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from cachexfs.errors import CacheXError
from cachexfs.peers import messages as m
from cachexfs.peers.batch import Batch, Put, Sealed, Step
from cachexfs.peers.draft import SUFFIX, Draft
from cachexfs.peers.manifest import Manifest, Progress
from cachexfs.peers.part import Part
from cachexfs.peers.refusal import Refusal
from cachexfs.peers.replicas import check, check_place, content_name
from cachexfs.peers.room import Room

PART_KEPT_S = 24 * 3600.0
"""An owner that comes back later than this sends its file from the start."""
MEMORY_KEPT_S = 30 * 24 * 3600.0
"""How long tombstones and finished sessions are remembered."""
LISTING_ROWS = 256
DISK_RESERVE_BYTES = 16 << 20
"""Left free on the disk for the manifest's own growth."""

log = logging.getLogger(__name__)


class StoreUnusable(CacheXError):
    """The directory cannot be a store: not writable, or in use by another process."""


class Opened(NamedTuple):
    """A replica's content, open for reading; whoever asked closes `fd`."""

    replica: m.Replica
    fd: int


class Store:
    """Opens, locks and sweeps `directory`. Raises `StoreUnusable`."""

    def __init__(self, directory: Path, limit_bytes: int | None = None) -> None:
        self.directory = directory
        self._data, self._parts = directory / "data", directory / "parts"
        self._lock = threading.Lock()
        self._room = Room(limit_bytes)
        self._receiving: set[str] = set()
        self._lock_fd = _prepare(directory, self._data, self._parts)
        try:
            self._manifest = Manifest(directory / "manifest.db")
            self._data_fd = os.open(self._data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._numbers = itertools.count(self._sweep() + 1)
        except (OSError, sqlite3.Error) as error:
            os.close(self._lock_fd)
            raise StoreUnusable(f"peer.store: {directory}: {error}") from None

    def close(self) -> None:
        """Close the manifest and let go of the lock. What comes later is refused (StoreFailed)."""
        with self._lock:  # SQLite does not bear it that another thread is at work
            self._manifest.close()
        os.close(self._data_fd)
        os.close(self._lock_fd)

    @property
    def free_bytes(self) -> int:
        """What can still be stored without evicting anything."""
        disk = os.statvfs(self._data)
        return self._room.free_bytes(max(0, disk.f_bavail * disk.f_frsize - DISK_RESERVE_BYTES))

    @property
    def latest_ns(self) -> int:
        """When the last of what is known here was closed or deleted; 0 when nothing is."""
        with self._lock:
            return self._manifest.latest_ns()

    # --- putting --------------------------------------------------------------------------------

    def offer(self, replica: m.Replica, session: bytes, draft: Draft | None = None) -> Part | None:
        """The part to receive this content into; None when there is nothing to receive.

        A `draft` becomes the part, unless an earlier attempt has left one. Raises `Refusal`
        (BadPath, BadReplica, StoreFull, StoreFailed).
        """
        check(replica)
        if replica.kind != "file":
            return None
        with disk_errors():
            part = self._open_part(replica, session, draft)
            if part is not None:
                self._fill(part, draft)
            return part

    def draft(self) -> Draft | None:
        """A new draft; None when the disk does not let us."""
        try:
            return Draft(self._parts)
        except OSError as error:
            log.warning("nothing is taken ahead: %s", error)
            return None

    def keep_ahead(self, draft: Draft, index: int, data: memoryview) -> bool:
        """Write a chunk of a draft; False when there is no room for it, and then it is gone.

        Nothing that is acknowledged gives way to what may never be wanted.
        """
        try:
            with self._lock:
                there = draft.is_there and self.free_bytes >= len(data)
                if there:
                    self._room.take(draft.name, draft.size_bytes + len(data))
            if there:
                draft.write(index, data)
                return True
        except OSError as error:
            log.warning("a draft is given up: %s", error)
        self.scrap(draft)
        return False

    def scrap(self, draft: Draft) -> None:
        """Nobody wants it any more, or a part was made of it."""
        draft.close()
        draft.path.unlink(missing_ok=True)
        with self._lock:
            self._room.drop(draft.name)

    def abandon(self, part: Part) -> None:
        """The connection that fed this part is gone; what arrived is kept for the next."""
        part.close()
        with self._lock:
            self._receiving.discard(part.name)

    def withdraw(self, part: Part) -> None:
        """The content does not exist any more: its part goes."""
        self.abandon(part)
        part.path.unlink(missing_ok=True)
        with self._lock:
            self._room.drop(part.name)

    def apply(self, steps: Sequence[Step]) -> list[Refusal | None]:
        """Carry out orders as one group; None is an acknowledgement, and on disk.

        All contents are fsynced and renamed, then the directory is fsynced once, then one
        transaction makes all rows. After a refusal with `retry`, later orders of the same session
        are refused with `retry` too.
        """
        sealed = [self._seal(step) for step in steps]
        try:
            if any(isinstance(number, int) for number in sealed):
                sync_directory(self._data_fd)
            with self._lock, self._manifest.transaction():
                outcomes = Batch(self._manifest).run(steps, sealed)
            self._unlink_garbage()
        except (OSError, sqlite3.Error) as error:
            # Renamed contents have no row now: the sweep of the next start takes them.
            return [Refusal("StoreFailed", str(error), retry=True) for _ in steps]
        return outcomes

    def progress(self, session: bytes) -> Progress:
        """How far the orders of a session were carried out. Raises `sqlite3.Error`."""
        with self._lock:
            return self._manifest.progress(session)

    # --- questions ------------------------------------------------------------------------------

    def listing(self, volume: str, prefix: bytes, after: bytes) -> list[m.Replica]:
        """Up to `LISTING_ROWS` replicas and tombstones, by path, beyond `after`."""
        with self._lock:
            rows = self._manifest.below(volume, prefix, after, LISTING_ROWS)
        return [row.replica for row in rows]

    def volumes(self) -> list[str]:
        """The names of the volumes held."""
        with self._lock:
            return self._manifest.volumes()

    def not_durable(self) -> list[m.Replica]:
        """Files that the shared file system may not have, oldest close first, some at a time."""
        with self._lock:
            return self._manifest.not_durable(LISTING_ROWS)

    def made_durable(self, replica: m.Replica) -> None:
        """The shared file system has this version, or something newer."""
        with self._lock, self._manifest.transaction(), suppress(Refusal):
            self._manifest.mark_durable(replica.volume, replica.path, replica.version)

    def open(self, volume: str, path: bytes, version: int) -> Opened:
        """A replica's content for reading. Raises `Refusal` (NotFound, StoreFailed)."""
        check_place(volume, path)
        with disk_errors(), self._lock:
            row = self._manifest.get(volume, path)
            if row is None or row.data is None or row.replica.version != version:
                raise Refusal("NotFound", f"version {version} of {path!r} is not held here")
            fd = self._open_data(row.data)
            return Opened(row.replica, fd)

    # --- within ---------------------------------------------------------------------------------

    def _open_data(self, number: int) -> int:
        return os.open(self._data / str(number), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def _open_part(self, replica: m.Replica, session: bytes, draft: Draft | None) -> Part | None:
        name = f"{content_name(replica)}.part"
        with self._lock:
            if self._manifest.settled(replica, session):
                return None
            if name in self._receiving:
                raise Refusal("StoreFailed", "another connection sends this file", retry=True)
            self._take_draft(draft, name)
            self._make_room(replica.size_bytes - self._room.size_of(name), name)
            part = Part(self._parts / name, replica)
            self._receiving.add(name)
            self._room.take(name, replica.size_bytes)
            return part

    def _take_draft(self, draft: Draft | None, name: str) -> None:
        """Make the draft the part `name`, if it is still there and there is none."""
        if draft is None:
            return
        if not draft.is_there or (self._parts / name).exists():
            draft.crcs.clear()
            return
        draft.path.rename(self._parts / name)
        self._room.rename(draft.name, name)

    def _fill(self, part: Part, draft: Draft | None) -> None:
        try:
            if draft is not None and draft.crcs:
                part.believe(draft.crcs)
            else:
                part.resume()
            if part.missing:
                self._borrow(part)
        except OSError:
            self.abandon(part)
            raise

    def _borrow(self, part: Part) -> None:
        with self._lock:
            row = self._manifest.get(part.replica.volume, part.replica.path)
            if row is None or row.data is None:
                return
            fd = self._open_data(row.data)
        try:
            part.borrow(fd, row.replica.crcs)
        finally:
            os.close(fd)

    def _seal(self, step: Step) -> Sealed:
        if not isinstance(step.order, Put) or step.order.part is None:
            return None
        part, number = step.order.part, next(self._numbers)
        try:
            part.seal()
            part.path.rename(self._data / str(number))
        except OSError as error:
            self.abandon(part)
            return error
        with self._lock:
            self._room.rename(part.name, str(number))
            self._receiving.discard(part.name)
        return number

    def _make_room(self, wanted_bytes: int, keep: str) -> None:
        """Idle parts go first, then durable replicas, oldest first. Raises `Refusal`."""
        if self._room.limit_bytes is not None and wanted_bytes > self._room.limit_bytes:
            raise Refusal("StoreFull", "the file is larger than the store's limit", retry=True)
        while self.free_bytes < wanted_bytes and (self._evict_part(keep) or self._evict_replica()):
            pass
        if self.free_bytes < wanted_bytes:
            raise Refusal(
                "StoreFull", f"{self.free_bytes} bytes free, {wanted_bytes} wanted", retry=True
            )

    def _evict_part(self, keep: str) -> bool:
        idle = [path for path in self._parts.iterdir() if path.name not in self._receiving]
        idle = [path for path in idle if path.name != keep]
        if not idle:
            return False
        oldest = min(idle, key=lambda path: path.stat().st_mtime)
        oldest.unlink()
        self._room.drop(oldest.name)
        return True

    def _evict_replica(self) -> bool:
        with self._manifest.transaction():
            found = self._manifest.evict_oldest_durable()
        self._unlink_data(self._manifest.take_garbage())
        return found

    def _unlink_garbage(self) -> None:
        with self._lock:
            self._unlink_data(self._manifest.take_garbage())

    def _unlink_data(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            (self._data / str(number)).unlink(missing_ok=True)
            self._room.drop(str(number))

    def _sweep(self) -> int:
        """Delete what no row and no recent part explains; the highest number that was used."""
        used = self._manifest.data_files()
        for path in list(self._data.iterdir()):
            if path.name.isdecimal() and int(path.name) in used:
                self._room.take(path.name, path.stat().st_size)
            else:
                path.unlink()
        now_s = time.time()
        for path in list(self._parts.iterdir()):
            if path.suffix == SUFFIX or path.stat().st_mtime < now_s - PART_KEPT_S:
                path.unlink()
            else:
                self._room.take(path.name, path.stat().st_size)
        with self._manifest.transaction():
            self._manifest.forget_before(int((now_s - MEMORY_KEPT_S) * 1e9))
        return max(used, default=0)


@contextmanager
def disk_errors() -> Iterator[None]:
    """What the disk or the manifest raises, as a `Refusal` (StoreFull, StoreFailed)."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise Refusal("StoreFull" if full else "StoreFailed", str(error), retry=True) from None
    except sqlite3.Error as error:
        raise Refusal("StoreFailed", str(error), retry=True) from None


def _prepare(top: Path, *inner: Path) -> int:
    """Make the directories, shut them to others, and lock the first: the descriptor holds the lock.

    What is there already must be ours: whoever owns a directory can read and replace what is in it.
    """
    try:
        for directory in (top, *inner):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _shut(directory, follow_symlinks=directory == top)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(top / "lock", flags, 0o600)
        for path in top.iterdir():
            if path.is_file() and not path.is_symlink():
                path.chmod(0o600)
    except OSError as error:
        raise StoreUnusable(f"peer.store: cannot use {top}: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise StoreUnusable(f"peer.store: {top} is in use by another `cachexfs peer`") from None
    return fd


def _shut(directory: Path, *, follow_symlinks: bool) -> None:
    """Nobody else may look into a directory of ours. Raises `StoreUnusable`, OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    fd = os.open(directory, flags if follow_symlinks else flags | os.O_NOFOLLOW)
    try:
        if (uid := os.fstat(fd).st_uid) != os.geteuid():
            raise StoreUnusable(
                f"peer.store: {directory} belongs to the user {uid}, and the peer runs as "
                f"{os.geteuid()}"
            )
        os.fchmod(fd, 0o700)
    finally:
        os.close(fd)


def sync_directory(fd: int) -> None:
    """Make the names in a directory durable."""
    os.fsync(fd)
