"""`lazer-sensor`: the command, and the composition root of a node's sensor."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from pathlib import Path

import click
import msgspec
import trio

from lazerd.sensor.errors import AddressError, SensorError
from lazerd.sensor.ownership import REALMS
from lazerd.sensor.reporter import Pace, Reporter
from lazerd.sensor.secret import read_secret
from lazerd.sensor.watch import make_watch

DEFAULT_SECRET = Path("/etc/lazer/secret")
DEFAULT_PORT = 7430


@click.command(context_settings={"auto_envvar_prefix": "LAZER_SENSOR"})
@click.option("--lazerd", "address", metavar="HOST[:PORT]", help="Where lazerd listens.")
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    default=DEFAULT_SECRET,
    show_default=True,
    help="The secret shared with lazerd; readable by its owner only.",
)
@click.option("--node", help="This node's name, as Slurm knows it. [default: the host name]")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
@click.option(
    "--jobs",
    "realm",
    type=click.Choice(sorted(REALMS)),
    default="slurm",
    show_default=True,
    help="Whose jobs the processes are mapped to.",
)
@click.option(
    "--once", is_flag=True, help="Look once, print what is seen as JSON, and end; 1: no GPU."
)
def main(
    address: str | None,
    secret_file: Path,
    node: str | None,
    interval_s: float,
    realm: str,
    once: bool,
) -> None:
    """Watch this node's GPUs and report to lazerd. Starts nothing and changes nothing."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="lazer-sensor: %(message)s")
    watch = make_watch(realm)
    try:
        if once:
            reading = watch.read()
            click.echo(msgspec.json.format(msgspec.json.encode(reading)))
            sys.exit(0 if reading.gpus else 1)
        if address is None:
            raise click.UsageError("--lazerd HOST[:PORT] says where to report to (or --once)")
        host, port = parse_address(address)
        secret = read_secret(secret_file)
    except SensorError as error:
        click.echo(f"lazer-sensor: {error}", err=True)
        sys.exit(error.exit_code)
    pace = Pace(interval_s=interval_s)
    name = node or socket.gethostname().partition(".")[0]
    trio.run(_until_told, Reporter(host, port, name, secret, watch.read, pace))


def parse_address(text: str) -> tuple[str, int]:
    """HOST, HOST:PORT or [ADDRESS]:PORT. `AddressError`."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise AddressError(f"{text!r} is not HOST, HOST:PORT or [ADDRESS]:PORT")
    return host, int(port)


async def _until_told(reporter: Reporter) -> None:
    """Report until SIGTERM or SIGINT."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reporter.run)
            async for _ in signals:
                nursery.cancel_scope.cancel()
                return
