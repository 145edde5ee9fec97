"""Holders of a dead owner's replicas: each commits what nobody has committed, once."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from peering import replica, store_at

from cachexfs import claims, pulse
from cachexfs.clock import Clock
from cachexfs.durability.checksum import CHUNK_BYTES
from cachexfs.peers import adoption, committing
from cachexfs.peers import messages as m
from cachexfs.peers.batch import Put, Step
from cachexfs.peers.homes import Homes, Kept
from cachexfs.peers.store import Store
from cachexfs.pfs.fence import Adopted, Fence

pytestmark = pytest.mark.trio
BIG = os.urandom(2 * CHUNK_BYTES + 5)
SMALL = b"small"
WHEN_NS = 1_700_000_000 * 10**9


class Holder:
    """A store that holds what node "owner" sent, and its adoption."""

    def __init__(self, name: str, store: Store, base: Path) -> None:
        self.name = name
        self.store = store
        self.note = base / f"{name}.json"
        self.adoption = self.adopting()

    def adopting(self, after_s: float = 0.0, homes: object = None) -> adoption.Adoption:
        return adoption.Adoption(
            self.store, self.name, {}, lambda volume: cast("Homes | None", homes), self.note,
            after_s, trio.CapacityLimiter(1),
        )  # fmt: skip

    def hold(self, source: Path, path: bytes, content: bytes, at: int = 1, **more: Any) -> None:
        version = WHEN_NS + at
        held = replica(path, content, version, volume=str(source), mtime_ns=version, **more)
        part = self.store.offer(held, b"s" * 16)
        assert part is not None
        for index in range(0, len(content), CHUNK_BYTES):
            part.write(index // CHUNK_BYTES, memoryview(content[index : index + CHUNK_BYTES]))
        done = self.store.progress(b"s" * 16).done_id
        assert self.store.apply([Step(b"s" * 16, done + 1, Put(held, part))]) == [None]

    @property
    def results(self) -> dict[str, str]:
        return {each["path"]: each["result"] for each in adoption.read(self.note)}


class Stage:
    """A source, and two holders."""

    def __init__(self, base: Path, stack: ExitStack) -> None:
        self.source = base / "source"
        self.source.mkdir()
        claims.mark(self.source)
        self.p, self.q = (
            Holder(name, stack.enter_context(store_at(base / name)), base) for name in "pq"
        )

    def hold(self, path: bytes, content: bytes, at: int = 1, **more: Any) -> None:
        for holder in (self.p, self.q):
            holder.hold(self.source, path, content, at, **more)

    @property
    def names(self) -> list[str]:
        return sorted(name for name in os.listdir(self.source) if not name.startswith("."))

    @property
    def left_over(self) -> list[str]:
        hidden = [str(path) for path in self.source.rglob(".cachexfs-adopted*")]
        return hidden + [str(p) for p in (self.source / claims.DIRECTORY).glob("new-*")]


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path, stack)


async def test_one_commits_and_the_other_finds_it_done(stage: Stage) -> None:
    stage.hold(b"f", BIG, mode=0o640)
    async with trio.open_nursery() as nursery:
        for holder in (stage.p, stage.q):
            nursery.start_soon(holder.adoption.look)
    for holder in (stage.p, stage.q):
        await holder.adoption.look()
        assert not holder.store.not_durable()
    assert (stage.source / "f").read_bytes() == BIG
    found = (stage.source / "f").stat()
    assert (found.st_mode & 0o777, found.st_mtime_ns) == (0o640, WHEN_NS + 1)
    results = sorted([stage.p.results["f"], stage.q.results["f"]])
    assert results == ["committed", "there"] and not stage.left_over


async def test_a_note_that_cannot_be_written_ends_nothing(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.hold(b"f", SMALL)
    stage.p.note.mkdir()
    await stage.p.adoption.look()
    assert (stage.source / "f").read_bytes() == SMALL
    assert not stage.p.store.not_durable()
    assert "what was adopted cannot be noted for `cachexfs status`" in caplog.text


async def test_a_holder_that_may_not_write_says_so_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage.hold(b"f", SMALL)
    with monkeypatch.context() as patched:
        patched.setattr(claims, "os", FailingOs(1, OSError(errno.EROFS, "Read-only file system")))
        await stage.p.adoption.look()
    monkeypatch.setattr(claims, "os", FailingOs(1, OSError(errno.EROFS, "Read-only file system")))
    await stage.p.adoption.look()
    assert caplog.text.count("is not committed yet") == 1
    assert "docs/systemd.md" in caplog.text
    await stage.p.adoption.look()  # and it goes on trying
    assert (stage.source / "f").read_bytes() == SMALL


class FailingOs:
    """`os`, with the n-th call failing."""

    def __init__(self, nth: int, failure: BaseException) -> None:
        self._left = nth
        self._failure = failure
        self._lock = threading.Lock()
        self.has_failed = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in {"open", "stat", "rename", "fsync", "pread", "pwrite", "ftruncate", "link"}:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self._left -= 1
                if self._left == 0:
                    self.has_failed = True
                    raise self._failure
            return found(*args, **kwargs)

        return call


class Died(BaseException):
    """The holder dies: nothing of it is cleaned up but what the kernel cleans up."""


@pytest.mark.parametrize("dies", [False, True])
async def test_a_failure_at_any_step_leaves_it_to_the_other(
    tmp_path: Path, dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "LEASE_S", 0.0)  # who died is overtaken at once
    nth, has_failed = 0, True
    while has_failed:
        nth += 1
        with ExitStack() as stack:
            base = tmp_path / str(nth)
            base.mkdir()
            stage = Stage(base, stack)
            stage.hold(b"f", SMALL)
            failing = FailingOs(nth, Died() if dies else OSError(5, "broken"))
            with monkeypatch.context() as patch:
                patch.setattr(committing, "os", failing)
                patch.setattr(claims, "os", failing)
                if dies:
                    patch.setattr(claims.Claim, "release", lambda claim: None)
                with suppress(Died):
                    await stage.p.adoption.look()
            has_failed = failing.has_failed
            await stage.q.adoption.look()
            await stage.p.adoption.look()
            assert (stage.source / "f").read_bytes() == SMALL, f"failure at call {nth}"
            assert not stage.q.store.not_durable() and not stage.p.store.not_durable()
            assert not [name for name in stage.left_over if "adopted" in name]
    assert nth > 10


async def test_a_newer_file_or_a_directory_stays(stage: Stage) -> None:
    ages = {"newer": 1, "same": 0, "older": -1}
    for at, name in enumerate([*ages, "dir"], 10):
        stage.p.hold(stage.source, name.encode(), b"of " + name.encode(), at)
        if name in ages:
            (stage.source / name).write_bytes(b"?? " + name.encode())
            os.utime(stage.source / name, ns=2 * (WHEN_NS + at + ages[name],))
    (stage.source / "dir").mkdir()
    await stage.p.adoption.look()
    assert stage.p.results == {
        "newer": "superseded", "same": "there", "older": "committed", "dir": "superseded",
    }  # fmt: skip
    assert (stage.source / "newer").read_bytes() == b"?? newer"
    assert (stage.source / "older").read_bytes() == b"of older"


async def test_the_directory_is_known_by_its_number(stage: Stage) -> None:
    (stage.source / "tmp").mkdir()
    number = (stage.source / "tmp").stat().st_ino
    stage.p.hold(stage.source, b"tmp/f", b"f", parent=number)
    stage.p.hold(stage.source, b"gone/f", b"f", at=2, parent=12345)
    stage.p.hold(stage.source, b"new/deep/f", b"f", at=3)
    (stage.source / "tmp").rename(stage.source / "final")
    (stage.source / "tmp").mkdir()
    await stage.p.adoption.look()
    assert stage.p.results["gone/f"] == "no directory"
    assert (stage.source / "final/f").exists() and not (stage.source / "tmp/f").exists()
    assert (stage.source / "new/deep/f").exists() and not (stage.source / "gone").exists()


async def test_no_pointer_before_what_it_points_to(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.p.hold(stage.source, b"shard", BIG, at=1)
    stage.p.hold(stage.source, b"latest", b"1", at=2)
    with monkeypatch.context() as patch:
        patch.setattr(committing, "os", FailingOs(9, OSError(122, "quota")))
        await stage.p.adoption.look()
    assert stage.names == []
    await stage.p.adoption.look()
    assert stage.names == ["latest", "shard"]


async def test_a_directory_without_the_mark_is_not_written_to(stage: Stage, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    stage.p.hold(elsewhere, b"f", b"f")
    await stage.p.adoption.look()
    assert os.listdir(elsewhere) == [] and stage.p.store.not_durable()


async def test_an_owner_that_returns_finds_the_claim(stage: Stage) -> None:
    stage.p.hold(stage.source, b"f", b"f")
    version = WHEN_NS + 1
    fence = Fence(stage.source, "owner", 0.0, Clock())
    await stage.p.adoption.look()
    with pytest.raises(Adopted), fence.around_commit(version, 1):
        raise AssertionError
    with fence.around_commit(version + 1, 1):  # another version
        assert claims.take(stage.source, claims.digest_of("owner", version + 1, 1), "p") == "busy"
    assert claims.take(stage.source, claims.digest_of("owner", version + 1, 1), "p") == "done"


async def test_a_damaged_replica_is_left_to_another_holder(stage: Stage) -> None:
    stage.hold(b"f", BIG)
    (file,) = (stage.p.store.directory / "data").iterdir()
    file.write_bytes(b"?" + BIG[1:])
    await stage.p.adoption.look()
    assert stage.names == []
    await stage.q.adoption.look()
    assert (stage.source / "f").read_bytes() == BIG


async def test_claims_of_long_ago_are_forgotten(stage: Stage) -> None:
    claim = claims.take(stage.source, "0" * 40, "p")
    assert isinstance(claim, claims.Claim)
    claim.done()
    claims.sweep(stage.source)
    assert claims.take(stage.source, "0" * 40, "q") == "done"
    os.utime(claim.path, (0, 0))
    claims.sweep(stage.source)
    assert isinstance(claims.take(stage.source, "0" * 40, "q"), claims.Claim)


class Knowing:
    """The homes, with one entry that somebody told them."""

    def __init__(self, entry: m.Entry | None) -> None:
        self.entry = entry
        self.told: list[m.Entry] = []

    async def find(self, directory: int, name: bytes, *, on_source: bool) -> m.Entry | None:
        return self.entry

    async def register(self, directory: int, entries: list[m.Entry]) -> Any:
        self.told += entries
        return Kept({}, 1)

    async def forget(self, directory: int, names: list[tuple[bytes, int]]) -> None:
        """Nothing."""


async def test_of_the_last_close_the_times_of_files_do_not_matter(stage: Stage) -> None:
    number = stage.source.stat().st_ino
    for at, name, known in ((5, "f", True), (6, "g", False)):
        stage.p.hold(stage.source, name.encode(), b"of owner", at, parent=number)
        (stage.source / name).write_bytes(b"by a clock that is ahead")
        os.utime(stage.source / name, ns=(WHEN_NS + 3600 * 10**9,) * 2)
        (held,) = stage.p.store.not_durable()
        version = held.version if known else held.version - 1
        entry = m.Entry(
            name=name.encode(), stamp=WHEN_NS + 7, replica=replica(held.path, b"", version)
        )
        homes = Knowing(entry)
        await stage.p.adopting(homes=homes).look()
        assert [each.stamp for each in homes.told] == [WHEN_NS + (7 if known else at)]
    assert stage.p.results == {"f": "committed", "g": "superseded"}
    assert (stage.source / "f").read_bytes() == b"of owner"


async def test_an_owner_that_beats_is_alive_and_says_what_is_done(
    stage: Stage, autojump_clock: object
) -> None:
    stage.p.hold(stage.source, b"done", b"1", at=1)
    stage.p.hold(stage.source, b"open", b"2", at=2)
    adopting = stage.p.adopting(after_s=60.0)
    for count in range(80):
        pulse.beat(stage.source, "owner", "tier", count, WHEN_NS + 2)
        pulse.beat(stage.source, "owner2", "tier", 0, WHEN_NS + 100)
        await adopting.look()
        await trio.sleep(1.0)
    assert stage.names == []
    assert [each.path for each in stage.p.store.not_durable()] == [b"open"]
    for _ in range(25):  # it is not heard of either way from now on
        await adopting.look()
        await trio.sleep(1.0)
    assert stage.names == []
    for _ in range(10):
        await adopting.look()
        await trio.sleep(1.0)
    assert stage.names == ["open"] and stage.p.results == {"open": "committed"}


async def test_a_holder_that_was_stopped_looks_again_before_it_acts(
    stage: Stage, autojump_clock: object
) -> None:
    stage.p.hold(stage.source, b"f", b"f")
    adopting = stage.p.adopting(after_s=60.0)
    pulse.beat(stage.source, "owner", "tier", 1, 0)
    for _ in range(40):
        await adopting.look()
        await trio.sleep(1.0)
    await trio.sleep(500)  # nothing was heard, because nothing was done
    pulse.beat(stage.source, "owner", "tier", 2, 0)
    await adopting.look()
    assert stage.names == []


async def test_two_tiers_of_one_node_beat_apart(stage: Stage) -> None:
    pulse.beat(stage.source, "owner", "old", 7, 100)
    pulse.beat(stage.source, "owner", "new", 1, 900)
    sign = pulse.look(stage.source, "owner")
    assert sign is not None and sign.done_before_ns == 100
    pulse.beat(stage.source, "owner", "new", 2, 901)
    assert pulse.look(stage.source, "owner") != sign
    assert pulse.look(stage.source, "nobody") is None


async def test_an_owner_that_was_stopped_looks_again_before_the_rename(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    fence = Fence(stage.source, "owner", 0.2, clock)
    with fence.around_commit(clock.now_ns(), 1) as check:
        check()
        await trio.sleep(0.3)  # a holder may have begun by now
        with pytest.raises(OSError, match="holder"):
            check()
    old_ns = clock.now_ns() - 10**9
    with pytest.raises(OSError, match="taken over"), fence.around_commit(old_ns, 1) as check:
        check()
        monkeypatch.setattr(claims, "LEASE_S", 0.0)
        taken = claims.take(stage.source, claims.digest_of("owner", old_ns, 1), "p")
        assert isinstance(taken, claims.Claim)
        check()
