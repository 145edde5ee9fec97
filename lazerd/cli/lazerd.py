"""`lazerd`: the daemon, in the foreground; systemd or a shell puts it where it belongs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lazerd import __version__
from lazerd.cli import run as run_command
from lazerd.errors import UsageError

if TYPE_CHECKING:
    from lazerd.config import Config

if sys.version_info < (3, 11):
    from exceptiongroup import BaseExceptionGroup


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lazerd")
@click.option(
    "-c",
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The configuration file (default: /etc/lazer/lazer.toml, if it is there).",
)
@click.option("--local", is_flag=True, help="This machine's GPUs; no configuration needed.")
@click.option("--gpus", type=click.IntRange(min=1), help="With --local: so many, not looked at.")
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Store, socket and all (default: /var/lib/lazer and /run/lazer, or the user's own).",
)
@click.option(
    "--set-aside-store", is_flag=True, help="Move a damaged store aside and begin with a new one."
)
@click.option("--ready-fd", type=int, hidden=True)
@click.option("-v", "--verbose", is_flag=True, help="Log what is seen, not only what is done.")
def lazerd(
    config_file: Path | None,
    local: bool,
    gpus: int | None,
    state_dir: Path | None,
    set_aside_store: bool,
    ready_fd: int | None,
    verbose: bool,
) -> None:
    """Decide which GPU jobs run, and which go, until SIGTERM; jobs that run then go on."""
    if local and config_file is not None:
        raise UsageError("--local needs no configuration: give one of --local and -c")
    config = _config(config_file, local, gpus, state_dir)
    _log(verbose)
    if set_aside_store:
        _set_aside(config)
    _run(config, ready_fd)


def main(arguments: list[str] | None = None) -> None:
    """Run the daemon; an error of ours is one sentence and its own exit code."""
    run_command("lazerd", lazerd, arguments)


def _config(
    config_file: Path | None, local: bool, gpus: int | None, state_dir: Path | None
) -> Config:
    from msgspec.structs import replace

    from lazerd.config import Config, Daemon, load

    config = Config() if local else load(config_file)
    if gpus is not None:
        if config.backend != "local":
            raise UsageError("--gpus counts the GPUs of this machine: it goes with --local")
        config = replace(config, local=replace(config.local, gpus=gpus))
    if state_dir is not None:
        chosen = str(state_dir.absolute())
        daemon: Daemon = replace(config.daemon, state_dir=chosen, run_dir=chosen)
        config = replace(config, daemon=daemon)
    return config


def _set_aside(config: Config) -> None:
    from lazerd.memory.store import set_aside

    aside = set_aside(config.state_dir)
    click.echo(f"lazerd: the store is now {aside}" if aside else "lazerd: there is no store yet")


def _log(verbose: bool) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("lazerd").setLevel(logging.DEBUG if verbose else logging.INFO)


def _run(config: Config, ready_fd: int | None) -> None:
    import trio

    from lazerd.daemon import run

    try:
        trio.run(run, config, _teller(ready_fd))
    except BaseExceptionGroup as group:
        raise _innermost(group) from group


def _teller(ready_fd: int | None) -> Callable[[], None]:
    def tell() -> None:
        if ready_fd is not None:
            os.write(ready_fd, b"ready\n")
            os.close(ready_fd)

    return tell


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
