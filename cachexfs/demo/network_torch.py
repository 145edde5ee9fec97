"""The same network in PyTorch, saved with torch.save, for the demo's training program."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

torch: Any = importlib.import_module("torch")  # an extra: it may not be there for a type checker


class TorchNetwork:
    """A multilayer perceptron and AdamW."""

    suffix = ".pt"

    def __init__(self, widths: Sequence[int], seed: int) -> None:
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        layers: list[Any] = []
        for above, below in pairwise(widths):
            layers += [torch.nn.Linear(above, below), torch.nn.ReLU()]
        self._model = torch.nn.Sequential(*layers[:-1])
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-3)

    def step(self, inputs: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> float:
        """One step on one batch; returns the loss before it."""
        answers = self._model(torch.from_numpy(inputs))
        loss = torch.nn.functional.cross_entropy(answers, torch.from_numpy(labels))
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return float(loss.item())

    def save(self, path: Path, step: int) -> None:
        """Everything that the next step depends on."""
        content = {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}
        torch.save({**content, "step": step}, path)

    def load(self, path: Path) -> int:
        """The same back; returns the number of steps done."""
        found = torch.load(path, weights_only=True)
        self._model.load_state_dict(found["model"])
        self._optimizer.load_state_dict(found["optimizer"])
        return int(found["step"])
