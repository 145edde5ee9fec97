"""Composition root of a mount: makes the parts, introduces them, opens the nursery. No logic."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import secrets
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from cachexfs import mountstate
from cachexfs.client import SOCKET_NAME
from cachexfs.clock import Clock
from cachexfs.config import ADOPT_AFTER_S, Config, read_secret
from cachexfs.control import server
from cachexfs.control.adopting import Adopter, TreeSink
from cachexfs.control.checker import Checker
from cachexfs.control.foresight import Foresight
from cachexfs.control.reporter import Facts, Reporter
from cachexfs.control.restoring import Restorer
from cachexfs.control.verbs import Verbs
from cachexfs.durability.states import LEVELS, State
from cachexfs.errors import CacheXError
from cachexfs.measurements.keeper import Keeper
from cachexfs.measurements.legs import Legs
from cachexfs.measurements.openings import Openings
from cachexfs.mount.files import OpenFiles
from cachexfs.mount.names import Names
from cachexfs.mount.operations import Operations
from cachexfs.mount.session import LinkedSession, PlainSession
from cachexfs.mount.view import View
from cachexfs.mount.xattrs import Xattrs
from cachexfs.mountstate import HANDED_OVER, Wanted
from cachexfs.peers import adoption, members, tls
from cachexfs.peers.membership import Membership, resolve
from cachexfs.peers.presence import Presence
from cachexfs.peers.replicator import NoPartners, Replicator
from cachexfs.pfs.directories import Root, open_root
from cachexfs.pfs.fence import SWEEP_EVERY_S, Fence
from cachexfs.pfs.health import is_trouble
from cachexfs.pfs.heart import Heart
from cachexfs.pfs.landmark import Landmark
from cachexfs.pfs.problems import PublishingProblems
from cachexfs.pfs.publisher import Publisher
from cachexfs.pfs.source import Source
from cachexfs.ram import tmpfs
from cachexfs.ram.journal import Journal
from cachexfs.ram.node import HIDDEN
from cachexfs.ram.prewarm import Prewarm
from cachexfs.ram.revive import revive, unfinished
from cachexfs.ram.room import Room
from cachexfs.ram.sums import Sums
from cachexfs.ram.tier import Tier, open_tier
from cachexfs.ram.tree import Tree
from cachexfs.tracker import Tracker
from cachexfs.ways import Ways

log = logging.getLogger(__name__)

OOM_SCORE = -900
"""The daemon holds the only copy of files: it dies last (proc(5), oom_score_adj)."""

_INIT = "fuse_init "
"""Key in the journal, before the mount's id: the kernel's INIT request, for the daemon that takes
the mount over."""


async def run(config: Config, wanted: Wanted, ready: Callable[[], None]) -> None:
    """Serve a mount until it is unmounted. `ready` is called when it answers.

    Raises `CacheXError` when it cannot be; then nothing is left behind.
    """
    config = resolve(config)
    state = mountstate.directory_of(Path(config.node.state_dir), str(wanted.mountpoint))
    mountstate.prepare(state)
    lock = mountstate.lock(state)
    secret = read_secret(config) if config.has_cluster else b""
    root = await _root_of(wanted.source, config.mount.pfs_timeout)
    tier = open_tier(state, config.ram_limit_bytes, huge_pages=config.ram.huge_pages)
    journal = Journal(tier.root / "journal.db")
    keeper = Keeper(state)
    keep = True  # until it is known that nothing in it is needed

    def serving() -> None:
        nonlocal keep
        keep = True  # whatever ends this daemon: another one goes on with what is there by then
        ready()

    try:
        keeper.open()
        mount = _compose(config, wanted, state, tier, journal, secret, keeper, root)
        keep = mount.has_unsafe_files()
        _protect()
        await mount.serve(serving)
        keep = mount.handover.has_begun or mount.has_unsafe_files()
    finally:
        keeper.close(orderly=not keep)
        journal.close()
        if not keep:
            tier.remove()
        os.close(lock)
    if mount.handover.has_begun:
        raise SystemExit(HANDED_OVER)


def _compose(
    config: Config,
    wanted: Wanted,
    state: Path,
    tier: Tier,
    journal: Journal,
    secret: bytes,
    keeper: Keeper,
    root: Root | None,
) -> _Mount:
    epoch = _epoch(journal, wanted.source)
    tree = Tree(journal)
    is_taken_over = _saved_init(wanted, journal) is not None
    is_seen = root is not None or config.spill is not None
    blobs = None if is_seen else [node.blob for node in tree.nodes.values() if node.blob]
    # Before it is asked what is missing.
    tier.use_overflow(_overflow(config, wanted, epoch), blobs)
    missing = revive(tree, tier, is_taken_over=is_taken_over)
    source = Source(wanted.source, tree, config.mount.pfs_timeout, root)
    landmark = Landmark(source.directories, journal, tree)
    sums = Sums(tree, tier)
    tracker = Tracker(tree, tier, sums, config.replication.replicas)
    fence = _fence(config, wanted.source, tree.clock)
    heart = _heart(config, source, wanted.source, tree, epoch)
    publisher = Publisher(tree, tier, sums, journal, source, tracker, tag=epoch, fence=fence)
    replicator = _replicator(config, wanted, tree, tier, sums, journal, tracker, secret, landmark)
    tracker.publisher, tracker.replicator = publisher, replicator
    tree.is_spoken_of = publisher.has_pending
    copies = config.replication.replicas
    legs = Legs(keeper, copies, lambda: replicator.chosen)
    ways = _ways(config, legs, tree, replicator)
    tracker.ways = ways
    room = Room(tree, tier, tracker.evicted, tracker.is_busy)
    tracker.room = room
    prewarm = None
    if config.ram.prewarm and not tmpfs.has_huge_pages(tier.root):
        prewarm = tier.prewarm = tracker.prewarm = Prewarm(tier, tree.path_of)
    for node in missing:
        tracker.evicted(node)

    presence = _presence(config, wanted, tree, tier, sums, room, secret, landmark)
    membership = _membership(config, replicator, presence)
    fetching = presence.fetching if presence else None
    files = OpenFiles(tree, tier, source, tracker, room, fetching)
    if isinstance(replicator, Replicator):
        replicator.mender.contents = Restorer(tier, source, fetching)
    elsewhere = presence.elsewhere if presence else None
    view = View(tree, tier, source, files, room, elsewhere)
    names = Names(tree, tier, source, tracker, view, files, config.mount.pfs_timeout)
    socket = state / SOCKET_NAME
    xattrs = Xattrs(tree, source, tracker, str(wanted.mountpoint), str(socket))
    level = LEVELS[config.fsync_level]
    operations = Operations(
        tree, tier, source, tracker, view, files, names, xattrs, fsync_level=level,
        visibility=presence.registrar if presence else None,
        openings=Openings(legs.traffic_now, legs.opened),
    )  # fmt: skip
    if presence is not None:
        tracker.registrar = presence.registrar
        presence.registrar.give_up = names.superseded
    opened = _session(wanted, operations, files, tree, journal)
    facts = Facts(
        str(wanted.mountpoint), str(wanted.source), config.node.name, config.fsync_level, opened,
        Path(config.node.state_dir) / adoption.FILE_NAME,
    )  # fmt: skip
    problems = [
        room.problems,
        source.health.problems,
        PublishingProblems(publisher, tree).problems,
        replicator.problems,
        membership.problems,
        presence.registrar.problems if presence else lambda: [],
    ]
    reporter = Reporter(facts, tree, tier, replicator, tracker, problems, ways)
    sink = TreeSink(tree, tier, tracker, view, names, room, source)
    adopter = Adopter(config, str(wanted.source), partial(read_secret, config), sink)
    checker = Checker(tier, source, adopter.check_replica, tree.path_of)
    handover = Handover(opened)
    foresight = Foresight(config, tree, ways, keeper)
    verbs = Verbs(
        tree, view, room, tracker, publisher, reporter, checker, adopter, handover.begin, foresight
    )
    return _Mount(
        opened, handover, tree, tracker, publisher, replicator, membership, presence, fence, heart,
        source, view, socket, verbs, prewarm, ways, keeper, landmark,
    )  # fmt: skip


def _ways(config: Config, legs: Legs, tree: Tree, replicator: Replicator | NoPartners) -> Ways:
    policy, copies = config.policy, config.replication.replicas
    ways = Ways(
        legs, policy.path, policy.quantile, copies,
        lambda node: os.fsdecode(tree.path_of(node)),
    )  # fmt: skip
    ways.replicator = replicator
    return ways


def _session(
    wanted: Wanted, operations: Operations, files: OpenFiles, tree: Tree, journal: Journal
) -> LinkedSession | PlainSession:
    if wanted.held is None:
        source, mountpoint = str(wanted.source), str(wanted.mountpoint)
        return PlainSession(operations, source, mountpoint, wanted.options, wanted.plain_reason)
    key = _INIT + wanted.held.mount_id
    return LinkedSession(
        operations,
        files,
        tree,
        wanted.held.device,
        _saved_init(wanted, journal),
        lambda request: journal.set(key, request.hex()),
    )


def _saved_init(wanted: Wanted, journal: Journal) -> bytes | None:
    """What the kernel told the daemon before this one; None for a mount that is new."""
    saved = journal.get(_INIT + wanted.held.mount_id) if wanted.held else None
    return bytes.fromhex(saved) if saved is not None else None


class Handover:
    """Making way for another daemon."""

    def __init__(self, opened: LinkedSession | PlainSession) -> None:
        self._session = opened
        self.has_begun = False

    def begin(self) -> bool:
        """Stop serving soon, with the mount left in place; False when nobody holds it."""
        if isinstance(self._session, PlainSession):
            return False
        self.has_begun = True
        trio.lowlevel.current_trio_token().run_sync_soon(self._session.stop)
        return True


@dataclass(frozen=True)
class _Mount:
    """The parts that have tasks of their own."""

    session: LinkedSession | PlainSession
    handover: Handover
    tree: Tree
    tracker: Tracker
    publisher: Publisher
    replicator: Replicator | NoPartners
    membership: Membership
    presence: Presence | None
    fence: Fence | None
    heart: Heart | None
    source: Source
    view: View
    socket: Path
    verbs: Verbs
    prewarm: Prewarm | None
    ways: Ways
    keeper: Keeper
    landmark: Landmark

    async def serve(self, ready: Callable[[], None]) -> None:
        """Mount, and run every task until the file system is unmounted."""
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.publisher.run)
                if isinstance(self.replicator, Replicator):
                    await nursery.start(self.replicator.run)
                if self.presence is not None:
                    await nursery.start(self.presence.run)
                for node in unfinished(self.tree):
                    self.tracker.resume(node)
                for task in (
                    self.membership.run,
                    self.source.watch,
                    self._reach_root,
                    self.view.scout,
                    self.view.keep_up,
                    self.tracker.insist,
                    self.tracker.recheck,
                    self.ways.run,
                    self.keeper.run,
                ):
                    nursery.start_soon(task)
                if self.fence is not None:
                    nursery.start_soon(self.source.regularly, self.fence.mark, SWEEP_EVERY_S)
                if self.heart is not None:
                    nursery.start_soon(self.heart.run)
                if self.prewarm is not None:
                    nursery.start_soon(self.prewarm.run)
                nursery.start_soon(_until_told, self.session.stop)
                await nursery.start(partial(server.serve, self.socket, self.verbs.table()))
                await self.session.serve(ready)
                nursery.cancel_scope.cancel()
        finally:
            self.session.close()

    async def _reach_root(self) -> None:
        """The source may be silent when the mount begins."""
        await self.source.insist(self.source.directories.ensure_root)
        self.landmark.note()

    def has_unsafe_files(self) -> bool:
        """Whether the RAM tier or its journal is still needed."""
        unsafe = any(n.names and n.state < State.DURABLE for n in self.tree.captured())
        return unsafe or self.publisher.waiting() > 0


async def _until_told(stop: Callable[[], None]) -> None:
    """Stop serving at SIGTERM or SIGINT."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            stop()


async def _root_of(source: Path, timeout_s: float) -> Root | None:
    """The source, opened; None when it does not answer, or is ill. Raises `CacheXError`."""
    with trio.move_on_after(timeout_s):
        try:
            return await trio.to_thread.run_sync(open_root, source, abandon_on_cancel=True)
        except OSError as error:
            if not is_trouble(error):
                raise CacheXError(f"SOURCE {source}: {error.strerror}") from None
    log.warning("%s does not answer; it is waited for while the mount serves", source)
    return None


def _fence(config: Config, source: Path, clock: Clock) -> Fence | None:
    """Where others hold replicas, they may commit them too."""
    if not config.has_cluster:
        return None
    return Fence(source, config.node.name, _adopt_after_s(config) / 2, clock)


def _heart(config: Config, source: Source, root: Path, tree: Tree, tag: str) -> Heart | None:
    """Where others hold replicas, they look whether this mount is alive."""
    if not config.has_cluster:
        return None
    return Heart(source, root, tree, config.node.name, tag, _adopt_after_s(config))


def _adopt_after_s(config: Config) -> float:
    return config.peer.adopt_after if config.peer else ADOPT_AFTER_S


def _presence(
    config: Config,
    wanted: Wanted,
    tree: Tree,
    tier: Tier,
    sums: Sums,
    room: Room,
    secret: bytes,
    landmark: Landmark,
) -> Presence | None:
    """None for a mount that is alone: it asks nobody and tells nobody."""
    if not config.has_cluster or not config.members.visible:
        return None
    return Presence(
        config, tree, tier, sums, room, secret, volume=str(wanted.source), root_ino=landmark.ino
    )


def _membership(
    config: Config, replicator: Replicator | NoPartners, presence: Presence | None
) -> Membership:
    membership = Membership(config)
    if isinstance(replicator, Replicator):
        membership.listen(
            lambda found: replicator.members_changed(members.others(found, config.node.name))
        )
    if presence is not None:
        membership.listen(presence.members_changed)
    return membership


def _replicator(
    config: Config,
    wanted: Wanted,
    tree: Tree,
    tier: Tier,
    sums: Sums,
    journal: Journal,
    tracker: Tracker,
    secret: bytes,
    landmark: Landmark,
) -> Replicator | NoPartners:
    if not config.has_cluster or config.policy.path == "direct":
        return NoPartners()
    return Replicator(
        tree,
        tier,
        sums,
        journal,
        tracker,
        node=config.node.name,
        rack=config.node.rack,
        volume=str(wanted.source),
        root_ino=landmark.ino,
        partners=config.partners,
        copies=config.replication.replicas,
        secret=secret,
        ssl_context=tls.contexts(config.security).client,
        compression=config.replication.compression,
        chase=config.replication.chase,
    )


def _epoch(journal: Journal, source: Path) -> str:
    """The name of this RAM tier's life, given when its journal was made.

    Raises `CacheXError` when the tier holds files of another source.
    """
    known = journal.get("source")
    if known is not None and known != str(source) and journal.nodes():
        raise CacheXError(
            f"the RAM tier still holds files of {known}; mount that one here and let it finish"
        )
    journal.set("source", str(source))
    epoch = journal.get("epoch") or secrets.token_hex(4)
    journal.set("epoch", epoch)
    return epoch


def _overflow(config: Config, wanted: Wanted, epoch: str) -> Path:
    """Where files go that the RAM tier has no room for."""
    if config.spill is not None:
        return Path(config.spill.path) / epoch
    return wanted.source / (HIDDEN.decode() + f"overflow-{epoch}")


def _protect() -> None:
    """As many descriptors as the kernel allows, and the last place among the out-of-memory."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # of a lease that is broken while we look
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # a container may forbid it
            Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
