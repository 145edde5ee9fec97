"""The pyfuse3 operations: each unpacks a request, lets one part answer, and packs the reply.

An exception other than FUSEError in a handler ends the whole mount in pyfuse3; so every handler
goes through `guarded`: an OSError becomes its number, anything else EIO for that one call, with
its traceback in the log.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar

import pyfuse3

from cachexfs.durability.actions import Attributes, Slot
from cachexfs.durability.states import State
from cachexfs.measurements.openings import Openings
from cachexfs.mount import attributes
from cachexfs.mount.descriptors import inode_of
from cachexfs.mount.errnos import answer
from cachexfs.mount.files import OpenFiles
from cachexfs.mount.job import job_of
from cachexfs.mount.listing import Line, Listings
from cachexfs.mount.names import Caller, Names
from cachexfs.mount.ports import Alone, Link, NoLink, Safety, Source, Visibility
from cachexfs.mount.standing import Standing
from cachexfs.mount.view import View
from cachexfs.mount.xattrs import Xattrs
from cachexfs.ram.attributes import Changes, apply
from cachexfs.ram.node import HIDDEN, ROOT, Node
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


_NO_LINK = NoLink()


def guarded(handler: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """A handler whose exceptions become errnos, whatever they are."""
    name = handler.__name__

    @functools.wraps(handler)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        link: Link = getattr(args[0], "kernel_link", _NO_LINK) if args else _NO_LINK
        link.begin(name)
        try:
            return await handler(*args, **kwargs)
        except pyfuse3.FUSEError:
            raise
        except OSError as error:
            raise pyfuse3.FUSEError(error.errno or errno.EIO) from None
        except Exception:
            log.exception("%s failed; the program is told EIO", name)
            raise pyfuse3.FUSEError(errno.EIO) from None
        finally:
            link.kick()

    return call


class Operations(pyfuse3.Operations):
    """The mount as pyfuse3 wants it."""

    supports_dot_lookup = False
    enable_writeback_cache = False

    def __init__(
        self,
        tree: Tree,
        tier: Tier,
        source: Source,
        safety: Safety,
        view: View,
        files: OpenFiles,
        names: Names,
        xattrs: Xattrs,
        fsync_level: State,
        visibility: Visibility | None = None,
        openings: Openings | None = None,
    ) -> None:
        super().__init__()
        self.kernel_link: Link = NoLink()
        self._tree = tree
        self._tier = tier
        self._source = source
        self._safety = safety
        self._view = view
        self._files = files
        self._names = names
        self._xattrs = xattrs
        self._listings = Listings(view)
        self.standing = Standing(tree, view)
        self._fsync_level = fsync_level
        self._visibility: Visibility = visibility or Alone()
        self._openings = openings or Openings()
        self._last_statvfs: os.statvfs_result | None = None
        self._made: set[int] = set()
        """Directories that were made here, as long as the kernel knows them: the peers do too."""

    # --- names ----------------------------------------------------------------------------------

    @guarded
    async def lookup(
        self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        with self._openings.question(ctx.pid, ("a name in", parent_inode)):
            return await self._looked_up(parent_inode, name, ctx)

    async def _looked_up(
        self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        found = await self._view.child(parent_inode, name, ctx.pid)
        self.standing.looked_up(found.node)
        return await self._counted(found.node, found.status, ctx.pid)

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for ino, count in inode_list:
            if (node := self._tree.nodes.get(ino)) is not None:
                node.lookups = max(0, node.lookups - count)
                self._made.discard(ino if node.lookups == 0 else 0)
                self._drop_if_unused(node)

    @guarded
    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: pyfuse3.RequestContext
    ) -> tuple[pyfuse3.FileInfo, pyfuse3.EntryAttributes]:
        slot = Slot(parent_inode, name)
        self._refuse_hidden(name)
        request, opening = self.kernel_link.request, self._openings.begun(ctx.pid)
        if (made := await self._made_before(slot)) is not None:
            return await self._files.open(made, flags, request.unique), await self._counted(made)
        with self._tree.transaction():
            node, fd = self._names.create(slot, mode, _caller(ctx))
            opened = self._files.created(node, fd, flags, request.unique)
        self._openings.opened(node.ino, opening)
        return opened, await self._counted(node)

    @guarded
    async def mknod(
        self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        slot = Slot(parent_inode, name)
        self._refuse_hidden(name)
        node = await self._made_before(slot)
        node = node or await self._names.mknod(slot, mode, rdev, _caller(ctx))
        return await self._counted(node)

    @guarded
    async def mkdir(
        self, parent_inode: int, name: bytes, mode: int, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        slot = Slot(parent_inode, name)
        self._refuse_hidden(name)
        if (made := await self._made_before(slot)) is not None:
            return await self._counted(made)
        node, status = await self._names.mkdir(slot, mode, _caller(ctx))
        self._made.add(node.ino)
        await self._visibility.told()
        return await self._counted(node, status)

    @guarded
    async def symlink(
        self, parent_inode: int, name: bytes, target: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        slot = Slot(parent_inode, name)
        self._refuse_hidden(name)
        node = await self._made_before(slot)
        node = node or await self._names.symlink(slot, target, _caller(ctx))
        await self._visibility.told()
        return await self._counted(node)

    @guarded
    async def link(
        self, inode: int, new_parent_inode: int, new_name: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        self._refuse_hidden(new_name)
        node, slot = self._view.node(inode), Slot(new_parent_inode, new_name)
        if await self._made_before(slot) is None:
            await self._names.link(node, slot, _caller(ctx))
            await self._visibility.told()
        return await self._counted(node)

    @guarded
    async def unlink(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        slot = Slot(parent_inode, name)
        if await self._gone_before(slot):
            self._names.was_unlinked(slot)
        else:
            await self._names.unlink(slot, _caller(ctx))
            await self._visibility.told()

    @guarded
    async def rmdir(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        slot = Slot(parent_inode, name)
        if not await self._gone_before(slot):
            await self._names.rmdir(slot, _caller(ctx))
            await self._visibility.told()

    @guarded
    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: pyfuse3.RequestContext,
    ) -> None:
        self._refuse_hidden(name_new)
        old, new = Slot(parent_inode_old, name_old), Slot(parent_inode_new, name_new)
        exchange = self.kernel_link.request.unique if flags & pyfuse3.RENAME_EXCHANGE else 0
        if await self._gone_before(old):
            await self._names.was_renamed(old, new)
        else:
            await self._names.rename(old, new, flags, _caller(ctx), exchange)
            await self._visibility.told()

    # A resent request may have been carried out by a daemon that died before it could reply. The
    # kernel has held the directory's lock all the time: what it wanted made was not there before,
    # and what it wanted gone was.

    async def _made_before(self, slot: Slot) -> Node | None:
        return await self._view.find(*slot) if self.kernel_link.request.is_resent else None

    async def _gone_before(self, slot: Slot) -> bool:
        return self.kernel_link.request.is_resent and await self._view.find(*slot) is None

    @guarded
    async def readlink(self, inode: int, ctx: pyfuse3.RequestContext) -> bytes:
        node = self._view.node(inode)
        return node.target or await self._source.readlink(node)

    # --- attributes -----------------------------------------------------------------------------

    @guarded
    async def getattr(self, inode: int, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        with self._openings.question(ctx.pid, ("attributes of", inode)):
            return await self._view.attributes(self._view.named(inode), pid=ctx.pid)

    @guarded
    async def setattr(
        self,
        inode: int,
        attr: pyfuse3.EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: int | None,
        ctx: pyfuse3.RequestContext,
    ) -> pyfuse3.EntryAttributes:
        node = self._view.node(inode)
        if fields.update_size:
            await self._files.truncate(node, attr.st_size)
        changes = attributes.wanted(attr, fields)
        if changes != Changes():
            await self._change(node, changes)
        await self._visibility.told()
        return await self._view.attributes(node)

    async def _change(self, node: Node, changes: Changes) -> None:
        await self._names.take_over(node, node.job)
        if node.blob is not None:
            self._files.set_ids.distrust(node)
            apply(str(self._tier.path(node.blob)), changes)
            self._files.set_ids.trust(node)
            self._bring_up_to_date(node)
        elif not await self._changed_at_once(node, changes):
            attributes.take_changes(node, changes, time.time_ns())
            node.ahead = node.place is not None
            self._tree.save(node)
            self._bring_up_to_date(node)

    async def _changed_at_once(self, node: Node, changes: Changes) -> bool:
        """Change attributes on the shared file system, unless it is ill or has no such object."""
        if node.ino != ROOT and (node.place is None or node.ahead):
            return False
        try:
            status = await self._source.change(node, changes)
        except OSError as error:
            if node.ino == ROOT or not node.mode or not self._source.is_trouble(error):
                raise
            return False
        attributes.take_status(node, status)
        self._view.was_changed(node)
        if node.life is not None or node.ino in self._made or self._tree.holds_ours(node):
            self._safety.tell_peers(Attributes(node.ino))
        return True

    def _bring_up_to_date(self, node: Node) -> None:
        """What is on its way, or there, follows. An open file takes its attributes along later."""
        if node.names and node.state is not State.OPEN:
            self._safety.perform(node.job, Attributes(node.ino))

    @guarded
    async def getxattr(self, inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> bytes:
        return await self._xattrs.get(self._view.node(inode), name)

    @guarded
    async def listxattr(self, inode: int, ctx: pyfuse3.RequestContext) -> Sequence[bytes]:
        return await self._xattrs.names(self._view.node(inode))

    @guarded
    async def setxattr(
        self, inode: int, name: bytes, value: bytes, ctx: pyfuse3.RequestContext
    ) -> None:
        node = self._view.node(inode)
        await self._files.take_over(node)
        if await self._xattrs.set(node, name, value):
            self._bring_up_to_date(node)

    @guarded
    async def removexattr(self, inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        node, is_resent = self._view.node(inode), self.kernel_link.request.is_resent
        try:
            is_own = await self._xattrs.set(node, name, None)
        except OSError as error:
            if is_resent and error.errno == errno.ENODATA:
                return  # by the daemon that died
            raise
        if is_own:
            self._bring_up_to_date(node)

    @guarded
    async def statfs(self, ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        try:
            self._last_statvfs = await self._source.statvfs()
        except OSError:
            if self._last_statvfs is None:
                raise
        return _statvfs(self._last_statvfs)

    # --- files ----------------------------------------------------------------------------------

    @guarded
    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        node, opening = self._view.named(inode), self._openings.begun(ctx.pid)
        request = self.kernel_link.request
        if not request.is_resent:  # then it may be counted as open already
            await self.standing.check(node, ctx.pid)
        if flags & os.O_ACCMODE != os.O_RDONLY:
            node.job = job_of(ctx.pid)
        try:
            opened = await self._files.open(node, flags, request.unique)
        except FileNotFoundError:  # removed by another node; something else may have the name now
            raise answer(errno.ESTALE) from None
        if flags & os.O_TRUNC:  # its capture has begun
            self._openings.opened(node.ino, opening)
        return opened

    @guarded
    async def read(self, fh: int, off: int, size: int) -> bytes:
        return await self._files.read(fh, off, size)

    @guarded
    async def write(self, fh: int, off: int, buf: bytes) -> int:
        return await self._files.write(fh, off, buf)

    @guarded
    async def flush(self, fh: int) -> None:
        self._files.flush(fh)
        if inode_of(fh)[1]:  # it may have been written
            await self._visibility.told()

    @guarded
    async def release(self, fh: int) -> None:
        self._files.release(fh, self.kernel_link.request.unique)

    @guarded
    async def fsync(self, fh: int, datasync: bool) -> None:
        node = self._view.node(inode_of(fh)[0])
        self._files.passthrough.before_settling(node)
        self._safety.settled(node, start=False)
        await self._visibility.told()
        self._safety.settled(node)  # not before: what sets off sums the file, beside who waits here
        await self._safety.wait(node, self._fsync_level)

    # --- directories ----------------------------------------------------------------------------

    @guarded
    async def opendir(self, inode: int, ctx: pyfuse3.RequestContext) -> int:
        return self._view.node(inode).ino  # the handle: it means the same to the next daemon

    @guarded
    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        for line in await self._listings.after(fh, start_id):
            if not await self._replied(token, line):
                return

    async def _replied(self, token: pyfuse3.ReaddirToken, line: Line) -> bool:
        node = line.found.node
        try:
            entry = await self._view.attributes(node, line.found.status)
        except OSError:
            return True  # it went away since the snapshot: leave it out
        if not pyfuse3.readdir_reply(token, line.name, entry, line.position):
            return False
        self._tree.nodes.setdefault(node.ino, node).lookups += 1
        return True

    @guarded
    async def releasedir(self, fh: int) -> None:
        self._listings.close(fh)

    @guarded
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        for binding in self._tree.bindings_in(fh).values():
            node = self._tree.nodes.get(binding.ino)
            if node is not None and node.state is not State.OPEN:
                await self._safety.wait(node, self._fsync_level)

    # --- bookkeeping ----------------------------------------------------------------------------

    async def _counted(
        self, node: Node, status: os.stat_result | None = None, pid: int = 0
    ) -> pyfuse3.EntryAttributes:
        """The attributes for a reply by which the kernel comes to know the node."""
        entry = await self._view.attributes(node, status, pid)
        self._tree.nodes.setdefault(node.ino, node).lookups += 1
        return entry

    def _drop_if_unused(self, node: Node) -> None:
        if node.lookups or node.opens or node.ino == ROOT:
            return
        if self._tree.holds_ours(node) or self._tree.bindings_in(node.ino):
            return
        if node.life is not None:
            self._files.bury_if_unused(node)
        elif not node.ahead and not any(self._tree.binding(slot) for slot in node.names):
            self._tree.drop(node)

    def _refuse_hidden(self, name: bytes) -> None:
        if name.startswith(HIDDEN):
            raise answer(errno.EPERM)


def _caller(ctx: pyfuse3.RequestContext) -> Caller:
    return Caller(ctx.uid, ctx.gid, job_of(ctx.pid))


def _statvfs(values: os.statvfs_result) -> pyfuse3.StatvfsData:
    data = pyfuse3.StatvfsData()
    for name in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail"):
        setattr(data, name, getattr(values, name))
    for name in ("f_files", "f_ffree", "f_favail", "f_namemax"):
        setattr(data, name, getattr(values, name))
    return data
