"""Rows that were measured before, by a fingerprint of the code and of everything they depend on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path

from tools.replay.case import Case
from tools.replay.measures import Row

ROOT = Path(__file__).resolve().parents[2]
# What shows results, or chooses what to run, does not change them.
_SHOWING = {
    "__main__", "cache", "cells", "excerpt", "figures", "progress", "report", "scaling", "series",
    "tables", "document",
}  # fmt: skip


class Cache:
    """One file of JSON for each row, in a directory; an interrupted run goes on where it was."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def find(self, case: Case, policy: str) -> Row | None:
        """The row, if this code has measured it."""
        try:
            row: Row = json.loads(self._path(case, policy).read_text())
        except (FileNotFoundError, ValueError):
            return None
        return row

    def keep(self, case: Case, policy: str, row: Row) -> None:
        """Keep a row for the next time."""
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._path(case, policy)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(row))
        part.replace(path)

    def _path(self, case: Case, policy: str) -> Path:
        # By the name of the trace, not by where it lies.
        options = {**case.as_dict(), "trace": Path(case.trace).name, "policy": policy}
        text = json.dumps([code(), options], sort_keys=True)
        return self._directory / f"{blake2b(text.encode(), digest_size=12).hexdigest()}.json"


@cache
def code() -> str:
    """A fingerprint of the engine and of what drives and measures it."""
    digest = blake2b(digest_size=6)
    for path in _sources():
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _sources() -> Iterator[Path]:
    for directory in ("lazerd/model", "lazerd/predict", "lazerd/policy", "tools/replay"):
        for path in sorted((ROOT / directory).rglob("*.py")):
            if directory.startswith("lazerd") or path.stem not in _SHOWING:
                yield path
    yield ROOT / "lazerd" / "engine.py"
