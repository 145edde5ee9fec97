"""The training program as far as it saves: one process, one save after the other, on request.

    python -m tools.experiments.varying.saver CORE LAYERS

A request is a line of JSON (`Order`), and so is the answer (`Answer`). What is timed is what a
program waits for: open, write, fsync, close. Memory is touched before, and the file is removed on
request of whoever asked for it.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from tools.benchmarks.memory import available_bytes, touch
from tools.experiments.varying.plan import MIB, Writer

BLOCK_BYTES = MIB
TOUCHED = 2.0
"""Times the size of the file: its pages, and those of who works on it beside."""
WIDTH, VOCABULARY = 768, 8192


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Save to `path`, then send it to `copy_to` (HOST:PORT) if there is one; or remove `path`."""

    path: str
    writer: Writer = "raw"
    size_bytes: int = 0
    copy_to: str = ""
    remove: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of the parts of a save; `error` when there was none."""

    at_s: float = 0.0
    open_s: float = 0.0
    write_s: float = 0.0
    fsync_s: float = 0.0
    close_s: float = 0.0
    copy_s: float = 0.0
    size_bytes: int = 0
    error: str = ""

    @property
    def took_s(self) -> float:
        """What the program waited for."""
        return self.open_s + self.write_s + self.fsync_s + self.close_s + self.copy_s


class Saver:
    """`layers`: of the transformer whose state is saved; six and its optimizer are 559 MiB."""

    def __init__(self, layers: int) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._torch.set_num_threads(1)
        self._state = _state(self._torch, layers)
        self._block = memoryview(bytearray(os.urandom(BLOCK_BYTES)))

    def obey(self, order: Order) -> Answer:
        """Raises OSError."""
        if order.remove:
            Path(order.path).unlink(missing_ok=True)
            return Answer()
        touch(min(int(TOUCHED * max(order.size_bytes, 600 * MIB)), available_bytes() // 2))
        return self._save(order)

    def _save(self, order: Order) -> Answer:
        at_s, begin = time.time(), time.perf_counter()
        with open(order.path, "wb", buffering=BLOCK_BYTES) as file:  # noqa: PTH123
            opened = time.perf_counter()
            if order.writer == "torch":
                self._torch.save(self._state, file)
                file.flush()
            else:
                _write_blocks(file.fileno(), order.size_bytes, self._block)
            written = time.perf_counter()
            size_bytes = file.tell() or order.size_bytes
            os.fsync(file.fileno())
            synced = time.perf_counter()
        closed = time.perf_counter()
        if order.copy_to:
            _send(Path(order.path), order.copy_to)
        return Answer(
            at_s=at_s,
            open_s=opened - begin,
            write_s=written - opened,
            fsync_s=synced - written,
            close_s=closed - synced,
            copy_s=time.perf_counter() - closed,
            size_bytes=size_bytes,
        )


def _write_blocks(fd: int, size_bytes: int, block: memoryview) -> None:
    for _ in range(size_bytes // BLOCK_BYTES):
        os.write(fd, block)


def _send(path: Path, address: str) -> None:
    """As `tools.benchmarks.receiver` takes it: written and fsynced when it answers."""
    host, _, port = address.partition(":")
    with path.open("rb") as file, socket.create_connection((host, int(port))) as link:
        link.sendfile(file)
        link.shutdown(socket.SHUT_WR)
        link.recv(1)


def _state(torch: Any, layers: int) -> dict[str, Any]:
    """Of a transformer and AdamW after a step."""
    nn = torch.nn
    torch.manual_seed(0)
    blocks = [
        nn.TransformerEncoderLayer(WIDTH, WIDTH // 64, 4 * WIDTH, batch_first=True)
        for _ in range(layers)
    ]
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *blocks)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(1, 4, dtype=torch.long)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}


def main(core: int, layers: int) -> None:
    """Obey until the input ends."""
    os.sched_setaffinity(0, {core})
    saver = Saver(layers)
    print(msgspec.json.encode(Answer()).decode(), flush=True)  # it is ready
    for line in sys.stdin:
        try:
            answer = saver.obey(msgspec.json.decode(line, type=Order))
        except OSError as error:
            answer = Answer(error=str(error))
        print(msgspec.json.encode(answer).decode(), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
