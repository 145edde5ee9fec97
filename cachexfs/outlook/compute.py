"""From what the daemon knows and what was recorded to the summary. Plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cachexfs.control.foresight import Knowledge, PendingFile
from cachexfs.durability.checkpoints import GAPS_S, usual_interval_s
from cachexfs.durability.forecast import Leg, Model, Outlook, Way
from cachexfs.durability.latency.curve import Curve
from cachexfs.durability.latency.fit import PhaseFit
from cachexfs.durability.lost_work import (
    Loss,
    Saving,
    failure_rate,
    intervals,
    lost_now,
    lost_work,
)
from cachexfs.durability.paths import PATHS, Decision, Path, Traffic, offers, pick
from cachexfs.durability.writing import composed, corrected
from cachexfs.measurements.record import Record
from cachexfs.outlook import summary as s
from cachexfs.outlook.history import (
    history,
    of_last_job,
    score_of_last_week,
    sizes_of,
    typical_size,
    usual_save_s,
)

FILES_AT_MOST = 12
"""Of a checkpoint, the largest: those are the ones that others wait for."""

PENDING_AT_MOST = 50


def summarize(
    mountpoint: str,
    known: Knowledge,
    model: Model,
    records: Sequence[Record],
    recent: Sequence[Decision],
    notes: Sequence[str] = (),
) -> s.Summary:
    """All of it."""
    lags = _lags(known, model, records)
    recommended = _recommended(known, model, records, recent)
    return s.Summary(
        mountpoint=mountpoint,
        at_s=known.now_s,
        fitted_at_s=known.fitted_s,
        phases=[_phase(fit, model, records) for fit in model.fits_now()],
        write=_write(known, model, records),
        pending=[_pending(model, file) for file in known.pending[:PENDING_AT_MOST]],
        checkpoint=_current(known, model),
        lost_work=_lost_work(known, records, lags),
        intervals=_intervals(known, records, lags, recommended.path),
        recommended=recommended,
        score=score_of_last_week(records, known.now_s),
        notes=list(notes),
    )


# --- phases and files -----------------------------------------------------------------------------


def _phase(fit: PhaseFit, model: Model, records: Sequence[Record]) -> s.PhaseSummary:
    size = typical_size(records, fit.phase, fit.source)
    curve = model.whole(Leg(fit.phase, size, source=fit.source))
    return s.PhaseSummary(
        phase=fit.phase, source=fit.source, family=fit.family, samples=fit.samples,
        censored=fit.censored, slower_by=math.exp(fit.level), together=fit.together,
        since_at_s=fit.since_s, typical_size_bytes=size, bic=fit.bic,
        time=s.When(curve.median(), curve.quantile(0.95)),
    )  # fmt: skip


def _write(known: Knowledge, model: Model, records: Sequence[Record]) -> s.WriteSummary:
    """A file like most, if its write began now."""
    size = typical_size(records, "safe")
    path: Path = next((one for one in PATHS if one == known.path), "both")
    made = composed(model, size, known.traffic, known.copies_wanted, path)
    told = corrected(model, made)
    return s.WriteSummary(
        size_bytes=size, replicated=s.when(told.replicated), durable=s.when(told.durable),
        safe=s.when(told.safe), corrected=told != made,
    )  # fmt: skip


def _pending(model: Model, file: PendingFile) -> s.PendingSummary:
    return _summary(file.path, file.state, file.size_bytes, 1, model.outlook(file.way))


def _summary(path: str, state: str, size: int, files: int, outlook: Outlook) -> s.PendingSummary:
    return s.PendingSummary(
        path=path, state=state, size_bytes=size, files=files,
        replicated=s.when(outlook.replicated), durable=s.when(outlook.durable),
        safe=s.when(outlook.safe), safe_by=s.safe_by(outlook.safe),
    )  # fmt: skip


def _current(known: Knowledge, model: Model) -> s.PendingSummary | None:
    """The checkpoint that is on its way: the files that settled last, with no gap between them."""
    settled = sorted((f for f in known.pending if f.settled_s), key=lambda file: -file.settled_s)
    if not settled:
        return None
    group = [settled[0]]
    for file in settled[1:]:
        if group[-1].settled_s - file.settled_s > GAPS_S[0]:
            break
        if file.job == group[0].job:
            group.append(file)
    largest = sorted(group, key=lambda file: -file.size_bytes)[:FILES_AT_MOST]
    return _summary(
        group[0].path if len(group) == 1 else _common(group),
        min((file.state for file in group), key=("open", "captured", "replicated").index),
        sum(file.size_bytes for file in group),
        len(group),
        model.checkpoint([file.way for file in largest]),
    )


def _common(group: Sequence[PendingFile]) -> str:
    folders = {file.path.rpartition("/")[0] for file in group}
    return (folders.pop() + "/" if len(folders) == 1 else "") + f"({len(group)} files)"


# --- lost work, intervals, path -------------------------------------------------------------------


def _lags(known: Knowledge, model: Model, records: Sequence[Record]) -> dict[Path, Curve]:
    """Time to safety of a checkpoint like the last one, under each path, at any time of a run."""
    made = history(records)
    if not made:
        return {}
    model = model.in_the_long_run()
    sizes = sorted(sizes_of(records, made[-1]), reverse=True)
    lags = {}
    for path in PATHS:
        curve = model.checkpoint(_ways(path, sizes, known.peers, known.copies_wanted)).safe
        if curve is not None:
            lags[path] = curve
    return lags


def _ways(path: Path, sizes: Sequence[int], peers: Sequence[str], copies: int) -> list[Way]:
    """Files of these sizes that all settle now, under a path; of the largest few."""
    ways, ahead = [], 0
    for size in sizes[:FILES_AT_MOST]:
        beside = size * (path == "both")
        replicas = tuple(Leg("replicate", size, 0.0, ahead, beside, peer) for peer in peers)
        flush = Leg("flush", size, 0.0, ahead, beside)
        commit = Leg("commit", size, ahead_bytes=None)
        if path == "replica":
            ways.append(Way(copies, replicas))
        elif path == "direct":
            ways.append(Way(copies, (), flush, commit))
        elif peers:
            ways.append(Way(copies, replicas, flush, commit))
        else:
            ways.append(Way(copies))
        ahead += size
    return ways


def _lost_work(known: Knowledge, records: Sequence[Record], lags: dict[Path, Curve]) -> s.LostWork:
    made = of_last_job(history(records))
    interval_s, save_s = usual_interval_s(made), usual_save_s(made)
    ages = [known.now_s - one.begin_s for one in made if one.safe_s is not None]
    at_random: dict[str, Loss] = {}
    if interval_s and save_s:
        at_random = {path: lost_work(Saving(interval_s, save_s, lag)) for path, lag in lags.items()}
    return s.LostWork(
        now_s=lost_now(ages), interval_s=interval_s, save_s=save_s,
        checkpoint_bytes=made[-1].size_bytes if made else 0, at_random=at_random,
    )  # fmt: skip


def _intervals(
    known: Knowledge, records: Sequence[Record], lags: dict[Path, Curve], path: str
) -> s.Intervals | None:
    save_s = usual_save_s(history(records))
    lag = next((curve for of, curve in lags.items() if of == path), None)
    if save_s is None or lag is None:
        return None
    rate = failure_rate(known.mtbf_s, known.lifetimes, known.nodes)
    return s.Intervals(
        mtbf_s=rate.mtbf_s, origin=rate.origin, nodes=known.nodes, restart_s=known.restart_s,
        path=path, rules=intervals(save_s, lag, rate.mtbf_s, known.restart_s),
    )  # fmt: skip


def _recommended(
    known: Knowledge, model: Model, records: Sequence[Record], recent: Sequence[Decision]
) -> s.Recommended:
    size = typical_size(records, "safe")
    idle = Traffic(tuple((peer, 0) for peer in known.peers))
    made = offers(model, size, idle, known.copies_wanted, known.quantile)
    path, reason = pick(made, None)
    if len(made) == 1:
        reason = "there are no peers"
    return s.Recommended(
        configured=known.path, path=path, reason=reason, size_bytes=size,
        quantile=known.quantile, offers=made, recent=list(recent),
    )  # fmt: skip
