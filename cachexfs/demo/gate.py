"""Where the storage's operations meet the faults in force, and errors become replies."""

from __future__ import annotations

import functools
import logging
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from errno import EIO
from typing import Any, ParamSpec, TypeVar

import trio
from pyfuse3 import FUSEError

from cachexfs.demo.faults import Fail, Fault, Hang, Report, Rules

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


class Gate:
    """Where operations meet the faults in force."""

    def __init__(self) -> None:
        self._rules = Rules()
        self._changed = trio.Event()
        self._ops: Counter[str] = Counter()
        self._waiting = 0

    def set(self, faults: Sequence[Fault]) -> None:
        """Put these faults in force; what hangs asks again and may go on."""
        self._rules = Rules(tuple(faults))
        self._changed.set()
        self._changed = trio.Event()

    def report(self) -> Report:
        """What was seen so far."""
        return Report(ops=dict(self._ops), hits=self._rules.hits, waiting=self._waiting)

    async def enter(self, op: str, paths: Callable[[], tuple[str, ...]], size_bytes: int) -> None:
        """Return when the operation may be carried out; raise the error it is to fail with."""
        self._ops[op] += 1
        while True:
            known = paths() if self._rules.look_at_paths else ()
            verdict = self._rules.verdict(op, known, size_bytes, trio.current_time())
            if isinstance(verdict, Fail):
                raise FUSEError(verdict.errno)
            if isinstance(verdict, Hang):
                await self._wait(math.inf)
                continue
            if verdict.delay_s:
                await self._wait(verdict.delay_s)
            return

    async def _wait(self, limit_s: float) -> None:
        """Return after so long, or when the rules change."""
        self._waiting += 1
        with trio.move_on_after(limit_s):
            await self._changed.wait()
        self._waiting -= 1


def answers(handler: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Turn the directory's errors into replies; pyfuse3 ends the mount at any other exception."""

    @functools.wraps(handler)
    async def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await handler(*args, **kwargs)
        except FUSEError:
            raise
        except OSError as error:
            raise FUSEError(error.errno or EIO) from None
        except Exception:
            log.exception("%s failed", handler.__name__)
            raise FUSEError(EIO) from None

    return wrapped
