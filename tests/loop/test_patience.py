"""Calls that may never come back."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import trio

from cachexfs.pfs.health import Health
from cachexfs.pfs.patience import Patience
from cachexfs.pfs.source import Source
from cachexfs.ram.journal import Journal
from cachexfs.ram.tree import Tree

pytestmark = pytest.mark.trio
TIMEOUT_S = 0.1


async def test_what_is_done_regularly_is_done_again_after_it_failed(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cachexfs.pfs.source._AGAIN_S", 0.01)
    source, calls = Source(tmp_path, Tree(Journal(tmp_path / "journal.db")), TIMEOUT_S), list[int]()

    def call() -> None:
        calls.append(1)
        if len(calls) in (1, 4):
            raise OSError(5, "ill")

    nursery.start_soon(source.regularly, call, 0.01)
    with trio.fail_after(5):
        while len(calls) < 7:  # noqa: ASYNC110
            await trio.sleep(0.01)
    nursery.cancel_scope.cancel()


async def test_an_idle_file_system_is_well_soon_after_it_answers_again(
    nursery: trio.Nursery,
) -> None:
    health = Health(TIMEOUT_S, time.monotonic)
    patience, answers = Patience(health, TIMEOUT_S), threading.Event()
    nursery.start_soon(patience.watch, answers.wait)  # nothing but its own probes
    with trio.fail_after(5):
        while not health.problems() or not health.is_blocked:  # noqa: ASYNC110
            await trio.sleep(0.01)
    await trio.sleep(1.0)  # more probes than the one that hangs
    answers.set()
    with trio.fail_after(3):
        while health.problems():  # noqa: ASYNC110
            await trio.sleep(0.01)
    nursery.cancel_scope.cancel()
