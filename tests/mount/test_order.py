"""What the source shows, and when: a pointer never before what it points to.

A slow source makes the order visible. `Watch` looks at the source all the time from a thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachexfs.demo.faults import Fault
from cachexfs.demo.faulty_storage import FaultyStorage
from tests.cluster_of_nodes import Node, eventually, nodes

SLOW = Fault(bytes_per_s=4e6, ops=("write",))
SHARD = b"s" * 3_000_000


@pytest.fixture
def slow(tmp_path: Path, faulty_storage: FaultyStorage) -> Iterator[Node]:
    """A node whose source takes 4 MB in a second."""
    with nodes(tmp_path, source=faulty_storage.mountpoint) as (node,):
        node.mount()
        faulty_storage.set_fault(SLOW)
        yield node
        faulty_storage.clear()


class Watch:
    """Asks `seen` again and again until the block ends; keeps each new answer."""

    def __init__(self, seen: Callable[[], object]) -> None:
        self._seen = seen
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.answers: list[object] = []

    def _look(self) -> None:
        while not self._over.is_set():
            answer = self._seen()
            if self.answers[-1:] != [answer]:
                self.answers.append(answer)
            time.sleep(0.005)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()


def _backing(node: Node) -> Path:
    return node.source.parent / "backing"  # behind the slowness


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def test_case_05_a_pointer_is_never_visible_before_its_checkpoint(slow: Node) -> None:
    there = _backing(slow)

    def seen() -> tuple[str, bool]:
        pointer = _text(there / "latest")
        return pointer, not pointer or (there / pointer).exists()

    with Watch(seen) as watch:
        for step in ("one", "two"):
            (slow.mountpoint / step).write_bytes(SHARD)
            (slow.mountpoint / "latest").write_text(step)
        slow.wait("durable")
        time.sleep(0.05)
    assert all(whole for _, whole in watch.answers), watch.answers  # type: ignore[misc, attr-defined]
    assert _text(there / "latest") == "two"


def test_a_pointer_that_is_a_symlink_keeps_its_place(slow: Node) -> None:
    there = _backing(slow)
    (slow.mountpoint / "shard").write_bytes(SHARD)
    begun = time.monotonic()
    (slow.mountpoint / "last").symlink_to("shard")
    assert time.monotonic() - begun < 3
    while not (there / "shard").exists():
        assert not (there / "last").is_symlink()
        time.sleep(0.01)
    eventually(lambda: os.path.lexists(there / "last"), "the link")


def test_the_old_checkpoint_goes_only_after_the_new_one_came(slow: Node) -> None:
    there = _backing(slow)
    (slow.mountpoint / "old").write_bytes(b"old")
    slow.wait("durable")
    with Watch(lambda: ((there / "old").exists(), (there / "new").exists())) as watch:
        (slow.mountpoint / "new").write_bytes(SHARD)
        (slow.mountpoint / "old").unlink()
        slow.wait("durable", "new")
        eventually(lambda: not (there / "old").exists(), "the removal")
    assert (False, False) not in watch.answers


def test_a_rename_over_shows_the_old_or_the_new_content_whole(slow: Node) -> None:
    there = _backing(slow)
    (slow.mountpoint / "file").write_bytes(b"old")
    slow.wait("durable")
    sizes = Watch(lambda: (there / "file").stat().st_size)
    with sizes:
        (slow.mountpoint / "temporary").write_bytes(SHARD)
        (slow.mountpoint / "temporary").rename(slow.mountpoint / "file")
        slow.wait("durable")
        eventually(lambda: (there / "file").read_bytes() == SHARD, "the new content")
    assert set(sizes.answers) <= {3, len(SHARD)}


def test_case_12_versions_that_were_superseded_are_skipped(slow: Node) -> None:
    for number in range(20):
        (slow.mountpoint / "model").write_bytes(bytes([number]) * 1_000_000)
    begun = time.monotonic()
    slow.wait("durable")
    assert time.monotonic() - begun < 5  # all twenty would take that
    assert (_backing(slow) / "model").read_bytes() == bytes([19]) * 1_000_000


def test_case_11_the_flush_of_a_deleted_file_is_cancelled(slow: Node) -> None:
    (slow.mountpoint / "file").write_bytes(b"x" * 20_000_000)
    (slow.mountpoint / "file").unlink()
    begun = time.monotonic()
    slow.umount()
    assert time.monotonic() - begun < 3
    assert os.listdir(_backing(slow)) == []
