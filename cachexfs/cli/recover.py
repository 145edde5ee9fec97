"""`cachexfs recover`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from cachexfs.cli.options import config_option, json_option
from cachexfs.errors import CacheXError, UsageError


@click.command()
@click.argument("mountpoint", required=False, type=str)
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), help="Into a directory.")
@click.option("--from", "peers", metavar="HOST:PORT", multiple=True, help="Ask these peers.")
@click.option("--path", "prefix", default="", help="Only this path and what is below it.")
@click.option("--volume", help="Of this source, where the peers hold files of several.")
@config_option
@json_option
def recover(
    mountpoint: str | None,
    to: Path | None,
    peers: tuple[str, ...],
    prefix: str,
    volume: str | None,
    config_file: Path | None,
    as_json: bool,
) -> None:
    """Bring back what the peers hold, into MOUNTPOINT or into a directory.

    Works with the shared file system out of reach. Every file is checked and whole, or not there.
    A sharded checkpoint that is not whole is reported, with the newest whole one; then, and when
    a path does not come back, it ends with 1.
    """
    if (mountpoint is None) == (to is None):
        raise UsageError("name a MOUNTPOINT, or a directory with --to, and not both")
    if mountpoint is not None:
        result = _into_mount(mountpoint, peers, prefix)
    else:
        assert to is not None
        result = _into_directory(to, peers, prefix, volume, config_file)
    _print(result, as_json)


def _into_mount(mountpoint: str, peers: tuple[str, ...], prefix: str) -> dict[str, Any]:
    from cachexfs.client import of_path

    client, below = of_path(mountpoint)
    inside = "/".join(filter(None, (below, prefix)))
    answer: dict[str, Any] = client.ask(
        "recover", peers=list(peers), prefix=inside, patience_s=None
    )
    return answer


def _into_directory(
    to: Path, peers: tuple[str, ...], prefix: str, volume: str | None, config_file: Path | None
) -> dict[str, Any]:
    import trio

    from cachexfs.config import load, read_secret
    from cachexfs.peers.membership import resolve
    from cachexfs.recovery import DirectorySink, Result, open_holders
    from cachexfs.recovery import recover as bring_back

    config = load(config_file)
    config = config if peers else resolve(config)
    if not peers and not config.peers:
        raise UsageError("no peers: name one with --from HOST:PORT, or under [[peers]]")

    sink = DirectorySink(to.absolute())

    async def run() -> Result:
        async with open_holders(config, read_secret(config), peers, _say) as holders:
            return await bring_back(
                holders.peers, volume, os.fsencode(prefix), sink, _say, holders.connect
            )

    return trio.run(run).as_answer([])


def _print(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        import json

        click.echo(json.dumps(result, indent=2))
    else:
        for sentence in result["said"]:
            _say(sentence)
        present = f", {len(result['present'])} were there already" if result["present"] else ""
        click.echo(f"{len(result['recovered'])} recovered{present}")
    bad = len(result["damaged"]) + len(result["missing"]) + len(result["refused"])
    if bad:
        raise CacheXError(f"{bad} paths did not come back")
    if result["broken"]:
        raise CacheXError(f"incomplete: {', '.join(result['broken'])}")


def _say(sentence: str) -> None:
    click.echo(sentence, err=True)
