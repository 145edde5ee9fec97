"""Blocking calls into a library that may hang, one at a time, each with a limit of time.

A call that runs over its limit cannot be stopped. Its thread is left alone with it, and until it
comes back every further call fails at once: no second thread ever enters the library beside it,
and no threads pile up. A daemon thread, so that one that hangs does not keep the process alive.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class TooSlow(Exception):
    """A call has not come back in time, this one or one before it."""


class _Call(Generic[T]):
    def __init__(self, what: str, function: Callable[[], T]) -> None:
        self.what = what
        self.began_s = time.monotonic()
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._function = function
        self._value: list[T] = []

    def run(self) -> None:
        try:
            self._value.append(self._function())
        except BaseException as error:  # handed to the caller, whatever it is
            self.error = error
        finally:
            self.done.set()

    def value(self) -> T:
        if self.error is not None:
            raise self.error
        return self._value[0]


class OneAtATime:
    """Runs calls in one thread of its own. Several threads may ask; they wait for each other."""

    def __init__(self, name: str, limit_s: float) -> None:
        self.limit_s = limit_s
        self._name = name
        self._turn = threading.Lock()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._late: _Call[Any] | None = None

    def call(self, what: str, function: Callable[[], T]) -> T:
        """The value of `function()`, or what it raises; `TooSlow` after `limit_s` seconds."""
        with self._turn:
            self._check_late()
            call = _Call(what, function)
            self._start()
            self._calls.put(call.run)
            if not call.done.wait(self.limit_s):
                self._late = call
                raise TooSlow(f"{what} has not come back within {self.limit_s:g} s")
            return call.value()

    def _check_late(self) -> None:
        late = self._late
        if late is None:
            return
        if not late.done.is_set():
            since_s = time.monotonic() - late.began_s
            raise TooSlow(f"{late.what} has not come back for {since_s:.0f} s")
        self._late = None

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            self._calls.get()()
