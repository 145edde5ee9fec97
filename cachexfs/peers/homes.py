"""The homes of directories, as one node asks them.

Every directory has `HOMES` homes, by rendezvous hashing over the members: who asks and who is asked
come to the same ones without asking anybody. What is registered goes to all of them; what is asked
is asked of all of them at once, and the entry that counts is taken. So a question costs `HOMES`
messages, whatever the size of the cluster, and one home may be dead, or have forgotten.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import trio

from cachexfs.config import Member
from cachexfs.peers import messages as m
from cachexfs.peers.caller import Caller, CallFailed
from cachexfs.peers.greeting import Identity
from cachexfs.peers.membership import Membership
from cachexfs.peers.rendezvous import first

HOMES = 2
WAIT_S = 0.5
"""The longest that a close, a rename or a lookup waits for a home that does not answer; it is not
waited for again before it has answered."""
NEGATIVE_S = 0.1
"""How long "nobody has this name" and "this directory is quiet" are believed: the longest that what
another node closed stays unseen by one that looked just before."""
REMEMBERED = 16_384
AT_ONCE = 256
"""Names in one message at most."""

T = TypeVar("T")
log = logging.getLogger(__name__)


class Kept(NamedTuple):
    """What became of entries. `beaten_by`: those of others that count instead, by name; `homes`:
    how many have heard."""

    beaten_by: dict[bytes, m.Entry]
    homes: int


class Homes:
    """The homes of one volume's directories. Made inside the nursery that runs its connections."""

    def __init__(
        self,
        volume: str,
        members: Sequence[Member],
        identity: Identity,
        nursery: trio.Nursery,
        on_superseded: Callable[[int, m.Entry], None] = lambda directory, entry: None,
        on_back: Callable[[str], None] = lambda name: None,
        on_time: Callable[[int], None] = lambda at_ns: None,
    ) -> None:
        self.volume = volume
        self._identity = identity
        self._nursery = nursery
        self._on_superseded = on_superseded
        self._on_back = on_back
        self._on_time = on_time
        self._members: dict[str, Member] = {}
        self._callers: dict[str, Caller] = {}
        self._known: OrderedDict[int, tuple[str, ...]] = OrderedDict()
        self._absent: OrderedDict[tuple[int, bytes], float] = OrderedDict()
        self._quiet: OrderedDict[int, float] = OrderedDict()
        self._missed: dict[str, dict[tuple[int, bytes], m.Settled]] = {}
        """Home -> what it was not told to forget, by directory and name."""
        self.take(members)

    def take(self, members: Sequence[Member]) -> None:
        """These are the members now."""
        self._members = {member.name: member for member in members}
        self._known.clear()
        for name, caller in list(self._callers.items()):
            if self._members.get(name) != caller.member:
                caller.close()
                del self._callers[name]

    def of(self, directory: int) -> tuple[str, ...]:
        """The homes of a directory, by its number on the shared file system."""
        found = self._known.get(directory)
        if found is None:
            key = f"{self.volume}\0{directory}".encode()
            found = self._known[directory] = tuple(first(key, self._members, HOMES))
            _bound(self._known)
        return found

    @property
    def sent(self) -> int:
        """Messages sent so far."""
        return sum(caller.sent for caller in self._callers.values())

    def is_dead(self, name: str) -> bool:
        """Whether a home has not answered of late."""
        return name in self._callers and self._callers[name].is_dead

    async def register(
        self, directory: int, entries: list[m.Entry], only: Iterable[str] | None = None
    ) -> Kept:
        """Have entries kept."""
        answers = await self._ask_all(
            directory, lambda number: m.Register(number, self.volume, directory, entries), only
        )
        beaten_by: dict[bytes, m.Entry] = {}
        for answer in answers:
            if isinstance(answer, m.Registered):
                _merge(beaten_by, answer.beaten_by)
        return Kept(beaten_by, len(answers))

    async def introduce(self, node: str, directory: int, entry: m.Entry) -> None:
        """Have an entry kept by one member, which need not be a home; by the homes if it is none.

        It is not told again before `on_back` says so.
        """
        names = (node,) if node in self._members else self.of(directory)
        await self._ask_these(
            names, lambda number: m.Register(number, self.volume, directory, [entry])
        )

    async def forget(self, directory: int, names: list[tuple[bytes, int]]) -> None:
        """Names that count no more, up to these stamps, and that nobody here has published."""
        await self.settle(directory, [m.Settled(name, stamp) for name, stamp in names])

    async def settle(self, directory: int, settled: list[m.Settled]) -> None:
        """The shared file system agrees on these names.

        A home that does not answer is told when it does: what was registered may have reached it,
        or be on its way still; and others may have told it something else meanwhile.
        """
        names = [(each.name, each.stamp) for each in settled]
        for home in self.of(directory):
            if not await self._ask_all(
                directory, lambda number: m.Forget(number, self.volume, directory, names), [home]
            ):
                self._miss(home, directory, settled)

    def _miss(self, home: str, directory: int, settled: list[m.Settled]) -> None:
        missed = self._missed.setdefault(home, {})
        missed.update(((directory, each.name), each) for each in settled)
        while len(missed) > REMEMBERED:
            del missed[next(iter(missed))]

    async def _catch_up(self, home: str) -> None:
        """Tell a home what it has missed."""
        by_directory: dict[int, list[m.Settled]] = {}
        for (directory, _), settled in self._missed.pop(home, {}).items():
            by_directory.setdefault(directory, []).append(settled)
        for directory, all_of_it in by_directory.items():
            for begin in range(0, len(all_of_it), AT_ONCE):
                await self._tell_missed(home, directory, all_of_it[begin : begin + AT_ONCE])

    async def _tell_missed(self, home: str, directory: int, settled: list[m.Settled]) -> None:
        answers = await self._ask_all(
            directory, lambda number: m.Missed(number, self.volume, directory, settled), [home]
        )
        if not answers:
            self._miss(home, directory, settled)
        for answer in answers:
            for entry in answer.beaten_by if isinstance(answer, m.Registered) else ():
                self._on_superseded(directory, entry)

    def _is_back(self, home: str) -> None:
        self._nursery.start_soon(self._catch_up, home)
        self._on_back(home)

    async def find(self, directory: int, name: bytes, *, on_source: bool) -> m.Entry | None:
        """What counts for a name. `on_source`: the shared file system has it too.

        Then a directory in which nobody has registered anything need not be asked about each name.
        """
        now_s = trio.current_time()
        if self._absent.get((directory, name), 0.0) > now_s:
            return None
        if on_source and self._quiet.get(directory, 0.0) > now_s:
            return None
        answers = await self._ask_all(
            directory, lambda number: m.Find(number, self.volume, directory, name)
        )
        entry = _merged(answers).get(name)
        until_s = trio.current_time() + NEGATIVE_S
        if entry is None:
            _remember(self._absent, (directory, name), until_s)
        if not any(isinstance(a, m.Found) and a.in_directory for a in answers):
            _remember(self._quiet, directory, until_s)
        return entry

    async def all_in(self, directory: int) -> dict[bytes, m.Entry]:
        """What counts for every name of a directory that is registered."""
        found: dict[bytes, m.Entry] = {}
        after: bytes | None = b""
        while after is not None:
            answers = await self._part_of(directory, after)
            _merge(found, _merged(answers).values())
            after = _next(answers, after)
        return found

    async def _part_of(self, directory: int, after: bytes) -> list[m.Message]:
        return await self._ask_all(
            directory, lambda number: m.FindAll(number, self.volume, directory, after)
        )

    def unsettle(self, directory: int) -> None:
        """Something was registered from here: the directory is not quiet any more."""
        self._quiet.pop(directory, None)

    async def _ask_all(
        self,
        directory: int,
        make: Callable[[int], m.Message],
        only: Iterable[str] | None = None,
    ) -> list[m.Message]:
        """The answers of the homes that answer, at once or not at all."""
        names = [name for name in self.of(directory) if only is None or name in only]
        return await self._ask_these(names, make)

    async def _ask_these(
        self, names: Iterable[str], make: Callable[[int], m.Message]
    ) -> list[m.Message]:
        callers = [self._caller(name) for name in names]
        answers: list[m.Message] = []

        async def ask(caller: Caller) -> None:
            try:
                answers.append(await caller.ask(make, WAIT_S))
            except CallFailed as error:
                log.debug("%s", error)

        alive = [caller for caller in callers if not caller.is_dead]
        await _together([_later(ask, caller) for caller in alive])
        return answers

    def _caller(self, name: str) -> Caller:
        caller = self._callers.get(name)
        if caller is None:
            caller = self._callers[name] = Caller(
                self._members[name],
                self._identity,
                self._nursery,
                self._pushed,
                lambda: self._is_back(name),
                self._on_time,
            )
        return caller

    def _pushed(self, message: m.Message) -> None:
        if isinstance(message, m.Superseded) and message.volume == self.volume:
            self._absent.pop((message.directory, message.entry.name), None)
            self._on_superseded(message.directory, message.entry)


class Towns:
    """The homes of every volume that is asked about."""

    def __init__(self, membership: Membership, identity: Identity, nursery: trio.Nursery) -> None:
        self._membership = membership
        self._identity = identity
        self._nursery = nursery
        self._by_volume: dict[str, Homes] = {}
        membership.listen(self._changed)

    def of(self, volume: str) -> Homes | None:
        """The homes of a volume; None without members."""
        if not self._membership.members:
            return None
        if volume not in self._by_volume:
            members = self._membership.members
            self._by_volume[volume] = Homes(volume, members, self._identity, self._nursery)
        return self._by_volume[volume]

    def _changed(self, members: Sequence[Member]) -> None:
        for homes in self._by_volume.values():
            homes.take(members)


def _later(call: Callable[[T], Awaitable[None]], value: T) -> Callable[[], Awaitable[None]]:
    return lambda: call(value)


async def _together(calls: list[Callable[[], Awaitable[None]]]) -> None:
    if len(calls) == 1:
        await calls[0]()
        return
    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(call)


def _merged(answers: Iterable[m.Message]) -> dict[bytes, m.Entry]:
    found: dict[bytes, m.Entry] = {}
    for answer in answers:
        if isinstance(answer, m.Found):
            _merge(found, answer.entries)
    return found


def _merge(found: dict[bytes, m.Entry], entries: Iterable[m.Entry]) -> None:
    for entry in entries:
        held = found.get(entry.name)
        if held is None or held.rank < entry.rank or _knows_more(entry, held):
            found[entry.name] = entry


def _knows_more(entry: m.Entry, held: m.Entry) -> bool:
    """Of the same change, one may know of more holders, or of the checksums."""
    is_same = entry.rank == held.rank
    return is_same and (len(entry.holders), len(entry.replica.crcs)) > (
        len(held.holders), len(held.replica.crcs),
    )  # fmt: skip


def _next(answers: Iterable[m.Message], after: bytes) -> bytes | None:
    """Where the next part of a listing begins: where the first home stopped that has more."""
    ends = [
        answer.entries[-1].name
        for answer in answers
        if isinstance(answer, m.Found) and answer.more and answer.entries
    ]
    return min(ends) if ends and min(ends) > after else None


K = TypeVar("K")


def _remember(table: OrderedDict[K, float], key: K, until_s: float) -> None:
    table[key] = until_s
    table.move_to_end(key)
    _bound(table)


def _bound(table: OrderedDict[K, T]) -> None:
    if len(table) > REMEMBERED:
        table.popitem(last=False)
