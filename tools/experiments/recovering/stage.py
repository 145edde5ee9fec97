"""One run, phase by phase, on a cluster that is made for it and removed."""

from __future__ import annotations

from collections.abc import Callable

from tools.experiments.recovering import comeback, loss
from tools.experiments.recovering.accounts import Account
from tools.experiments.recovering.plan import Plan
from tools.experiments.recovering.ranks import Ranks
from tools.experiments.recovering.scene import Scene
from tools.hosts.cluster import Cluster


def perform(plan: Plan, report: Callable[[str], None]) -> Account:
    """From nothing to nothing. Raises `CacheXError` for what prevents it."""
    account = Account(plan)
    cluster = Cluster(nodes=plan.nodes, pfs=plan.pfs, replicas=plan.replicas)
    with account.phase("cluster up"):
        cluster.up()
    try:
        _perform(Scene(plan, cluster, account, report))
    finally:
        with account.phase("cluster down"):
            cluster.down()
    return account


def _perform(scene: Scene) -> None:
    scene.work.mkdir()
    expected = loss.uninterrupted(scene)
    ranks = Ranks(scene.work / "training")
    try:
        loss.train_and_save(scene, ranks)
        loss.lose_hosts(scene)
    finally:
        ranks.end()
    scene.compare_losses(ranks, expected, range(1, scene.plan.steps_before + 1))
    loss.await_copies(scene)
    on = scene.survivors[0]
    scene.account.recovered_on = on.name
    comeback.into_mount(scene, on)
    comeback.to_directory(scene, on)
    comeback.go_on(scene, on, expected)
    comeback.at_source(scene, on)
