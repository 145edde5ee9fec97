"""The command line. One file for each command, imported when it is called for."""

from __future__ import annotations

import importlib
import sys

import click

from cachexfs import __version__
from cachexfs.errors import CacheXError

COMMANDS = {
    "mount": "Mount SOURCE on MOUNTPOINT.",
    "umount": "Wait until the files are safe, then unmount.",
    "restart": "Swap the daemon of a mount for a new one; programs do not notice.",
    "peer": "Serve the replica store of this node.",
    "status": "How safe everything is.",
    "ls": "The state of each file.",
    "wait": "Wait until files have reached a level of safety.",
    "forecast": "When it will be safe, what would be lost, how often to save.",
    "recover": "Bring files back from the peers.",
    "verify": "Hold the copies of files against their checksums.",
    "evict": "Give up the RAM copies of durable files.",
    "pin": "Keep the RAM copies of files.",
    "unpin": "Let the RAM copies of files go when room is needed.",
    "config": "Check or show the configuration.",
    "demo": "The whole story on one machine.",
}
"""Name -> what `cachexfs --help` says, so that help need not import a command."""

_MODULES = {"pin": "evict", "unpin": "evict"}


class Lazy(click.Group):
    """A group whose commands are imported when they are used: `status` must answer at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table, which is the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of a command."""
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"cachexfs.cli.{_MODULES.get(name, name)}")
        command: click.Command = getattr(module, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cachexfs")
def cachexfs() -> None:
    """A mount that captures checkpoints in RAM and knows how safe each of them is."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command; an error of ours is one sentence and its own exit code."""
    try:
        cachexfs.main(args=arguments, prog_name="cachexfs", standalone_mode=False)
    except CacheXError as error:
        click.echo(f"cachexfs: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
