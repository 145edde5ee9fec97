"""A run told again: what the forecasts in its results would be, had this version made them. Pure.

What a run has stored are the forecasts, and when each phase of each write began and ended. From
that every phase is fitted and forecast anew, in the order of time and with a new fit as often as
the daemon makes one; whole ways are composed of these, and corrected by those that had ended when
they began. Where a run did not measure openings, they are what lies before the capture.

The load is not stored: it is estimated from the begins and ends of the writes, as the daemon does.
The model knows nothing of the time before the run, and of writes that were not recorded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np

from cachexfs.durability.calibration import FEW, HALVES_AFTER, Outcome, learned
from cachexfs.durability.composition import then
from cachexfs.durability.forecast import Model
from cachexfs.durability.latency.curve import Curve, expit, from_knots, logit
from cachexfs.durability.latency.sample import MEASURED_PHASES, Sample
from cachexfs.durability.paths import Traffic
from cachexfs.durability.score import LEVELS, Forecast, Score, score
from cachexfs.durability.writing import composed, way_of
from cachexfs.measurements.underway import UnderWay
from tools.experiments.predicting.foreseeing import TARGETS, targets
from tools.experiments.predicting.held import Held

FIRST_FIT_AFTER = 20
"""As in `measurements/keeper.py`."""


class Told(NamedTuple):
    """Something that was forecast at `at_s`, and the seconds that it took."""

    profile: str
    at_s: float
    curve: Curve
    seen_s: float

    def forecast(self, what: str) -> Forecast:
        """As it is scored."""
        quantiles = tuple(self.curve.quantile(p) for p in LEVELS)
        return Forecast(what, self.at_s, quantiles, self.seen_s)


_Write = tuple[str, int, int]
_Writes = dict[_Write, dict[str, Held]]
_Ways = dict[str, list[Told]]
"""How it was told -> the forecasts."""

_PEER = "peer"
_TOGETHER_S = 0.002
"""Both ways of a file begin within this time, and a commit when its flush ends."""


def retold(held: Sequence[Held]) -> dict[str, _Ways]:
    """What was forecast -> the ways in which it is told; the first is as it was."""
    retelling = _Retelling(_by_write(held))
    made: dict[str, _Ways] = {
        phase: {"as made": _as_made(held, phase), "anew": []} for phase in MEASURED_PHASES
    }
    for what in ("settled to durable", *TARGETS):
        made[what] = {"as made": [], "anew": []}
    for at in retelling.begins():
        for what, (was, told) in retelling.at(at).items():
            made[what]["as made"] += was
            made[what]["anew"].append(told)
    for what in ("settled to durable", *TARGETS):
        made[what]["and corrected"] = corrected(made[what]["anew"])
        made[what]["or mapped"] = mapped(made[what]["anew"])
    return made


def as_table(held: Sequence[Held]) -> str:
    """Markdown."""
    lines = [
        "| | | | forecasts | error | MAPE | inside 50 / 90 / 95 % | pinball |",
        "|---|---|---|---|---|---|---|---|",
    ]
    made = retold(held)
    for profile in dict.fromkeys(one.profile for one in held):
        for what, ways in made.items():
            for how, told in ways.items():
                kept = [one.forecast(what) for one in told if one.profile == profile]
                if kept:
                    lines.append(_row(profile, what, how, score(kept)))
    return "\n".join([*lines, "", *by_load(held)])


def by_load(held: Sequence[Held]) -> list[str]:
    """What an opening and a commit take with no other file in flush, and beside some."""
    measured = _Retelling(_by_write(held)).begins()
    took_ms: dict[tuple[str, str, bool], list[float]] = {}
    for write, sample in measured:
        if sample.phase in ("opening", "commit"):
            kind = (write[0], sample.phase, sample.ahead_bytes > 0)
            took_ms.setdefault(kind, []).append(1000 * sample.elapsed_s)
    return [
        f"- {profile}, {phase} {'beside files' if is_beside else 'with no other file'} in flush: "
        f"{median(times):.1f} ms (median of {len(times)})"
        for (profile, phase, is_beside), times in sorted(took_ms.items(), reverse=True)
    ]


def _row(profile: str, what: str, how: str, made: Score) -> str:
    inside = " / ".join(f"{100 * made.coverage[level]:.0f}" for level in ("50", "90", "95"))
    return (
        f"| {profile} | {what} | {how} | {made.forecasts} | {1000 * made.error_s:.3g} ms | "
        f"{100 * made.mape:.1f} % | {inside} | {1000 * made.pinball_s:.3g} ms |"
    )


class _Retelling:
    """All phases of all writes, with the loads and the models of every moment."""

    def __init__(self, writes: _Writes) -> None:
        self._writes = writes
        self._timeline = Timeline(writes)
        self._phases = sorted(
            (one for write, phases in writes.items() for one in self._measured(write, phases)),
            key=lambda one: one.sample.begin_s,
        )
        self._models = Models(one.sample for one in self._phases)

    def begins(self) -> Iterator[Measured]:
        """In the order of time."""
        return iter(self._phases)

    def at(self, begun: Measured) -> dict[str, tuple[list[Told], Told]]:
        """What is forecast when a phase begins: what it was, if that is asked here, and anew."""
        phases, sample, profile = self._writes[begun.write], begun.sample, begun.write[0]
        model = self._models.at(sample.begin_s)
        curve = model.drawn_of(sample)()
        told = Told(profile, sample.begin_s, curve, sample.elapsed_s)
        made: dict[str, tuple[list[Told], Told]] = {sample.phase: ([], told)}
        if sample.phase == "flush" and "commit" in phases:
            made["settled to durable"] = self._settled(begun, model)
        if sample.phase == "opening":
            size = phases["capture"].size_bytes
            outlook = composed(model, size, self._timeline.at(sample.begin_s), 1)
            for target, anew in targets(outlook).items():
                if target in phases:
                    was = _told(phases[target])
                    made[target] = ([was], was._replace(curve=anew))
        return made

    def _settled(self, begun: Measured, model: Model) -> tuple[list[Told], Told]:
        flush, commit = (self._writes[begun.write][phase] for phase in ("flush", "commit"))
        was = _told(flush)._replace(
            curve=then(_curve(flush), _curve(commit)),
            seen_s=commit.at_s + commit.seen_s - flush.at_s,
        )
        # A commit that was forecast under its load was forecast later than this.
        is_early = "opening" not in self._writes[begun.write]
        way = way_of(flush.size_bytes, self._timeline.at(flush.at_s), 1)
        anew = model.composed(way).durable
        assert anew is not None
        return [was] * is_early, was._replace(curve=anew)

    def _measured(self, write: _Write, phases: dict[str, Held]) -> Iterator[Measured]:
        whole = next((phases[target] for target in TARGETS if target in phases), None)
        capture = phases.get("capture")
        if whole is not None and capture is not None and capture.at_s > whole.at_s:
            took_s = capture.at_s - whole.at_s
            yield Measured(write, self._sample("opening", 0, whole.at_s, took_s))
        for phase in MEASURED_PHASES[1:]:
            if (one := phases.get(phase)) is not None:
                sample = self._sample(phase, one.size_bytes, one.at_s, one.seen_s)
                yield Measured(write, sample)

    def _sample(self, phase: str, size: int, begin_s: float, took_s: float) -> Sample:
        traffic = self._timeline.at(begin_s)
        ahead, beside = {
            "capture": (0, 0),
            "replicate": (traffic.replicating_bytes, traffic.flushing_bytes + size),
            "flush": (traffic.flushing_bytes, traffic.replicating_bytes + size),
        }.get(phase, (traffic.unflushed_bytes, traffic.unsent_bytes))
        behind = self._timeline.behind(phase, begin_s)
        return Sample(
            phase=phase, size_bytes=size, begin_s=begin_s, elapsed_s=took_s, ahead_bytes=ahead,
            beside_bytes=beside, behind_bytes=behind, source=_PEER * (phase == "replicate"),
        )  # fmt: skip


# --- phases ---------------------------------------------------------------------------------------


class Timeline:
    """What was under way of replication and flush at any begin, as the daemon estimates it."""

    def __init__(self, writes: _Writes) -> None:
        self._lines = {phase: UnderWay() for phase in ("replicate", "flush")}
        self._under_way: dict[float, Traffic] = {}
        self._behind: dict[tuple[str, float], int] = {}
        for _, act in sorted(self._events(writes), key=lambda event: event[0]):
            act()

    def at(self, begin_s: float) -> Traffic:
        """What was under way when a phase began."""
        return self._under_way[begin_s]

    def behind(self, phase: str, begin_s: float) -> int:
        """Bytes that came behind the file whose phase began then."""
        return self._behind.get((phase, begin_s), 0)

    def _events(self, writes: _Writes) -> Iterator[tuple[float, Callable[[], None]]]:
        """What happens, and when; a file's own way is not under way when it begins."""
        for phases in writes.values():
            for one in phases.values():
                on_the_way = one.target in self._lines
                asked_s = one.at_s - _TOGETHER_S if on_the_way else one.at_s + _TOGETHER_S
                yield asked_s, partial(self._look, one.at_s, asked_s)
                if on_the_way:
                    yield one.at_s, partial(self._begin, one)
                    yield one.at_s + one.seen_s, partial(self._end, one)

    def _look(self, at_s: float, asked_s: float) -> None:
        replicating, flushing = self._lines.values()
        self._under_way[at_s] = Traffic(
            ((_PEER, replicating.left_bytes(asked_s)),), flushing.left_bytes(asked_s),
            flushing.size_bytes, replicating.size_bytes,
        )  # fmt: skip

    def _begin(self, one: Held) -> None:
        self._lines[one.target].begin(one.size_bytes, one.at_s)

    def _end(self, one: Held) -> None:
        line, end_s = self._lines[one.target], one.at_s + one.seen_s
        line.end(one.size_bytes, end_s)
        behind = line.came_during(one.size_bytes, one.at_s, end_s)
        self._behind[one.target, one.at_s] = behind


class Measured(NamedTuple):
    """A phase of a write."""

    write: _Write
    sample: Sample


class Models:
    """The model in force at any time, which is asked for in order."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._coming = sorted(samples, key=_end_s)
        self._ended: list[Sample] = []
        self._fitted = 0
        self._model = Model()

    def at(self, now_s: float) -> Model:
        """With what had ended by then."""
        from cachexfs.durability.latency.fitting import fit_all

        while self._coming and _end_s(self._coming[0]) <= now_s:
            sample = self._coming.pop(0)
            self._ended.append(sample)
            self._model.it_is(_end_s(sample))
            self._model.saw(sample)
            if len(self._ended) - self._fitted >= max(FIRST_FIT_AFTER, self._fitted // 10):
                self._fitted = len(self._ended)
                self._model = Model(fit_all(self._ended))
        self._model.it_is(now_s)
        return self._model


def _end_s(sample: Sample) -> float:
    return sample.begin_s + sample.elapsed_s


# --- whole ways -----------------------------------------------------------------------------------


def corrected(told: Sequence[Told]) -> list[Told]:
    """Each by those that had ended when it began."""
    ended = sorted(told, key=lambda one: one.at_s + one.seen_s)
    ends = [one.at_s + one.seen_s for one in ended]
    outcomes = [Outcome(one.forecast("").quantiles, one.seen_s) for one in ended]
    return [
        one._replace(curve=learned(outcomes[: bisect_right(ends, one.at_s)]).of(one.curve))
        for one in told
    ]


def mapped(told: Sequence[Told]) -> list[Told]:
    """The rival of `corrected`: probabilities are mapped, and not times moved.

    As Kuleshov, Fenner and Ermon (2018): a quantile is asked for at that quantile of the
    probabilities at which earlier ones came true. Newer ones weigh more, as there.
    """
    ended = sorted(told, key=lambda one: one.at_s + one.seen_s)
    ends = [one.at_s + one.seen_s for one in ended]
    shares = [min(max(one.curve.cdf(one.seen_s), 1e-6), 1 - 1e-6) for one in ended]
    return [
        one._replace(curve=_mapped(one.curve, shares[: bisect_right(ends, one.at_s)]))
        for one in told
    ]


def _mapped(curve: Curve, shares: Sequence[float]) -> Curve:
    if len(shares) < FEW:
        return curve
    logits = np.array([logit(share) for share in shares])
    weights = 0.5 ** (np.arange(len(shares))[::-1] / HALVES_AFTER)
    order = np.argsort(logits)
    below = (np.cumsum(weights[order]) - weights[order] / 2) / np.sum(weights)
    return from_knots(
        (curve.quantile(expit(float(np.interp(p, below, logits[order])))), p) for p in LEVELS
    )


# --- small steps ----------------------------------------------------------------------------------


def _by_write(held: Sequence[Held]) -> _Writes:
    made: _Writes = {}
    for one in held:
        made.setdefault((one.profile, one.run, one.number), {})[one.target] = one
    return made


def _curve(one: Held) -> Curve:
    return from_knots(zip(one.composed or one.quantiles, LEVELS, strict=True))


def _told(one: Held) -> Told:
    return Told(one.profile, one.at_s, _curve(one), one.seen_s)


def _as_made(held: Sequence[Held], target: str) -> list[Told]:
    return [_told(one) for one in held if one.target == target]
