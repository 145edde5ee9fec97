"""`tools/experiments/variability`: the command line."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import click
import msgspec

from cachexfs.demo.waiting import Interrupted
from cachexfs.errors import CacheXError
from cachexfs.units import parse_size
from tools.experiments.varying import figure, page
from tools.experiments.varying.findings import Findings, as_json, as_markdown, as_text
from tools.experiments.varying.plan import PROFILES, Plan, quick
from tools.experiments.varying.stage import perform

FIGURE = "variability.png"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", "is_quick", is_flag=True, help="Three minutes, 64 MiB: only to try it.")
@click.option("--minutes", type=float, help="For all of it [default: 24].")
@click.option("--size", "size_bytes", type=parse_size, metavar="SIZE", help="Of a raw save.")
@click.option(
    "--profile",
    "profiles",
    type=click.Choice(PROFILES),
    multiple=True,
    help="Only this one; may be given again.",
)
@click.option("--seed", type=int, help="Of the contention [default: 1].")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("variability"),
    show_default=True,
    help="A directory for results.json, the tables and the figure.",
)
@click.option(
    "--write-doc",
    "doc",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A page to put the tables into; the figure goes beside it.",
)
@click.option(
    "--from", "earlier", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measure nothing: take the samples of this results.json.",
)  # fmt: skip
def main(
    is_quick: bool, out: Path, doc: Path | None, earlier: Path | None,
    profiles: tuple[str, ...], **chosen: Any,
) -> None:  # fmt: skip
    """How much the time of a save varies under contention, on the shared file system and here."""
    base = quick() if is_quick else Plan()
    given = {name: value for name, value in chosen.items() if value is not None}
    given |= {"profiles": profiles} if profiles else {}
    try:
        if earlier is not None:
            findings = msgspec.json.decode(earlier.read_bytes(), type=Findings)
        else:
            findings = Findings(plan=Plan(**{**msgspec.structs.asdict(base), **given}))
            _measure(findings, out)
        _write(findings, out, doc)
    except CacheXError as error:
        _say(str(error))
        sys.exit(error.exit_code)
    click.echo(as_text(findings))


def _measure(findings: Findings, out: Path) -> None:
    """What was measured is kept, also when it ends early. Raises `CacheXError`."""
    out.mkdir(parents=True, exist_ok=True)
    _end_in_order()
    try:
        perform(findings, _say)
    except CacheXError:
        if findings.samples:
            _write(findings, out, None)
            _say(f"it ended early; what was measured is in {out}")
        raise


def _end_in_order() -> None:
    """A signal is an error like others, so that all is taken down; a second one changes nothing."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def end(number: int, frame: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    for each in signals:
        signal.signal(each, end)


def _write(findings: Findings, out: Path, doc: Path | None) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(as_json(findings), indent=1))
    (out / "table.txt").write_text(as_text(findings) + "\n")
    (out / "table.md").write_text(as_markdown(findings) + "\n")
    figure.draw(findings, out / FIGURE)
    if doc is not None:
        picture = f"![how long saves took, and the storage host's load]({FIGURE})"
        page.write(doc, f"{picture}\n\n{as_markdown(findings)}")
        figure.draw(findings, doc.parent / FIGURE)


def _say(sentence: str) -> None:
    click.echo(f"variability: {sentence}", err=True)


if __name__ == "__main__":
    main()
