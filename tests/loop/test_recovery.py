"""Recovery from two real peers into a directory."""

from __future__ import annotations

import os
import pickle
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest
import trio
from peering import SECRET, VOLUME, Owner, orders, put, replica, serve, store_at

from cachexfs.durability.checksum import CHUNK_BYTES
from cachexfs.errors import UsageError
from cachexfs.peers.messages import Replica
from cachexfs.peers.orders import Put
from cachexfs.peers.reader import PeerFailed, open_reader
from cachexfs.recovery import DirectorySink, Result, recover

pytestmark = pytest.mark.trio
BIG = os.urandom(3 * CHUNK_BYTES + 99)


class Peers:
    """Two peers, an owner's link to each, and recovery from both."""

    def __init__(self, nursery: trio.Nursery, tmp_path: Path, stack: ExitStack) -> None:
        self._nursery = nursery
        self._stack = stack
        self.stores = [tmp_path / "p", tmp_path / "q"]
        self.to = tmp_path / "to"
        self.owners: list[Owner] = []
        self.addresses: list[str] = []
        self.said: list[str] = []

    async def start(self) -> None:
        for directory in self.stores:
            store = self._stack.enter_context(store_at(directory))
            self.addresses.append(await serve(self._nursery, store))
            self.owners.append(Owner(self.addresses[-1]))
            self._nursery.start_soon(self.owners[-1].link.run)

    async def hold(self, *new: orders.Order) -> None:
        for owner in self.owners:
            await owner.finish(*new)

    async def recover(self, volume: str | None = None, prefix: bytes = b"", **more: bool) -> Result:
        async with AsyncExitStack() as stack:
            readers = []
            for name, address in zip("pq", self.addresses, strict=True):
                reader = await stack.enter_async_context(open_reader(address, "asker", SECRET))
                reader.name = name
                readers.append(reader)
            sink = DirectorySink(self.to, **more)
            return await recover(readers, volume, prefix, sink, self.said.append)


@pytest.fixture
async def peers(nursery: trio.Nursery, tmp_path: Path) -> AsyncIterator[Peers]:
    with ExitStack() as stack:
        made = Peers(nursery, tmp_path, stack)
        await made.start()
        yield made
        nursery.cancel_scope.cancel()


def tree(top: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(top)): path.read_bytes()
        for path in top.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def flip(store: Path, place: int) -> None:
    (file,) = (path for path in (store / "data").iterdir() if path.stat().st_size == len(BIG))
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


async def test_all_comes_back_with_attributes(peers: Peers) -> None:
    kept = {"mode": 0o640, "mtime_ns": 10**18 + 1, "uid": os.getuid(), "gid": os.getgid()}
    await peers.hold(
        Put(replica(b"d", kind="directory", mode=0o750, mtime_ns=10**18)),
        put(b"d/f", BIG, **kept),
        Put(replica(b"d/l", kind="symlink", target=b"f")),
        put(b"empty"),
    )
    result = await peers.recover()
    assert result.complete and result.volume == VOLUME
    assert result.recovered == [b"d", b"d/f", b"d/l", b"empty"]
    assert tree(peers.to) == {"d/f": BIG, "empty": b""}
    assert os.readlink(peers.to / "d/l") == "f"
    found = os.stat(peers.to / "d/f")
    assert (found.st_mode & 0o7777, found.st_mtime_ns) == (0o640, 10**18 + 1)
    assert os.stat(peers.to / "d").st_mtime_ns == 10**18


async def test_a_damaged_chunk_is_taken_from_the_other_holder(peers: Peers) -> None:
    await peers.hold(put(b"f", BIG))
    flip(peers.stores[0], CHUNK_BYTES + 1)
    flip(peers.stores[1], 1)
    result = await peers.recover()
    assert result.complete and tree(peers.to) == {"f": BIG}
    assert peers.said == ["b'f' on p: chunk 1 is damaged on its disk"]


async def test_a_file_damaged_everywhere_is_reported_and_leaves_nothing(peers: Peers) -> None:
    await peers.hold(put(b"f", BIG), put(b"g", b"g"))
    for store in peers.stores:
        flip(store, CHUNK_BYTES + 1)
    result = await peers.recover()
    (damaged,) = result.damaged
    assert damaged[0] == b"f" and "on p: chunk 1" in damaged[1] and "on q: chunk 1" in damaged[1]
    assert os.listdir(peers.to) == ["g"]


async def test_the_newest_generation_is_taken_and_never_a_mix(peers: Peers) -> None:
    await peers.owners[0].finish(put(b"f", b"old", 1), put(b"g", b"new", 2))
    await peers.owners[1].finish(put(b"f", b"new", 2), put(b"g", b"old", 1))
    await peers.recover()
    assert tree(peers.to) == {"f": b"new", "g": b"new"}


async def test_several_volumes_are_to_be_chosen_from(peers: Peers) -> None:
    await peers.hold(put(b"f", b"1"), put(b"f", b"2", volume="/other"))
    with pytest.raises(UsageError, match="/lustre/run, /other"):
        await peers.recover()
    await peers.recover("/other")
    assert tree(peers.to) == {"f": b"2"}


async def test_a_newer_file_is_not_overwritten_unless_told(peers: Peers) -> None:
    await peers.hold(put(b"f", b"held"))
    peers.to.mkdir()
    (peers.to / "f").write_bytes(b"newer")
    assert (await peers.recover()).refused == [(b"f", "a newer file is there")]
    assert tree(peers.to) == {"f": b"newer"}
    assert (await peers.recover(overwrite_newer=True)).complete
    assert tree(peers.to) == {"f": b"held"}


async def test_nothing_is_written_through_a_symbolic_link(peers: Peers, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    peers.to.mkdir()
    (peers.to / "d").symlink_to(outside)
    await peers.hold(put(b"d/f", b"f"))
    result = await peers.recover()
    assert [path for path, _ in result.refused] == [b"d/f"]
    assert os.listdir(outside) == []


async def test_links_of_both_kinds_come_back_as_links(peers: Peers) -> None:
    await peers.hold(
        put(b"d/a", BIG), orders.Link(VOLUME, b"d/a", b"d/b"),
        Put(replica(b"d/s", kind="symlink", target=b"a", mtime_ns=10**18)),
    )  # fmt: skip
    assert (await peers.recover()).recovered == [b"d/a", b"d/b", b"d/s"]
    assert (peers.to / "d/a").stat().st_ino == (peers.to / "d/b").stat().st_ino
    assert sorted(os.listdir(peers.to / "d")) == sorted(["a", "b", "s"])
    assert os.lstat(peers.to / "d/s").st_mtime_ns == 10**18
    again = await peers.recover()
    assert again.complete and again.present == [b"d/a", b"d/b"]
    assert sorted(os.listdir(peers.to / "d")) == sorted(["a", "b", "s"])


async def test_what_is_there_and_the_same_is_present_and_not_fetched(peers: Peers) -> None:
    await peers.hold(put(b"f", BIG, mtime_ns=10**18))
    assert (await peers.recover()).recovered == [b"f"]
    inode = (peers.to / "f").stat().st_ino
    again = await peers.recover()
    assert again.complete and (again.recovered, again.present) == ([], [b"f"])
    assert (peers.to / "f").stat().st_ino == inode and peers.said == []
    with (peers.to / "f").open("r+b") as file:
        file.write(b"spoiled")
    os.utime(peers.to / "f", ns=(0, 10**18))
    assert (await peers.recover()).recovered == [b"f"] and tree(peers.to) == {"f": BIG}


def metadata(*shards: str) -> bytes:
    return pickle.dumps(list(shards))


async def test_an_incomplete_checkpoint_is_reported_with_the_newest_complete_one(
    peers: Peers,
) -> None:
    names = ("__0_0.distcp", "__1_0.distcp")
    await peers.hold(
        put(b"r/1/__0_0.distcp", b"0"), put(b"r/1/__1_0.distcp", b"1", 2),
        put(b"r/1/.metadata", metadata(*names), 3),
        put(b"r/2/__0_0.distcp", b"2", 4), put(b"r/2/.metadata", metadata(*names), 5),
    )  # fmt: skip
    result = await peers.recover()
    assert result.complete and [each.path for each in result.broken] == [b"r/2"]
    assert peers.said == [
        "r/2 is incomplete: 1 of 3 files are not to be had (__1_0.distcp); "
        "the newest complete one is r/1 (--path r/1)"
    ]
    answer = result.as_answer([])
    assert [(each["path"], each["complete"], each["instead"]) for each in answer["checkpoints"]] \
        == [("r/1", True, None), ("r/2", False, "r/1")]  # fmt: skip
    assert (await peers.recover(prefix=b"r/1")).broken == []
    shard = await peers.recover(prefix=b"r/2/__0_0.distcp")  # nobody asked for a checkpoint
    assert (shard.present, shard.generations) == ([b"r/2/__0_0.distcp"], [])
    (peers.to / "r/2/__1_0.distcp").write_bytes(b"by other means")
    assert (await peers.recover()).broken == []


async def test_a_shard_of_an_earlier_save_is_not_mixed_in(peers: Peers) -> None:
    index = metadata("__0_0.distcp", "__1_0.distcp")
    old = [put(b"c/__0_0.distcp", b"0", 1), put(b"c/__1_0.distcp", b"1", 2)]
    await peers.owners[0].finish(*old, put(b"c/.metadata", index, 3))
    # The second peer has the save after that, without the shard whose owner it has lost.
    await peers.owners[1].finish(put(b"c/__0_0.distcp", b"2", 4), put(b"c/.metadata", index, 5))
    result = await peers.recover()
    assert result.missing == [b"c/__1_0.distcp"] and [g.path for g in result.broken] == [b"c"]
    assert tree(peers.to) == {"c/__0_0.distcp": b"2", "c/.metadata": index}
    assert "left out: only a version of an earlier save is held" in peers.said[0]


class Mute:
    """A holder that lists what another has, and then stalls."""

    name = "mute"

    def __init__(self, held: Sequence[Replica]) -> None:
        self._held = held

    async def volumes(self) -> list[str]:
        return [VOLUME]

    async def list(self, volume: str, prefix: bytes) -> Sequence[Replica]:
        return self._held

    async def fetch(
        self, replica: Replica, first: int = 0, last: int | None = None
    ) -> AsyncIterator[tuple[int, bytes]]:
        if first == 0:
            yield 0, BIG[:CHUNK_BYTES]
        raise PeerFailed(self.name, "nothing for 10 s")


async def test_a_stalled_holder_is_left_for_the_next(peers: Peers) -> None:
    await peers.hold(put(b"f", BIG))
    held = [replica(b"f", BIG), replica(b"g", BIG, 2)]
    async with open_reader(peers.addresses[0], "asker", SECRET) as reader:
        result = await recover([Mute(held), reader], None, b"", DirectorySink(peers.to))
    assert (result.recovered, result.missing) == ([b"f"], [b"g"])
    assert result.unreachable == ["mute"] and tree(peers.to) == {"f": BIG}
