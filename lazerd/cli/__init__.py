"""The command line of `lazer`. One file for each command, imported when it is called for."""

from __future__ import annotations

import importlib
import sys

import click

from lazerd import __version__
from lazerd.errors import LazerError

COMMANDS = {
    "submit": "Run COMMAND as a job, when its turn comes.",
    "queue": "The jobs that have not ended.",
    "explain": "Why a job waits, until when, and what going now would cost.",
    "cancel": "End jobs, or take them out of the line.",
    "hold": "Keep pending jobs from starting.",
    "release": "Let held jobs go on.",
    "working": "Say, from within a job, that its set-up is over.",
    "nodes": "The nodes and their GPUs.",
    "history": "The jobs that have ended.",
    "status": "How lazerd, its backend and its queue are.",
}
"""Name -> what `lazer --help` says, so that help need not import a command."""

_MODULES = {"hold": "change", "release": "change", "cancel": "change"}


class Lazy(click.Group):
    """A group whose commands are imported when they are used: `queue` must answer at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table, which is the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of a command."""
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"lazerd.cli.{_MODULES.get(name, name)}")
        command: click.Command = getattr(module, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lazer")
@click.option(
    "--socket", "socket_path", envvar="LAZER_SOCKET", help="Of the daemon to ask (LAZER_SOCKET)."
)
@click.pass_context
def lazer(ctx: click.Context, socket_path: str | None) -> None:
    """GPU jobs that are preempted late, and only where it pays.

    Completion: eval "$(_LAZER_COMPLETE=bash_source lazer)", or zsh_source, or fish_source.
    """
    ctx.obj = socket_path


def main(arguments: list[str] | None = None) -> None:
    """Run a command; an error of ours is one sentence and its own exit code."""
    run("lazer", lazer, arguments)


def run(name: str, command: click.Command, arguments: list[str] | None) -> None:
    """Run a click command and end with the right code."""
    try:
        command.main(args=arguments, prog_name=name, standalone_mode=False)
    except LazerError as error:
        click.echo(f"{name}: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
