"""`mount.cachexfs`: what mount(8) calls for `mount -t cachexfs SOURCE MOUNTPOINT -o ...`."""

from __future__ import annotations

import getopt
import sys

from cachexfs.cli import main as cachexfs


def translate(arguments: list[str]) -> list[str] | None:
    """`mount.cachexfs SOURCE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-o OPTS] [-t TYPE]`, see mount(8).

    Returns the arguments of `cachexfs`; None for `-f`, a dry run. Sloppy, no mtab, verbose and the
    type change nothing here. Raises `getopt.GetoptError`, also for another mount namespace: the
    daemon would have to live in it.
    """
    options, places = getopt.gnu_getopt(arguments, "sfnvo:t:")
    if any(flag == "-f" for flag, _ in options):
        return None
    chosen = [value for flag, value in options if flag == "-o"]
    return ["mount", *places, *(["-o", ",".join(chosen)] if chosen else [])]


def main() -> None:
    """Run as mount(8)'s helper."""
    try:
        ours = translate(sys.argv[1:])
    except getopt.GetoptError as error:
        print(f"mount.cachexfs: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    if ours is not None:
        cachexfs(ours)
