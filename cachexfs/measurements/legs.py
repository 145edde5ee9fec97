"""The stretches of each file's way: what begins, under which load, with which forecast."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from cachexfs.durability.composition import earlier, of_copies, then
from cachexfs.durability.forecast import Leg, Model, Outlook, Way
from cachexfs.durability.latency.curve import Curve
from cachexfs.durability.paths import Path, Traffic
from cachexfs.durability.writing import WRITES, composed, opening_of
from cachexfs.measurements.openings import Opening
from cachexfs.measurements.recorder import WRITE_PACE_S, Forecast, Key, Recorder


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


class _Begun(NamedTuple):
    """A write whose capture is under way: what was known when its opening began."""

    opening: Opening
    model: Model


class Legs:
    """Of all files of a mount. In the event loop; forecasts are made of the kept ones only.

    `chosen`: the peers that get copies, as far as that is known before a file settles.
    """

    def __init__(
        self,
        keeper: Remembering,
        copies_wanted: int,
        chosen: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._keeper = keeper
        self._copies_wanted = copies_wanted
        self._chosen = chosen
        self._writes: dict[tuple[int, int], _Begun] = {}

    @property
    def recorder(self) -> Recorder:
        """The recorder in force."""
        return self._keeper.recorder

    @property
    def model(self) -> Model:
        """The model in force, as of now."""
        return self.recorder.model_now()

    def traffic_now(self) -> Traffic:
        """What is under way to the peers that a file would go to, and to the shared file system."""
        return self.traffic(self._chosen())

    def traffic(self, peers: Sequence[str]) -> Traffic:
        """What is under way to these peers, and to the shared file system."""
        under_way = self.recorder.bytes_under_way
        return Traffic(
            tuple((peer, under_way("replicate", peer)) for peer in peers),
            under_way("flush"),
            self.recorder.files_under_way("flush"),
            self.recorder.files_under_way("replicate"),
        )

    # --- begins ---------------------------------------------------------------------------------

    def writing(self, content: Content) -> None:
        """A program begins to write it; the size is not known yet."""
        key = Key("capture", content.ino, content.version)
        self.recorder.begin(key, 0, keep=self.recorder.is_due("capture"), job=content.job)

    def opened(self, ino: int, opening: Opening) -> None:
        """A file was opened to be written anew, and its capture has begun."""
        capture = next((key for key in self.recorder.of(ino) if key.phase == "capture"), None)
        begun_s = self.recorder.begun_s(capture) if capture is not None else None
        if capture is None or begun_s is None or begun_s < opening.since_s:
            return  # it was being written already
        record = self.recorder.running(capture)
        if record is None or record.id == 0:  # one of many, and none of those that are kept
            return
        model, traffic = self.model.frozen(), opening.traffic
        key = Key("opening", ino, capture.version)
        self.recorder.begin(
            key, 0, keep=True, job=record.job, ahead_bytes=traffic.unflushed_bytes,
            beside_bytes=traffic.unsent_bytes, forecast=model.drawn(opening_of(traffic)),
            since_s=opening.since_s,
        )  # fmt: skip
        self.recorder.end(key, at_s=begun_s)
        if self.recorder.is_due("write", WRITE_PACE_S):
            self._writes[ino, capture.version] = _Begun(opening, model)

    def depart(self, content: Content, path: Path, peers: Sequence[str]) -> None:
        """The way of a captured file begins. `peers`: those that it is sent to now."""
        self._begin_write(content, path, peers)
        keep, traffic = self.recorder.is_due(), self.traffic(peers)
        copies = self.replicate(content, path, peers, keep=keep) if peers else None
        waits = path == "replica" and bool(peers)  # its flush begins when the peers have it
        beside = traffic.replicating_bytes + content.size_bytes * (bool(peers) and not waits)
        leg = Leg("flush", content.size_bytes, 0.0, traffic.flushing_bytes, beside)
        if not waits:
            self._flush(content, path, traffic.flushing_bytes, beside, keep=keep)
        if peers:
            self._begin(Key("replicated", *content[:2]), content, path, keep, forecast=copies)
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
        files = self.recorder.files_under_way
        ahead, beside = files("flush"), files("replicate")
        leg = Leg("commit", flush.size_bytes, 0.0, ahead, beside)
        content, keep = Content(ino, version, flush.size_bytes, flush.job), flush.id > 0
        forecast = self.model.drawn(leg) if keep else None
        key = Key("commit", ino, version)
        self._begin(key, content, flush.path, keep, ahead, beside, forecast)

    def acknowledged(self, ino: int, version: int, peer: str) -> None:
        """A peer has it."""
        self.recorder.end(Key("replicate", ino, version, peer))

    def replicated(self, ino: int, version: int) -> None:
        """Enough peers have it: it would survive the loss of this node."""
        self._reached(ino, version, "replicated", "safe")

    def committed(self, ino: int, version: int) -> None:
        """The shared file system has it."""
        self.recorder.end(Key("commit", ino, version))
        self._reached(ino, version, "durable", "safe")

    def _reached(self, ino: int, version: int, *journeys: str) -> None:
        for journey in journeys:
            self.recorder.end(Key(journey, ino, version))
            self.recorder.end(Key(WRITES[journey], ino, version))

    def give_up(self, ino: int) -> None:
        """Nobody wants this content any more."""
        self.recorder.give_up(self.recorder.of(ino))
        for write in [write for write in self._writes if write[0] == ino]:
            del self._writes[write]

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
        commits = legs["commit"] or ([_later_commit(flush.size_bytes)] if flush else [])
        commit = commits[0] if commits else None
        replicas = tuple(legs["replicate"]) if copies_missing > 0 else ()
        durable = self.recorder.running(Key("durable", ino, version))
        waits = flush is None and commit is None and durable is not None
        if waits and durable is not None:
            flush, commit = Leg("flush", durable.size_bytes), _later_commit(durable.size_bytes)
        return Way(max(copies_missing, 1), replicas, flush, commit, waits)

    # --- small steps ----------------------------------------------------------------------------

    def _begin_write(self, content: Content, path: Path, peers: Sequence[str]) -> None:
        """The whole write is forecast as it would have been at its begin, had its size been known.

        Only what goes to the peers as was thought then: who they are is known too late to ask.
        """
        begun = self._writes.pop((content.ino, content.version), None)
        if begun is None or (peers and not begun.opening.traffic.peers):
            return
        size_bytes, traffic, model = content.size_bytes, begun.opening.traffic, begun.model
        outlook = functools.cache(
            lambda: composed(model, size_bytes, traffic, self._copies_wanted, path)
        )
        for to, kind in WRITES.items():
            if to == "replicated" and not peers:
                continue
            self.recorder.begin(
                Key(kind, *content[:2]), size_bytes, keep=True, path=path, job=content.job,
                forecast=partial(_curve_of, outlook, to), since_s=begun.opening.since_s,
            )  # fmt: skip

    def _until_durable(self, flush: Leg) -> Forecast:
        commit = _later_commit(flush.size_bytes)
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


def _later_commit(size_bytes: int) -> Leg:
    """A commit that begins when the flush is over, under a load that is not known yet."""
    return Leg("commit", size_bytes, ahead_bytes=None)


def _curve_of(outlook: Callable[[], Outlook], to: str) -> Curve:
    curve: Curve | None = getattr(outlook(), to)
    assert curve is not None
    return curve


def _composed(how: Callable[[Curve, Curve], Curve], first: Forecast, second: Forecast) -> Forecast:
    return lambda: how(first(), second())
