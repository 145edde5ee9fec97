"""The forecast as a person reads it: one screen."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cachexfs.durability.score import Score
from cachexfs.outlook import summary as s
from cachexfs.units import format_size

PENDING_SHOWN = 8


def of_summary(summary: s.Summary) -> str:
    """Phases, what is on its way, lost work, how often, which path, the score."""
    parts = [
        [f"{summary.mountpoint}  forecast"],
        [*_phases(summary), _write(summary.write)],
        _pending(summary),
        _lost_work(summary),
        _intervals(summary.intervals),
        _path(summary.recommended),
        _score(summary.score),
        [f"note: {note}" for note in summary.notes],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def span(seconds: float | None) -> str:
    """Seconds -> `"12 ms"`, `"1.2 s"`, `"3 min 20 s"`, `"2 h 05 min"`; None -> `"-"`."""
    if seconds is None:
        return "-"
    if seconds < 0.995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.5:
        return f"{seconds:.3g} s"
    if seconds < 3570:
        return "{} min {:02d} s".format(*divmod(round(seconds), 60))
    if seconds < 48 * 3600:
        return "{} h {:02d} min".format(*divmod(round(seconds / 60), 60))
    return f"{seconds / 86400:.3g} days"


def _phases(summary: s.Summary) -> list[str]:
    lines = ["phase             fitted      samples  for a file of      median       95 %"]
    for phase in summary.phases:
        name = phase.phase + (f" {phase.source}" if phase.source else "")
        lines.append(
            f"{name:<17} {phase.family:<11} {phase.samples:>7}  "
            f"{format_size(phase.typical_size_bytes):>13}  "
            f"{span(phase.time.median_s):>10} {span(phase.time.q95_s):>10}{_weather(phase)}"
        )
    return lines


def _weather(phase: s.PhaseSummary) -> str:
    notes = []
    if abs(phase.slower_by - 1.0) > 0.15:
        slower = phase.slower_by > 1
        factor = phase.slower_by if slower else 1 / phase.slower_by
        notes.append(f"{factor:.1f} times {'slower' if slower else 'faster'} today")
    if phase.since_at_s:
        notes.append("changed at " + time.strftime("%d %b %H:%M", time.localtime(phase.since_at_s)))
    return "  " + ", ".join(notes) if notes else ""


def _write(made: s.WriteSummary) -> str:
    how = "corrected by how earlier ones came true" if made.corrected else "as the phases add up"
    return (
        f"a write of {format_size(made.size_bytes)} that begins now: safe {_pair(made.safe)}; "
        f"durable {_pair(made.durable)} (50, 95 %; {how})"
    )


def _pending(summary: s.Summary) -> list[str]:
    if not summary.pending:
        return ["on its way        nothing: everything is durable"]
    lines = [
        "on its way                       replicated         durable            safe (50, 95 %)"
    ]
    if summary.checkpoint is not None and summary.checkpoint.files > 1:
        lines.append(_row("checkpoint " + summary.checkpoint.path, summary.checkpoint))
    lines += [_row(one.path, one) for one in summary.pending[:PENDING_SHOWN]]
    if len(summary.pending) > PENDING_SHOWN:
        lines.append(f"and {len(summary.pending) - PENDING_SHOWN} more")
    return lines


def _row(name: str, one: s.PendingSummary) -> str:
    times = [_pair(moment) for moment in (one.replicated, one.durable, one.safe)]
    shown = name if len(name) <= 31 else "..." + name[-28:]
    return f"{shown:<32} " + " ".join(f"{text:<18}" for text in times).rstrip()


def _pair(moment: s.When | None) -> str:
    return "-" if moment is None else f"{span(moment.median_s)}, {span(moment.q95_s)}"


def _lost_work(summary: s.Summary) -> list[str]:
    lost = summary.lost_work
    lines = [
        f"lost work now     {span(lost.now_s)}"
        if lost.now_s is not None
        else "lost work now     no checkpoint was seen to become safe"
    ]
    if lost.interval_s and lost.at_random:
        lines.append(
            f"at a random time  saving {format_size(lost.checkpoint_bytes)} each "
            f"{span(lost.interval_s)}, {span(lost.save_s)} a save"
        )
        lines += [
            f"  {path:<15} expected {span(loss.mean_s)}, in 95 % of cases less than "
            f"{span(loss.q95_s)}"
            for path, loss in lost.at_random.items()
        ]
    return lines


def _intervals(made: s.Intervals | None) -> list[str]:
    if made is None:
        return []
    nodes = f" of {made.nodes} nodes" if made.nodes > 1 else ""
    lines = [
        f"how often         mean time between failures{nodes} {span(made.mtbf_s)} ({made.origin})"
    ]
    lines += [
        f"  {rule.rule:<15} each {span(rule.interval_s)}: {100 * rule.wasted:.3g} % of the time "
        "in saving, lost work and restarts"
        for rule in made.rules
    ]
    return lines


def _path(made: s.Recommended) -> list[str]:
    lines = [
        f"path              {made.path} ({made.reason}); configured: {made.configured}",
    ]
    lines += [
        f"  {offer.path:<15} safe within {span(offer.safe_s)} in {100 * made.quantile:g} % of "
        f"cases, {format_size(offer.network_bytes)} on the network by then"
        for offer in made.offers
    ]
    return lines


def _score(made: Sequence[Score]) -> list[str]:
    if not made:
        return ["past forecasts    none came true yet"]
    lines = [
        "past forecasts (7 days)   count   error (mean, MAPE)   inside 50 / 90 / 95 %   "
        "pinball loss"
    ]
    for one in made:
        inside = " / ".join(f"{100 * one.coverage[level]:.0f}" for level in ("50", "90", "95"))
        errors = f"{span(one.error_s):>8} {100 * one.mape:>7.1f} %"
        lines.append(
            f"  {one.phase:<22} {one.forecasts:>6}   {errors:>18}   {inside:>20}   "
            f"{span(one.pinball_s):>12}"
        )
    return lines
