"""Keeps the measurements: writes them down each second, and has them fitted now and then.

The fit is made by a process of its own, at the lowest priority: numpy and scipy take a second to
import and hold the interpreter's lock while they compute, which the mount's event loop must not
feel. Without them (they are an extra) there is no fit, and forecasts stay those of the prior.
"""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import trio

from cachexfs.durability.calibration import Correction
from cachexfs.durability.forecast import Model
from cachexfs.durability.lost_work import Lifetime
from cachexfs.measurements.corrections import Corrections, of_last_week
from cachexfs.measurements.recorder import Drained, Recorder
from cachexfs.measurements.store import FILE_NAME, Store

log = logging.getLogger(__name__)

WRITE_EVERY_S = 1.0
RUNNING_EVERY_S = 5.0
"""How often what is still running is written down: all that a crash can leave of it."""

FIRST_FIT_AFTER = 20
"""Phases that ended before the first fit; after it, a tenth more than there were, and this many."""

FIT_EVERY_S = 30.0
"""At least so long between two fits: about 1 s of one processor each."""

CORRECT_EVERY_S = 2.0
"""At least so long between two corrections of whole ways: some 40 ms of a thread each."""

_LOOK_EVERY_S = 5.0

FIT_TIMEOUT_S = 120.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Keeper:
    """The store of one mount, from the event loop. `run` is a task of whoever composes."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._store: Store | None = None
        self._boot = _boot()
        self._lifetimes: list[Lifetime] = []
        self._corrections = Corrections()
        self.recorder = Recorder()
        self.fitted_s = 0.0
        """When the last fit was taken over, on the wall clock; 0: never."""

    @property
    def path(self) -> Path:
        """The file, for whoever wants to read it."""
        return self._path

    def open(self) -> None:
        """Open the store and take up what the last daemon knew. Blocking: before the loop begins.

        A store that cannot be read is put aside: measurements are worth less than a mount.
        """
        try:
            self._open()
        except sqlite3.Error as error:
            log.warning("%s is put aside: %s", self._path, error)
            self._path.replace(self._path.with_suffix(".damaged"))
            self._open()

    def _open(self) -> None:
        self._store = Store(self._path)
        self._store.give_up_running()
        self._store.alive(self._boot, time.time())
        self.recorder = Recorder(self._store.last_id())
        self._corrections = of_last_week(self._store, time.time())
        self.recorder.model = Model(self._store.fits(), self._corrections.made())
        self._lifetimes = self._store.lifetimes()

    def lifetimes(self) -> list[Lifetime]:
        """The boots during which this mount ran, as they were when it was opened."""
        return self._lifetimes

    async def run(self) -> None:
        """Write and fit until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write_down)
            nursery.start_soon(self._fit_now_and_then)
            nursery.start_soon(self._correct_now_and_then)

    def close(self, *, orderly: bool) -> None:
        """Write what is left. Blocking: after the loop has ended."""
        if self._store is None:
            return
        try:
            self._write(running=True, orderly=orderly)
        except sqlite3.Error as error:
            log.warning("the last measurements are lost: %s", error)
        self._store.close()
        self._store = None

    async def _write_down(self) -> None:
        last_running_s = trio.current_time()
        while True:
            await trio.sleep(WRITE_EVERY_S)
            running = trio.current_time() - last_running_s >= RUNNING_EVERY_S
            if running:
                last_running_s = trio.current_time()
            await self._in_thread(running)

    async def _in_thread(self, running: bool) -> None:
        records = self.recorder.drain(running=running)
        decisions = self.recorder.drain_decisions()
        if not records and not decisions and not running:
            return
        try:
            await trio.to_thread.run_sync(self._save, records, decisions, False)
        except sqlite3.Error as error:
            log.warning("measurements are lost: %s", error)

    def _write(self, *, running: bool, orderly: bool) -> None:
        self._save(self.recorder.drain(running=running), self.recorder.drain_decisions(), orderly)

    def _save(
        self, drained: list[Drained], decisions: list[tuple[float, str, str]], orderly: bool
    ) -> None:
        if self._store is not None:
            records = [one.complete() for one in drained]
            self._store.save(records)
            self._corrections.came_true(records)
            self._store.save_decisions(decisions)
            self._store.alive(self._boot, time.time(), orderly=orderly)

    # --- fits -----------------------------------------------------------------------------------

    async def _fit_now_and_then(self) -> None:
        fitted_at, wanted = 0, FIRST_FIT_AFTER
        while True:
            await trio.sleep(_LOOK_EVERY_S)
            ended = self.recorder.ended_in_all
            if ended - fitted_at >= wanted:
                fitted_at, wanted = ended, max(FIRST_FIT_AFTER, ended // 10)
                await self._fit()
                await trio.sleep(FIT_EVERY_S)

    async def _fit(self) -> None:
        command = [sys.executable, "-m", "cachexfs.measurements.fitter", str(self._path)]
        with trio.move_on_after(FIT_TIMEOUT_S):
            done = await trio.run_process(
                command, check=False, stdin=subprocess.DEVNULL, capture_stderr=True,
                cwd="/", start_new_session=True,
            )  # fmt: skip
            if done.returncode != 0:
                log.info("no fit: %s", done.stderr.decode(errors="replace").strip()[-500:])
                return
            await self._take_over()

    async def _take_over(self) -> None:
        assert self._store is not None
        fits = await trio.to_thread.run_sync(self._store.fits)
        self.recorder.model = Model(fits, self.recorder.model.corrections)
        self.fitted_s = time.time()

    # --- corrections ----------------------------------------------------------------------------

    async def _correct_now_and_then(self) -> None:
        while True:
            await trio.sleep(CORRECT_EVERY_S)
            if self._corrections.has_news:
                self.recorder.model.corrections = await self._corrected()

    async def _corrected(self) -> dict[str, Correction]:
        return await trio.to_thread.run_sync(self._corrections.made)


def _boot() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"
