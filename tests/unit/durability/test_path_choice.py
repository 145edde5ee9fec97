"""The choice of path: against a simulated truth, over speeds, load and size."""

from __future__ import annotations

import itertools
import math

import msgspec
import numpy as np
import pytest

from cachexfs.durability import paths
from cachexfs.durability.forecast import Model
from cachexfs.durability.latency.fit import PhaseFit
from cachexfs.durability.latency.fitting import fit_phase
from cachexfs.durability.latency.sample import Sample, Work
from cachexfs.durability.paths import (
    FIRST,
    MARGIN,
    TRIED_EVERY,
    Chooser,
    Decision,
    Offer,
    Path,
    Traffic,
    offers,
    pick,
)
from tests.unit.durability.truths import MB

SIZES = (2 * MB, 64 * MB, 1000 * MB)
NETWORK = (0.1e9, 0.3e9, 1e9, 3e9)
STORAGE = (0.1e9, 0.3e9, 1e9, 3e9)
LOADS = (1.0, 4.0)
"""How many times slower the storage is in its bad moments, a fifth of the time."""

WORK = Work(1e7, 1.0, 0.5)
"""Of both ways: 10 MB of fixed cost, a line in order, and half of what is beside on the link."""

COMMIT_S = 0.02
QUANTILE = 0.95


def unit(rng: np.random.Generator, rate: float, load: float, size: int = 1) -> np.ndarray:  # type: ignore[type-arg]
    """Seconds per byte of work."""
    slow = np.where(rng.random(size) < 0.2, load, 1.0)
    return slow / rate * np.exp(rng.normal(0.0, 0.25, size))


def measured(phase: str, rate: float, load: float, seed: int) -> PhaseFit:
    """What 150 files of this and other sizes taught, some beside others and some alone."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(150):
        size, ahead, beside = int(rng.choice(SIZES)), *(int(rng.choice((0, *SIZES))) for _ in "ab")
        took = float(unit(rng, rate, load)[0]) * WORK.bytes_of(size, ahead, beside)
        made.append(
            Sample(
                phase=phase, size_bytes=size, begin_s=60.0 * i, elapsed_s=took,
                ahead_bytes=ahead, beside_bytes=beside,
            )
        )  # fmt: skip
    return fit_phase(made)


def committed() -> PhaseFit:
    rng = np.random.default_rng(99)
    times = COMMIT_S * np.exp(rng.normal(0, 0.3, 100))
    return fit_phase(
        [
            Sample(phase="commit", size_bytes=SIZES[i % 3], begin_s=60.0 * i, elapsed_s=float(t))
            for i, t in enumerate(times)
        ]
    )


def truth(network: float, storage: float, load: float, size: int, ahead: int) -> dict[Path, float]:
    """The quantile of the time to safety of each path, by simulation."""
    rng = np.random.default_rng(1)
    peer, fs = unit(rng, network, 1.0, 20_000), unit(rng, storage, load, 20_000)
    commit = COMMIT_S * np.exp(rng.normal(0, 0.3, 20_000))
    times = {
        "replica": peer * WORK.bytes_of(size),
        "direct": fs * WORK.bytes_of(size, ahead) + commit,
        "both": np.minimum(
            peer * WORK.bytes_of(size, 0, size), fs * WORK.bytes_of(size, ahead, size) + commit
        ),
    }
    return {path: float(np.quantile(t, QUANTILE)) for path, t in times.items()}  # type: ignore[misc]


@pytest.fixture(scope="module")
def models() -> dict[tuple[float, float, float], Model]:
    peers = {n: measured("replicate", n, 1.0, 10 + i) for i, n in enumerate(NETWORK)}
    pairs = list(itertools.product(STORAGE, LOADS))
    storage = {pair: measured("flush", *pair, 50 + i) for i, pair in enumerate(pairs)}
    commit = committed()
    return {(n, *pair): Model([peers[n], storage[pair], commit]) for n in NETWORK for pair in pairs}


def test_auto_takes_the_better_path(models: dict[tuple[float, float, float], Model]) -> None:
    """At least 95 % of the cases in which replica and direct differ by more than 10 %.

    Better: no path is faster in truth by more than the 10 % that count as a difference.
    """
    right, cases, replica_or_direct = 0, 0, 0
    for (network, storage, load), model in models.items():
        for size, ahead in itertools.product(SIZES, (0, 500 * MB)):
            real = truth(network, storage, load, size, ahead)
            if abs(real["replica"] - real["direct"]) <= 0.1 * min(real["replica"], real["direct"]):
                continue
            traffic = Traffic((("peer", 0),), flushing_bytes=ahead)
            if ahead:  # what is ahead at the storage is beside what goes to the peer
                real = {**real, **_beside(network, storage, load, size, ahead)}
            decision = Chooser(QUANTILE).choose(model, size, traffic)
            cases += 1
            right += real[decision.path] <= 1.1 * min(real.values())
            promised = {offer.path: offer.safe_s for offer in decision.offers}
            replica_or_direct += (promised["replica"] < promised["direct"]) == (
                real["replica"] < real["direct"]
            )
    print(f"auto: {right} of {cases}; replica or direct: {replica_or_direct} of {cases}")
    assert cases > 150
    assert right / cases >= 0.95, f"{right} of {cases}"
    assert replica_or_direct / cases >= 0.95, f"{replica_or_direct} of {cases}"


def _beside(
    network: float, storage: float, load: float, size: int, ahead: int
) -> dict[Path, float]:
    rng = np.random.default_rng(1)
    peer, fs = unit(rng, network, 1.0, 20_000), unit(rng, storage, load, 20_000)
    commit = COMMIT_S * np.exp(rng.normal(0, 0.3, 20_000))
    both = np.minimum(
        peer * WORK.bytes_of(size, 0, ahead + size), fs * WORK.bytes_of(size, ahead, size) + commit
    )
    alone = peer * WORK.bytes_of(size, 0, ahead)
    return {
        "replica": float(np.quantile(alone, QUANTILE)), "both": float(np.quantile(both, QUANTILE))
    }  # fmt: skip


FAR = [Offer("replica", 1.0, 100), Offer("direct", 2.0, 100), Offer("both", 1.5, 200)]


def test_the_fastest_path_is_taken() -> None:
    assert pick(FAR, None) == ("replica", "safe first")
    assert pick(FAR, "direct")[0] == "replica"


def test_among_equals_the_one_with_fewest_bytes() -> None:
    near = [Offer("replica", 1.0, 100), Offer("direct", 1.05, 50), Offer("both", 0.99, 150)]
    assert pick(near, None) == ("direct", "as fast as any, with fewer bytes on the network")


def test_a_path_in_use_stays_until_another_is_faster_by_the_margin() -> None:
    def made(direct_s: float) -> list[Offer]:
        return [Offer("replica", 1.0, 100), Offer("direct", direct_s, 100)]

    assert pick(made(1 - MARGIN + 0.01), "replica")[0] == "replica"
    assert pick(made(1 - MARGIN - 0.01), "replica")[0] == "direct"


def test_a_path_in_use_gives_way_to_one_as_fast_with_fewer_bytes() -> None:
    def made(direct_s: float) -> list[Offer]:
        return [Offer("direct", direct_s, 100), Offer("both", 1.0, 200)]

    assert pick(made(1 + MARGIN / 2 - 0.01), "both")[0] == "direct"
    assert pick(made(1 + MARGIN / 2 + 0.01), "both")[0] == "both"  # and back only at the margin
    assert pick(made(1 + MARGIN / 2 + 0.01), "direct")[0] == "direct"


def test_noise_does_not_make_it_change_back_and_forth() -> None:
    rng, path, changes = np.random.default_rng(3), None, 0
    for _ in range(500):
        noisy = [Offer("replica", math.exp(rng.normal(0, 0.02)), 1), Offer("direct", 1.0, 1)]
        new, _ = pick(noisy, path)
        changes += path is not None and new != path
        path = new
    assert changes == 0


def test_without_peers_there_is_one_path() -> None:
    decision = Chooser().choose(Model(), 100 * MB, Traffic())
    assert decision.path == "direct" and [o.path for o in decision.offers] == ["direct"]
    assert "path direct" in decision.sentence()


def test_bytes_until_safe_are_counted() -> None:
    made = offers(Model(), 100 * MB, Traffic((("a", 0), ("b", 0))), 2, 0.95)
    assert {o.path: o.network_bytes // MB for o in made} == {
        "replica": 200, "direct": 100, "both": 300,
    }  # fmt: skip


def test_what_is_ahead_of_a_peer_counts() -> None:
    idle = offers(Model(), 100 * MB, Traffic((("a", 0),)), 1, 0.95)
    busy = offers(Model(), 100 * MB, Traffic((("a", 900 * MB),)), 1, 0.95)
    assert busy[0].safe_s > 5 * idle[0].safe_s


def test_each_class_of_sizes_has_its_own_path() -> None:
    chooser = Chooser()
    chooser.current = {1: "both"}
    chooser.choose(Model(), 100 * MB, Traffic((("a", 0),)))
    assert len(chooser.current) == 2


def test_now_and_then_both_ways_are_measured() -> None:
    """A peer that was slow when it was last used is fast again, which nobody would notice."""
    slow = measured("replicate", 0.01e9, 1.0, 1)
    model = Model([slow, measured("flush", 1e9, 1.0, 2), committed()])
    chooser, traffic = Chooser(QUANTILE), Traffic((("peer", 0),))
    taken = [chooser.choose(model, 64 * MB, traffic).path for _ in range(3 * TRIED_EVERY)]
    assert taken[TRIED_EVERY - 1 :: TRIED_EVERY] == ["both"] * 3
    assert taken.count("direct") == len(taken) - 3
    alone = [chooser.choose(model, 64 * MB, Traffic()).path for _ in range(2 * TRIED_EVERY)]
    assert set(alone) == {"direct"}


def test_where_all_go_both_ways_one_goes_alone_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether the ways share a link is not to be seen in files that all went both ways."""
    model = Model([measured("replicate", 1e9, 1.0, 1), measured("flush", 3e9, 1.0, 2), committed()])
    monkeypatch.setattr(paths, "pick", lambda made, current: ("both", "safe first"))
    chooser, traffic = Chooser(QUANTILE), Traffic((("peer", 0),))
    taken = [chooser.choose(model, 64 * MB, traffic).path for _ in range(2 * TRIED_EVERY)]
    assert taken[TRIED_EVERY - 1 :: TRIED_EVERY] == ["direct"] * 2  # the faster one
    assert taken.count("both") == len(taken) - 2


def test_while_nothing_is_known_each_path_is_taken_in_turn() -> None:
    chooser, traffic = Chooser(QUANTILE), Traffic((("peer", 0),))
    taken = [chooser.choose(Model(), 64 * MB, traffic).path for _ in range(len(FIRST))]
    assert tuple(taken) == FIRST
    assert {Chooser().choose(Model(), MB, Traffic()).path for _ in FIRST} == {"direct"}


def test_a_decision_survives_json() -> None:
    decision = Chooser().choose(Model(), 100 * MB, Traffic((("a", 0),)))
    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision) == decision
