"""`tools/experiments/recover32`: the command line."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
import msgspec

from cachexfs.errors import CacheXError
from tools.experiments.recovering.accounts import Account, as_text
from tools.experiments.recovering.plan import Plan, quick
from tools.experiments.recovering.stage import perform


@click.command()
@click.option("--quick", "is_quick", is_flag=True, help="8 ranks on 2 hosts, one of which dies.")
@click.option("--lost", type=int, multiple=True, help="How many hosts die; each given is a run.")
@click.option("--replicas", type=int, help="Copies at peers [default: as many as hosts die].")
@click.option("--pfs", type=click.Choice(["dir", "gluster"]), help="The shared file system.")
@click.option(
    "--silent", type=click.Choice(["save", "kill"]), help="When it falls silent [default: save]."
)
@click.option("--width", type=int, help="Of the network's layers: sets the size of the shards.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def main(
    is_quick: bool, lost: tuple[int, ...], replicas: int | None, as_json: bool, **chosen: Any
) -> None:
    """32 ranks on 4 hosts save a checkpoint; hosts die; it comes back from the peers.

    Without --lost two runs: one host dies, then two with two copies. Exits with 0 only if every
    file came back byte by byte and the loss goes on where it would have been.
    """
    base = quick() if is_quick else Plan()
    numbers = lost or ((base.lost,) if is_quick else (1, 2))
    given = {name: value for name, value in chosen.items() if value is not None}
    try:
        plans = [
            _changed(base, {"lost": number, "replicas": replicas or number, **given})
            for number in numbers
        ]
        accounts = [perform(plan, _say) for plan in plans]
    except CacheXError as error:
        _say(str(error))
        sys.exit(error.exit_code)
    click.echo(_printed(accounts, as_json))
    sys.exit(0 if all(account.held for account in accounts) else 1)


def _changed(plan: Plan, fields: dict[str, Any]) -> Plan:
    return Plan(**{**msgspec.structs.asdict(plan), **fields})


def _printed(accounts: list[Account], as_json: bool) -> str:
    if as_json:
        return json.dumps([account.as_json() for account in accounts], indent=2)
    return as_text(accounts)


def _say(sentence: str) -> None:
    click.echo(f"recover32: {sentence}", err=True)


if __name__ == "__main__":
    main()
