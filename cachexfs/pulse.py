"""Signs of life that a mount leaves on the shared file system, for those that hold its replicas.

    SOURCE/.cachexfs-claims/alive-NODE.TAG     how often it has beaten, and what is done

Who does not hear of an owner cannot tell whether it is dead or cut off. Holders commit to the
shared file system, so that is where they look before they do: an owner that still beats will
commit for itself. What it leaves there also says which versions need no commit any more, because
they are durable, replaced or deleted: a holder that was cut off was not told. Everything blocks.

Beats are counted, and holders look for how long the count stays: no clock is compared.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from pathlib import Path
from typing import NamedTuple

from cachexfs import claims


class Sign(NamedTuple):
    """What an owner left there. `beats`: anything else at the next beat. `done_before_ns`: all that
    it closed before then, by its own clock, is done."""

    beats: tuple[tuple[str, int], ...]
    done_before_ns: int


def beat(source: Path, node: str, tag: str, count: int, done_before_ns: int) -> None:
    """Leave a sign; `tag` tells a node's RAM tiers apart. Raises OSError."""
    directory = source / claims.DIRECTORY
    temporary = directory / f"new-{secrets.token_hex(8)}"
    temporary.write_text(json.dumps({"beats": count, "done_before_ns": done_before_ns}))
    temporary.rename(directory / f"{_prefix(node)}{tag}")


def look(source: Path, node: str) -> Sign | None:
    """What a node left; None when it left nothing. Raises OSError."""
    beats, done_before_ns = [], []
    for path in sorted((source / claims.DIRECTORY).glob(f"{_prefix(node)}*")):
        said = json.loads(path.read_text())
        beats.append((path.name, int(said["beats"])))
        done_before_ns.append(int(said["done_before_ns"]))
    return Sign(tuple(beats), min(done_before_ns)) if beats else None


def _prefix(node: str) -> str:
    return f"alive-{hashlib.sha256(node.encode()).hexdigest()[:16]}."
