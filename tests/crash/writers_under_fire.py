"""Programs that write, read and rename all the time, while the daemon dies again and again.

    python writers_under_fire.py KIND DIRECTORY SECONDS SEED

Says one line of JSON at its end: the error that it saw, if any; how many operations it made; the
longest one in seconds; and what must be there: name -> SHA-256. It never catches an error in order
to go on: there must be none.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import mmap
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

LARGE_BYTES = 24 << 20
PIECE_BYTES = 1 << 20
MAP_BYTES = 3 << 20
KEPT_FILES = 40


class Program:
    """One program: its directory, its luck, and what it was promised."""

    def __init__(self, kind: str, directory: str, seed: int) -> None:
        self.kind = kind
        self.directory = directory
        self.rng = random.Random(seed)
        self.kept: dict[str, str] = {}
        self.longest_s = 0.0
        self.slowest = ""
        self.operations = 0

    def path(self, name: str) -> str:
        """A path of this program's own."""
        return os.path.join(self.directory, f"{self.kind}-{name}")

    def timed(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make a system call, and remember the longest."""
        began = time.monotonic()
        result = call(*arguments)
        took = time.monotonic() - began
        self.operations += 1
        if took > self.longest_s:
            self.longest_s, self.slowest = took, getattr(call, "__name__", "?")
        return result

    def keep(self, name: str, data: bytes) -> None:
        """The file must hold this from now on."""
        self.kept[f"{self.kind}-{name}"] = hashlib.sha256(data).hexdigest()

    def save(self, name: str, pieces: list[bytes]) -> None:
        """Create or truncate, write, close."""
        fd = self.timed(os.open, self.path(name), os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
        for piece in pieces:
            written = self.timed(os.write, fd, piece)
            assert written == len(piece), "a short write"
        self.timed(os.close, fd)

    def load(self, name: str) -> bytes:
        """All of a file."""
        fd = self.timed(os.open, self.path(name), os.O_RDONLY)
        parts = []
        while part := self.timed(os.read, fd, PIECE_BYTES):
            parts.append(part)
        self.timed(os.close, fd)
        return b"".join(parts)

    def check(self, name: str) -> None:
        """What was promised is what is read."""
        digest = hashlib.sha256(self.load(name)).hexdigest()
        assert digest == self.kept[f"{self.kind}-{name}"], f"{name} is not what was written"

    # --- kinds ----------------------------------------------------------------------------------

    def large(self, turn: int) -> None:
        """A large file, sequentially; one of two names, over and over."""
        name, seed = f"{turn % 2}", self.rng.randbytes(PIECE_BYTES)
        pieces = [bytes([n]) + seed[1:] for n in range(LARGE_BYTES // PIECE_BYTES)]
        self.save(name, pieces)
        self.keep(name, b"".join(pieces))
        self.check(name)

    def small(self, turn: int) -> None:
        """Many small files, some of them deleted again."""
        name = f"{turn % KEPT_FILES}"
        data = self.rng.randbytes(self.rng.choice((0, 1, 4096, 50_000)))
        self.save(name, [data] if data else [])
        self.keep(name, data)
        if self.rng.random() < 0.2:
            self.timed(os.unlink, self.path(name))
            del self.kept[f"{self.kind}-{name}"]
        elif self.rng.random() < 0.3:
            self.check(name)

    def map(self, turn: int) -> None:
        """Stores through a shared map."""
        name = f"{turn % 3}"
        fd = self.timed(os.open, self.path(name), os.O_CREAT | os.O_RDWR, 0o644)
        self.timed(os.ftruncate, fd, MAP_BYTES)
        with mmap.mmap(fd, MAP_BYTES) as mapped:
            for at in range(0, MAP_BYTES, 300_000):
                data = self.rng.randbytes(100_000)[: MAP_BYTES - at]
                mapped[at : at + len(data)] = data
                time.sleep(0.005)
            whole = mapped[:]
        self.timed(os.close, fd)
        self.keep(name, whole)
        self.check(name)

    def rename(self, turn: int) -> None:
        """Write a temporary file, move it along a chain of names, and over the last one."""
        data = self.rng.randbytes(20_000)
        self.save("tmp", [data])
        for old, new in (("tmp", "a"), ("a", "b"), ("b", "latest")):
            self.timed(os.rename, self.path(old), self.path(new))
        self.keep("latest", data)
        self.check("latest")
        inside = self.path(f"dir-{turn % 5}")
        self.timed(os.mkdir, inside)
        self.timed(os.symlink, "target", inside + "/link")
        self.timed(os.rename, inside, inside + "-moved")
        self.timed(os.unlink, inside + "-moved/link")
        self.timed(os.rmdir, inside + "-moved")

    def append(self, turn: int) -> None:
        """A log that grows, by a descriptor that is opened for each line and one that stays."""
        if turn == 0:
            self._log = os.open(self.path("log"), os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
            self._said = b""
        line = b"%d %s\n" % (turn, self.rng.randbytes(30).hex().encode())
        if turn % 2:
            self.timed(os.write, self._log, line)
        else:
            fd = self.timed(os.open, self.path("log"), os.O_APPEND | os.O_WRONLY)
            self.timed(os.write, fd, line)
            self.timed(os.close, fd)
        self._said += line
        self.keep("log", self._said)
        assert self.timed(os.stat, self.path("log")).st_size == len(self._said)

    def list(self, turn: int) -> None:
        """A directory that is listed while its files come and go; those that stay are seen."""
        below = self.path("many")
        if turn == 0:
            self.timed(os.mkdir, below)
            for index in range(300):
                os.close(self.timed(os.open, f"{below}/stays-{index}", os.O_CREAT | os.O_WRONLY))
        self.timed(os.close, os.open(f"{below}/goes", os.O_CREAT | os.O_WRONLY))
        names = []
        with self.timed(os.scandir, below) as entries:
            for entry in entries:
                names.append(entry.name)
                time.sleep(0.0005)
        stay = sorted(name for name in names if name.startswith("stays"))
        assert len(stay) == len(set(stay)) == 300, f"{len(stay)} names, {len(set(stay))} of them"
        self.timed(os.unlink, f"{below}/goes")

    def lock(self, turn: int) -> None:
        """A lock on a file, the working directory in the mount, attributes and xattrs."""
        os.chdir(self.directory)
        fd = self.timed(os.open, f"{self.kind}-lock", os.O_CREAT | os.O_RDWR, 0o644)
        self.timed(fcntl.flock, fd, fcntl.LOCK_EX)
        self.timed(os.fchmod, fd, 0o600 + turn % 64)
        self.timed(os.setxattr, f"{self.kind}-lock", "user.turn", b"%d" % turn)
        assert self.timed(os.getxattr, f"{self.kind}-lock", "user.turn") == b"%d" % turn
        self.timed(os.removexattr, f"{self.kind}-lock", "user.turn")
        assert self.timed(os.fstat, fd).st_mode & 0o777 == 0o600 + turn % 64
        self.timed(fcntl.flock, fd, fcntl.LOCK_UN)
        self.timed(os.close, fd)
        self.timed(os.link, f"{self.kind}-lock", f"{self.kind}-second")
        self.timed(os.unlink, f"{self.kind}-second")
        assert self.timed(os.getcwd) == self.directory

    def run(self, seconds: float) -> None:
        """One turn after the other until the time is over; then everything is read once more."""
        end, turn = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            getattr(self, self.kind)(turn)
            turn += 1
        for name in self.kept:
            self.check(name.removeprefix(f"{self.kind}-"))


def main() -> None:
    """Play, and say how it went."""
    kind, directory, seconds, seed = sys.argv[1:]
    program, error = Program(kind, directory, int(seed)), ""
    try:
        program.run(float(seconds))
    except (OSError, AssertionError) as caught:
        where = [frame.lineno for frame in traceback.extract_tb(caught.__traceback__)]
        error = f"{type(caught).__name__}: {caught} ({program.operations} operations, {where})"
    said = {
        "error": error,
        "operations": program.operations,
        "longest_s": program.longest_s,
        "slowest": program.slowest,
        "kept": program.kept,
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
