"""What came of a run: every sample, tables of them, and what was to hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from tools.experiments.varying.contention import Segment
from tools.experiments.varying.load import Load
from tools.experiments.varying.plan import PLACES, WRITERS, Place, Plan, Profile, Writer
from tools.experiments.varying.saver import Answer
from tools.experiments.varying.spread import Spread, cv_ratio_interval

LEAST = 2
"""Samples without which a place is left out of a table."""
ENOUGH = 5
"""Fast saves without which nothing is said: a bootstrap of fewer draws one time again and again."""
P99_TIMES, SD_TIMES = 50.0, 100.0
"""By which direct saves are to be worse than those that are captured."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One save; `at_s` is time.time() at its begin."""

    profile: Profile
    writer: Writer
    place: Place
    at_s: float
    took_s: float
    parts_s: dict[str, float] = {}
    size_bytes: int = 0

    @classmethod
    def of(cls, profile: Profile, writer: Writer, place: Place, answer: Answer) -> Sample:
        """What a saver answered."""
        parts = {name: round(getattr(answer, f"{name}_s"), 6) for name in PARTS}
        return cls(
            profile=profile, writer=writer, place=place, at_s=answer.at_s,
            took_s=answer.took_s, parts_s=parts, size_bytes=answer.size_bytes,
        )  # fmt: skip


PARTS = ("open", "write", "fsync", "close", "copy")


class Findings(msgspec.Struct, kw_only=True):
    """Of a run. `weather`: for each profile when each segment began (time.time()), and which."""

    plan: Plan
    machine: str = ""
    took_s: float = 0.0
    samples: list[Sample] = []
    loads: list[Load] = []
    weather: dict[str, list[tuple[float, Segment]]] = {}

    def times(self, profile: Profile, writer: Writer, place: Place) -> list[float]:
        """Seconds of all saves of a kind."""
        return [
            each.took_s
            for each in self.samples
            if (each.profile, each.writer, each.place) == (profile, writer, place)
        ]

    def spreads(self, profile: Profile, writer: Writer) -> dict[Place, Spread]:
        """Of each place with samples enough."""
        found = {place: self.times(profile, writer, place) for place in PLACES}
        return {place: Spread.of(times) for place, times in found.items() if len(times) >= LEAST}

    def load_in(self, profile: Profile) -> list[Load]:
        """While a profile lasted."""
        moments = [each.at_s for each in self.samples if each.profile == profile]
        if not moments:
            return []
        return [load for load in self.loads if min(moments) <= load.at_s <= max(moments)]


Held = Literal["yes", "no", "open"]


class Verdict(msgspec.Struct, frozen=True):
    """Something that was to hold, in a profile with a writer. `open`: it may be chance."""

    what: str
    held: Held
    detail: str
    short: str = ""


def verdicts(findings: Findings, profile: Profile, writer: Writer) -> list[Verdict]:
    """What was to hold of level `captured`."""
    spreads = findings.spreads(profile, writer)
    if not {"direct", "captured", "tmpfs"} <= spreads.keys():
        return [Verdict("there are samples enough", "no", "a longer run is needed", "samples")]
    direct, captured, tmpfs = spreads["direct"], spreads["captured"], spreads["tmpfs"]
    p99, sd = direct.p99_s / captured.p99_s, direct.sd_s / captured.sd_s
    counts = (captured.count, tmpfs.count)
    if min(counts) < ENOUGH:
        return [Verdict("there are samples enough", "no", f"{min(counts)} fast ones", "samples")]
    least, most = cv_ratio_interval(
        findings.times(profile, writer, "captured"), findings.times(profile, writer, "tmpfs")
    )
    cv = captured.cv / tmpfs.cv
    return [
        Verdict(
            f"p99 {P99_TIMES:.0f} times lower than direct",
            _held(p99 >= P99_TIMES),
            _times(p99),
            "p99",
        ),
        Verdict(
            f"deviation {SD_TIMES:.0f} times lower", _held(sd >= SD_TIMES), _times(sd), "deviation"
        ),
        Verdict(
            "variation not above the tmpfs's",
            "open" if cv > 1.0 > least else _held(cv <= 1.0),
            f"{cv:.2f} times; 90 %: {least:.2f} to {most:.2f}",
            "variation",
        ),
    ]


def _times(ratio: float) -> str:
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def rows(findings: Findings, profile: Profile, writer: Writer) -> list[list[str]]:
    """A line for each place, ratios against direct."""
    spreads = findings.spreads(profile, writer)
    direct = spreads.get("direct")
    return [
        [PLACES[place], str(each.count), *_figures(each), *_against(direct, each)]
        for place, each in spreads.items()
    ]


COLUMNS = (
    "", "saves", "mean", "median", "p99", "deviation", "variation",
    "mean", "p99", "deviation", "variation, times less",
)  # fmt: skip


def _figures(spread: Spread) -> list[str]:
    seconds = (spread.mean_s, spread.median_s, spread.p99_s, spread.sd_s)
    return [*map(_seconds, seconds), f"{spread.cv:.3f}"]


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def _against(direct: Spread | None, spread: Spread) -> list[str]:
    if direct is None or direct is spread:
        return ["-"] * 4
    ratios = (
        direct.mean_s / spread.mean_s, direct.p99_s / spread.p99_s,
        direct.sd_s / spread.sd_s, direct.cv / spread.cv,
    )  # fmt: skip
    return [f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}" for ratio in ratios]


def as_markdown(findings: Findings) -> str:
    """For a page: the conditions, the figures of both writers side by side, and the ratios."""
    head = ["saves", "mean", "median", "p99", "deviation", "variation"]
    figures = [_table(["", *(f"{writer}: {name}" for writer in WRITERS for name in head)])]
    for profile in findings.plan.profiles:
        figures += [_line([f"**{profile}**", *[""] * len(WRITERS) * len(head)])]
        figures += [_line(row) for row in _side_by_side(findings, profile, len(head))]
    names = ["mean", "p99", "deviation", "variation"]
    columns = [f"{place}: {name}" for place in RATIOS for name in names]
    ratios = [_table(["times less than direct", *columns, "variation, captured / tmpfs", "held"])]
    ratios += [_line(_ratios(findings, *pair, len(names))) for pair in pairs(findings)]
    return "\n\n".join([_conditions(findings, "\n- "), "\n".join(figures), "\n".join(ratios)])


RATIOS: tuple[Place, ...] = ("captured", "replicated")


def _side_by_side(findings: Findings, profile: Profile, width: int) -> Iterator[list[str]]:
    spreads = {writer: findings.spreads(profile, writer) for writer in WRITERS}
    for place, name in PLACES.items():
        found = [spreads[writer].get(place) for writer in WRITERS]
        if any(found):
            cells = [
                [str(each.count), *_figures(each)] if each else ["-"] * width for each in found
            ]
            yield [name, *(cell for row in cells for cell in row)]


def _ratios(findings: Findings, profile: Profile, writer: Writer, width: int) -> list[str]:
    spreads = findings.spreads(profile, writer)
    direct = spreads.get("direct")
    cells = [f"{profile}, {writer}"]
    for place in RATIOS:
        cells += _against(direct, spreads[place]) if place in spreads else ["-"] * width
    judged = verdicts(findings, profile, writer)
    held = ", ".join(
        f"{each.short} {'**no**' if each.held == 'no' else each.held}" for each in judged
    )
    return [*cells, judged[-1].detail, held]


def _table(columns: Sequence[str]) -> str:
    return f"{_line(columns)}\n{_line(['---'] * len(columns))}"


def as_text(findings: Findings) -> str:
    """The same for a terminal."""
    parts = [_conditions(findings)]
    for profile, writer in pairs(findings):
        table = [list(COLUMNS), *rows(findings, profile, writer)]
        lines = [f"{profile}, {_writer(findings, profile, writer)}", *_aligned(table)]
        lines += [
            f"  {each.held:<4}  {each.what} ({each.detail})"
            for each in verdicts(findings, profile, writer)
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def pairs(findings: Findings) -> list[tuple[Profile, Writer]]:
    """Profile and writer of each table."""
    return [(profile, writer) for profile in findings.plan.profiles for writer in WRITERS]


def _conditions(findings: Findings, between: str = "\n") -> str:
    plan = findings.plan
    said = [f"Machine: {findings.machine}; {findings.took_s / 60:.0f} minutes, seed {plan.seed}."]
    said += [
        f"Storage host, {profile}: link {_mean(load.in_mbit for load in loads):.0f} of "
        f"{plan.rate_bits / 1e6:.0f} Mbit/s used on average (10 % of the seconds under "
        f"{_tenth([load.in_mbit for load in loads]):.0f}), "
        f"{_mean(load.cpu for load in loads) * 100:.0f} % of a core."
        for profile in plan.profiles
        if (loads := findings.load_in(profile))
    ]
    return f"{between}{between.join(said)}".strip("\n")


def _writer(findings: Findings, profile: Profile, writer: Writer) -> str:
    sizes = [each.size_bytes for each in findings.samples if each.writer == writer]
    name = "raw writes of 1 MiB" if writer == "raw" else "torch.save"
    return f"{name}, {max(sizes, default=0) / (1 << 20):.0f} MiB"


def _held(is_so: bool) -> Held:
    return "yes" if is_so else "no"


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _tenth(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 10]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table
    ]


def as_json(findings: Findings) -> dict[str, Any]:
    """Everything, for programs: `findings` of results.json read back is the same."""
    plain: dict[str, Any] = msgspec.to_builtins(findings)
    tables = [
        {
            "profile": profile,
            "writer": writer,
            "places": {
                place: {**msgspec.to_builtins(each), "cv": each.cv}
                for place, each in findings.spreads(profile, writer).items()
            },
            "verdicts": msgspec.to_builtins(verdicts(findings, profile, writer)),
        }
        for profile, writer in pairs(findings)
    ]
    return {**plain, "tables": tables}
