"""When a file was first seen in each state. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Sightings:
    """For each path, the states in the order seen, each with the file's age then, in seconds."""

    _seen: dict[str, dict[str, float]] = field(default_factory=dict)

    def note(self, files: Iterable[dict[str, Any]]) -> None:
        """Files as `cachexfs ls --json` lists them."""
        for file in files:
            self._seen.setdefault(file["path"], {}).setdefault(file["state"], file["age_s"])

    def states(self, path: str) -> dict[str, float]:
        """State -> age when first seen in it."""
        return dict(self._seen.get(path, {}))

    def story(self, path: str) -> str:
        """`seen open, captured 0.01 s old, replicated 0.21 s old`."""
        told = []
        for state, age_s in self.states(path).items():
            told.append("open" if state == "open" else f"{state} {age_s:.2f} s old")
        return "seen " + ", ".join(told)
