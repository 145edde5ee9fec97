"""The report: the shape that status, ls and monitoring speak. These names are the JSON keys."""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA = 1

Health = Literal["ok", "degraded", "critical"]
DataPath = Literal["passthrough", "portable"]


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong: a CamelCase code, what was seen, what to do about it."""

    code: str
    detail: str
    action: str


class Ram(msgspec.Struct, frozen=True):
    """The RAM tier, in bytes."""

    used_bytes: int
    limit_bytes: int


class PeerReport(msgspec.Struct, frozen=True):
    """One partner, and how many bytes it has still to get."""

    name: str
    address: str
    state: Literal["up", "shaky", "down"]
    behind_bytes: int


class Files(msgspec.Struct, frozen=True):
    """How many files are in each state."""

    open: int = 0
    captured: int = 0
    replicated: int = 0
    durable: int = 0
    lost: int = 0


class FileReport(msgspec.Struct, frozen=True, kw_only=True):
    """One file: how safe it is, and when it will be safer. Times are seconds from now."""

    path: str
    size_bytes: int
    state: str
    flushed_bytes: int = 0
    replicas: list[str] = []
    age_s: float = 0.0
    eta_replicated_s: float | None = None
    eta_durable_s: float | None = None
    reason: str = ""
    job: str = ""


class AdoptedReport(msgspec.Struct, frozen=True):
    """A file of a node that died, and what its holder here made of it."""

    path: str
    owner: str
    size_bytes: int
    result: str
    at_s: float


class MountReport(msgspec.Struct, frozen=True, kw_only=True):
    """One mount."""

    mountpoint: str
    source: str
    node: str
    pid: int
    state: Health
    data_path: DataPath
    data_path_reason: str
    fsync: str
    problems: list[Problem]
    ram: Ram
    unsafe_bytes: int
    oldest_unsafe_s: float | None
    peers: list[PeerReport]
    files: Files
    pending: list[FileReport]
    adopted: list[AdoptedReport] = []


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Every mount of this node."""

    version: str
    mounts: list[MountReport]
    schema: int = SCHEMA


CRITICAL = frozenset({"RamFull", "FileLost"})
"""Codes of problems that put new data at risk; the others slow its way to safety."""


def health(problems: list[Problem]) -> Health:
    """The verdict that the problems amount to."""
    if any(problem.code in CRITICAL for problem in problems):
        return "critical"
    return "degraded" if problems else "ok"
