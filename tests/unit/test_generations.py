"""Which files are one checkpoint, whether all are there, and whether they are of one save."""

from __future__ import annotations

import pickle

import pytest

from cachexfs.peers.messages import Replica
from cachexfs.recovery.generations import (
    CLOCKS_S,
    Checkpoint,
    Generation,
    broken,
    checkpoints,
    judge,
    needed,
    of_other_saves,
    offered,
    sentence,
    shards_named_in,
)

S = 10**9
NAMED = {b"__0_0.distcp", b"__1_0.distcp"}


def held(path: bytes, at_s: float = 1, job: str = "slurm:1") -> Replica:
    at_ns = int(at_s * S)
    return Replica(
        volume="v", path=path, kind="file", owner="n", version=at_ns, closed_at_ns=at_ns, job=job
    )


def dcp(at_s: float, *shards: Replica) -> Checkpoint:
    (found,) = checkpoints([held(b"c/.metadata", at_s), *shards])
    return found


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("a pickle of a peer was loaded",))


def test_shards_are_read_off_the_metadata_and_nothing_of_it_is_run() -> None:
    content = pickle.dumps({"x": Evil(), "a": "__0_0.distcp", "b": ["__1_0.distcp", "c/d.distcp"]})
    assert shards_named_in(content) == NAMED
    assert shards_named_in(b"no pickle") == shards_named_in(b"") == set()
    assert shards_named_in(content[:-3]) == set()


def test_the_metadata_of_pytorch_names_its_shards() -> None:
    filesystem = pytest.importorskip("torch.distributed.checkpoint.filesystem")
    metadata = pytest.importorskip("torch.distributed.checkpoint.metadata")
    infos = {
        metadata.MetadataIndex(f"w{rank}"): filesystem._StorageInfo(f"__{rank}_0.distcp", 0, 9)
        for rank in range(2)
    }
    assert shards_named_in(pickle.dumps(metadata.Metadata({}, None, infos))) == NAMED


def test_what_belongs_to_a_checkpoint() -> None:
    assert needed(dcp(2, held(b"c/__0_0.distcp")), NAMED) == {b".metadata", *NAMED}
    (bare,) = checkpoints([held(b"c/__0_0.distcp"), held(b"c/config.json"), held(b"x/readme")])
    assert bare.path == b"c" and needed(bare, set()) == {b".metadata"}
    (ranks,) = checkpoints([held(b"__0_0.distcp"), held(b"__0.metadata")])
    assert ranks.path == b"" and needed(ranks, set()) == {b"__0.metadata"}


@pytest.mark.parametrize(
    ("there", "all_of_them"),
    [
        (
            b"m-00002-of-00003.safetensors",
            [b"m-0000%d-of-00003.safetensors" % n for n in (1, 2, 3)],
        ),
        (b"m.data-00000-of-00002", [b"m.data-0000%d-of-00002" % n for n in (0, 1)]),
    ],
)
def test_numbered_shards_say_how_many_they_are(there: bytes, all_of_them: list[bytes]) -> None:
    (found,) = checkpoints([held(b"c/" + there)])
    assert sorted(needed(found, set())) == all_of_them


def test_a_shard_of_another_save_is_told_apart() -> None:
    def why(shard: Replica, *earlier: float, index_at_s: float = 100) -> list[str]:
        found = dcp(index_at_s, shard)
        versions = [held(b"c/.metadata", at_s) for at_s in (*earlier, index_at_s)]
        return list(of_other_saves(found, NAMED, versions).values())

    good = held(b"c/__0_0.distcp", 99)
    assert why(good) == why(good, 50) == []
    assert why(held(b"c/__0_0.distcp", 49)) == []  # nothing is known of an earlier save
    assert "earlier save" in why(held(b"c/__0_0.distcp", 49), 50)[0]
    assert "later save" in why(held(b"c/__0_0.distcp", 101 + CLOCKS_S))[0]
    assert "slurm:2" in why(held(b"c/__0_0.distcp", 99, "slurm:2"))[0]
    assert why(held(b"c/__0_0.distcp", 99, "user.slice/a.scope")) == []  # differs between nodes
    assert why(held(b"c/__7_0.distcp", 49), 50) == []  # the index does not name it
    (without,) = checkpoints([good])
    assert of_other_saves(without, NAMED, []) == {}


def generation(path: bytes, at_s: float, *missing: bytes, job: str = "slurm:1") -> Generation:
    return Generation(path, job, int(at_s * S), 9, missing)


def test_an_incomplete_one_is_named_with_the_newest_complete_one_beside_it() -> None:
    old, mid, new = generation(b"r/1", 1), generation(b"r/2", 2), generation(b"r/3", 3, b"x")
    others = [old, mid, new, generation(b"q/9", 9), generation(b"r/8", 8, job="slurm:2")]
    assert offered(new, others) == mid and broken(others) == [new]
    assert sentence(new, others) == (
        "r/3 is incomplete: 1 of 9 files are not to be had (x); "
        "the newest complete one is r/2 (--path r/2)"
    )
    assert "no complete one" in sentence(new, [new])


def test_an_old_incomplete_one_breaks_nothing() -> None:
    assert broken([generation(b"r/1", 1, b"x"), generation(b"r/2", 2)]) == []


def test_a_checkpoint_is_complete_when_all_its_paths_are_there() -> None:
    found = dcp(2, held(b"c/__0_0.distcp"))
    there = {b"c/.metadata", b"c/__0_0.distcp"}
    assert judge(found, NAMED, there).missing == (b"__1_0.distcp",)
    assert judge(found, NAMED, {*there, b"c/__1_0.distcp"}).is_complete
