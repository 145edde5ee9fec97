"""The command line of the cluster."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import click

from cachexfs.errors import CacheXError, UsageError
from cachexfs.units import parse_size
from tools.hosts import cluster as clusters
from tools.hosts import preflight
from tools.hosts.cluster import Cluster
from tools.hosts.host import Host
from tools.hosts.spec import BASE, check_tag
from tools.hosts.status import as_json, as_text

CLUSTERS = Path(os.environ.get("CACHEXFS_CLUSTERS", BASE)).absolute()
_FOR_COMMANDS = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--tag", default="main", show_default=True, help="Which of several clusters.")
@click.pass_context
def cluster(context: click.Context, tag: str) -> None:
    """A cluster of hosts on this machine: network namespaces, a mount and a peer on each.

    NODE is a number from 1 on, or a name such as host2. CACHEXFS_CLUSTERS names another directory
    than /var/lib/cachexfs-cluster for what the clusters keep.
    """
    context.obj = check_tag(tag)


@cluster.command()
@click.option("--nodes", type=int, default=3, show_default=True)
@click.option("--pfs", type=click.Choice(["dir", "gluster"]), default="dir", show_default=True)
@click.option("--replicas", type=int, default=1, show_default=True)
@click.option("--fsync", type=click.Choice(["captured", "replicated", "durable"]))
@click.option("--ram", type=parse_size, metavar="SIZE", default="1GiB", show_default=True)
@click.pass_obj
def up(tag: str, nodes: int, pfs: str, replicas: int, fsync: str | None, ram: int) -> None:
    """Make the cluster and start everything on it."""
    made = Cluster(
        nodes=nodes, pfs=pfs, replicas=replicas, fsync=fsync, ram_bytes=ram, tag=tag,
        base=str(CLUSTERS),
    )  # fmt: skip
    made.up()
    click.echo(as_text(as_json(made)))


@cluster.command()
@click.pass_obj
def down(tag: str) -> None:
    """Remove the cluster, also one that is half made."""
    if not clusters.traces(CLUSTERS, tag):
        raise UsageError(f"there is no cluster {tag!r}")
    clusters.remove(CLUSTERS, tag)


@cluster.command()
@click.option("--json", "for_programs", is_flag=True, help="For programs.")
@click.pass_obj
def status(tag: str, for_programs: bool) -> None:
    """What runs, what is blocked, limited or cut off."""
    report = as_json(found(tag))
    click.echo(json.dumps(report, indent=2) if for_programs else as_text(report))


@cluster.command(context_settings=_FOR_COMMANDS)
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def exec(tag: str, node: str, command: tuple[str, ...]) -> None:
    """Run COMMAND on a host, with its exit code.

    CACHEXFS_MOUNT, CACHEXFS_SOURCE, CACHEXFS_CONFIG and CACHEXFS_HOST tell it where it is.
    """
    line = found(tag).host(node).command(command, directory=Path.cwd())
    os.execvp(line[0], line)


@cluster.command()
@click.argument("node")
@click.option("--no-mount", is_flag=True, help="Only the peer.")
@click.pass_obj
def start(tag: str, node: str, no_mount: bool) -> None:
    """Start what does not run on a host."""
    found(tag).host(node).start(mount=not no_mount)


@cluster.command()
@click.argument("node")
@click.argument("rate")
@click.option("--link", type=click.Choice(["peers", "pfs"]), default="peers", show_default=True)
@click.pass_obj
def limit(tag: str, node: str, rate: str, link: str) -> None:
    """So much each way on a host's link: 100mbit, or none."""
    found(tag).host(node).limit(rate, "pfs" if link == "pfs" else "peers")


@cluster.command()
@click.argument("node")
@click.argument("other")
@click.pass_obj
def partition(tag: str, node: str, other: str) -> None:
    """Let all be lost that two hosts send to each other."""
    found(tag).partition(node, other)


@cluster.command()
@click.argument("node")
@click.argument("other")
@click.pass_obj
def heal(tag: str, node: str, other: str) -> None:
    """The end of a partition."""
    found(tag).heal(node, other)


SIMPLE: dict[str, tuple[Callable[[Host], None], str]] = {
    "kill": (Host.kill, "kill -9 every process of a host."),
    "wipe": (Host.wipe, "Lose the state directory and the NVMe directory of a host that is dead."),
    "stop": (Host.stop, "Freeze every process of a host (SIGSTOP)."),
    "cont": (Host.cont, "Let a frozen host go on (SIGCONT)."),
    "block-pfs": (Host.block_pfs, "The shared file system answers nothing on a host any more."),
    "unblock-pfs": (Host.unblock_pfs, "It answers again."),
}
"""Command -> what it does to each host that is named, and what it says of itself."""


def _simple(name: str) -> click.Command:
    act, words = SIMPLE[name]

    @click.command(name, help=f"{words} NODE can be `all`.")
    @click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
    @click.pass_obj
    def command(tag: str, nodes: tuple[str, ...]) -> None:
        there = found(tag)
        hosts = there.hosts if nodes == ("all",) else [there.host(node) for node in nodes]
        for host in hosts:
            act(host)

    return command


for _name in SIMPLE:
    cluster.add_command(_simple(_name))


def found(tag: str) -> Cluster:
    """The cluster that is up. Raises `UsageError`, and `ClusterError` without root."""
    preflight.must_be_root()
    return Cluster.find(CLUSTERS, tag)


def _end(number: int, frame: FrameType | None) -> None:
    """A signal ends `up` as Ctrl-C does: what is made by then is removed."""
    raise SystemExit(128 + number)


def main() -> None:
    """Run a command; an error of ours is one sentence and its own exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        cluster.main(prog_name="tools/cluster", standalone_mode=False)
    except CacheXError as error:
        click.echo(f"cluster: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)


if __name__ == "__main__":
    main()
