"""Priority classes with an order inside each: who has the greater priority goes first.

A class is an offset of the key that no order's keys bridge, so that all else compares single
numbers and knows nothing of classes.
"""

from __future__ import annotations

from lazerd.model.job import Job
from lazerd.policy.orders import Order

APART = 2.0**40
"""Between two classes: 1.1e12 GPU-seconds are a thousand GPUs for 35 years; the time of the year
2200 is 7e9 s. A double still tells a thousandth of a second apart there."""
GROUPS = 1 << 20
"""More than any order has groups: the largest gang."""


class Classes:
    """An order inside each class."""

    preempts = True

    def __init__(self, inner: Order) -> None:
        self._inner = inner
        self.name = f"priority:{inner.name}"

    def key(self, job: Job) -> float:
        return self._inner.key(job) + self._offset(job)

    def group(self, job: Job) -> int:
        return self._inner.group(job) - GROUPS * job.spec.priority

    def rank(self, job: Job) -> float:
        return self._inner.rank(job)

    def bound(self, job: Job, now_s: float) -> float:
        return self._inner.bound(job, now_s) + self._offset(job)

    def value(self, job: Job, now_s: float) -> float:
        return self._inner.value(job, now_s) + self._offset(job)

    def changes_at(self, job: Job) -> float:
        return self._inner.changes_at(job)

    def advance(self, job: Job) -> None:
        self._inner.advance(job)

    def promoted_at(self, job: Job) -> float:
        return self._inner.promoted_at(job)

    def promote(self, job: Job) -> None:
        self._inner.promote(job)

    def learn(self, job: Job, total_s: float) -> None:
        self._inner.learn(job, total_s)

    @staticmethod
    def _offset(job: Job) -> float:
        return -APART * job.spec.priority
