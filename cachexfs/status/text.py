"""The report as a person reads it."""

from __future__ import annotations

from cachexfs.status.report import FileReport, MountReport, Report
from cachexfs.units import format_duration, format_size

PENDING_SHOWN = 20
"""Files on their way that are listed one by one; the rest are counted."""

ADOPTED_SHOWN = 10


def of_report(report: Report) -> str:
    """All mounts, one paragraph each."""
    return "\n\n".join(of_mount(mount) for mount in report.mounts)


def of_mount(mount: MountReport) -> str:
    """One mount: the verdict first, then what is wrong, then what is on its way."""
    lines = [
        f"{mount.mountpoint}  {mount.state.upper()}",
        f"  source     {mount.source}",
        f"  data path  {mount.data_path} ({mount.data_path_reason})",
        f"  fsync      returns at {mount.fsync}",
        f"  RAM        {format_size(mount.ram.used_bytes)} of {format_size(mount.ram.limit_bytes)}",
        f"  files      {_counts(mount)}",
        f"  unsafe     {_unsafe(mount)}",
    ]
    for peer in mount.peers:
        behind = f", {format_size(peer.behind_bytes)} behind" if peer.behind_bytes else ""
        lines.append(f"  peer       {peer.name} ({peer.address}) {peer.state}{behind}")
    for adopted in mount.adopted[-ADOPTED_SHOWN:]:
        lines.append(f"  adopted    {adopted.path} of {adopted.owner}: {adopted.result}")
    for problem in mount.problems:
        lines += [
            f"  problem    {problem.code}: {problem.detail}",
            f"             {problem.action}",
        ]
    if mount.pending:
        lines += ["", *("  " + line for line in of_files(mount.pending[:PENDING_SHOWN]))]
    if len(mount.pending) > PENDING_SHOWN:
        lines.append(f"  and {len(mount.pending) - PENDING_SHOWN} more")
    return "\n".join(lines)


def of_files(files: list[FileReport]) -> list[str]:
    """One line a file."""
    width = max((len(file.path) for file in files), default=0)
    return [_file(file, width) for file in files]


def _file(file: FileReport, width: int) -> str:
    parts = [f"{file.state:<10}", f"{format_size(file.size_bytes):>10}", f"{file.path:<{width}}"]
    if file.replicas:
        parts.append("at " + ", ".join(file.replicas))
    if file.eta_durable_s:
        parts.append(f"durable in about {format_duration(file.eta_durable_s)}")
    if file.reason:
        parts.append(f"({file.reason})")
    return "  ".join(parts).rstrip()


def _counts(mount: MountReport) -> str:
    files = mount.files
    counts = [
        (files.open, "open"),
        (files.captured, "captured"),
        (files.replicated, "replicated"),
        (files.durable, "durable"),
        (files.lost, "LOST"),
    ]
    return ", ".join(f"{count} {name}" for count, name in counts if count) or "none captured"


def _unsafe(mount: MountReport) -> str:
    if not mount.unsafe_bytes:
        return "nothing: this node may die"
    since = format_duration(mount.oldest_unsafe_s)
    return f"{format_size(mount.unsafe_bytes)} would be lost with this node, the oldest for {since}"
