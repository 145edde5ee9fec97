"""GPUs that are kept for a job are there when its victims are gone, in whatever order they go."""

from __future__ import annotations

from lazerd.model.cluster import Cluster
from lazerd.model.job import Job, JobSpec
from lazerd.policy.promises import Promises


def job(number: int, gpus: int) -> Job:
    made = Job(JobSpec(str(number), gpus, 0.0), number)
    made.placement = ((0, gpus),)
    return made


def leave(cluster: Cluster, victim: Job) -> None:
    cluster.let_go(victim.placement)


def gone(cluster: Cluster, promises: Promises, victim: Job) -> None:
    cluster.gone(victim.placement)
    promises.left(victim)


def test_free_gpus_of_a_promise_are_not_lent_against_what_leaves_later() -> None:
    """Of 16 GPUs 4 are free, A holds 4 and B 8.

    A goes for P, which needs 8: the 4 free ones and A's. B goes for Q, which needs 4. What B frees
    beside that is not there before P is due, so nobody may have the 4 free ones meanwhile.
    """
    cluster = Cluster.pool(16)
    promises = Promises(cluster)
    a, b, p, q = job(1, 4), job(2, 8), job(3, 8), job(4, 4)
    cluster.take(a.placement)
    cluster.take(b.placement)
    leave(cluster, a)
    promises.make(p, p.placement, [a])
    leave(cluster, b)
    promises.make(q, q.placement, [a, b])
    assert cluster.spare_soon() == 4, "of B's eight, once it is gone"
    assert cluster.spare_now() == 0
    gone(cluster, promises, a)
    assert [ready for ready, _ in promises.ready()] == [p]
    promises.withdraw(p)
    cluster.take(p.placement)
    gone(cluster, promises, b)
    assert [ready for ready, _ in promises.ready()] == [q]
    assert cluster.spare_now() == 4


def test_what_a_promise_does_not_need_is_lent_at_once() -> None:
    """Of 12 GPUs 4 are free; A's 8 are all that P needs."""
    cluster = Cluster.pool(12)
    promises = Promises(cluster)
    a, p = job(1, 8), job(2, 8)
    cluster.take(a.placement)
    leave(cluster, a)
    promises.make(p, p.placement, [a])
    assert cluster.spare_now() == 4
    cluster.take(((0, 4),))
    gone(cluster, promises, a)
    promises.withdraw(p)
    cluster.take(p.placement)
    assert cluster.free == [0]
