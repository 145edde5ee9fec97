"""The stretches of each file's way: what begins, under which load, with which forecast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from cachexfs.durability.composition import earlier, of_copies, then
from cachexfs.durability.forecast import Leg, Model, Way
from cachexfs.durability.latency.curve import Curve
from cachexfs.durability.paths import Path, Traffic
from cachexfs.measurements.recorder import Forecast, Key, Recorder


class Content(NamedTuple):
    """One version of one file."""

    ino: int
    version: int
    size_bytes: int
    job: str


class Remembering(Protocol):
    """Who has the recorder in force."""

    @property
    def recorder(self) -> Recorder: ...


class Legs:
    """Of all files of a mount. In the event loop; forecasts are made of the kept ones only."""

    def __init__(self, keeper: Remembering, copies_wanted: int) -> None:
        self._keeper = keeper
        self._copies_wanted = copies_wanted

    @property
    def recorder(self) -> Recorder:
        """The recorder in force."""
        return self._keeper.recorder

    @property
    def model(self) -> Model:
        """The model in force, as of now."""
        return self.recorder.model_now()

    def traffic(self, peers: Sequence[str]) -> Traffic:
        """What is under way to these peers, and to the shared file system."""
        under_way = self.recorder.bytes_under_way
        return Traffic(
            tuple((peer, under_way("replicate", peer)) for peer in peers), under_way("flush")
        )

    # --- begins ---------------------------------------------------------------------------------

    def writing(self, content: Content) -> None:
        """A program begins to write it; the size is not known yet."""
        key = Key("capture", content.ino, content.version)
        self.recorder.begin(key, 0, keep=self.recorder.is_due("capture"), job=content.job)

    def depart(self, content: Content, path: Path, peers: Sequence[str]) -> None:
        """The way of a captured file begins. `peers`: those that it is sent to now."""
        keep, traffic = self.recorder.is_due(), self.traffic(peers)
        copies = self.replicate(content, path, peers, keep=keep) if peers else None
        waits = path == "replica" and bool(peers)  # its flush begins when the peers have it
        beside = traffic.replicating_bytes + content.size_bytes * (bool(peers) and not waits)
        leg = Leg("flush", content.size_bytes, 0.0, traffic.flushing_bytes, beside)
        if not waits:
            self._flush(content, path, leg.ahead_bytes, leg.beside_bytes, keep=keep)
        durable = safe = self._until_durable(leg) if keep else None
        if durable is not None and copies is not None:
            first = partial(earlier, together=self.model.beside())
            safe = copies if waits else _composed(first, copies, durable)
            durable = _composed(then, copies, durable) if waits else durable
        self._begin(Key("durable", *content[:2]), content, path, keep, forecast=durable)
        self._begin(Key("safe", *content[:2]), content, path, keep, forecast=safe)

    def replicate(
        self, content: Content, path: Path, peers: Sequence[str], *, keep: bool | None = None
    ) -> Forecast | None:
        """It is sent to these peers; returns when enough will have it, if that is forecast."""
        keep = self.recorder.is_due() if keep is None else keep
        traffic = self.traffic(peers)
        beside = traffic.flushing_bytes + (content.size_bytes if path == "both" else 0)
        forecasts = []
        for peer, ahead in traffic.peers:
            leg = Leg("replicate", content.size_bytes, 0.0, ahead, beside, peer)
            forecast = self.model.drawn(leg) if keep else None
            key = Key("replicate", *content[:2], peer)
            self._begin(key, content, path, keep, ahead, beside, forecast)
            if forecast is not None:
                forecasts.append(forecast)
        wanted, together = self._copies_wanted, self.model.together("replicate")
        if len(forecasts) < wanted:
            return None
        return lambda: of_copies([forecast() for forecast in forecasts], wanted, together)

    def flush(self, ino: int, version: int, path: Path) -> None:
        """The flush of a file that had to wait for its replica begins now."""
        keys = [key for key in self.recorder.of(ino) if key.version == version]
        known = next((r for key in keys if (r := self.recorder.running(key)) is not None), None)
        if known is None:
            return
        under_way = self.recorder.bytes_under_way
        content = Content(ino, version, known.size_bytes, known.job)
        self._flush(content, path, under_way("flush"), under_way("replicate"), keep=known.id > 0)

    # --- ends -----------------------------------------------------------------------------------

    def captured(self, content: Content) -> None:
        """It is closed, and its size is known."""
        self.recorder.end(Key("capture", *content[:2]), content.size_bytes)

    def copied(self, ino: int, version: int) -> None:
        """The flush is over and the commit begins."""
        flush = self.recorder.running(Key("flush", ino, version))
        if flush is None:
            return
        self.recorder.end(Key("flush", ino, version))
        keep, leg = flush.id > 0, Leg("commit", flush.size_bytes)
        content = Content(ino, version, flush.size_bytes, flush.job)
        forecast = self.model.drawn(leg) if keep else None
        self._begin(Key("commit", ino, version), content, flush.path, keep, forecast=forecast)

    def acknowledged(self, ino: int, version: int, peer: str) -> None:
        """A peer has it."""
        self.recorder.end(Key("replicate", ino, version, peer))

    def safe(self, ino: int, version: int) -> None:
        """It would survive the loss of this node."""
        self.recorder.end(Key("safe", ino, version))

    def committed(self, ino: int, version: int) -> None:
        """The shared file system has it."""
        for phase in ("commit", "durable", "safe"):
            self.recorder.end(Key(phase, ino, version))

    def give_up(self, ino: int) -> None:
        """Nobody wants this content any more."""
        self.recorder.give_up(self.recorder.of(ino))

    # --- where a file stands --------------------------------------------------------------------

    def way(self, ino: int, version: int, copies_missing: int) -> Way:
        """What it has still before it, with what has elapsed."""
        legs: dict[str, list[Leg]] = {"replicate": [], "flush": [], "commit": []}
        for key in self.recorder.of(ino):
            record = self.recorder.running(key)
            if record is not None and key.version == version and key.phase in legs:
                legs[key.phase].append(
                    Leg(
                        key.phase, record.size_bytes, record.elapsed_s, record.ahead_bytes,
                        record.beside_bytes, key.source,
                    )
                )  # fmt: skip
        flush = legs["flush"][0] if legs["flush"] else None
        commits = legs["commit"] or ([Leg("commit", flush.size_bytes)] if flush else [])
        commit = commits[0] if commits else None
        replicas = tuple(legs["replicate"]) if copies_missing > 0 else ()
        durable = self.recorder.running(Key("durable", ino, version))
        waits = flush is None and commit is None and durable is not None
        if waits and durable is not None:
            flush, commit = (Leg(phase, durable.size_bytes) for phase in ("flush", "commit"))
        return Way(max(copies_missing, 1), replicas, flush, commit, waits)

    # --- small steps ----------------------------------------------------------------------------

    def _until_durable(self, flush: Leg) -> Forecast:
        commit = Leg("commit", flush.size_bytes)
        return _composed(then, self.model.drawn(flush), self.model.drawn(commit))

    def _flush(self, content: Content, path: Path, ahead: int, beside: int, *, keep: bool) -> None:
        leg = Leg("flush", content.size_bytes, 0.0, ahead, beside)
        forecast = self.model.drawn(leg) if keep else None
        self._begin(Key("flush", *content[:2]), content, path, keep, ahead, beside, forecast)

    def _begin(
        self,
        key: Key,
        content: Content,
        path: str,
        keep: bool,
        ahead: int = 0,
        beside: int = 0,
        forecast: Forecast | None = None,
    ) -> None:
        self.recorder.begin(
            key, content.size_bytes, keep=keep, path=path, job=content.job, ahead_bytes=ahead,
            beside_bytes=beside, forecast=forecast,
        )  # fmt: skip


def _composed(how: Callable[[Curve, Curve], Curve], first: Forecast, second: Forecast) -> Forecast:
    return lambda: how(first(), second())
