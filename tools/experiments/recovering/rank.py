"""One rank: it trains, saves with DCP through its host's mount, or loads and goes on."""

from __future__ import annotations

import datetime
import importlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.experiments.recovering.network import Network
from tools.experiments.recovering.plan import METADATA, Errand, shard_name
from tools.experiments.recovering.shards import describe

torch: Any = importlib.import_module("torch")
dist: Any = importlib.import_module("torch.distributed")
dcp: Any = importlib.import_module("torch.distributed.checkpoint")

MEETS_S = 120.0
"""How long ranks wait for each other: on two cores the last starts long after the first."""

Say = Callable[..., None]


def run(errand: Errand, rank: int) -> None:
    """Be a rank until the errand is done. What it says is in the order in which it happened."""
    say = _teller(Path(errand.told) / f"rank-{rank}")
    os.environ["GLOO_SOCKET_IFNAME"] = errand.link
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{errand.address}:{errand.port}",
        rank=rank,
        world_size=errand.world,
        timeout=datetime.timedelta(seconds=MEETS_S),
    )
    network = Network(errand.width)
    if errand.resume:
        _load(network, errand, say)
    _train(network, errand, rank, say)
    dist.barrier()
    say(done=True)


def _teller(path: Path) -> Say:
    file = path.open("a", buffering=1)

    def say(**what: object) -> None:
        file.write(json.dumps(what) + "\n")

    return say


def _train(network: Network, errand: Errand, rank: int, say: Say) -> None:
    while network.steps < errand.until:
        loss = network.step()
        if rank == 0:
            say(step=network.steps, loss=loss.hex())
        if network.steps == errand.save_at:
            _save(network, errand, rank, say)


def _save(network: Network, errand: Errand, rank: int, say: Say) -> None:
    dist.barrier()
    say(ready=True)
    _wait_for(Path(errand.told) / "save")
    begin = time.monotonic()
    dcp.save(network.state(), storage_writer=dcp.FileSystemWriter(errand.checkpoint))
    say(saved_s=time.monotonic() - begin)
    for name in [shard_name(rank)] + ([METADATA] if rank == 0 else []):
        say(file=name, **describe(Path(errand.checkpoint) / name))
    dist.barrier()


def _wait_for(sign: Path) -> None:
    """The shared file system is to fall silent just before the save, not while it trains."""
    while not sign.exists():
        time.sleep(0.02)


def _load(network: Network, errand: Errand, say: Say) -> None:
    begin, state = time.monotonic(), network.state()
    dcp.load(state, storage_reader=dcp.FileSystemReader(errand.checkpoint))
    network.loaded(state)
    say(loaded_s=time.monotonic() - begin, steps=network.steps)
