"""What there is to say of a cluster: read off the system, so that it is true after any crash."""

from __future__ import annotations

from typing import Any

from cachexfs.errors import CacheXError, TimedOut
from tools.hosts.cluster import Cluster
from tools.hosts.host import Host

_COLUMNS = ("host", "address", "rack", "state", "mount", "pfs", "limits", "cut off from")


def as_json(cluster: Cluster) -> dict[str, Any]:
    """For programs."""
    return {
        "tag": cluster.spec.tag,
        "pfs": cluster.spec.pfs,
        "replicas": cluster.spec.replicas,
        "source": str(cluster.spec.shared),
        "hosts": [_of_host(host) for host in cluster.hosts],
    }


def _of_host(host: Host) -> dict[str, Any]:
    return {
        "name": host.name,
        "address": host.address,
        "rack": host.rack,
        "state": _state(host),
        "pids": host.place.pids(),
        "mount": _mount_state(host),
        "mountpoint": str(host.mountpoint),
        "config": str(host.config),
        "pfs_blocked": host.is_pfs_blocked,
        "limits_bits": host.limits,
        "cut_off_from": host.lost_to,
    }


def _state(host: Host) -> str:
    if not host.place.pids():
        return "dead"
    return "frozen" if host.is_frozen else "running"


def _mount_state(host: Host) -> str:
    try:
        return str(host.report()["state"])
    except TimedOut:
        return "silent"
    except CacheXError:
        return "-"


def as_text(report: dict[str, Any]) -> str:
    """For people."""
    rows = [_COLUMNS, *(_row(host) for host in report["hosts"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    mounts = [f"{host['name']}: {host['mountpoint']}" for host in report["hosts"]]
    return "\n".join([*lines, "", *mounts])


def _row(host: dict[str, Any]) -> tuple[str, ...]:
    limits = (f"{link} {rate / 1e6:g}mbit" for link, rate in host["limits_bits"].items())
    return (
        host["name"],
        host["address"],
        host["rack"],
        host["state"],
        host["mount"],
        "blocked" if host["pfs_blocked"] else "answers",
        ", ".join(limits) or "-",
        ", ".join(host["cut_off_from"]) or "-",
    )
