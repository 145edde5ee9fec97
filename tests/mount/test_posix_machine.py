"""The same random operations in the mount and in a plain directory.

A run is the same every time. For a longer search with other seeds:

    CACHEXFS_SOAK=5000 python -m pytest tests/mount/test_posix_machine.py -s --timeout=0

plays that many examples on each data path (`-k portable` for one), and prints a seed when one
fails; `--hypothesis-seed=N` repeats it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from cachexfs.client import of_path
from cachexfs.errors import CacheXError
from tests.cluster_of_nodes import DATA_PATHS, Node, nodes
from tests.mount.two_trees import (
    EXCHANGE,
    NOREPLACE,
    Tree,
    difference,
    outcome,
    renameat2,
    snapshot,
)

EXAMPLES = int(os.environ.get("CACHEXFS_SOAK", "200"))
SOAKING = "CACHEXFS_SOAK" in os.environ
STEPS = 40
PATIENCE_S = 5.0

NAMES = st.sampled_from(["a", "b", "c", "d", "d/a", "d/b", "e", "e/a"])
SLOTS = st.integers(0, 2)
DATA = st.binary(min_size=0, max_size=64) | st.integers(1, 5).map(lambda n: bytes([n]) * 5000 * n)
OFFSETS = st.sampled_from([0, 1, 100, 4096, 10_000, 200_000])
SIZES = st.sampled_from([0, 1, 50, 4096, 12_345])
TIMES = st.integers(1, 2**31 - 1).map(lambda s: s * 10**9 + 123_456_789)
XATTRS = st.sampled_from(["user.one", "user.two"])
ACCESS = st.sampled_from([os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
EXTRA = st.sampled_from(
    [0, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_CREAT | os.O_TRUNC, os.O_TRUNC, os.O_APPEND,
     os.O_CREAT | os.O_APPEND, os.O_NOFOLLOW, os.O_DIRECTORY]
)  # fmt: skip


def _step(frame: FrameType) -> str:
    values = {key: value for key, value in frame.f_locals.items() if key not in ("self", "call")}
    return f"{frame.f_code.co_name} {values!r:.100}"


class Posix(RuleBasedStateMachine):
    """Operations on both trees, compared one by one."""

    node: ClassVar[Node]
    plain_base: ClassVar[Path]
    numbers: ClassVar[Iterator[int]] = count()

    @initialize()
    def begin(self) -> None:
        """A fresh directory in each."""
        self.name = f"example-{next(self.numbers)}"
        self.mine = Tree(self.node.mountpoint / self.name)
        self.plain = Tree(self.plain_base / self.name)
        for tree in (self.mine, self.plain):
            tree.root.mkdir()
            tree.path("d").mkdir()
            tree.path("a").write_bytes(b"first")
            tree.path("d/a").write_bytes(b"second" * 1000)
        self.is_well, self.steps = True, list[str]()
        self.client, _ = of_path(str(self.node.mountpoint))

    def both(self, call: Callable[[Tree], Any]) -> Any:
        """Do it in both, and compare."""
        plain = outcome(lambda: call(self.plain))
        mine = outcome(lambda: call(self.mine))
        self.is_well = mine == plain
        self.steps.append(f"{_step(sys._getframe(1))} -> {plain!r:.60}")
        self.agree([] if mine == plain else [f"{mine!r} in the mount, {plain!r} in the plain one"])
        return mine

    def agree(self, differences: list[str]) -> None:
        """Fail with the steps before: what the publisher did meanwhile cannot be replayed."""
        self.is_well = self.is_well and not differences
        assert not differences, "\n".join([*differences, "after:", *self.steps])

    def drain(self) -> None:
        """Wait until the source has everything."""
        self.steps.append("drain")
        try:
            self.client.ask("drain", level="durable", timeout_s=PATIENCE_S, patience_s=40)
        except CacheXError as error:
            self.agree([str(error)])

    # --- open files -----------------------------------------------------------------------------

    @rule(slot=SLOTS, name=NAMES, access=ACCESS, extra=EXTRA, mode=st.sampled_from([0o644, 0o600]))
    def open(self, slot: int, name: str, access: int, extra: int, mode: int) -> None:
        self.both(lambda tree: tree.open(slot, name, access | extra, mode))

    @rule(slot=SLOTS, name=NAMES)
    def create(self, slot: int, name: str) -> None:
        self.both(lambda tree: tree.open(slot, name, os.O_RDWR | os.O_CREAT))

    @rule(slot=SLOTS)
    def close(self, slot: int) -> None:
        self.both(lambda tree: tree.close(slot))

    @rule(slot=SLOTS, data=DATA, offset=OFFSETS | st.none())
    def write(self, slot: int, data: bytes, offset: int | None) -> None:
        self.both(lambda tree: tree.write(slot, data, offset))

    @rule(slot=SLOTS, offset=OFFSETS, length=SIZES)
    def read(self, slot: int, offset: int, length: int) -> None:
        self.both(lambda tree: tree.read(slot, offset, length))

    @rule(slot=SLOTS, size=SIZES)
    def ftruncate(self, slot: int, size: int) -> None:
        self.both(lambda tree: os.ftruncate(tree.fd(slot), size))

    @rule(slot=SLOTS)
    def fsync(self, slot: int) -> None:
        self.both(lambda tree: os.fsync(tree.fd(slot)))

    @rule(slot=SLOTS)
    def fstat(self, slot: int) -> None:
        self.both(lambda tree: tree.fstat(slot))

    @rule(slot=SLOTS, mode=st.sampled_from([0o600, 0o640, 0o755]))
    def fchmod(self, slot: int, mode: int) -> None:
        self.both(lambda tree: os.fchmod(tree.fd(slot), mode))

    @rule(slot=SLOTS, data=DATA, offset=OFFSETS)
    def map_shared(self, slot: int, data: bytes, offset: int) -> None:
        self.both(lambda tree: tree.map_shared(slot, data, offset))

    @rule(slot=SLOTS)
    def map_private(self, slot: int) -> None:
        self.both(lambda tree: tree.map_private(slot))

    # --- files by path --------------------------------------------------------------------------

    @rule(name=NAMES, data=DATA)
    def save(self, name: str, data: bytes) -> None:
        self.both(lambda tree: tree.path(name).write_bytes(data))

    @rule(name=NAMES)
    def load(self, name: str) -> None:
        self.both(lambda tree: tree.content(name))

    @rule(name=NAMES, size=SIZES)
    def truncate(self, name: str, size: int) -> None:
        self.both(lambda tree: os.truncate(tree.path(name), size))

    @rule(name=NAMES, mode=st.sampled_from([0o600, 0o640, 0o755]))
    def chmod(self, name: str, mode: int) -> None:
        self.both(lambda tree: tree.path(name).chmod(mode))

    @rule(name=NAMES, at_ns=TIMES)
    def utime(self, name: str, at_ns: int) -> None:
        def call(tree: Tree) -> int:
            os.utime(tree.path(name), ns=(at_ns, at_ns))
            # A directory's time moves on with what is published in it.
            return tree.path(name).stat().st_mtime_ns if tree.path(name).is_file() else 0

        self.both(call)

    @rule(name=NAMES, key=XATTRS, value=st.binary(max_size=20))
    def setxattr(self, name: str, key: str, value: bytes) -> None:
        self.both(lambda tree: os.setxattr(tree.path(name), key, value))

    @rule(name=NAMES, key=XATTRS)
    def getxattr(self, name: str, key: str) -> None:
        self.both(lambda tree: os.getxattr(tree.path(name), key))

    @rule(name=NAMES)
    def listxattr(self, name: str) -> None:
        self.both(lambda tree: sorted(os.listxattr(tree.path(name))))

    @rule(name=NAMES, key=XATTRS)
    def removexattr(self, name: str, key: str) -> None:
        self.both(lambda tree: os.removexattr(tree.path(name), key))

    @rule(name=NAMES)
    def stat(self, name: str) -> None:
        self.both(lambda tree: tree.status(name))

    # --- names ----------------------------------------------------------------------------------

    @rule(old=NAMES, new=NAMES, flags=st.sampled_from([0, 0, 0, NOREPLACE, EXCHANGE]))
    def rename(self, old: str, new: str, flags: int) -> None:
        self.both(lambda tree: renameat2(tree.path(old), tree.path(new), flags))

    @rule(name=NAMES)
    def unlink(self, name: str) -> None:
        self.both(lambda tree: tree.path(name).unlink())

    @rule(old=NAMES, new=NAMES)
    def link(self, old: str, new: str) -> None:
        self.both(lambda tree: os.link(tree.path(old), tree.path(new), follow_symlinks=False))

    @rule(name=NAMES, to=NAMES)
    def symlink(self, name: str, to: str) -> None:
        self.both(lambda tree: tree.path(name).symlink_to(to))

    @rule(name=NAMES)
    def readlink(self, name: str) -> None:
        self.both(lambda tree: os.readlink(tree.path(name)))

    @rule(name=st.sampled_from(["d", "e", "d/b"]))
    def mkdir(self, name: str) -> None:
        self.both(lambda tree: tree.path(name).mkdir())

    @rule(name=NAMES)
    def rmdir(self, name: str) -> None:
        self.both(lambda tree: tree.path(name).rmdir())

    @rule(name=NAMES | st.just("."))
    def readdir(self, name: str) -> None:
        self.both(lambda tree: tree.names(name))

    # --- what only the mount has ----------------------------------------------------------------

    @rule()
    def wait_until_durable(self) -> None:
        """Everything that is closed gets to the source: then other ways are taken."""
        if not self.mine.open_files:
            self.drain()

    @rule(name=NAMES)
    def evict(self, name: str) -> None:
        """The RAM copy goes, if it may."""
        with contextlib.suppress(CacheXError):
            self.client.ask("evict", paths=[f"{self.name}/{name}"])
            self.steps.append(f"evict {name}")

    # --- checks ---------------------------------------------------------------------------------

    @rule()
    def compare(self) -> None:
        """All of both trees."""
        self.agree(difference(self.mine.snapshot(), self.plain.snapshot()))

    @invariant()
    def the_daemon_lives(self) -> None:
        assert os.path.ismount(self.node.mountpoint)

    def teardown(self) -> None:
        """Close everything; then the source must have all of it, as programs saw it."""
        if not hasattr(self, "mine"):
            return
        self.mine.close_all()
        self.plain.close_all()
        if not self.is_well:
            return
        mine = self.mine.snapshot()
        timed = self.mine.snapshot(times=True)
        self.agree(difference(mine, self.plain.snapshot()))
        self.drain()
        source = self.node.source / self.name
        self.agree(difference(timed, snapshot(source, times=True)))
        self.agree(difference(mine, self.mine.snapshot()))
        shutil.rmtree(self.mine.root)
        shutil.rmtree(self.plain.root)
        self.drain()
        assert not source.exists()


@pytest.fixture(
    scope="module", params=[pytest.param("passthrough", marks=pytest.mark.root), "portable"]
)
def one_mount(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Node]:
    base = tmp_path_factory.mktemp("posix")
    with nodes(base, extra=DATA_PATHS[request.param]) as (node,):
        node.mount()
        assert node.report()["data_path"] == request.param
        yield node
        print(node.log)
        assert "Traceback" not in node.log


@pytest.mark.fuse
@pytest.mark.timeout(0 if SOAKING else 300)
def test_the_mount_is_a_file_system(one_mount: Node) -> None:
    Posix.node = one_mount
    Posix.plain_base = one_mount.home / "plain"
    Posix.plain_base.mkdir()
    run_state_machine_as_test(
        Posix,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            derandomize=not SOAKING,
            print_blob=SOAKING,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
