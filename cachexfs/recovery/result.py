"""What came of a recovery, for who asked for it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from cachexfs.recovery.generations import Generation, broken, offered, sentence


@dataclass
class Result:
    """`damaged`, `refused`: path and why; `missing`: no holder answers any more, or none has it.

    `present`: was there already, the same or newer. `unreachable`: peers that went away.
    """

    volume: str = ""
    recovered: list[bytes] = field(default_factory=list)
    present: list[bytes] = field(default_factory=list)
    damaged: list[tuple[bytes, str]] = field(default_factory=list)
    missing: list[bytes] = field(default_factory=list)
    refused: list[tuple[bytes, str]] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether everything that was planned is there."""
        return not (self.damaged or self.missing or self.refused)

    @property
    def broken(self) -> list[Generation]:
        """Incomplete checkpoints that a program would take up."""
        return broken(self.generations)

    def sentences(self) -> list[str]:
        """What a person should know of the checkpoints."""
        incomplete = (each for each in self.generations if not each.is_complete)
        return [sentence(each, self.generations) for each in incomplete]

    def as_answer(self, said: list[str]) -> dict[str, Any]:
        """For programs; `said`: what was reported on the way."""
        return {
            "recovered": [os.fsdecode(path) for path in self.recovered],
            "present": [os.fsdecode(path) for path in self.present],
            "refused": [(os.fsdecode(path), why) for path, why in self.refused],
            "damaged": [(os.fsdecode(path), why) for path, why in self.damaged],
            "missing": [os.fsdecode(path) for path in self.missing],
            "checkpoints": [self._checkpoint(each) for each in self.generations],
            "broken": [os.fsdecode(each.path) for each in self.broken],
            "said": said,
        }

    def _checkpoint(self, generation: Generation) -> dict[str, Any]:
        instead = None if generation.is_complete else offered(generation, self.generations)
        return {
            "path": os.fsdecode(generation.path),
            "job": generation.job,
            "closed_at_ns": generation.closed_at_ns,
            "files": generation.files,
            "complete": generation.is_complete,
            "missing": [os.fsdecode(name) for name in generation.missing],
            "instead": os.fsdecode(instead.path) if instead else None,
        }
