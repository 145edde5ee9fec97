"""The demo's plot: a node dies with checkpoints that the shared storage never got.

Every sentence that states a fact is checked first; `NotTrue` says which one did not hold.
"""

from __future__ import annotations

import filecmp
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cachexfs.demo import losses
from cachexfs.demo.faults import Fault
from cachexfs.demo.mountpoints import is_mountpoint
from cachexfs.demo.node import Node
from cachexfs.demo.process import Child
from cachexfs.demo.sightings import Sightings
from cachexfs.demo.stage import Stage
from cachexfs.demo.waiting import claim
from cachexfs.units import format_duration, format_size

CHECKPOINTS = 6
KILLED_AFTER = 3
"""The node dies after this checkpoint, in the middle of the way to the next."""
PACE_S = 0.1
"""A step on node A takes at least so long: a real model's would, and there is time to look."""
SLOW_BYTES_PER_S = 1 << 20
LIMIT_S = 60.0
RUN = "run"


@dataclass(frozen=True)
class Plan:
    """How long the training is, and with what. A checkpoint every `every` steps."""

    steps: int
    torch: bool = False

    @property
    def every(self) -> int:
        return self.steps // CHECKPOINTS

    @property
    def killed_after(self) -> int:
        """The step of the last checkpoint that is out of node A when it dies."""
        return self.every * KILLED_AFTER

    def checkpoint(self, step: int) -> str:
        """The path of a checkpoint below the mount point."""
        return f"{RUN}/step-{step:06d}{'.pt' if self.torch else '.npz'}"

    def arguments(self, pace_s: float = 0.0) -> list[str]:
        """For the training program."""
        chosen = ["--steps", str(self.steps), "--every", str(self.every), "--pace", str(pace_s)]
        return [*chosen, "--torch"] if self.torch else chosen


@dataclass
class Story:
    """Tells the plot, one act after the other."""

    stage: Stage
    plan: Plan
    say: Callable[[str], None]
    reference: losses.Curve = field(default_factory=dict)
    seen: Sightings = field(default_factory=Sightings)

    def tell(self) -> None:
        """All of it. Raises `NotTrue`, `Interrupted`."""
        self.train_without_interruption()
        self.start_nodes()
        program = self.train_on_a()
        self.slow_the_storage_down(program)
        self.let_checkpoints_reach_b(program)
        self.lose_node_a(program)
        self.recover_on_b()
        self.resume_on_b()
        self.heal_the_storage()

    # --- the acts -------------------------------------------------------------------------------

    def train_without_interruption(self) -> None:
        """The yardstick."""
        begin = time.monotonic()
        program = self.stage.train("reference", self.stage.home / "plain", *self.plan.arguments())
        self._finish(program, "the uninterrupted run")
        self.reference = self._curve("reference")
        claim(len(self.reference) == self.plan.steps, "the uninterrupted run did all its steps")
        first, last = (losses.shown(self.reference, step) for step in (1, self.plan.steps))
        took = time.monotonic() - begin
        self.say(
            f"An uninterrupted run, in a plain directory, as the yardstick: {self.plan.steps} "
            f"steps in {took:.1f} s, loss {first} at first and {last} at the end."
        )

    def start_nodes(self) -> None:
        """Both nodes, each with its peer and its mount."""
        self.stage.storage.start()
        for node in (self.stage.a, self.stage.b):
            node.start_peer()
            node.start_mount()
        self.say(
            "Two nodes, A and B, mount the same shared storage through CacheX-FS; each keeps "
            "replicas for the other."
        )

    def train_on_a(self) -> Child:
        """The same program in A's mount; its first checkpoint becomes durable."""
        where = self.stage.a.mountpoint / RUN
        program = self.stage.train("a", where, *self.plan.arguments(PACE_S))
        self.say(
            f"The same program now trains on node A and writes a checkpoint into the mount every "
            f"{self.plan.every} steps. It knows nothing of CacheX-FS."
        )
        first = self.plan.checkpoint(self.plan.every)
        self._until_on_a(program, (first,), "durable")
        claim((self.stage.backing / first).is_file(), "a durable file is on the shared storage")
        self.say(f"  {first}: {self.seen.story(first)}.")
        return program

    def slow_the_storage_down(self, program: Child) -> None:
        """From now on nothing large gets through."""
        slow = Fault(ops=("write",), bytes_per_s=float(SLOW_BYTES_PER_S))
        self.stage.storage.set_fault(slow)
        self._alive(program)
        self.say(
            f"The shared storage becomes slow: {format_size(SLOW_BYTES_PER_S)} a second. "
            f"Training does not notice."
        )

    def let_checkpoints_reach_b(self, program: Child) -> None:
        """Until the checkpoint to recover is on B, and A is on its way to the next."""
        last = self.plan.checkpoint(self.plan.killed_after)
        self._until_on_a(program, (last, f"{RUN}/latest"), "replicated")
        self.stage.waiting.until(
            lambda: max(self._curve("a"), default=0) > self.plan.killed_after,
            "training on node A goes on",
            LIMIT_S,
        )
        states = {file["path"]: file for file in self._look(self.stage.a)}
        self._show(states.values())
        claim(states[last]["state"] == "replicated", f"{last} is replicated, and no safer")
        claim(not (self.stage.backing / last).exists(), f"{last} is not on the shared storage")
        self.say(
            f"  {last}: {self.seen.story(last)}. It is in A's RAM and on B's disk, and not on the "
            f"shared storage."
        )

    def lose_node_a(self, program: Child) -> None:
        """Kill -9 of everything, its RAM and its disk deleted, and the storage broken as well."""
        self._alive(program)
        program.send(signal.SIGKILL)
        self.stage.a.send(signal.SIGKILL)
        self.stage.storage.set_fault(Fault(errno="EIO"))
        program.end()
        self.stage.a.end()
        self.stage.a.wipe()
        claim(not is_mountpoint(self.stage.a.mountpoint), "node A's mount is gone")
        claim(not self.stage.a.state_dir.exists(), "node A's RAM tier is gone")
        claim(not self.stage.a.store.exists(), "node A's replica store is gone")
        claim(_is_unreadable(self.stage.shared), "the shared storage cannot be read")
        reached = max(self._curve("a"))
        self.say(
            f"Node A dies at step {reached}: kill -9 of the training program, the mount and the "
            f"peer; its RAM tier and its disk are deleted. At the same time the shared storage "
            f"breaks: every access answers EIO."
        )

    def recover_on_b(self) -> None:
        """Into B's mount, from B's replica store."""
        begin = time.monotonic()
        log = self.stage.home / "recover.log"
        program = Child("cachexfs", ["recover", self.stage.b.mountpoint], log)
        try:
            self._finish(program, "cachexfs recover")
        finally:
            program.end()
        last = self.plan.checkpoint(self.plan.killed_after)
        files = {file["path"]: file for file in self._look(self.stage.b)}
        claim(last in files, f"{last} is in node B's mount")
        pointer = (self.stage.b.mountpoint / RUN / "latest").read_text()
        claim(f"{RUN}/{pointer}" == last, f"`latest` names {last} on node B")
        self.say(
            f"`cachexfs recover` on node B: {program.last_words()} in "
            f"{format_duration(time.monotonic() - begin)}, every byte checked. "
            f"`latest` names {pointer}."
        )
        self._show(files.values())
        self.say(
            "  They are in B's RAM and on B's disk. That is `captured`: only another node would "
            "make it more, and there is none left."
        )

    def resume_on_b(self) -> None:
        """The same program in B's mount goes on, and gets what the yardstick got."""
        where = self.stage.b.mountpoint / RUN
        self._finish(self.stage.train("b", where, *self.plan.arguments()), "training on node B")
        claim(_is_unreadable(self.stage.shared), "the shared storage was broken all the time")
        on_a, on_b = self._curve("a"), self._curve("b")
        resumed = range(self.plan.killed_after + 1, self.plan.steps + 1)
        claim(sorted(on_b) == list(resumed), f"training went on at step {resumed.start}")
        for node, curve, steps in (("A", on_a, sorted(on_a)), ("B", on_b, list(resumed))):
            wrong = losses.difference(self.reference, curve, steps)
            claim(wrong is None, f"node {node}'s losses equal the uninterrupted run's ({wrong})")
        self.say(
            f"Training went on at step {resumed.start} on node B, to the end. All {len(resumed)} "
            f"losses equal the uninterrupted run's, bit by bit: {losses.shown(on_b, max(on_b))} "
            f"at step {max(on_b)}. The shared storage is still broken."
        )

    def heal_the_storage(self) -> None:
        """And everything gets there."""
        begin = time.monotonic()
        self.stage.storage.clear()
        paths = [self.plan.checkpoint(step) for step in self._kept_steps()] + [f"{RUN}/latest"]
        self.stage.waiting.until(
            lambda: self._all(self.stage.b, paths, "durable"), "all is durable", LIMIT_S
        )
        took = time.monotonic() - begin
        for path in paths:
            there, here = self.stage.backing / path, self.stage.b.mountpoint / path
            same = filecmp.cmp(there, here, shallow=False)
            claim(same, f"{path} is the same on the shared storage and in the mount")
        self._show(self._look(self.stage.b))
        self.say(
            f"The shared storage is well again: {took:.1f} s later everything is durable there, "
            f"byte by byte what node B sees."
        )

    # --- small steps ----------------------------------------------------------------------------

    def _kept_steps(self) -> range:
        return range(self.plan.every, self.plan.steps + 1, self.plan.every)

    def _curve(self, name: str) -> losses.Curve:
        return losses.parse(self.stage.losses(name).read_text())

    def _look(self, node: Node) -> list[dict[str, Any]]:
        return [file for file in node.ls(RUN) if "/tmp-" not in file["path"]]

    def _all(self, node: Node, paths: Sequence[str], level: str) -> bool:
        states = {file["path"]: file["state"] for file in self._look(node)}
        enough = ("durable",) if level == "durable" else ("replicated", "durable")
        return all(states.get(path) in enough for path in paths)

    def _until_on_a(self, program: Child, paths: Sequence[str], level: str) -> None:
        def reached() -> bool:
            self._alive(program)
            self.seen.note(_under_final_names(self.stage.a.ls(RUN)))
            return self._all(self.stage.a, paths, level)

        self.stage.waiting.until(reached, f"{paths[0]} is {level}", LIMIT_S)

    def _alive(self, program: Child) -> None:
        claim(program.exit_code is None, f"training goes on ({program.last_words()})")

    def _finish(self, program: Child, what: str) -> None:
        code = self.stage.waiting.until(
            lambda: None if program.exit_code is None else (program.exit_code,), what, LIMIT_S
        )
        claim(code == (0,), f"{what} succeeds ({program.last_words()})")

    def _show(self, files: Any) -> None:
        for file in files:
            where = f", also on {', '.join(file['replicas'])}" if file["replicas"] else ""
            self.say(
                f"    {file['state']:<10} {format_size(file['size_bytes']):>9}  {file['path']}, "
                f"{format_duration(file['age_s'])} old{where}"
            )


def _under_final_names(files: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A file that still has its temporary name is the same file."""
    return [{**file, "path": file["path"].replace("/tmp-", "/")} for file in files]


def _is_unreadable(directory: Path) -> bool:
    try:
        os.listdir(directory)
    except OSError:
        return True
    return False
