"""A multilayer perceptron with Adam in plain numpy, for the demo's training program."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

RATE, BETA_1, BETA_2, EPSILON = 1e-3, 0.9, 0.999, 1e-8
"""Adam's defaults (Kingma and Ba 2015, algorithm 1)."""


class Network:
    """Weights, and Adam's two moments of each: three times the weights go into a checkpoint."""

    suffix = ".npz"

    def __init__(self, widths: Sequence[int], seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._weights: list[Floats] = [
            (rng.standard_normal((above, below)) * np.sqrt(2 / above)).astype(np.float32)
            for above, below in pairwise(widths)
        ]
        self._mean = [np.zeros_like(weight) for weight in self._weights]
        self._square = [np.zeros_like(weight) for weight in self._weights]
        self._steps = 0

    def step(self, inputs: Floats, labels: Labels) -> float:
        """One step of Adam on the mean cross entropy of a batch; returns that."""
        layers = [inputs]
        for weight in self._weights[:-1]:
            layers.append(np.maximum(layers[-1] @ weight, 0))
        logits = layers[-1] @ self._weights[-1]
        loss, error = _cross_entropy(logits, labels)
        gradients = self._backward(layers, error)
        self._steps += 1
        for index, gradient in enumerate(gradients):
            self._move(index, gradient)
        return loss

    def _backward(self, layers: list[Floats], error: Floats) -> list[Floats]:
        gradients = []
        for layer, weight in zip(reversed(layers), reversed(self._weights), strict=True):
            gradients.append(layer.T @ error)
            error = (error @ weight.T) * (layer > 0)
        return gradients[::-1]

    def _move(self, index: int, gradient: Floats) -> None:
        mean, square = self._mean[index], self._square[index]
        mean += (1 - BETA_1) * (gradient - mean)
        square += (1 - BETA_2) * (gradient * gradient - square)
        rate = RATE * (1 - BETA_2**self._steps) ** 0.5 / (1 - BETA_1**self._steps)
        self._weights[index] -= rate * mean / (np.sqrt(square) + EPSILON)

    def save(self, path: Path, step: int) -> None:
        """Everything that the next step depends on."""
        arrays = {
            f"{kind}{index}": array
            for kind, group in self._groups().items()
            for index, array in enumerate(group)
        }
        np.savez(path, allow_pickle=False, step=np.int64(step), **arrays)

    def load(self, path: Path) -> int:
        """The same back; returns the number of steps done."""
        with np.load(path, allow_pickle=False) as found:
            for kind, group in self._groups().items():
                for index in range(len(group)):
                    group[index] = found[f"{kind}{index}"]
            self._steps = int(found["step"])
        return self._steps

    def _groups(self) -> dict[str, list[Floats]]:
        return {"weight": self._weights, "mean": self._mean, "square": self._square}


def _cross_entropy(logits: Floats, labels: Labels) -> tuple[float, Floats]:
    """The mean loss of a batch, and its derivative by the logits."""
    rows = np.arange(len(labels))
    shifted = logits - logits.max(axis=1, keepdims=True)
    chances = np.exp(shifted)
    totals = chances.sum(axis=1, keepdims=True)
    loss = float(np.mean(np.log(totals[:, 0]) - shifted[rows, labels]))
    error = chances / totals
    error[rows, labels] -= 1
    return loss, (error / np.float32(len(labels))).astype(np.float32)
