"""Runs replays: one here, or several in processes of their own, with a progress bar if watched."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path

from lazerd.engine import Engine
from lazerd.model.actions import Action
from lazerd.model.events import Event
from tools.replay.case import Case
from tools.replay.driver import Driver, EngineFault, Observer
from tools.replay.measures import Row, measure
from tools.replay.recording import Recorder
from tools.replay.spans import Outcome

POLL_S = 0.2
Progress = Callable[[Sequence[int]], None]
"""Is told now and then how many jobs have ended, for each policy."""


@dataclass(frozen=True)
class Run:
    """One policy on one case."""

    case: Case
    policy: str
    validate: bool = False
    log: Path | None = None


@dataclass
class Result:
    """What came of a run: its row of results.json, and all that it was measured from."""

    row: Row
    outcome: Outcome


def replay(run: Run, progress: Callable[[int], None] | None = None) -> Result:
    """Run one replay here. Raises ReplayError."""
    case = run.case
    tasks, _ = case.tasks()
    engine = case.engine(run.policy)
    with ExitStack() as stack:
        observers: list[Observer] = []
        if run.log is not None:
            recorder = Recorder(run.log, run.policy, case.information(), case.cluster())
            observers.append(stack.enter_context(recorder))
        if run.validate:  # after the recorder, so that a log holds what led to a broken invariant
            observers.append(_validating(engine))
        driver = Driver(
            engine,
            tasks,
            case.gpus,
            checkpoint_s=case.checkpoint_s,
            grace_s=case.grace_s,
            observer=_all(observers),
            progress=progress,
        )
        try:
            outcome = driver.run()
        except EngineFault as error:
            raise EngineFault(f"{run.policy}: {error}") from error
    return Result(measure(case, run.policy, outcome), outcome)


def replay_all(
    runs: Sequence[Run], processes: int, progress: Progress | None = None
) -> list[Result]:
    """Run them all, in the given order if there is one process; results in the given order."""
    if min(processes, len(runs)) <= 1:
        return list(_one_by_one(runs, progress))
    # Spawned, not forked: a progress bar has a thread.
    context = multiprocessing.get_context("spawn")
    ended: SynchronizedArray[int] = context.Array("q", len(runs))
    with ProcessPoolExecutor(processes, context, _share, (ended,)) as pool:
        futures = [pool.submit(_replay_there, run, number) for number, run in enumerate(runs)]
        try:
            _watch(futures, ended, progress)
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _one_by_one(runs: Sequence[Run], progress: Progress | None) -> Iterator[Result]:
    ended = [0] * len(runs)
    for number, run in enumerate(runs):
        yield replay(run, None if progress is None else _noting(ended, number, progress))


def _noting(ended: list[int], number: int, progress: Progress) -> Callable[[int], None]:
    def note(count: int) -> None:
        ended[number] = count
        progress(ended)

    return note


def _watch(
    futures: list[Future[Result]], ended: SynchronizedArray[int], progress: Progress | None
) -> None:
    """Wait for all, or for the first that fails."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=POLL_S, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
        if progress is not None:
            progress(ended[:])


_ended: SynchronizedArray[int] | None = None
"""Of a process in the pool: set once when it starts."""


def _share(ended: SynchronizedArray[int]) -> None:
    global _ended
    _ended = ended


def _replay_there(run: Run, number: int) -> Result:
    def note(count: int) -> None:
        if _ended is not None:
            _ended[number] = count

    return replay(run, note)


def _validating(engine: Engine) -> Observer:
    def validate(now_s: int, events: Sequence[Event], actions: Sequence[Action]) -> None:
        engine.validate()

    return validate


def _all(observers: list[Observer]) -> Observer | None:
    if not observers:
        return None

    def observe(now_s: int, events: Sequence[Event], actions: Sequence[Action]) -> None:
        for observer in observers:
            observer(now_s, events, actions)

    return observe
