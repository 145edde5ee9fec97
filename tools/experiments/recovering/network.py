"""A network of which every rank holds its rows, as with fully sharded data parallelism.

Losses are the same, bit by bit, whatever the number of ranks: every batch is cut into the same
parts, each part's gradient is computed alone, and the parts are added in one order. What is
elementwise (AdamW) is done on a length that vector instructions divide, so no element is computed
in another way because it is near an end.
"""

from __future__ import annotations

import importlib
from itertools import pairwise
from typing import Any

from tools.experiments.recovering.plan import MICROBATCHES

torch: Any = importlib.import_module("torch")
dist: Any = importlib.import_module("torch.distributed")
tensors: Any = importlib.import_module("torch.distributed.tensor")

INPUTS, CLASSES, SAMPLES = 64, 32, 16
SEED = 20
LEARNING_RATE = 3e-3
_ALIGNED = 64
"""Elements: twice what the widest vector instructions of today take (AVX-512, 16 floats)."""


class Network:
    """This rank's rows of a multilayer perceptron, and of AdamW's state. Of the default group."""

    def __init__(self, width: int) -> None:
        self.steps = 0
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        self._mesh = tensors.init_device_mesh("cpu", (self._world,))
        self._shapes = _shapes(width)
        self._spans = _spans(self._shapes, self._world)
        length = -(-max(end for _, end in self._spans.values()) // _ALIGNED) * _ALIGNED
        self._rows = torch.zeros(length)
        self._optimizer = torch.optim.AdamW([self._rows], lr=LEARNING_RATE, foreach=False)
        self._moments = {key: torch.zeros(length) for key in ("exp_avg", "exp_avg_sq")}
        self._begin()

    def _begin(self) -> None:
        """The same network for all, each its own rows."""
        source = torch.Generator().manual_seed(SEED)
        for name, shape in self._shapes.items():
            whole = torch.randn(shape, generator=source) * shape[-1] ** -0.5
            self._view(self._rows, name).copy_(whole.chunk(self._world)[self._rank])
        self._set_steps(0)

    def step(self) -> float:
        """One step on the next batch; returns the loss before it, the same on all ranks."""
        weights = self._gather()
        part = MICROBATCHES // self._world
        gradients, losses = [], torch.zeros(part)
        for index in range(part):
            loss = _loss(weights, *_samples(self.steps, self._rank * part + index))
            found = torch.autograd.grad(loss, list(weights.values()))
            gradients.append(self._cut(dict(zip(weights, found, strict=True))))
            losses[index] = loss.detach()
        self._rows.grad = self._exchange(torch.stack(gradients, dim=1))
        self._optimizer.step()
        self.steps += 1
        return self._mean(losses)

    def state(self) -> dict[str, Any]:
        """For DCP, to save and to load in place; after a load, `loaded`."""
        kinds = {"model": self._rows, **self._moments}
        split = {kind: self._sharded(flat) for kind, flat in kinds.items()}
        return {**split, "steps": torch.tensor(self.steps)}

    def loaded(self, state: dict[str, Any]) -> None:
        """`state` has been loaded into."""
        self._set_steps(int(state["steps"]))

    def _set_steps(self, steps: int) -> None:
        self.steps = steps
        done = torch.tensor(float(steps))
        self._optimizer.state[self._rows] = {"step": done, **self._moments}

    # --- rows and wholes ------------------------------------------------------------------------

    def _view(self, flat: Any, name: str) -> Any:
        begin, end = self._spans[name]
        rows, *others = self._shapes[name]
        return flat[begin:end].view(rows // self._world, *others)

    def _sharded(self, flat: Any) -> dict[str, Any]:
        return {
            name: tensors.DTensor.from_local(
                self._view(flat, name), self._mesh, [tensors.Shard(0)], run_check=False
            )
            for name in self._shapes
        }

    def _gather(self) -> dict[str, Any]:
        """The whole weights. Each in memory of its own: BLAS minds how its operands are aligned."""
        everybody = torch.empty(self._world * len(self._rows))
        dist.all_gather_into_tensor(everybody, self._rows)
        by_rank = everybody.view(self._world, -1)
        return {
            name: by_rank[:, begin:end].reshape(self._shapes[name]).clone().requires_grad_()
            for name, (begin, end) in self._spans.items()
        }

    def _cut(self, gradient: dict[str, Any]) -> Any:
        """A whole gradient as (ranks, rows of each)."""
        flat = torch.zeros(self._world, len(self._rows))
        for name, (begin, end) in self._spans.items():
            flat[:, begin:end] = gradient[name].reshape(self._world, -1)
        return flat

    def _exchange(self, gradients: Any) -> Any:
        """(ranks, own parts, rows) -> the mean over all parts of this rank's rows."""
        received = torch.empty_like(gradients)
        dist.all_to_all_single(received, gradients.contiguous())
        parts = received.view(MICROBATCHES, -1)
        total = parts[0].clone()
        for part in parts[1:]:
            total += part
        return total / MICROBATCHES

    def _mean(self, losses: Any) -> float:
        everybody = torch.empty(MICROBATCHES)
        dist.all_gather_into_tensor(everybody, losses)
        return float(sum(everybody.tolist()) / MICROBATCHES)


def _shapes(width: int) -> dict[str, tuple[int, ...]]:
    widths = (INPUTS, width, width, CLASSES)
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, (above, below) in enumerate(pairwise(widths)):
        shapes[f"{layer}.weight"] = (below, above)
        shapes[f"{layer}.bias"] = (below,)
    return shapes


def _spans(shapes: dict[str, tuple[int, ...]], world: int) -> dict[str, tuple[int, int]]:
    """Where each parameter's rows are in a rank's flat tensor."""
    spans, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + torch.Size(shape).numel() // world
        spans[name] = (begin, end)
    return spans


def _loss(weights: dict[str, Any], inputs: Any, labels: Any) -> Any:
    linear = torch.nn.functional.linear
    layers = len(weights) // 2
    for layer in range(layers):
        inputs = linear(inputs, weights[f"{layer}.weight"], weights[f"{layer}.bias"])
        inputs = inputs.relu() if layer < layers - 1 else inputs
    return torch.nn.functional.cross_entropy(inputs, labels)


def _samples(step: int, part: int) -> tuple[Any, Any]:
    """One part of the batch of a step: points of a noiseless teacher, by their number."""
    teacher = torch.randn(INPUTS, CLASSES, generator=torch.Generator().manual_seed(SEED + 1))
    source = torch.Generator().manual_seed(1_000 + step * MICROBATCHES + part)
    inputs = torch.randn(SAMPLES, INPUTS, generator=source)
    return inputs, (inputs @ teacher).argmax(dim=1)
