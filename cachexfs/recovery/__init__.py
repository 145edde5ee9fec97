"""Bring files back from the peers, with neither their owner nor the shared file system.

`plan` (pure) chooses the newest version of every path, `fetch` brings it from whoever holds it,
`directory` puts it below a directory, whole or not at all.
"""

from cachexfs.recovery.directory import DirectorySink
from cachexfs.recovery.fetch import Holder, Result, Sink, SinkRefused, Writer, open_holders, recover
from cachexfs.recovery.plan import Wanted, plan

__all__ = [
    "DirectorySink",
    "Holder",
    "Result",
    "Sink",
    "SinkRefused",
    "Wanted",
    "Writer",
    "open_holders",
    "plan",
    "recover",
]
