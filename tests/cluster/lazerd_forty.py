"""Forty jobs for four GPUs: as a trace for the replay tool, and as processes of a real daemon.

The daemon's clock goes in steps, as the replay's does: one second of the trace is a step, and what
happens within a step happens at one instant and is decided together. A real machine needs time to
notice that a job has ended, to start the next and to signal a third; as long as that stays within a
step, both decide at the same instants, and must decide the same.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import trio

from lazerd import config as configuration
from lazerd.conduct.clock import Clock
from lazerd.daemon import Parts, run
from lazerd.engine import Engine
from lazerd.model.actions import Action, Preempt, Start
from lazerd.model.cluster import Cluster
from lazerd.model.events import Event
from lazerd.model.job import JobSpec
from lazerd.policy.names import Information, policy_named
from tools.replay.driver import Driver, Task

GPUS = 4
JOBS = 40
GRACE_S = 1
"""What was told to go in one step is gone in the next."""
KINDS = {  # name: (weight, GPUs, set-up, work), in seconds of the trace
    "probe": (30, (1, 1, 2), (2, 2), (1, 2)),
    "tune": (4, (1, 2, 3), (2, 3), (3, 6)),
    "train": (6, (2, 3, 4), (2, 3), (10, 24)),
}
GAPS_S = (1, 2)
"""Between two submissions."""

EPOCH, STEP = "TRACE_EPOCH", "TRACE_STEP"
"""In the environment: when the trace began, and how long its second takes."""

Decided = tuple[int, str, str]
"""(when, "Start" or "Preempt", job)."""


def tasks(seed: int) -> list[Task]:
    """The trace, in whole seconds."""
    dice = random.Random(seed)
    at_s, made = 0, []
    weights = [weight for weight, *_ in KINDS.values()]
    for number in range(1, JOBS + 1):
        kind = dice.choices(list(KINDS), weights)[0]
        _, sizes, setups_s, works_s = KINDS[kind]
        work_s, gpus = dice.randint(*works_s), dice.choice(sizes)
        spec = JobSpec(
            str(number), gpus, float(at_s), user="root", name=kind, estimate_s=float(work_s)
        )
        made.append(Task(spec, at_s, work_s, dice.randint(*setups_s)))
        at_s += dice.randint(*GAPS_S)
    return made


def replayed(trace: Sequence[Task]) -> list[Decided]:
    """When the replay tool starts and preempts whom."""
    found: list[Decided] = []

    def watch(now_s: int, events: Sequence[Event], actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Start | Preempt):
                found.append((now_s, type(action).__name__, action.job_id))

    engine = Engine(Cluster.pool(GPUS), policy_named("lazer", Information.GIVEN))
    Driver(engine, trace, GPUS, grace_s=GRACE_S, observer=watch).run()
    return found


class SteppingClock(Clock):
    """Whole seconds of a trace."""

    def __init__(self, not_before_s: float = 0.0) -> None:
        self._epoch_s, self._step_s = float(os.environ[EPOCH]), float(os.environ[STEP])

    def now_s(self) -> float:
        return float(math.floor((time.time() - self._epoch_s) / self._step_s))

    def until_s(self, at_s: float) -> float:
        return max(0.0, self._epoch_s + math.ceil(at_s) * self._step_s - time.time())

    def rest_s(self) -> float:
        return self.until_s(self.now_s() + 1)


JOB = """
import os, signal, sys, time
from pathlib import Path
from lazerd.client import Client
setup_s, work_s, me = int(sys.argv[1]), int(sys.argv[2]), os.environ["LAZER_JOB_ID"]
epoch, step = float(os.environ["TRACE_EPOCH"]), float(os.environ["TRACE_STEP"])
client, saved = Client(Path(os.environ["LAZER_SOCKET"])), Path(f"saved-{me}")
kept, working = (int(saved.read_text()) if saved.exists() else 0), None
def wait_until(at):
    time.sleep(max(0.0, epoch + (at + 0.15) * step - time.time()))
def go(*_):
    told = int((time.time() - epoch) / step) - 1  # decided at the end of the step before this one
    saved.write_text(str(kept + (told - working if working is not None else 0)))
    os._exit(0)
signal.signal(signal.SIGTERM, go)
placed = int(client.ask("explain", job=me)["placed_at"])
wait_until(placed + setup_s)
working = placed + setup_s
client.ask("working", job=me)
wait_until(working + work_s - kept)
"""


async def play(trace: Sequence[Task], submit: Callable[[Task], str]) -> None:
    """Submit each job at its time; each waits for its answer until the step is over."""
    epoch_s, step_s = float(os.environ[EPOCH]), float(os.environ[STEP])

    async def one(task: Task) -> None:
        job = await trio.to_thread.run_sync(submit, task)
        assert job == task.spec.job_id

    async with trio.open_nursery() as nursery:
        for task in trace:
            wait_s = epoch_s + (task.submit_s + 0.15) * step_s - time.time()
            await trio.sleep(max(0.0, wait_s))
            nursery.start_soon(one, task)


def main(state_dir: str, ready_fd: str) -> None:
    """What `lazerd --local --gpus 4 --state-dir DIRECTORY` is, with a clock that goes in steps."""
    text = f'[daemon]\nstate_dir = "{Path(state_dir)}"\n[local]\ngpus = {GPUS}\n'
    config = configuration.parse(text, "the trace")
    ready = partial(os.write, int(ready_fd), b"ready\n")
    trio.run(run, config, ready, Parts(clock=SteppingClock))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
