"""`mount.cachexfs`: what mount(8) calls for `mount -t cachexfs SOURCE MOUNTPOINT -o ...`."""

from __future__ import annotations

import sys

from cachexfs.cli import main as cachexfs

_WITHOUT_MEANING = {"-s", "-n", "-v", "--verbose"}
"""Flags of mount(8) that change nothing here: sloppy, no mtab, verbose."""


def translate(arguments: list[str]) -> list[str]:
    """`mount.cachexfs SOURCE MOUNTPOINT [-sfnv] [-o OPTS]` as arguments of `cachexfs`.

    mount(8) says `-f` for a dry run; ours means foreground, so it is left out with the rest.
    """
    kept = []
    for argument in arguments:
        if argument in _WITHOUT_MEANING or argument == "-f":
            continue
        kept.append(argument)
    return ["mount", *kept]


def main() -> None:
    """Run as mount(8)'s helper."""
    cachexfs(translate(sys.argv[1:]))
