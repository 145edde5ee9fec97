"""Group commit: whoever comes while one group is being written goes into the next one together.

There is no task: the first who waits leads. It takes all that wait, its own included, carries them
out in one thread hop and tells each. Between taking the list and starting the thread nothing
awaits, so nobody is left out or taken twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from cachexfs.peers.batch import Step
from cachexfs.peers.refusal import Refusal

Outcomes = list[Refusal | None]


class _Waiting:
    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.outcomes: Outcomes | None = None


class GroupCommit:
    """`apply_all` blocks and gives one outcome for each step; it raises nothing."""

    def __init__(
        self, apply_all: Callable[[Sequence[Step]], Outcomes], limiter: trio.CapacityLimiter
    ) -> None:
        self._apply_all = apply_all
        self._limiter = limiter
        self._turn = trio.Lock()
        self._waiting: list[_Waiting] = []

    async def apply(self, steps: Sequence[Step]) -> Outcomes:
        """Carry out `steps`, in order, with whatever else waits. Not to be cancelled half way."""
        mine = _Waiting(steps)
        self._waiting.append(mine)
        with trio.CancelScope(shield=True):
            async with self._turn:
                if mine.outcomes is None:
                    await self._lead()
        assert mine.outcomes is not None
        return mine.outcomes

    async def _lead(self) -> None:
        group, self._waiting = self._waiting, []
        steps = [step for waiting in group for step in waiting.steps]
        outcomes = await trio.to_thread.run_sync(self._apply_all, steps, limiter=self._limiter)
        for waiting in group:
            waiting.outcomes = outcomes[: len(waiting.steps)]
            del outcomes[: len(waiting.steps)]
