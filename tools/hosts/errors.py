"""What ends a command: one sentence and an exit code."""

from __future__ import annotations

from cachexfs.errors import CacheXError


class ClusterError(CacheXError):
    """The cluster, or this machine, does not allow what was asked for; exit code 1."""
