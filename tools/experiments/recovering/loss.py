"""The first half: ranks train and save through the mounts, and hosts are lost."""

from __future__ import annotations

from tools.experiments.recovering.plan import METADATA, Errand
from tools.experiments.recovering.ranks import Ranks
from tools.experiments.recovering.scene import RUN, STARTS_S, Scene, losses, name_of, until
from tools.hosts.host import Host
from tools.hosts.spec import address

SAVES_S = 120.0
COPIES_S = 60.0
"""A partner counts as down after 3 s without a connection (`peers.sender`)."""
NEVER = 1_000_000
"""Steps: the ranks train on until they die."""


def uninterrupted(scene: Scene) -> dict[int, float]:
    """The losses of a run in one process, on no host, that nothing ever happens to."""
    scene.report("the uninterrupted run, in one process")
    ranks = Ranks(scene.work / "reference")
    until_step = scene.plan.last_step
    try:
        with scene.account.phase("uninterrupted run"):
            ranks.start_here(scene.errand(ranks, address="127.0.0.1", link="lo", until=until_step))
            ranks.wait_until_said("done", 1, STARTS_S)
    finally:
        ranks.end()
    return losses(ranks)


def train_and_save(scene: Scene, ranks: Ranks) -> None:
    """Up to the moment when every file is safe at a peer."""
    plan, hosts = scene.plan, scene.cluster.hosts
    scene.report(f"{plan.ranks} ranks on {plan.nodes} hosts train")
    hosts[0].exec(["mkdir", hosts[0].mountpoint / RUN])
    for host in hosts:  # a job looks at its directory; what was seen is remembered
        host.exec(["ls", host.mountpoint / RUN])
    with scene.account.phase("training up to the save"):
        for host in hosts:
            ranks.start(host, _training(scene, ranks, host))
        ranks.wait_until_said("ready", plan.ranks, STARTS_S)
    if plan.silent == "save":
        scene.fall_silent()
    scene.report("they save")
    (ranks.told / "save").touch()
    ranks.wait_until_said("saved_s", plan.ranks, SAVES_S)
    ranks.wait_until_said("file", plan.ranks + 1, SAVES_S)
    scene.account.seconds["DCP save"] = max(each["saved_s"] for each in ranks.heard("saved_s"))
    _note_written(scene, ranks)
    _wait_until_replicated(scene)


def _training(scene: Scene, ranks: Ranks, host: Host) -> Errand:
    plan, count = scene.plan, scene.plan.ranks_a_host
    return scene.errand(
        ranks, host, first=(host.number - 1) * count, count=count, world=plan.ranks,
        address=address("peers", 1), until=NEVER, save_at=plan.steps_before,
    )  # fmt: skip


def _note_written(scene: Scene, ranks: Ranks) -> None:
    account, plan = scene.account, scene.plan
    scene.written = {each["file"]: each for each in ranks.heard("file")}
    account.files = len(scene.written)
    account.size_bytes = sum(each["size_bytes"] for each in scene.written.values())
    account.check(
        f"{plan.ranks} shards and {METADATA} were written",
        sorted(scene.written) == sorted(plan.files),
    )


def _wait_until_replicated(scene: Scene) -> None:
    plan, hosts = scene.plan, scene.cluster.hosts
    with scene.account.phase("wait --for replicated"):
        for host in hosts:
            limit = ("--timeout", f"{SAVES_S:.0f}s")
            run = host.mountpoint / RUN
            host.cachexfs("wait", run, "--for", "replicated", *limit, timeout_s=SAVES_S + 10)
    states = [file["state"] for host in hosts for file in scene.written_on(host)]
    told = f"{states.count('replicated')} replicated, {states.count('durable')} durable"
    if plan.silent == "save":
        what, allowed = "every file was at a peer, and none on the source", {"replicated"}
    else:
        what, allowed = "every file was at a peer or on the source", {"replicated", "durable"}
    scene.account.check(what, set(states) <= allowed and len(states) == len(plan.files), told)


def lose_hosts(scene: Scene) -> None:
    """The host that wrote the metadata, and then whoever holds a copy of it, at the same time."""
    hosts, first = scene.cluster.hosts, scene.cluster.host(1)
    (metadata,) = (file for file in scene.written_on(first) if name_of(file) == METADATA)
    holder = metadata["replicas"][:1]
    others = sorted(hosts[1:], key=lambda host: host.name not in holder)
    scene.victims = [first, *others][: scene.plan.lost]
    scene.survivors = [host for host in hosts if host not in scene.victims]
    scene.account.lost = [host.name for host in scene.victims]
    scene.report(f"lost, with memory and disks: {', '.join(scene.account.lost)}")
    with scene.account.phase("kill and wipe"):
        for host in scene.victims:
            host.kill()
        for host in scene.victims:
            host.wipe()
    if scene.plan.silent == "kill":
        scene.fall_silent()


def await_copies(scene: Scene) -> None:
    """What the lost hosts held for others is copied to a peer that lives.

    Of files that are durable too, some seconds later (`cachexfs.peers.mending`); not waited for,
    so that they must be found where they are by then: in the memory of the hosts that are left.
    """
    if not scene.plan.all_from_peers or scene.plan.silent == "kill":
        return
    scene.report("the copies that the lost hosts held are made again")
    alive = {host.name for host in scene.survivors}

    def held() -> bool:
        files = (file for host in scene.survivors for file in scene.written_on(host))
        return all(alive & set(file["replicas"]) for file in files)

    with scene.account.phase("copies made again"):
        until(held, "the copies", COPIES_S)
