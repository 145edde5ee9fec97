"""Who commits a version of a file when its owner may be dead: claims on the shared file system.

    SOURCE/.cachexfs-claims/       its being there says that SOURCE is one of ours
        DIGEST.GENERATION          the claim of one version: who took it, and whether it is done

A claim is made with link(2), which gives a name to one of many that try. One that is not done and
has not been touched for `LEASE_S` is overtaken by the next generation; who has been overtaken sees
it before the commit, and stops. A claim that is done stays: whoever comes later, the owner that
returns included, finds that this version needs no commit any more. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

DIRECTORY = ".cachexfs-claims"
LEASE_S = 30.0
"""By the clock of the shared file system, so that the nodes' clocks do not matter."""
KEPT_S = 24 * 3600.0
"""How long a claim that is done is remembered."""

Refusal = Literal["done", "busy"]


def mark(source: Path) -> None:
    """Say that a directory is a source of ours. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        (source / DIRECTORY).mkdir(mode=0o700)


def sweep(source: Path) -> None:
    """Forget claims of long ago. Raises OSError."""
    directory = source / DIRECTORY
    temporary = _written(directory, "", done=False)
    now_s = temporary.stat().st_mtime
    temporary.unlink()
    for path in list(directory.iterdir()):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < now_s - KEPT_S:
                path.unlink()


def is_marked(source: Path) -> bool:
    """Whether a directory is a source of ours."""
    return (source / DIRECTORY).is_dir()


def digest_of(owner: str, version: int, size_bytes: int) -> str:
    """What the claims of one version are called. No path: that changes on the way."""
    return hashlib.sha256(f"{owner}\0{version}\0{size_bytes}".encode()).hexdigest()[:40]


@dataclass(frozen=True)
class Claim:
    """A claim of ours."""

    directory: Path
    digest: str
    generation: int
    holder: str

    @property
    def path(self) -> Path:
        """The file that is the claim."""
        return self.directory / f"{self.digest}.{self.generation}"

    def is_ours(self) -> bool:
        """Whether nobody has overtaken it; from now on for another `LEASE_S`."""
        with contextlib.suppress(OSError):
            os.utime(self.path)
        return _latest(self.directory, self.digest) == self.generation

    def done(self) -> None:
        """The version is in place: nobody need commit it any more."""
        temporary = _written(self.directory, self.holder, done=True)
        os.rename(temporary, self.path)
        _sync(self.directory)

    def release(self) -> None:
        """Nothing came of it: let others try."""
        self.path.unlink(missing_ok=True)


def take(source: Path, digest: str, holder: str) -> Claim | Refusal:
    """A claim of ours, or why not: the version is done, or another is about it. Raises OSError."""
    directory = source / DIRECTORY
    temporary = _written(directory, holder, done=False)
    try:
        now_s = temporary.stat().st_mtime
        generation = _latest(directory, digest)
        if generation and (refusal := _refusal(directory / f"{digest}.{generation}", now_s)):
            return refusal
        claim = Claim(directory, digest, generation + 1, holder)
        try:
            os.link(temporary, claim.path)
        except FileExistsError:
            return "busy"
        _sync(directory)
        return claim if claim.is_ours() else "busy"
    finally:
        temporary.unlink(missing_ok=True)


def _refusal(path: Path, now_s: float) -> Refusal | None:
    try:
        is_done = bool(json.loads(path.read_text()).get("done"))
        touched_s = path.stat().st_mtime
    except FileNotFoundError:
        return "busy"  # it is being released
    except ValueError:
        return None
    if is_done:
        return "done"
    return "busy" if now_s - touched_s < LEASE_S else None


def _latest(directory: Path, digest: str) -> int:
    """The greatest generation; 0 without any. None is left out: only the last is released."""
    generation = 0
    while os.path.lexists(directory / f"{digest}.{generation + 1}"):
        generation += 1
    return generation


def _written(directory: Path, holder: str, *, done: bool) -> Path:
    path = directory / f"new-{secrets.token_hex(8)}"
    with path.open("x", encoding="utf-8") as file:
        json.dump({"holder": holder, "done": done}, file)
        file.flush()
        os.fsync(file.fileno())
    return path


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)
