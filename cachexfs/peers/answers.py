"""Questions to a peer: what is held, and its content. Each chunk is checked before it goes."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from cachexfs.durability.checksum import CHUNK_BYTES, chunk_count, chunk_crc, crc_at
from cachexfs.peers import messages as m
from cachexfs.peers import paths
from cachexfs.peers.refusal import Refusal
from cachexfs.peers.store import Opened, Store
from cachexfs.peers.stream import FrameStream

LISTING_BYTES = 256 << 10
"""A listing is cut when the checksums in it reach this, so that its header stays small."""

Question = m.List | m.Fetch | m.Volumes
T = TypeVar("T")
log = logging.getLogger(__name__)


class InThread(Protocol):
    """Runs what blocks in a thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


async def answer(
    question: Question, store: Store, stream: FrameStream, in_thread: InThread
) -> None:
    """Answer one question; what is wrong with it is answered by `Refused`."""
    try:
        match question:
            case m.Volumes():
                await stream.send(m.VolumeNames(question.id, await in_thread(store.volumes)))
            case m.List():
                await _list(question, store, stream, in_thread)
            case m.Fetch():
                await _fetch(question, store, stream, in_thread)
    except Refusal as refusal:
        await stream.send(m.Refused(question.id, refusal.code, refusal.detail, refusal.retry))
    except (sqlite3.Error, OSError) as error:
        # The disk's: what the socket raises is a BrokenResourceError.
        await stream.send(m.Refused(question.id, "StoreFailed", str(error), retry=True))


async def _list(question: m.List, store: Store, stream: FrameStream, in_thread: InThread) -> None:
    try:
        prefix = paths.check_prefix(question.prefix)
    except paths.BadPath as error:
        raise Refusal("BadPath", str(error)) from None
    after = b""
    while rows := await in_thread(partial(store.listing, question.volume, prefix, after)):
        for part in parts_of(rows):
            await stream.send(m.Listing(question.id, part, more=True))
        after = rows[-1].path
    await stream.send(m.Listing(question.id, [], more=False))


def parts_of(replicas: list[m.Replica]) -> list[list[m.Replica]]:
    """A listing in pieces that fit a header each; one piece at least."""
    parts: list[list[m.Replica]] = [[]]
    size_bytes = 0
    for replica in replicas:
        size_bytes += len(replica.crcs) + sum(map(len, replica.xattrs.values()))
        if size_bytes > LISTING_BYTES and parts[-1]:
            parts.append([])
            size_bytes = 0
        parts[-1].append(replica)
    return parts


async def _fetch(question: m.Fetch, store: Store, stream: FrameStream, in_thread: InThread) -> None:
    opened = await in_thread(lambda: store.open(question.volume, question.path, question.version))
    try:
        last = min(question.last, chunk_count(opened.replica.size_bytes))
        for index in range(question.first, last):
            data = await in_thread(partial(_checked_chunk, opened, index))
            if data is None:
                log.error("chunk %d of %r is damaged on the disk here", index, question.path)
                await stream.send(m.Damaged(question.id, index))
                return
            await stream.send(m.Data(question.id, index, len(data)), data)
        await stream.send(m.Ack(question.id))
    finally:
        os.close(opened.fd)


def _checked_chunk(opened: Opened, index: int) -> bytes | None:
    data = os.pread(opened.fd, CHUNK_BYTES, index * CHUNK_BYTES)
    return data if chunk_crc(data) == crc_at(opened.replica.crcs, index) else None
