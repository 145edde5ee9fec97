"""PyTorch: torch.save and load, distributed checkpoints, shared storage; and safetensors."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.writers.place import Place

pytestmark = [pytest.mark.fuse, pytest.mark.filterwarnings("ignore")]


def state(seed: int) -> dict[str, Any]:
    import torch

    made = torch.Generator().manual_seed(seed)
    return {
        f"layer.{i}.weight": torch.randn(64 + i, 997, generator=made, dtype=torch.float32)
        for i in range(6)
    }


def equal(left: dict[str, Any], right: dict[str, Any]) -> bool:
    import torch

    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def test_torch_save_and_load_by_path(place: Place) -> None:
    import torch

    place.both(lambda at: torch.save(state(1), at / "model.pt"))
    assert equal(torch.load(place.path / "model.pt"), state(1))
    assert equal(torch.load(place.path / "model.pt", mmap=True), state(1))
    place.check()


def test_torch_save_over_what_is_mapped(place: Place) -> None:
    import torch

    torch.save(state(1), place.path / "model.pt")
    place.a.wait("durable", place.name)
    mapped = torch.load(place.path / "model.pt", mmap=True)
    assert equal(mapped, state(1))
    del mapped
    torch.save(state(2), place.path / "model.pt")
    assert equal(torch.load(place.path / "model.pt", mmap=True), state(2))
    place.check()


def test_torch_save_to_a_file_object(place: Place) -> None:
    import torch

    def write(at: Path) -> None:
        with (at / "model.pt").open("wb") as file:
            torch.save(state(1), file)
        with (at / "unbuffered.pt").open("wb", buffering=0) as raw:
            torch.save({"tiny": list(range(1000))}, raw)

    place.both(write)
    torch.save(state(2), place.path / "old.pt", _use_new_zipfile_serialization=False)
    with (place.path / "model.pt").open("rb") as file:
        assert equal(torch.load(io.BytesIO(file.read())), state(1))
    assert equal(torch.load(place.path / "old.pt"), state(2))
    place.check()


def test_distributed_checkpoint_twice_over_one_path(place: Place) -> None:
    import torch.distributed.checkpoint as dcp

    for seed in (1, 2):
        dcp.save({"model": state(seed)}, storage_writer=dcp.FileSystemWriter(place.path / "ckpt"))
        loaded = {"model": {name: tensor.zero_() for name, tensor in state(seed).items()}}
        dcp.load(loaded, storage_reader=dcp.FileSystemReader(place.path / "ckpt"))
        assert equal(loaded["model"], state(seed))
    assert (place.path / "ckpt" / ".metadata").exists()
    place.check()
    source = {"model": {name: tensor.zero_() for name, tensor in state(2).items()}}
    dcp.load(source, storage_reader=dcp.FileSystemReader(place.a.source / place.name / "ckpt"))
    assert equal(source["model"], state(2))


def test_distributed_checkpoint_one_directory_a_step(place: Place) -> None:
    import torch.distributed.checkpoint as dcp

    for step in range(3):
        writer = dcp.FileSystemWriter(
            place.path / f"step-{step}", thread_count=3, single_file_per_rank=False
        )
        dcp.save({"model": state(step)}, storage_writer=writer)
    place.check()


def test_torch_from_file_shared(place: Place) -> None:
    import torch

    def write(at: Path) -> None:
        shared = torch.from_file(str(at / "shared"), shared=True, size=300_000)
        shared.copy_(torch.arange(300_000))
        del shared

    place.both(write)
    place.check()


def test_safetensors_also_over_an_existing_file(place: Place) -> None:
    from safetensors.torch import load_file, save_file

    name = "model.safetensors"
    for seed in (1, 2, 3):
        place.both(lambda at, seed=seed: save_file(state(seed), at / name))  # type: ignore[misc]
        assert equal(load_file(place.path / name), state(seed))
    assert [path.name for path in place.path.iterdir()] == ["model.safetensors"]
    place.check()


def test_tensors_that_are_still_mapped_stay_as_they_were(place: Place) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    save_file(state(1), place.path / "model.safetensors")
    with safe_open(place.path / "model.safetensors", "pt") as opened:
        save_file(state(2), place.path / "model.safetensors")
        assert equal({name: opened.get_tensor(name) for name in opened.keys()}, state(1))  # noqa: SIM118
    place.check()


def test_no_warning_comes_from_the_mount(place: Place) -> None:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.save({"a": 1}, place.path / "a.pt")
    place.check()
