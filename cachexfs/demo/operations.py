"""The operations of the demo's storage: through the gate, then on the directory behind it."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileInfo, RequestContext, SetattrFields

from cachexfs.demo.backing import ROOT, Backing, rename
from cachexfs.demo.gate import Gate, answers

# fmt: off
_ATTRIBUTES = (
    "st_ino", "st_mode", "st_nlink", "st_uid", "st_gid", "st_rdev", "st_size", "st_blksize",
    "st_blocks", "st_atime_ns", "st_ctime_ns", "st_mtime_ns",
)
_STATFS = (
    "f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail",
    "f_namemax",
)
# fmt: on


class Storage(pyfuse3.Operations):
    """What pyfuse3 calls. File handles are descriptors; nothing is cached by the kernel."""

    def __init__(self, backing: Backing, gate: Gate) -> None:
        super().__init__()
        self._backing = backing
        self._gate = gate
        self._listings: dict[int, list[bytes]] = {}
        self._as_root = os.geteuid() == 0

    async def _inode(self, op: str, inode: int) -> None:
        await self._gate.enter(op, lambda: (self._backing.place(self._backing.fd(inode)),), 0)

    async def _entry(self, op: str, *entries: tuple[int, bytes]) -> None:
        def paths() -> tuple[str, ...]:
            return tuple(self._backing.place(self._backing.fd(at), name) for at, name in entries)

        await self._gate.enter(op, paths, 0)

    async def _handle(self, op: str, fh: int, size_bytes: int = 0) -> None:
        await self._gate.enter(op, lambda: (self._backing.place(fh),), size_bytes)

    # -- names

    @answers
    async def lookup(self, parent: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        await self._entry("lookup", (parent, name))
        return _attributes(self._backing.lookup(parent, name))

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for inode, lookups in inode_list:
            self._backing.forget(inode, lookups)

    @answers
    async def mkdir(
        self, parent: int, name: bytes, mode: int, ctx: RequestContext
    ) -> EntryAttributes:
        await self._entry("mkdir", (parent, name))
        os.mkdir(name, mode & ~ctx.umask, dir_fd=self._backing.fd(parent))
        return self._new(parent, name, ctx)

    @answers
    async def mknod(
        self, parent: int, name: bytes, mode: int, rdev: int, ctx: RequestContext
    ) -> EntryAttributes:
        await self._entry("mknod", (parent, name))
        os.mknod(name, mode & ~ctx.umask, rdev, dir_fd=self._backing.fd(parent))
        return self._new(parent, name, ctx)

    @answers
    async def symlink(
        self, parent: int, name: bytes, target: bytes, ctx: RequestContext
    ) -> EntryAttributes:
        await self._entry("symlink", (parent, name))
        os.symlink(target, name, dir_fd=self._backing.fd(parent))
        return self._new(parent, name, ctx)

    @answers
    async def link(
        self, inode: int, parent: int, name: bytes, ctx: RequestContext
    ) -> EntryAttributes:
        await self._entry("link", (parent, name))
        os.link(self._backing.path(inode), name, dst_dir_fd=self._backing.fd(parent))
        return _attributes(self._backing.lookup(parent, name))

    @answers
    async def unlink(self, parent: int, name: bytes, ctx: RequestContext) -> None:
        await self._entry("unlink", (parent, name))
        os.unlink(name, dir_fd=self._backing.fd(parent))

    @answers
    async def rmdir(self, parent: int, name: bytes, ctx: RequestContext) -> None:
        await self._entry("rmdir", (parent, name))
        os.rmdir(name, dir_fd=self._backing.fd(parent))

    @answers
    async def rename(
        self, old_at: int, old: bytes, new_at: int, new: bytes, flags: int, ctx: RequestContext
    ) -> None:
        await self._entry("rename", (old_at, old), (new_at, new))
        rename((self._backing.fd(old_at), old), (self._backing.fd(new_at), new), flags)

    @answers
    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        await self._inode("readlink", inode)
        return os.readlink(b"", dir_fd=self._backing.fd(inode))

    def _new(self, parent: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        """The entry just made, given to the caller as the kernel would have done."""
        self._give(name, parent, ctx)
        return _attributes(self._backing.lookup(parent, name))

    def _give(self, name: bytes, parent: int, ctx: RequestContext) -> None:
        if not self._as_root:
            return
        directory = os.fstat(self._backing.fd(parent))
        gid = directory.st_gid if directory.st_mode & stat.S_ISGID else ctx.gid
        os.chown(name, ctx.uid, gid, dir_fd=self._backing.fd(parent), follow_symlinks=False)

    # -- attributes

    @answers
    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        await self._inode("getattr", inode)
        return _attributes(os.fstat(self._backing.fd(inode)))

    @answers
    async def setattr(
        self,
        inode: int,
        attr: EntryAttributes,
        fields: SetattrFields,
        fh: int | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        await self._inode("truncate" if fields.update_size else "setattr", inode)
        path = self._backing.path(inode)
        if fields.update_size:
            os.truncate(path if fh is None else fh, attr.st_size)
        if fields.update_uid or fields.update_gid:
            uid = attr.st_uid if fields.update_uid else -1
            os.chown(path, uid, attr.st_gid if fields.update_gid else -1)
        if fields.update_mode:
            os.chmod(path, stat.S_IMODE(attr.st_mode))
        if fields.update_atime or fields.update_mtime:
            self._set_times(inode, attr, fields)
        return _attributes(os.fstat(self._backing.fd(inode)))

    def _set_times(self, inode: int, attr: EntryAttributes, fields: SetattrFields) -> None:
        old = os.fstat(self._backing.fd(inode))
        atime_ns = attr.st_atime_ns if fields.update_atime else old.st_atime_ns
        mtime_ns = attr.st_mtime_ns if fields.update_mtime else old.st_mtime_ns
        os.utime(self._backing.path(inode), ns=(atime_ns, mtime_ns))

    @answers
    async def access(self, inode: int, mode: int, ctx: RequestContext) -> bool:
        await self._inode("access", inode)
        return True  # the kernel checks permissions itself (default_permissions)

    @answers
    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        await self._inode("getxattr", inode)
        return os.getxattr(self._backing.path(inode), name)

    @answers
    async def listxattr(self, inode: int, ctx: RequestContext) -> list[bytes]:
        await self._inode("listxattr", inode)
        return [os.fsencode(name) for name in os.listxattr(self._backing.path(inode))]

    @answers
    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        await self._inode("setxattr", inode)
        os.setxattr(self._backing.path(inode), name, value)

    @answers
    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        await self._inode("removexattr", inode)
        os.removexattr(self._backing.path(inode), name)

    @answers
    async def statfs(self, ctx: RequestContext) -> pyfuse3.StatvfsData:
        await self._inode("statfs", ROOT)
        values = os.statvfs(self._backing.path(ROOT))
        reply = pyfuse3.StatvfsData()
        for key in _STATFS:
            setattr(reply, key, getattr(values, key))
        return reply

    # -- files

    @answers
    async def create(
        self, parent: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        await self._entry("create", (parent, name))
        fh = self._create(parent, name, mode & ~ctx.umask, flags, ctx)
        try:
            attributes = self._backing.adopt(os.open(f"/proc/self/fd/{fh}", os.O_PATH))
        except OSError:
            os.close(fh)
            raise
        return FileInfo(fh=fh), _attributes(attributes)

    def _create(self, parent: int, name: bytes, mode: int, flags: int, ctx: RequestContext) -> int:
        at = self._backing.fd(parent)
        wanted = _flags(flags) | os.O_NOFOLLOW
        try:
            fh = os.open(name, wanted | os.O_CREAT | os.O_EXCL, mode, dir_fd=at)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            return os.open(name, wanted, dir_fd=at)  # made by someone else since the lookup
        self._give(name, parent, ctx)
        return fh

    @answers
    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        await self._inode("open", inode)
        return FileInfo(fh=os.open(self._backing.path(inode), _flags(flags)))

    @answers
    async def read(self, fh: int, off: int, size: int) -> bytes:
        await self._handle("read", fh)
        return os.pread(fh, size, off)

    @answers
    async def write(self, fh: int, off: int, buf: bytes) -> int:
        await self._handle("write", fh, len(buf))
        return os.pwrite(fh, buf, off)

    @answers
    async def flush(self, fh: int) -> None:
        await self._handle("flush", fh)
        os.close(os.dup(fh))  # some file systems report errors of writing only at close

    @answers
    async def fsync(self, fh: int, datasync: bool) -> None:
        await self._handle("fsync", fh)
        await trio.to_thread.run_sync(os.fdatasync if datasync else os.fsync, fh)

    @answers
    async def release(self, fh: int) -> None:
        os.close(fh)

    # -- directories

    @answers
    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        await self._inode("opendir", inode)
        return os.open(self._backing.path(inode), os.O_RDONLY | os.O_DIRECTORY)

    @answers
    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        await self._handle("readdir", fh)
        if start_id == 0:
            self._listings[fh] = [os.fsencode(name) for name in os.listdir(fh)]
        for number, name in enumerate(self._listings[fh][start_id:], start_id + 1):
            if not self._list(fh, name, token, number):
                break

    def _list(self, fh: int, name: bytes, token: pyfuse3.ReaddirToken, next_id: int) -> bool:
        """Put one entry into the reply; False when it is full."""
        try:
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=fh)
        except FileNotFoundError:
            return True  # deleted since the listing was taken
        attributes = self._backing.adopt(fd)
        if pyfuse3.readdir_reply(token, name, _attributes(attributes), next_id):
            return True
        self._backing.forget(attributes.st_ino, 1)
        return False

    @answers
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        await self._handle("fsyncdir", fh)
        await trio.to_thread.run_sync(os.fsync, fh)

    @answers
    async def releasedir(self, fh: int) -> None:
        self._listings.pop(fh, None)
        os.close(fh)


def _attributes(values: os.stat_result) -> EntryAttributes:
    entry = EntryAttributes()
    for key in _ATTRIBUTES:
        setattr(entry, key, getattr(values, key))
    entry.entry_timeout = entry.attr_timeout = 0
    return entry


def _flags(flags: int) -> int:
    # O_DIRECT wants aligned memory, which pyfuse3's buffers are not.
    return flags & ~(os.O_DIRECT | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
