"""A small training program, as thousands are: it knows nothing of the file system it writes to.

    python -m cachexfs.demo.training DIRECTORY --steps 60 --every 10 [--torch] [--pace SECONDS]

Every so many steps it writes a checkpoint under a temporary name, renames it into place, and lets
the file `latest` name it. If there is a `latest` when it starts, it goes on from there. Prints each
step's number and loss, as hexadecimal floating point, so that not one bit is rounded away.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

SAMPLES, FEATURES, HIDDEN, CLASSES = 4096, 256, 1024, 10
BATCH = 64
SEED = 7

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


class Trainee(Protocol):
    """A network with its optimizer."""

    suffix: str

    def step(self, inputs: Floats, labels: Labels) -> float:
        """One step on one batch; returns the loss before it."""

    def save(self, path: Path, step: int) -> None:
        """Everything that the next step depends on."""

    def load(self, path: Path) -> int:
        """The same back; returns the number of steps done."""


def data_set() -> tuple[Floats, Labels]:
    """Points of a noisy, bent teacher."""
    rng = np.random.default_rng(SEED)
    inputs = rng.standard_normal((SAMPLES, FEATURES), dtype=np.float32)
    teacher = rng.standard_normal((FEATURES, CLASSES), dtype=np.float32)
    labels = np.argmax(np.maximum(inputs @ teacher, 0) + rng.normal(size=CLASSES), axis=1)
    return inputs, labels.astype(np.int64)


def batch_of(step: int) -> npt.NDArray[np.int64]:
    """Which samples step number `step` (from 0) sees: shuffled anew each epoch, by its number."""
    epoch, position = divmod(step, SAMPLES // BATCH)
    order = np.random.default_rng((SEED, epoch)).permutation(SAMPLES)
    return order[position * BATCH : (position + 1) * BATCH]


def save(trainee: Trainee, directory: Path, step: int) -> None:
    """A checkpoint, whole or not there, and then the pointer to it."""
    name = f"step-{step:06d}{trainee.suffix}"
    temporary = directory / f"tmp-{name}"
    trainee.save(temporary, step)
    os.replace(temporary, directory / name)
    (directory / "tmp-latest").write_text(name)
    os.replace(directory / "tmp-latest", directory / "latest")


def resume(trainee: Trainee, directory: Path) -> int:
    """Go on from the latest checkpoint; 0 when there is none."""
    pointer = directory / "latest"
    return trainee.load(directory / pointer.read_text()) if pointer.exists() else 0


def train(trainee: Trainee, directory: Path, steps: int, every: int, pace_s: float) -> None:
    """All steps that are not done yet. `pace_s`: a step takes at least so long."""
    inputs, labels = data_set()
    directory.mkdir(parents=True, exist_ok=True)
    for step in range(resume(trainee, directory), steps):
        begin = time.monotonic()
        batch = batch_of(step)
        print(step + 1, trainee.step(inputs[batch], labels[batch]).hex(), flush=True)
        if (step + 1) % every == 0:
            save(trainee, directory, step + 1)
        time.sleep(max(0.0, begin + pace_s - time.monotonic()))


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description="a small training program")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--every", type=int, required=True)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--pace", type=float, default=0.0)
    wanted = parser.parse_args()
    train(make(torch=wanted.torch), wanted.directory, wanted.steps, wanted.every, wanted.pace)


def make(*, torch: bool) -> Trainee:
    """A fresh network, the same every time."""
    if torch:
        from cachexfs.demo.network_torch import TorchNetwork

        return TorchNetwork((FEATURES, HIDDEN, HIDDEN, CLASSES), SEED)
    from cachexfs.demo.network import Network

    return Network((FEATURES, HIDDEN, HIDDEN, CLASSES), SEED)


if __name__ == "__main__":
    main()
