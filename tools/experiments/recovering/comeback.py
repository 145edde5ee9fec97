"""The second half: what was lost comes back on another host, and training goes on."""

from __future__ import annotations

import json

from tools.experiments.recovering.ranks import Ranks
from tools.experiments.recovering.scene import RUN, STARTS_S, Scene
from tools.hosts.errors import ClusterError
from tools.hosts.host import Host

RECOVERS_S = 120.0
DURABLE_S = 120.0


def into_mount(scene: Scene, on: Host) -> None:
    """`cachexfs recover MOUNTPOINT`, and every byte compared in the mount."""
    scene.report(f"{on.name} recovers into its mount")
    with scene.account.phase("recover into the mount"):
        done = on.cachexfs("recover", on.mountpoint, "--json", check=False, timeout_s=RECOVERS_S)
    told = json.loads(done.stdout or "{}")
    count = f"{len(told.get('recovered', []))} recovered, {len(told.get('present', []))} present"
    scene.account.check(
        "recover into the mount", done.returncode == 0, "; ".join([count, *_said(done.stderr)])
    )
    with scene.account.phase("read all of it in the mount"):
        scene.compare("in the mount", on, on.mountpoint / scene.checkpoint, scene.written)


def to_directory(scene: Scene, on: Host) -> None:
    """`cachexfs recover --to DIR`, and every byte compared there."""
    scene.report(f"{on.name} recovers into a directory")
    to = scene.work / "to"
    arguments = ("--to", to, "-c", on.config, "--json")
    with scene.account.phase("recover --to a directory"):
        done = on.cachexfs("recover", *arguments, check=False, timeout_s=RECOVERS_S)
    said = "; ".join(_said(done.stderr))
    scene.account.check("recover --to", done.returncode == 0, said)
    scene.compare("in the directory", on, to / scene.checkpoint, scene.written)


def _said(stderr: str) -> list[str]:
    return [line for line in stderr.strip().splitlines() if "attempts to connect" not in line]


def go_on(scene: Scene, on: Host, expected: dict[int, float]) -> None:
    """Fewer ranks load it with DCP in the mount and train to the last step."""
    plan = scene.plan
    scene.report(f"{plan.resumed_ranks} ranks on {on.name} load it and go on")
    ranks = Ranks(scene.work / "resumed")
    errand = scene.errand(
        ranks, on, count=plan.resumed_ranks, world=plan.resumed_ranks, address=on.address,
        until=plan.last_step, resume=True,
    )  # fmt: skip
    try:
        with scene.account.phase("load and train on"):
            ranks.start(on, errand)
            ranks.wait_until_said("done", plan.resumed_ranks, STARTS_S)
    except ClusterError as error:
        scene.account.check("training goes on", False, str(error))
        return
    finally:
        ranks.end()
    loaded = max(each["loaded_s"] for each in ranks.heard("loaded_s"))
    scene.account.seconds["of that, DCP load"] = loaded
    scene.compare_losses(ranks, expected, range(plan.steps_before + 1, plan.last_step + 1))


def at_source(scene: Scene, on: Host) -> None:
    """When the shared file system answers again, the checkpoint ends there, whole."""
    scene.report("the shared file system answers again")
    late = []
    with scene.account.phase("durable once the source answers"):
        scene.cluster.unblock_pfs()
        for host in scene.survivors:
            limit = ("--timeout", f"{DURABLE_S:.0f}s")
            run = host.mountpoint / RUN
            done = host.cachexfs(
                "wait", run, "--for", "durable", *limit, check=False, timeout_s=DURABLE_S + 10
            )
            late += [f"{host.name}: {done.stderr.strip()}"] if done.returncode else []
    scene.account.check("what the survivors have becomes durable", not late, "; ".join(late))
    scene.compare("on the source", on, on.source / scene.checkpoint, scene.written)
