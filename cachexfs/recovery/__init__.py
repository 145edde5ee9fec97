"""Bring files back from the peers, with neither their owner nor the shared file system.

`plan` (pure) chooses the newest version of every path, `fetch` brings it from whoever holds it,
`directory` puts it below a directory, whole or not at all. `generations` (pure) says which files
are one checkpoint, and whether it is whole and of one save; `result` what came of it all.
"""

from cachexfs.recovery.directory import DirectorySink
from cachexfs.recovery.fetch import open_holders, recover
from cachexfs.recovery.plan import Wanted, plan
from cachexfs.recovery.ports import AlreadyThere, Holder, Sink, SinkRefused, Writer
from cachexfs.recovery.result import Result

__all__ = [
    "AlreadyThere",
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
