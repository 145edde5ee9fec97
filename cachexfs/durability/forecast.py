"""When will it be safe? From the fits and from where a file stands. Pure.

Everything is conditional on what has elapsed already: a flush that has taken ten minutes is not
expected to end in the second that a flush takes as a rule.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from cachexfs.durability.calibration import NONE, Correction
from cachexfs.durability.composition import COARSE, earlier, later, of_copies, slowest, then
from cachexfs.durability.latency.curve import Curve, times_one_of
from cachexfs.durability.latency.fit import PhaseFit, followed, log_ratio
from cachexfs.durability.latency.prior import PRIOR_GONE, TOGETHER, prior_fit
from cachexfs.durability.latency.sample import MEASURED_PHASES, Sample, moved_bytes
from cachexfs.durability.latency.spells import Spells, slow_share, unit
from cachexfs.durability.latency.surprise import WIDER, Surprise

_LOAD_STEP = 1.2
"""Factor of the bytes to which the work of a small file is rounded, for the same reason."""

_SPELL_STEPS = 32
"""To which the probability of a burst is rounded, so that a curve is made once for many files."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One phase of a file that lies ahead or is under way; `elapsed_s` is how long already.

    `ahead_bytes` None: it begins later, under a load that is not known yet.
    """

    phase: str
    size_bytes: int
    elapsed_s: float = 0.0
    ahead_bytes: int | None = 0
    beside_bytes: int = 0
    source: str = ""

    @property
    def moved_bytes(self) -> int:
        """How many bytes it has to move."""
        return moved_bytes(self.phase, self.size_bytes)


@dataclass(frozen=True, slots=True)
class Way:
    """What a file still has before it. `replicas`: a leg for each peer that gets a copy.

    `replicas` is empty when none is on its way, and `flush` None when it is done (or was with the
    commit in one); both None: nothing is on its way to the shared file system. `flush_waits`: it
    begins when the replicas are there.
    """

    copies_wanted: int = 1
    replicas: tuple[Leg, ...] = ()
    flush: Leg | None = None
    commit: Leg | None = None
    flush_waits: bool = False


@dataclass(frozen=True, slots=True)
class Outlook:
    """Distributions of the seconds from now; None when it is not on its way there."""

    replicated: Curve | None
    durable: Curve | None
    safe: Curve | None


class Model:
    """The fits in force, with levels that follow what ends in the meantime."""

    def __init__(
        self, fits: Iterable[PhaseFit] = (), corrections: Mapping[str, Correction] | None = None
    ) -> None:
        self.corrections = corrections or {}
        """Of whole ways, by what they lead to: replaced as forecasts come true."""
        self._fits = {(phase, ""): prior_fit(phase) for phase in MEASURED_PHASES}
        self._fits |= {(fit.phase, fit.source): fit for fit in fits}
        self._units = {key: fit.unit() for key, fit in self._fits.items()}
        self._medians = {key: unit.median() for key, unit in self._units.items()}
        self._levels = {key: fit.level for key, fit in self._fits.items()}
        self._spells = {key: fit.spells for key, fit in self._fits.items() if fit.spells}
        self._surprises = {key: fit.surprise for key, fit in self._fits.items()}
        self._in_spells: dict[tuple[str, str, int], Curve] = {}
        self._with_later: dict[tuple[str, str, int], Curve] = {}
        self._under_usual_load: dict[tuple[str, str, int, int], Curve] = {}
        self._now_s = 0.0

    def it_is(self, now_s: float) -> None:
        """The time, since the epoch: bursts that were seen long ago are over by now."""
        self._now_s = now_s

    def fits(self) -> list[PhaseFit]:
        """Every fit, by phase and source."""
        return [self._fits[key] for key in sorted(self._fits)]

    def fits_now(self) -> list[PhaseFit]:
        """As `fits`, with the levels that they have come to."""
        return [
            msgspec.structs.replace(
                self._fits[key],
                level=self._levels[key],
                spells=self._spells_now(key),
                surprise=self._surprises[key],
            )
            for key in sorted(self._fits)
        ]

    def in_the_long_run(self) -> Model:
        """The same without what is so at this moment only: bursts come as often as they do.

        Without corrections too: those are of what was missed of late.
        """
        return Model(
            msgspec.structs.replace(fit, spells=None, surprise=Surprise())
            for fit in self.fits_now()
        )

    def frozen(self) -> Model:
        """As it is now, whatever ends later: for a forecast that is computed then."""
        made = copy.copy(self)
        made._levels, made._spells = dict(self._levels), dict(self._spells)
        made._surprises = dict(self._surprises)
        return made

    def fit_for(self, phase: str, source: str = "") -> PhaseFit:
        """The fit that is used for a phase of this source."""
        return self._fits[self._key(phase, source)]

    def rests_on(self, *phases: str) -> bool:
        """Whether measurements alone decide on these phases: the priors have no say any more."""
        fits = [self.fit_for(phase) for phase in phases]
        return all(fit.samples - fit.censored >= PRIOR_GONE for fit in fits)

    def level(self, phase: str, source: str = "") -> float:
        """How slow it is at present: ln of a factor."""
        key = self._key(phase, source)
        return self._levels[key] + math.log(self._unit(key).median() / self._medians[key])

    def saw(self, sample: Sample) -> None:
        """A phase ended, or was given up: the level follows. As when it was fitted."""
        for key in {(sample.phase, ""), self._key(sample.phase, sample.source)}:
            fit = self._fits[key]
            if not fit.gain and key not in self._spells:
                self._surprises[key] = self._surprised(key, sample)
            if key in self._spells:
                self._spells[key] = self._after(key, sample)
                continue
            ratio = log_ratio(sample.elapsed_s, fit.work.of(sample), self._medians[key])
            self._levels[key] = followed(
                self._levels[key], fit.gain, ratio, censored=sample.censored
            )

    def whole(self, leg: Leg) -> Curve:
        """The distribution of a phase's whole time, as if it began now."""
        return self.drawn(leg)()

    def drawn(self, leg: Leg) -> Callable[[], Curve]:
        """`whole` as it is now, to be computed later and in any thread."""
        unit, factor = self._unit_and_factor(leg)
        return lambda: unit.scaled(factor)

    def drawn_of(self, sample: Sample) -> Callable[[], Curve]:
        """`drawn` for the size and the load that a sample had."""
        return self.drawn(
            Leg(
                sample.phase, sample.size_bytes, ahead_bytes=sample.ahead_bytes,
                beside_bytes=sample.beside_bytes, source=sample.source,
            )
        )  # fmt: skip

    def left(self, leg: Leg) -> Curve:
        """The distribution of what is left of it."""
        return self.whole(leg).after(leg.elapsed_s)

    def left_at(self, leg: Leg, p: float) -> float:
        """One quantile of what is left, in microseconds of work."""
        unit, factor = self._unit_and_factor(leg)
        return factor * unit.left_at(leg.elapsed_s / factor, p)

    def together(self, phase: str) -> float:
        """Correlation of files that are under way at the same time in this phase."""
        fit = self._fits[phase, ""]
        return fit.together if fit.samples else TOGETHER

    def beside(self) -> float:
        """Correlation of a file's replication with its flush, which begin together."""
        return self._fits["flush", ""].beside

    def corrected(self, journey: str, curve: Curve) -> Curve:
        """The time of a whole way that begins now, as earlier forecasts of it came true."""
        return self.corrections.get(journey, NONE).of(curve)

    def replicated(self, way: Way, until: Curve | None = None) -> Curve | None:
        """Time until enough peers hold it, composed and not corrected.

        `until`: when the way begins, if that is not now.
        """
        if not way.replicas or len(way.replicas) < way.copies_wanted:
            return None
        legs = [self._left_after(until, leg) for leg in way.replicas]
        return of_copies(legs, way.copies_wanted, self.together("replicate"))

    def durable(self, way: Way, until: Curve | None = None) -> Curve | None:
        """Time until the shared file system holds it, composed and not corrected."""
        first = self.replicated(way, until) if way.flush_waits else None
        legs = [leg for leg in (way.flush, way.commit) if leg is not None]
        if not legs:
            return None
        stretches = [self._left_after(until if first is None else None, legs[0])]
        stretches += [self.left(leg) for leg in legs[1:]]
        return functools.reduce(then, stretches if first is None else [first, *stretches])

    def _left_after(self, until: Curve | None, leg: Leg) -> Curve:
        """The time of a leg that begins then; what is ahead of it has been moving meanwhile."""
        behind_it = self.left(leg)
        if until is None:
            return behind_it
        if not leg.ahead_bytes:
            return then(until, behind_it, COARSE)
        return later(then(until, self.left(replace(leg, ahead_bytes=0)), COARSE), behind_it)

    def outlook(self, way: Way) -> Outlook:
        """All three times of a file, corrected."""
        left, whole = self.composed(way), _from_its_begin(way)
        if not self.corrections or whole is None:
            return left
        began = left if whole == way else self.composed(whole)
        return Outlook(
            self._partly("replicated", left.replicated, began.replicated),
            self._partly("durable", left.durable, began.durable),
            self._partly("safe", left.safe, began.safe),
        )

    def _partly(self, journey: str, left: Curve | None, whole: Curve | None) -> Curve | None:
        """Corrected for the part of the way that is left: what is missing may be anywhere on it."""
        if left is None or whole is None:
            return left
        share = min(left.median() / whole.median(), 1.0)
        return self.corrections.get(journey, NONE).of(left, share, whole.median())

    def composed(self, way: Way, until: Curve | None = None) -> Outlook:
        """All three times of a file, as the phases have it; `until` as for `replicated`."""
        replicated, durable = self.replicated(way, until), self.durable(way, until)
        if way.flush_waits and replicated is not None:
            return Outlook(replicated, durable, replicated)
        return _outlook(replicated, durable, self.beside())

    def checkpoint(self, ways: Sequence[Way]) -> Outlook:
        """All three times of files that belong together: those of the slowest.

        Safe is the earlier of replicated and durable for each file, and then the slowest file.
        """
        outlooks = [self.outlook(way) for way in ways]
        both = max(self.together("replicate"), self.together("flush"))
        return Outlook(
            _slowest([o.replicated for o in outlooks], self.together("replicate")),
            _slowest([o.durable for o in outlooks], self.together("flush")),
            _slowest([o.safe for o in outlooks], both),
        )

    def eta_replicated_s(self, way: Way) -> float | None:
        """About the median of `replicated`, cheaply: the slower of the copies that are needed."""
        left_s, whole = self._copied_s(way), _from_its_begin(way)
        return self._partly_s("replicated", left_s, self._copied_s(whole) if whole else None)

    def _copied_s(self, way: Way) -> float | None:
        if not way.replicas or len(way.replicas) < way.copies_wanted:
            return None
        return sorted(self.left_at(leg, 0.5) for leg in way.replicas)[way.copies_wanted - 1]

    def eta_durable_s(self, way: Way) -> float | None:
        """About the median of `durable`, cheaply: the sum of the medians.

        The median of a sum of skewed times is larger than that, by a few per cent where one of the
        two dominates, as the flush of a large file or the commit of a small one does.
        """
        left_s, whole = self._committed_s(way), _from_its_begin(way)
        return self._partly_s("durable", left_s, self._committed_s(whole) if whole else None)

    def _partly_s(self, journey: str, left_s: float | None, whole_s: float | None) -> float | None:
        if left_s is None or whole_s is None or whole_s <= 0.0:
            return left_s
        share = min(left_s / whole_s, 1.0)
        return self.corrections.get(journey, NONE).of_median(left_s, share, whole_s)

    def _committed_s(self, way: Way) -> float | None:
        legs = [leg for leg in (way.flush, way.commit) if leg is not None]
        if not legs:
            return None
        waits_s = self._copied_s(way) if way.flush_waits else None
        return (waits_s or 0.0) + sum(self.left_at(leg, 0.5) for leg in legs)

    def _key(self, phase: str, source: str) -> tuple[str, str]:
        return (phase, source) if (phase, source) in self._fits else (phase, "")

    def _unit(self, key: tuple[str, str]) -> Curve:
        """The time per byte as it is now, before the level."""
        return self._as_surprised(key, self._unit_with_later(key))

    def _as_surprised(self, key: tuple[str, str], forecast: Curve) -> Curve:
        offset = self._surprises[key].offset_at(self._now_s)
        return forecast.widened(WIDER).scaled(math.exp(offset)) if offset else forecast

    def _unit_with_later(self, key: tuple[str, str]) -> Curve:
        """As the fit has it, and with what may still come and take its share."""
        step = self._step(key)
        if (*key, step) not in self._with_later:
            self._with_later[(*key, step)] = times_one_of(
                self._unit_forecast(key), self._fits[key].later
            )
        return self._with_later[(*key, step)]

    def _step(self, key: tuple[str, str]) -> int:
        spells = self._spells_now(key)
        return round(spells.slow * _SPELL_STEPS) if spells else 0

    def _unit_forecast(self, key: tuple[str, str]) -> Curve:
        """As the fit has it; in bursts by the probability that this is one."""
        if key not in self._spells:
            return self._units[key]
        step = self._step(key)
        if (*key, step) not in self._in_spells:
            parameters = self._fits[key].parameters
            self._in_spells[(*key, step)] = unit(parameters, step / _SPELL_STEPS)
        return self._in_spells[(*key, step)]

    def _spells_now(self, key: tuple[str, str]) -> Spells | None:
        spells = self._spells.get(key)
        return spells and spells.at(self._now_s, slow_share(self._fits[key].parameters))

    def _surprised(self, key: tuple[str, str], sample: Sample) -> Surprise:
        unit = self._unit_forecast(key)
        level, work = math.exp(self._levels[key]), self._fits[key].work.of(sample)
        unit_s = sample.elapsed_s / (work * level)
        return self._surprises[key].saw(
            math.log(max(unit_s, 1e-18) / unit.median()),
            unit.cdf(unit_s),
            sample.begin_s + sample.elapsed_s,
            censored=sample.censored,
        )

    def _after(self, key: tuple[str, str], sample: Sample) -> Spells:
        fit = self._fits[key]
        log_unit = math.log(max(sample.elapsed_s, 1e-9)) - math.log(fit.work.of(sample))
        before = self._spells[key].at(sample.begin_s, slow_share(fit.parameters))
        end_s = sample.begin_s + sample.elapsed_s
        return before.saw(log_unit, end_s, fit.parameters, sample.censored)

    def _unit_and_factor(self, leg: Leg) -> tuple[Curve, float]:
        """The time of a leg is the one, times the other."""
        key = self._key(leg.phase, leg.source)
        work, level = self._fits[key].work, math.exp(self._levels[key])
        if leg.ahead_bytes is None:
            bytes_ = work.bytes_of(leg.moved_bytes)
            return self._unit_under_usual_load(key, bytes_), bytes_ * level
        bytes_ = work.bytes_of(leg.moved_bytes, leg.ahead_bytes, leg.beside_bytes)
        return self._unit(key), bytes_ * level

    def _unit_under_usual_load(self, key: tuple[str, str], bytes_: float) -> Curve:
        """The time per byte, when load of which nothing is known yet comes on top of these."""
        if max(self._fits[key].usual_load) <= 0.0:
            return self._unit(key)
        place = (*key, self._step(key), round(math.log(bytes_) / math.log(_LOAD_STEP)))
        if place not in self._under_usual_load:
            without = _LOAD_STEP ** place[-1]
            factors = [(without + load) / without for load in self._fits[key].usual_load]
            self._under_usual_load[place] = times_one_of(self._unit_with_later(key), factors)
        return self._as_surprised(key, self._under_usual_load[place])


def _from_its_begin(way: Way) -> Way | None:
    """The way as it was when it began; None where a part of it is over already."""
    if way.commit is not None and way.flush is None:
        return None
    replicas = tuple(replace(leg, elapsed_s=0.0) for leg in way.replicas)
    flush = None if way.flush is None else replace(way.flush, elapsed_s=0.0)
    return replace(way, replicas=replicas, flush=flush)


def _outlook(replicated: Curve | None, durable: Curve | None, together: float) -> Outlook:
    if replicated is None or durable is None:
        return Outlook(replicated, durable, replicated or durable)
    return Outlook(replicated, durable, earlier(replicated, durable, together))


def _slowest(curves: Sequence[Curve | None], together: float) -> Curve | None:
    known = [curve for curve in curves if curve is not None]
    return slowest(known, together) if known and len(known) == len(curves) else None
