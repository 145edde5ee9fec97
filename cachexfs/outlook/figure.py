"""The forecast as a figure: each phase with its fit, P(safe by t), forecast against seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cachexfs.control.foresight import Knowledge
from cachexfs.durability.forecast import Leg, Model
from cachexfs.durability.latency.sample import MEASURED_PHASES
from cachexfs.measurements.record import Record

PENDING_DRAWN = 6


def draw(file: Path, known: Knowledge, model: Model, records: Sequence[Record]) -> None:
    """Write the figure; the suffix says in which format. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 4, figsize=(19, 8.5), constrained_layout=True)
    for axis, phase in zip(axes.flat[:5], MEASURED_PHASES, strict=True):
        _phase(axis, phase, model, records)
    _safety(axes.flat[5], known, model)
    _seen(axes.flat[6], records)
    axes.flat[7].set_axis_off()
    figure.savefig(file)
    pyplot.close(figure)


def _phase(axis: Any, phase: str, model: Model, records: Sequence[Record]) -> None:
    """Times over what was expected for the size and the load, and the fitted distribution."""
    fit = model.fit_for(phase)
    unit = fit.unit()
    ratios = sorted(
        record.elapsed_s / (fit.work.of(record.sample()) * unit.median())
        for record in records
        if record.phase == phase and record.state == "ended" and record.elapsed_s > 0
    )
    axis.set_title(f"{phase}: {fit.family}, {len(ratios)} measured")
    axis.set_xscale("log")
    axis.set_xlabel("time / median for the size and load")
    axis.set_ylabel("share at most")
    shares = [(i + 0.5) / len(ratios) for i in range(len(ratios))]
    axis.step(ratios, shares, where="mid", color="0.4", label="measured")
    levels = [i / 200 for i in range(1, 200)]
    axis.plot([unit.quantile(p) / unit.median() for p in levels], levels, "C1", label="fit")
    axis.legend(loc="lower right")


def _safety(axis: Any, known: Knowledge, model: Model) -> None:
    """P(safe by t) of what is on its way or, with nothing on its way, of a file of 1 GiB."""
    axis.set_title("P(safe by t)")
    axis.set_xlabel("seconds from now")
    axis.set_ylim(0, 1)
    ways = [(file.path, model.outlook(file.way).safe) for file in known.pending[:PENDING_DRAWN]]
    if not ways:
        ways = [("1 GiB, if it settled now", model.whole(Leg("flush", 1 << 30)))]
        if known.peers:
            leg = Leg("replicate", 1 << 30, source=known.peers[0])
            ways.append((f"1 GiB to {known.peers[0]}", model.whole(leg)))
    for name, curve in ways:
        if curve is not None:
            times = [curve.quantile(i / 200) for i in range(1, 198)]
            axis.plot(times, [curve.cdf(time_s) for time_s in times], label=name[-40:])
    axis.set_xscale("log")
    axis.legend(loc="lower right", fontsize="small")


def _seen(axis: Any, records: Sequence[Record]) -> None:
    """Forecast against seen, with the 90 % interval, for each phase that was forecast."""
    axis.set_title("forecast against seen")
    axis.set_xlabel("forecast (median) in s")
    axis.set_ylabel("seen in s")
    forecasts = [f for record in records if (f := record.forecast()) is not None]
    for i, phase in enumerate(sorted({f.phase for f in forecasts})):
        points = [(f.median_s, max(f.seen_s, 1e-6)) for f in forecasts if f.phase == phase]
        axis.plot(*zip(*points, strict=True), ".", color=f"C{i}", alpha=0.5, label=phase)
    if forecasts:
        ends = sorted(f.median_s for f in forecasts)
        axis.plot([ends[0], ends[-1]], [ends[0], ends[-1]], "k-", linewidth=0.8)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.legend(loc="lower right", fontsize="small")
