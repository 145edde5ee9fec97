"""A PyTorch job with four ranks under torchrun: preempted, it saves, resumes, goes on learning."""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.lazerd_at_work import Lazerd, lazerd

TRAINING = """
import json, os, signal, subprocess, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank, steps, save_s = dist.get_rank(), int(sys.argv[1]), float(sys.argv[2])
torch.set_num_threads(1)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimiser = torch.optim.SGD(model.parameters(), lr=0.02)
torch.manual_seed(rank)
x = torch.randn(64, 8)
step = 0
if os.path.exists("checkpoint.pt"):
    saved = torch.load("checkpoint.pt", weights_only=True)
    model.load_state_dict(saved["model"]); optimiser.load_state_dict(saved["optimiser"])
    step = saved["step"]
told = torch.zeros(1)
signal.signal(signal.SIGTERM, lambda *_: told.fill_(1))
if rank == 0:
    lazer = [sys.executable, "-c", "from lazerd.cli import main; main()"]
    subprocess.run([*lazer, "working"], check=True)
while step < steps:
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimiser.zero_grad(); loss.backward(); optimiser.step()
    step += 1
    mean = loss.detach().clone(); dist.all_reduce(mean)
    if rank == 0:
        print(json.dumps({"step": step, "loss": mean.item() / 4}), flush=True)
    stop = told.clone(); dist.all_reduce(stop)  # all ranks stop at the same step
    if stop.item():
        if rank == 0:
            time.sleep(save_s)
            state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "step": step}
            torch.save(state, "checkpoint.new"); os.replace("checkpoint.new", "checkpoint.pt")
            print(json.dumps({"saved": step}), flush=True)
        dist.barrier()
        os._exit(0)
    time.sleep(0.05)
dist.destroy_process_group()
"""


def losses(daemon: Lazerd, job: str) -> list[dict[str, float]]:
    lines = daemon.output(job).splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def train(daemon: Lazerd, steps: int, save_s: float, grace_s: float) -> str:
    (daemon.directory / "train.py").write_text(TRAINING)
    return daemon.submit(
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "--standalone",
        "train.py", str(steps), str(save_s), gpus=4, grace_s=grace_s, estimate_s=10_000.0,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("save_s", "grace_s"), [(0.0, 20.0), (35.0, 60.0)], ids=["quick", "longer than torchrun waits"]
)
def test_28_it_saves_in_its_grace_and_goes_on(
    tmp_path: Path, save_s: float, grace_s: float
) -> None:
    steps = 80
    with lazerd(tmp_path, policy="srsf/nosetup") as daemon:
        job = train(daemon, steps, save_s, grace_s)
        daemon.until_state(job, "working", limit_s=90.0)
        daemon.until(lambda: len(losses(daemon, job)) >= 10, 60.0)
        began = time.monotonic()
        other = daemon.submit("true", gpus=4, estimate_s=1.0)
        daemon.until(lambda: other in daemon.history(), grace_s + 30.0)
        assert save_s <= time.monotonic() - began < grace_s
        ended = daemon.until_state(job, "ended", limit_s=120.0)
        said = losses(daemon, job)
    assert (ended["exit_code"], ended["preemptions"], ended["futile_preemptions"]) == (0, 1, 0)
    (saved,) = [int(line["saved"]) for line in said if "saved" in line]
    trained = [line for line in said if "loss" in line]
    assert [int(line["step"]) for line in trained] == list(range(1, steps + 1))
    assert 10 <= saved < steps
    loss = [line["loss"] for line in trained]
    print(
        f"step {saved}: {loss[saved - 1]:.4f}, then {loss[saved]:.4f}; "
        f"{loss[0]:.2f} to {loss[-1]:.3f}"
    )
    # Gradient descent on the same data: each step is lower than the one before, this one too.
    assert all(after < before for before, after in pairwise(loss))
