"""`cachexfs demo`."""

from __future__ import annotations

import importlib.util
import os
import textwrap
import time

import click

from cachexfs.errors import CacheXError

_WIDTH = 96
_MIN_STEPS = 24


@click.command()
@click.option("--torch", is_flag=True, help="Train with PyTorch, not numpy.")
@click.option("--steps", type=click.IntRange(min=_MIN_STEPS), default=60, show_default=True)
@click.option("--keep", is_flag=True, help="Keep the demo's directory, with all logs.")
def demo(torch: bool, steps: int, keep: bool) -> None:
    """The whole story on one machine: a node dies, and training goes on from its replica.

    Ends with exit code 0 only if everything it tells was true.
    """
    _check(torch)
    from cachexfs.demo.stage import staged
    from cachexfs.demo.story import Plan, Story
    from cachexfs.demo.waiting import interruptible

    begin = time.monotonic()

    def say(sentence: str) -> None:
        _say(sentence, time.monotonic() - begin)

    with interruptible() as waiting:
        try:
            with staged(waiting, keep=keep) as stage:
                Story(stage, Plan(steps, torch), say).tell()
        finally:
            say(f"The demo's files are kept in {stage.home}." if keep else "All is cleaned up.")
    say("All of this was true.")


def _say(sentence: str, now_s: float) -> None:
    """One sentence with the time since the beginning; lists as they are."""
    margin = f"{now_s:5.1f} s  "
    if sentence.startswith("    "):
        click.echo(" " * len(margin) + sentence.strip())
        return
    lines = textwrap.wrap(sentence, _WIDTH - len(margin))
    click.echo(margin + ("\n" + " " * len(margin)).join(lines))


def _check(torch: bool) -> None:
    """Raises `CacheXError` for what the demo cannot do without."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except PermissionError:
        raise CacheXError("/dev/fuse is not open to this user: run this as root") from None
    except OSError:
        raise CacheXError(
            "there is no /dev/fuse: load the fuse module, or pass the device in"
        ) from None
    for module, wanted in (("numpy", True), ("torch", torch)):
        if wanted and importlib.util.find_spec(module) is None:
            raise CacheXError(f"the demo's training program needs {module}: pip install {module}")
