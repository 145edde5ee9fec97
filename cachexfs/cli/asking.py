"""Paths on the command line, grouped by the daemon that knows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cachexfs.client import Client, of_path


def by_daemon(paths: Iterable[str]) -> Iterator[tuple[Client, list[str]]]:
    """Each daemon once, with the paths below its mount's root. Raises `NoSuchMount`."""
    groups: dict[str, tuple[Client, list[str]]] = {}
    for path in paths:
        client, below = of_path(path)
        groups.setdefault(str(client.socket_path), (client, []))[1].append(below)
    return iter(groups.values())
